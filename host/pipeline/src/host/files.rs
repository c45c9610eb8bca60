//! How many files and connections a configuration may need open at one time.

use tidegate_config::Config;
use tidegate_sinks::HttpOptions;

/// What every process has: its standard streams, its runtime, watched directories, policies that are read or compiled,
/// the file that is written next to another.
const OF_ITS_OWN: u64 = 64;
/// Of each flow with its source: a connection to each proxy and to each broker behind it, and one that is made anew.
const PER_FLOW: u64 = 16;
/// Of each sink that is not counted otherwise.
const PER_SINK: u64 = 8;

/// Of each peer: a connection, and one that is made anew.
const PER_PEER: u64 = 2;

/// The most files and connections that a host of this configuration may have open, its admin API aside. Generous where
/// a broker decides.
#[must_use]
pub fn open_files_max(config: &Config) -> u64 {
    let services = config.sinks.values().filter(|sink| is(sink, tidegate_handoff::TABLE.connector)).count();
    let flows = config.flows.values().map(|flow| {
        let sinks = flow.sinks.iter().chain(&flow.dead_letter).filter_map(|name| config.sinks.get(name));
        PER_FLOW + sinks.map(of_sink).sum::<u64>()
    });
    let settlers = config.settlers.len() as u64 * PER_FLOW;
    let peers = config.peers.len() as u64 * PER_PEER;
    OF_ITS_OWN
        + flows.sum::<u64>()
        + settlers
        + peers
        + services as u64 * tidegate_handoff::CONNECTIONS_MAX as u64
}

/// What one flow's sink has for itself; the connections of a service are counted once.
fn of_sink(sink: &tidegate_config::Sink) -> u64 {
    if is(sink, "http")
        && let Ok(http) = HttpOptions::from_values(&sink.values)
    {
        return PER_SINK + http.concurrency as u64;
    }
    PER_SINK
}

fn is(sink: &tidegate_config::Sink, connector: &str) -> bool {
    *sink.connector == *connector
}
