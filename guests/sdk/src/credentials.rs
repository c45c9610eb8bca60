//! Whom the host is to a broker or another service.
//!
//! ```
//! use tidegate_guest::credentials::{CredentialResolver, Failure, Login, Request, Resolved, Secret};
//! use tidegate_guest::{Description, RuleError, Rules, env};
//!
//! /// A name from the rules with a password from the environment.
//! struct FromEnvironment {
//!     username: String,
//!     variable: String,
//! }
//!
//! impl CredentialResolver for FromEnvironment {
//!     fn describe() -> Description {
//!         Description::of("from-environment", env!("CARGO_PKG_VERSION"), "A password from the environment.")
//!             .text("username", "Who we are.", None)
//!             .required()
//!             .text("variable", "The variable that has the password.", Some("BROKER_PASSWORD"))
//!     }
//!
//!     fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
//!         let username = rules.text("username")?;
//!         let variable = rules.text("variable")?.unwrap_or_else(|| "BROKER_PASSWORD".into());
//!         Ok(Self { username: rules.required("username", username)?, variable })
//!     }
//!
//!     fn resolve(&mut self, _request: &Request) -> Result<Resolved, Failure> {
//!         let Some(password) = env::get(&self.variable) else {
//!             return Err(Failure::Denied(format!("`{}` is not set, or not granted", self.variable)));
//!         };
//!         let secret = Secret::Login(Login { username: self.username.clone(), password });
//!         Ok(Resolved { secret, valid_for: None })
//!     }
//! }
//!
//! tidegate_guest::credential_resolver!(FromEnvironment);
//! # fn main() {}
//! ```
//!
//! Where secrets come from is granted by the host's configuration: environment variables by name
//! ([`env`](crate::env)), directories ([`files`](crate::files)), hosts to ask ([`http`](crate::http)). A resolver
//! imports those only that its code calls. [`ByEndpoint`] reads rules that differ by endpoint, [`Parts`] puts a secret
//! together. Texts of failures and lines of the log must hold no secret.

mod by_endpoint;
mod parts;

use crate::{Description, RuleError, Rules};

pub use by_endpoint::{ByEndpoint, describe_entries, purpose_name, valid_for};
pub use parts::Parts;

pub use crate::bindings::credentials::{
    AccessKey, Failure, Identity, Login, Purpose, Request, Resolved, Secret,
};

/// A policy that says whom the host is at an endpoint. The [module](self) has an example.
pub trait CredentialResolver: Sized + 'static {
    /// What the policy is and what its rules may set. The host refuses rules that do not fit it.
    fn describe() -> Description;

    /// Makes the policy from its rules. Every key is taken out of `rules`; those that are left are refused.
    ///
    /// # Errors
    /// When a rule makes no sense. The host then keeps what ran before.
    fn configure(rules: &mut Rules) -> Result<Self, RuleError>;

    /// Finds the secret. Asked in the background, and again before what it answered ends.
    ///
    /// # Errors
    /// When there is none to be had now, or none at all. The text reaches logs: it must hold no secret.
    fn resolve(&mut self, request: &Request) -> Result<Resolved, Failure>;
}
