//! The tidegate host: command line and composition root. No logic lives here; commands put the other crates together
//! and say what came of it.
#![forbid(unsafe_code)]

mod catalog;
mod cli;
mod commands;
mod exit;
mod inspect;
mod output;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::output::Output;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(cli.json);
    let result = match cli.command {
        Command::Run(args) => commands::run::run(&args, &output),
        Command::Check(args) => commands::check::run(&args, &output),
        Command::Demo(args) => commands::demo::run(&args, &output),
        Command::Broker(args) => commands::broker::run(&args, &output),
        Command::Send(args) => commands::send::run(&args, &output),
        Command::Options(args) => commands::options::run(&args, &output),
        Command::Policy(args) => commands::policy::run(&args, &output),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&output),
    }
}
