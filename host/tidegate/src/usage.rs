//! What is said about arguments that are wrong.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _};
use tidegate_connector::options::nearest;

use crate::cli::Cli;

/// A mistyped flag gets the nearest flag of its command as a tip, if one is near, and never the tip to give it as a value.
pub(crate) fn mend(error: clap::Error) -> clap::Error {
    mend_for(error, &Cli::command(), std::env::args_os().skip(1))
}

fn mend_for(
    mut error: clap::Error,
    root: &Command,
    arguments: impl Iterator<Item = OsString>,
) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return error };
    let given = given.split('=').next().unwrap_or(given).to_owned();
    let Some(name) = given.strip_prefix("--").filter(|name| !name.is_empty()) else { return error };
    error.remove(ContextKind::Suggested);
    if error.get(ContextKind::SuggestedArg).is_none() {
        let flags: Vec<&str> = flags_of(command_of(root, arguments)).chain(flags_of(root)).collect();
        if let Some(near) = nearest(name, flags) {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{near}")));
        }
    }
    error
}

/// The innermost subcommand that the arguments name.
fn command_of(root: &Command, arguments: impl Iterator<Item = OsString>) -> &Command {
    let mut command = root;
    for argument in arguments {
        if let Some(inner) = argument.to_str().and_then(|name| command.find_subcommand(name)) {
            command = inner;
        }
    }
    command
}

fn flags_of(command: &Command) -> impl Iterator<Item = &str> {
    command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .filter_map(|argument| argument.get_long())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn told(arguments: &str) -> String {
        let arguments: Vec<OsString> = arguments.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&arguments).expect_err("wrong");
        mend_for(error, &Cli::command(), arguments.into_iter().skip(1)).to_string()
    }

    #[test]
    fn a_mistyped_flag_gets_the_nearest_one() {
        for (arguments, near) in [
            ("tidegate send --topc T x", "'--topic'"),
            ("tidegate send --topic T --propertie a=b x", "'--property'"),
            ("tidegate ack --endpoint h:1 x", "'--endpoints'"),
            ("tidegate policy check --rule r x.wasm", "'--rules'"),
            ("tidegate run --jsom", "'--json'"),
        ] {
            assert!(told(arguments).contains(near), "{arguments}: {}", told(arguments));
        }
    }

    #[test]
    fn a_flag_that_is_near_none_gets_no_tip() {
        for arguments in ["tidegate policy replay --sead 3 x", "tidegate check --sead"] {
            let told = told(arguments);
            assert!(told.contains("--sead") && !told.contains("tip:"), "{told}");
        }
    }
}
