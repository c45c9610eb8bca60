//! A registry that also says what has not happened yet.
//!
//! prometheus-client leaves families without a sample out of its text, so that the text of a fresh process names
//! hardly any metric, and nobody can write an alert before the first failure. This registry keeps the list itself and
//! describes those, too.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{self, Metric, Unit};

/// Metrics under a common prefix, with further prefixes below it.
#[derive(Debug)]
pub(crate) struct Registry {
    prefix: String,
    metrics: registry::Registry,
    descriptors: Vec<Descriptor>,
    areas: Vec<Self>,
}

/// One metric family.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Descriptor {
    /// Without the suffix of its samples, such as `tidegate_flow_received`.
    pub(crate) family: String,
    /// What comes behind that in the name of a sample, as dashboards and alerts know it. Histograms have several.
    pub(crate) suffix: &'static str,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub(crate) kind: &'static str,
    /// The end of the family's name, when it is a unit.
    pub(crate) unit: Option<String>,
    /// What it counts or measures, without the full stop.
    pub(crate) help: String,
}

impl Registry {
    pub(crate) fn new(prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        let metrics = registry::Registry::with_prefix(prefix.clone());
        Self { prefix, metrics, descriptors: Vec::new(), areas: Vec::new() }
    }

    /// Registers a metric; the full stop of `help` and the suffix of counters are the library's.
    pub(crate) fn register(&mut self, name: impl Into<String>, help: impl Into<String>, metric: impl Metric) {
        let (name, help) = (name.into(), help.into());
        self.describe(&name, &help, None, metric.metric_type());
        self.metrics.register(name, help, metric);
    }

    /// The same with a unit, which becomes part of the name.
    pub(crate) fn register_with_unit(
        &mut self,
        name: impl Into<String>,
        help: impl Into<String>,
        unit: Unit,
        metric: impl Metric,
    ) {
        let (name, help) = (name.into(), help.into());
        self.describe(&name, &help, Some(&unit), metric.metric_type());
        self.metrics.register_with_unit(name, help, unit, metric);
    }

    /// A part of the registry with a longer prefix: one per area.
    pub(crate) fn sub_registry_with_prefix(&mut self, area: &str) -> &mut Self {
        let at = self.areas.len();
        self.areas.push(Self::new(format!("{}_{area}", self.prefix)));
        &mut self.areas[at]
    }

    /// Every metric as OpenMetrics text, families without a sample included.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string has no way to fail; an encoder's own error would be a bug that the tests see.
        let encoded = self
            .encode_into(&mut text)
            .and_then(|()| self.encode_silent_into(&mut text))
            .and_then(|()| encode_eof(&mut text));
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        text
    }

    /// Everything registered, by name.
    pub(crate) fn descriptors(&self) -> Vec<Descriptor> {
        let mut all = self.descriptors.clone();
        all.extend(self.areas.iter().flat_map(Self::descriptors));
        all.sort();
        all
    }

    fn encode_into(&self, text: &mut String) -> fmt::Result {
        encode_registry(text, &self.metrics)?;
        self.areas.iter().try_for_each(|area| area.encode_into(text))
    }

    /// Describes the families that [`encode_registry`] leaves out.
    fn encode_silent_into(&self, text: &mut String) -> fmt::Result {
        let family_of = |line: &'_ str| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned);
        let told: HashSet<String> = text.lines().filter_map(family_of).collect();
        for Descriptor { family, kind, unit, help, .. } in self.descriptors() {
            if told.contains(&family) {
                continue;
            }
            writeln!(text, "# HELP {family} {help}.\n# TYPE {family} {kind}")?;
            if let Some(unit) = unit {
                writeln!(text, "# UNIT {family} {unit}")?;
            }
        }
        Ok(())
    }

    fn describe(&mut self, name: &str, help: &str, unit: Option<&Unit>, kind: MetricType) {
        let (suffix, kind) = match kind {
            MetricType::Counter => ("_total", "counter"),
            MetricType::Gauge => ("", "gauge"),
            MetricType::Histogram => ("", "histogram"),
            MetricType::Info => ("_info", "info"),
            MetricType::Unknown => ("", "unknown"),
        };
        let unit = unit.map(|unit| unit.as_str().to_owned());
        let family = match &unit {
            Some(unit) => format!("{}_{name}_{unit}", self.prefix),
            None => format!("{}_{name}", self.prefix),
        };
        self.descriptors.push(Descriptor { family, suffix, kind, unit, help: help.to_owned() });
    }
}
