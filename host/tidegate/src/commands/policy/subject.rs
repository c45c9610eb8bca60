//! Which policy a command is about: a file, or what the configuration says under a name, or both.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tidegate_connector::options::nearest;
use tidegate_pipeline::{policy_spec, policy_specs};
use tidegate_policy::{LoadError, PolicySpec, Probe, RulesFrom, Workbench};

use super::engine;
use crate::catalog;
use crate::cli::{Settings, Subject};
use crate::exit::Failure;

impl Subject {
    /// The policy, as the engine wants it.
    pub(super) fn spec(&self) -> Result<PolicySpec, Failure> {
        self.settings.spec(self.component.as_deref())
    }
}

impl Settings {
    /// The policy of the configuration with another component and other rules, if those are given; or the component
    /// alone.
    pub(super) fn spec(&self, component: Option<&Path>) -> Result<PolicySpec, Failure> {
        let mut spec = match (&self.policy, component) {
            (Some(name), _) => self.configured(name)?,
            (None, Some(component)) => {
                let name = component.file_stem().unwrap_or_default().to_string_lossy();
                PolicySpec::new(name, component)
            }
            // The arguments were checked for it.
            (None, None) => return Err(Failure::config(anyhow!("no component is named"))),
        };
        if let Some(component) = component
            && *component != *spec.component
        {
            component.clone_into(&mut spec.component);
            // The digest is that of the configured one.
            spec.sha256 = None;
        }
        if let Some(rules) = &self.rules {
            spec.rules = Some(rules.clone());
        }
        Ok(spec)
    }

    fn configured(&self, name: &str) -> Result<PolicySpec, Failure> {
        let config = catalog::read(&self.config)?;
        if let Some(used) = policy_specs(&config).into_iter().find(|spec| *spec.name == *name) {
            return Ok(used);
        }
        if let Some(policy) = config.policies.get(name) {
            return Ok(policy_spec(&Arc::from(name), policy, None));
        }
        let near = nearest(name, config.policies.keys().map(|name| &**name));
        let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        Err(Failure::config(anyhow!("`{}` has no policy `{name}`{hint}", self.config.display())))
    }
}

/// How long tools wait for the compiler: what a host's limit is about is not what they are about.
const PATIENCE: Duration = Duration::from_secs(600);

/// A policy that is only tried: its limits hold, but for the compiler's.
pub(super) fn patient(mut spec: PolicySpec) -> PolicySpec {
    spec.limits.compile_timeout = spec.limits.compile_timeout.max(PATIENCE);
    spec
}

/// A component that is only tried, with the limits that hold by default.
pub(super) fn tried(component: &Path) -> PolicySpec {
    let name = component.file_stem().unwrap_or_default().to_string_lossy();
    patient(PolicySpec::new(name, component))
}

/// Loads one policy with its rules, to be asked by hand.
pub(super) fn open(spec: &PolicySpec) -> Result<(Workbench, Probe), Failure> {
    let engine = engine(std::slice::from_ref(spec))?;
    let workbench = Workbench::open(&engine, spec).map_err(|error| refused(&spec.component, error))?;
    let rules = spec.rules.as_deref().map_or(RulesFrom::Nowhere, RulesFrom::File);
    let probe = workbench.with_rules(rules).map_err(|error| refused(&spec.component, error))?;
    Ok((workbench, probe))
}

pub(super) fn refused(component: &Path, error: LoadError) -> Failure {
    Failure::config(anyhow::Error::new(error).context(format!("`{}` does not load", component.display())))
}

/// Reads a file of text; `-` is standard input.
pub(super) fn read_text(path: &Path) -> Result<String, Failure> {
    let read = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    read.with_context(|| format!("cannot read `{}`", path.display())).map_err(Failure::config)
}
