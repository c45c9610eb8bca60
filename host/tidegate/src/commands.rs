//! One file per command.

pub(crate) mod broker;
pub(crate) mod check;
mod client;
pub(crate) mod demo;
pub(crate) mod flow;
pub(crate) mod kafka;
pub(crate) mod live;
pub(crate) mod options;
pub(crate) mod policy;
pub(crate) mod receipt;
mod receipts;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod settle;

use std::future::Future;

use crate::exit::Failure;

/// Runs a command's future on a runtime of its own.
fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::environment)?;
    let result = runtime.block_on(future);
    // What still hangs in blocking calls, such as a read of standard input, must not keep the process.
    runtime.shutdown_background();
    result
}
