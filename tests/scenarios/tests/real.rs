//! Every scenario on real RocketMQ servers.

use std::process::ExitCode;

use tidegate_scenarios::{OneOfEach, RealBroker, run};

fn main() -> ExitCode {
    run(OneOfEach::new(RealBroker::start))
}
