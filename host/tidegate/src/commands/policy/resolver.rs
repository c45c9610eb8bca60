//! `tidegate policy run` for credential resolvers: whom the host would be, without the secret itself.

use anyhow::anyhow;
use serde_json::{Value, json};
use tidegate_connector::secret::{Purpose, Secret};
use tidegate_connector::units::format_duration;
use tidegate_policy::{PolicySpec, ResolveFailure, Resolved, World};

use super::run::{json as call_json, show};
use super::subject::open;
use crate::cli::PurposeName;
use crate::exit::Failure;
use crate::output::Output;

pub(super) fn run(
    spec: &PolicySpec,
    endpoint: &str,
    purpose: PurposeName,
    output: &Output,
) -> Result<(), Failure> {
    let (workbench, mut probe) = open(spec)?;
    if workbench.world() != World::CredentialResolver {
        return Err(Failure::config(anyhow!(
            "it is a `{}`, and only resolvers are asked about endpoints",
            workbench.world()
        )));
    }
    let started =
        probe.start().map_err(|failure| Failure::runtime(anyhow!("it does not start: {failure}")))?;
    let trace = probe.resolve(endpoint, purpose.into());
    if output.is_json() {
        let answer = match &trace.answer {
            Ok(answer) => json(answer),
            Err(failure) => json!({ "error": failure }),
        };
        output.data(&call_json(&trace, answer, started).to_string());
    } else {
        show(&trace, told, output);
    }
    match trace.answer {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(Failure::runtime(anyhow!("there is no secret for `{endpoint}`"))),
        Err(_) => Err(Failure::runtime(anyhow!("the policy failed"))),
    }
}

fn told(answer: &Result<Resolved, ResolveFailure>) -> String {
    match answer {
        Ok(resolved) => {
            let valid = match resolved.valid_for {
                Some(valid_for) => format!("for {}", format_duration(valid_for)),
                None => "until there is another".to_owned(),
            };
            let (kind, public) = outside(&resolved.secret);
            let whose = public.map(|public| format!(" {public}")).unwrap_or_default();
            format!("{kind}{whose}, valid {valid}; what is secret of it is not shown")
        }
        Err(failure) => format!("{}: {}", failure.kind.label(), failure.detail),
    }
}

fn json(answer: &Result<Resolved, ResolveFailure>) -> Value {
    match answer {
        Ok(resolved) => {
            let (kind, public) = outside(&resolved.secret);
            let valid = resolved.valid_for.map(|valid| u64::try_from(valid.as_millis()).unwrap_or(u64::MAX));
            json!({ "secret": kind, "whose": public, "valid-for-ms": valid })
        }
        Err(failure) => json!({ "failure": failure.kind.label(), "detail": failure.detail }),
    }
}

/// What may be shown of a secret: its kind, and the name in it.
fn outside(secret: &Secret) -> (&'static str, Option<String>) {
    match secret {
        Secret::None => ("none", None),
        Secret::AccessKey(key) => ("access-key", Some(key.access_key().to_owned())),
        Secret::Login { username, .. } => ("login", Some(username.to_string())),
        Secret::Bearer(_) => ("bearer", None),
        Secret::Identity { .. } => ("identity", None),
    }
}

impl From<PurposeName> for Purpose {
    fn from(name: PurposeName) -> Self {
        match name {
            PurposeName::Consume => Self::Consume,
            PurposeName::Produce => Self::Produce,
            PurposeName::Acknowledge => Self::Acknowledge,
            PurposeName::Registry => Self::Registry,
        }
    }
}
