//! Every scenario on real Kafka brokers.

use std::process::ExitCode;

use tidegate_share_scenarios::{Real, run};

fn main() -> ExitCode {
    run(Real::default())
}
