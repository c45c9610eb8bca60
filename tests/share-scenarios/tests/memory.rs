//! Every scenario on the broker in memory.

use std::process::ExitCode;

use tidegate_share_scenarios::{InMemory, run};

fn main() -> ExitCode {
    run(vec![InMemory])
}
