//! Every scenario on the development broker.

use std::process::ExitCode;

use tidegate_scenarios::{DevBroker, OneOfEach, run};

fn main() -> ExitCode {
    run(OneOfEach::new(DevBroker::start))
}
