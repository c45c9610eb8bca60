//! Every scenario on real Kafka brokers of every release.

use std::process::ExitCode;

use tidegate_share_scenarios::{Real, run};

fn main() -> ExitCode {
    run(Real::of_every_release())
}
