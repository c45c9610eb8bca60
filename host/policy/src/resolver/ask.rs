//! Asking a policy of the engine.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tidegate_connector::secret::{AccessKey, Purpose, Secret};

use super::{FailureKind, Resolve, ResolveFailure, Resolved};
use crate::answer_kind::AnswerKind;
use crate::bindings::v1::credentials;
use crate::caller::{Caller, Occasion};
use crate::policy::Policy;

/// Longer lives than this are cut to it; longer ones than a host's own life mean nothing.
const VALID_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A policy of the engine as the one that answers.
pub(crate) struct PolicyAsker(Caller);

impl PolicyAsker {
    pub(crate) fn new(policy: &Arc<Policy>) -> Self {
        Self(Caller::new(policy))
    }
}

impl Resolve for PolicyAsker {
    fn resolve(&mut self, endpoint: &str, purpose: Purpose) -> Result<Resolved, ResolveFailure> {
        let engine = self.0.policy().engine.clone();
        let clock = engine.clock();
        let now = clock.now();
        let occasion = Occasion { now, wall: clock.wall(), seed: engine.next_seed(), message: None };
        let request = credentials::Request { endpoint: endpoint.to_owned(), purpose: purpose.into() };
        let kind = |answer: &Result<Resolved, ResolveFailure>| match answer {
            Ok(_) => AnswerKind::Resolved,
            Err(_) => AnswerKind::Unresolved,
        };
        let answer = self.0.call(&occasion, kind, |instance, limits, moment| {
            // Reading an answer takes longer than a decision, and nobody waits for it.
            let until = now + limits.resolve_timeout;
            let answer = instance.resolve(limits.start_deadline, until, moment, &request)?;
            Ok(answer.map(Resolved::from).map_err(ResolveFailure::from))
        });
        answer.unwrap_or_else(|cause| {
            let detail = format!("it could not be asked ({cause}); its status and the log say more");
            Err(ResolveFailure { kind: FailureKind::Unavailable, detail })
        })
    }

    fn generation(&self) -> u64 {
        self.0.policy().generation_number()
    }
}

impl From<Purpose> for credentials::Purpose {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Consume => Self::Consume,
            Purpose::Produce => Self::Produce,
            Purpose::Acknowledge => Self::Acknowledge,
            Purpose::Registry => Self::Registry,
        }
    }
}

impl From<credentials::Resolved> for Resolved {
    fn from(resolved: credentials::Resolved) -> Self {
        let secret = match resolved.secret {
            credentials::Secret::None => Secret::None,
            credentials::Secret::AccessKey(keys) => {
                let mut key = AccessKey::new(keys.id, SecretString::from(keys.secret));
                if let Some(token) = keys.session_token {
                    key = key.with_session_token(SecretString::from(token));
                }
                Secret::AccessKey(Arc::new(key))
            }
            credentials::Secret::Login(login) => Secret::Login {
                username: login.username.into(),
                password: SecretString::from(login.password),
            },
            credentials::Secret::Bearer(token) => Secret::Bearer(SecretString::from(token)),
            credentials::Secret::Identity(identity) => Secret::Identity {
                certificate_chain: identity.certificate_chain.into(),
                private_key: SecretString::from(identity.private_key),
            },
        };
        let valid_for = resolved.valid_for.map(|millis| Duration::from_millis(millis).min(VALID_MAX));
        Self { secret, valid_for }
    }
}

impl From<credentials::Failure> for ResolveFailure {
    fn from(failure: credentials::Failure) -> Self {
        let (kind, detail) = match failure {
            credentials::Failure::Unavailable(detail) => (FailureKind::Unavailable, detail),
            credentials::Failure::Denied(detail) => (FailureKind::Denied, detail),
            credentials::Failure::Other(detail) => (FailureKind::Other, detail),
        };
        Self { kind, detail }
    }
}
