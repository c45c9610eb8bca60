//! The log: talk on standard error, as text or JSON lines.

use std::io::{self, IsTerminal as _};

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

/// How the targets of the host's own lines begin: the names of its crates.
const OWN_TARGETS: &str = "tidegate";

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// For people; coloured only on a terminal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why the log could not be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter does not parse.
    #[error("log filter `{filter}` is not valid")]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// Somebody was faster.
    #[error("a logger is already set up")]
    AlreadySet(#[source] tracing_subscriber::util::TryInitError),
    /// The logger that the handle belongs to is gone.
    #[error("the log filter cannot be changed any more")]
    Gone(#[source] reload::Error),
}

/// Changes what is logged while the host runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogHandle(reload::Handle<EnvFilter, Registry>);

/// Sets up the process's logger once, on standard error.
///
/// `filter` is a level such as `debug`, which then holds for the host's own lines while libraries stay at `warn`; or
/// tracing directives, taken as they are.
///
/// # Errors
/// When the filter does not parse, or a logger is already there.
pub fn init_logging(filter: &str, format: LogFormat) -> Result<LogHandle, LoggingError> {
    let colour = io::stderr().is_terminal();
    let (subscriber, handle) = subscriber(filter, format, colour, io::stderr)?;
    subscriber.try_init().map_err(LoggingError::AlreadySet)?;
    Ok(handle)
}

impl LogHandle {
    /// Replaces the filter at once, for every thread. `filter` is read as by [`init_logging`].
    ///
    /// # Errors
    /// When the filter does not parse; the old one stays then.
    pub fn set_filter(&self, filter: &str) -> Result<(), LoggingError> {
        self.0.reload(parse_filter(filter)?).map_err(LoggingError::Gone)
    }
}

fn subscriber<W>(
    filter: &str,
    format: LogFormat,
    colour: bool,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync, LogHandle), LoggingError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(parse_filter(filter)?);
    let registry = tracing_subscriber::registry().with(filter);
    Ok((registry.with(lines(format, colour, writer)), LogHandle(handle)))
}

fn lines<S, W>(format: LogFormat, colour: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = fmt::layer().with_writer(writer);
    match format {
        LogFormat::Text => layer.with_ansi(colour).with_target(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    }
}

fn parse_filter(filter: &str) -> Result<EnvFilter, LoggingError> {
    let directives = match filter.parse::<LevelFilter>() {
        // What libraries say below a warning is about sockets and code generation, thousands of lines a second of it.
        Ok(level) if level > LevelFilter::WARN => format!("warn,{OWN_TARGETS}={level}"),
        _ => filter.to_owned(),
    };
    EnvFilter::try_new(directives)
        .map_err(|source| LoggingError::Filter { filter: filter.to_owned(), source })
}

#[cfg(test)]
mod tests;
