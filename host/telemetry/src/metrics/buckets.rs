//! Bucket bounds shared by histograms of one kind, fixed so that hosts and versions can be added up.

use prometheus_client::metrics::histogram::Histogram;

/// Seconds of work inside the process, such as one call of a policy: from 250 ns, about a call of a reused instance,
/// to 16 ms, some times the default deadline of 5 ms.
const CALL_SECONDS: [f64; 11] = [250e-9, 500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 50e-6, 250e-6, 1e-3, 5e-3, 16e-3];

/// A histogram of seconds of work inside the process.
pub(crate) fn call_seconds() -> Histogram {
    Histogram::new(CALL_SECONDS)
}
