//! Events of sinks: requests, lines written, rotations, trouble and its end.
//!
//! No event holds a body, a header's value, or more of a URL than its origin: tokens stand in all of them. Paths of files
//! go to the log only.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::{Name, Registry, words};
use crate::{Event, Metrics};

words!(RequestResult, ReleaseCause);

/// The metric families that these events move.
#[derive(Debug)]
pub(crate) struct Families {
    in_trouble: Family<SinkLabel, Gauge>,
    requests: Family<RequestLabels, Counter>,
    retries: Family<SinkLabel, Counter>,
    released: Family<ReleaseLabels, Counter>,
    written_lines: Family<SinkLabel, Counter>,
    written_bytes: Family<SinkLabel, Counter>,
    rotations: Family<SinkLabel, Counter>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SinkLabel {
    sink: Name,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RequestLabels {
    sink: Name,
    result: RequestResult,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReleaseLabels {
    sink: Name,
    cause: ReleaseCause,
}

/// How a request to a server ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RequestResult {
    /// The server took it: 2xx.
    Accepted,
    /// The server will never take it: 4xx.
    Refused,
    /// The server answered with something that is neither: 3xx and what is unknown.
    Odd,
    /// The server wants fewer requests: 429.
    Throttled,
    /// The server is in trouble: 5xx and 408.
    Failed,
    /// No answer in time.
    TimedOut,
    /// The connection could not be made, or broke, or what came over it is no HTTP.
    Broken,
}

/// Why a sink gave deliveries back.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ReleaseCause {
    /// Their leases were over before they could be delivered.
    LeaseOver,
    /// An earlier one of their ordered key was given back.
    Overtaken,
    /// The flow was draining and there was no time to try again.
    Draining,
}

impl Families {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            in_trouble: Family::default(),
            requests: Family::default(),
            retries: Family::default(),
            released: Family::default(),
            written_lines: Family::default(),
            written_bytes: Family::default(),
            rotations: Family::default(),
        };
        let area = registry.sub_registry_with_prefix("sink");
        area.register(
            "in_trouble",
            "Whether a sink cannot do its work now and tries again, 0 or 1",
            families.in_trouble.clone(),
        );
        area.register("requests", "Requests to servers, by result", families.requests.clone());
        area.register("retries", "Times that work was tried again", families.retries.clone());
        area.register(
            "released",
            "Deliveries that a sink gave back undelivered, by cause",
            families.released.clone(),
        );
        area.register(
            "written_lines",
            "Lines written to files and durable there",
            families.written_lines.clone(),
        );
        area.register("written_bytes", "Bytes of those lines", families.written_bytes.clone());
        area.register(
            "rotations",
            "Files that were full or old and were set aside",
            families.rotations.clone(),
        );
        families
    }
}

/// A sink begins.
#[derive(Debug)]
pub struct Began<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
}

impl Event for Began<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.sink.in_trouble.get_or_create(&SinkLabel { sink: self.sink.into() }).set(0);
        tracing::debug!(sink = %self.sink, "the sink is there");
    }
}

/// A sink ends, in trouble or not.
#[derive(Debug)]
pub struct Ended<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
}

impl Event for Ended<'_> {
    fn record(self, metrics: &Metrics) {
        // What has ended is in nobody's way any more.
        metrics.sink.in_trouble.get_or_create(&SinkLabel { sink: self.sink.into() }).set(0);
        tracing::debug!(sink = %self.sink, "the sink has ended");
    }
}

/// A sink cannot do its work.
#[derive(Debug)]
pub struct TroubleBegan<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
    /// What is wrong, in one sentence without the full stop.
    pub detail: &'a str,
}

impl Event for TroubleBegan<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.sink.in_trouble.get_or_create(&SinkLabel { sink: self.sink.into() }).set(1);
        tracing::warn!(
            sink = %self.sink,
            "the sink is in trouble: {}; what it holds is tried again until its leases end",
            self.detail
        );
    }
}

/// A sink does its work again.
#[derive(Debug)]
pub struct TroubleEnded<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
    /// For how long it could not.
    pub lasted: Duration,
}

impl Event for TroubleEnded<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.sink.in_trouble.get_or_create(&SinkLabel { sink: self.sink.into() }).set(0);
        tracing::info!(sink = %self.sink, lasted_ms = self.lasted.as_secs_f64() * 1e3, "the sink works again");
    }
}

