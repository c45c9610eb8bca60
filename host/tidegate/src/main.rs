//! The tidegate host: command line and composition root. No logic lives here; commands put the other crates together
//! and say what came of it.
#![forbid(unsafe_code)]

mod admin_client;
mod catalog;
mod cli;
mod commands;
mod exit;
mod inspect;
mod new_file;
mod output;
mod usage;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::exit::Failure;
use crate::output::Output;

/// Messages are made on one thread and dropped on another, which the system's allocator answers with locks: with this
/// one the host takes two to three times as many on two cores.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return tell(&usage::mend(told)),
    };
    let output = Output::new(cli.json);
    let result = match cli.command {
        Command::Run(args) => commands::run::run(&args, &output),
        Command::Check(args) => commands::check::run(&args, &output),
        Command::Demo(args) => commands::demo::run(&args, &output),
        Command::Broker(args) => commands::broker::run(&args, &output),
        Command::Send(args) => commands::send::run(&args, &output),
        Command::Ack(args) => commands::settle::ack(&args, &output),
        Command::Defer(args) => commands::settle::defer(&args, &output),
        Command::Reject(args) => commands::settle::reject(&args, &output),
        Command::Release(args) => commands::settle::release(&args, &output),
        Command::Receipt(args) => commands::receipt::run(&args, &output),
        Command::Flows(args) => commands::flow::list::run(&args, &output),
        Command::Flow(args) => commands::flow::run(&args.command, &output),
        Command::Tap(args) => commands::flow::tap::run(&args, &output),
        Command::Kafka(args) => commands::kafka::run(&args.command, &output),
        Command::Options(args) => commands::options::run(&args, &output),
        Command::Policy(args) => commands::policy::run(&args, &output),
    };
    let is_json = output.is_json();
    match result.and_then(|()| output.written()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(is_json),
    }
}

/// Help, the version, or what is wrong with the arguments.
fn tell(told: &clap::Error) -> ExitCode {
    let usage = u8::try_from(told.exit_code()).unwrap_or(2);
    match told.print() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            let error = anyhow::Error::new(error).context("standard output cannot be written");
            Failure::Environment(error).report(false)
        }
        _ => ExitCode::from(usage),
    }
}