/// A request ended.
#[derive(Debug)]
pub struct Requested<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
    /// How.
    pub result: RequestResult,
    /// The answer's status, if there was an answer.
    pub status: Option<u16>,
    /// Deliveries in it.
    pub deliveries: usize,
    /// How long it took.
    pub took: Duration,
}

impl Event for Requested<'_> {
    fn record(self, metrics: &Metrics) {
        let labels = RequestLabels { sink: self.sink.into(), result: self.result };
        metrics.sink.requests.get_or_create(&labels).inc();
        tracing::debug!(
            sink = %self.sink,
            result = ?self.result,
            status = self.status,
            deliveries = self.deliveries,
            took_ms = self.took.as_secs_f64() * 1e3,
            "a sink's request ended"
        );
    }
}

/// Something did not work and is tried again.
#[derive(Debug)]
pub struct Retried<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
    /// Why, in one sentence without the full stop.
    pub detail: &'a str,
    /// How often that has been so for the same work.
    pub failures: u32,
    /// When it is tried again.
    pub again_in: Duration,
}

impl Event for Retried<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.sink.retries.get_or_create(&SinkLabel { sink: self.sink.into() }).inc();
        tracing::debug!(
            sink = %self.sink,
            failures = self.failures,
            again_in_ms = self.again_in.as_secs_f64() * 1e3,
            "{}",
            self.detail
        );
    }
}

/// A sink gave deliveries back undelivered.
#[derive(Debug)]
pub struct Released<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
    /// Why.
    pub cause: ReleaseCause,
    /// How many.
    pub deliveries: usize,
}

impl Event for Released<'_> {
    fn record(self, metrics: &Metrics) {
        let labels = ReleaseLabels { sink: self.sink.into(), cause: self.cause };
        metrics.sink.released.get_or_create(&labels).inc_by(self.deliveries as u64);
        tracing::debug!(
            sink = %self.sink,
            cause = ?self.cause,
            deliveries = self.deliveries,
            "the sink gave deliveries back"
        );
    }
}

/// Lines were written.
#[derive(Debug)]
pub struct Written<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
    /// How many.
    pub lines: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Event for Written<'_> {
    fn record(self, metrics: &Metrics) {
        let label = SinkLabel { sink: self.sink.into() };
        metrics.sink.written_lines.get_or_create(&label).inc_by(self.lines);
        metrics.sink.written_bytes.get_or_create(&label).inc_by(self.bytes);
    }
}

/// A file was full or old and was set aside.
#[derive(Debug)]
pub struct Rotated<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
    /// What it is called now.
    pub file: &'a Path,
    /// Its size.
    pub bytes: u64,
}

impl Event for Rotated<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.sink.rotations.get_or_create(&SinkLabel { sink: self.sink.into() }).inc();
        tracing::info!(sink = %self.sink, file = %self.file.display(), bytes = self.bytes, "file set aside");
    }
}

/// A file that was set aside earlier and is one too many was removed, or could not be.
#[derive(Debug)]
pub struct Removed<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
    /// Which.
    pub file: &'a Path,
    /// Why it is still there, when it is.
    pub error: Option<&'a str>,
}

impl Event for Removed<'_> {
    fn record(self, _metrics: &Metrics) {
        let file = self.file.display();
        match self.error {
            None => tracing::info!(sink = %self.sink, %file, "old file removed"),
            Some(error) => {
                tracing::warn!(sink = %self.sink, %file, "an old file cannot be removed, and stays: {error}");
            }
        }
    }
}

/// A file did not end with a whole line; the rest of it was never accepted, and comes again.
#[derive(Debug)]
pub struct TailCut<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
    /// Which.
    pub file: &'a Path,
    /// How much was cut off.
    pub bytes: u64,
}

impl Event for TailCut<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::warn!(
            sink = %self.sink,
            file = %self.file.display(),
            bytes = self.bytes,
            "the file ended within a line, which was cut off: it had not been accepted and comes again"
        );
    }
}

/// Somebody else moved, removed or changed the file that was being written.
#[derive(Debug)]
pub struct MovedAway<'a> {
    /// The sink.
    pub sink: &'a Arc<str>,
    /// Where it was.
    pub file: &'a Path,
}

impl Event for MovedAway<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::warn!(
            sink = %self.sink,
            file = %self.file.display(),
            "the file was moved, removed or changed by somebody else and is opened anew"
        );
    }
}
