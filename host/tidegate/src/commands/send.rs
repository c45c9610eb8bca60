//! `tidegate send`: messages to a RocketMQ topic.

use std::io::{BufRead as _, Read as _};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::json;
use tidegate_connector::Clock;
use tidegate_model::Timestamp;
use tidegate_rocketmq::{ClientOptions, Outgoing, Producer, SendError};
use tidegate_telemetry::Telemetry;

use super::{block_on, client};
use crate::cli::SendArgs;
use crate::exit::Failure;
use crate::output::{Output, talk};

/// Messages in one request.
const BATCH: usize = 32;
/// The longest line of standard input, in bytes. More than any server takes, which says its own limit.
const LINE_BYTES_MAX: u64 = 64 << 20;
pub(crate) fn run(args: &SendArgs, output: &Output) -> Result<(), Failure> {
    let options = client::options(&args.endpoints, &args.client)?;
    block_on(send(args, options, output))
}

async fn send(args: &SendArgs, options: ClientOptions, output: &Output) -> Result<(), Failure> {
    let clock = Clock::start();
    let producer = Producer::connect(options, clock, Telemetry::default(), "send".into())
        .await
        .map_err(Failure::config)?;
    let mut sender =
        Sender { producer, args, clock, output, batch: Vec::new(), sent: 0, pace: Pace::new(args.rate) };
    let result = sender.send_all().await;
    sender.producer.close().await;
    result?;
    if !output.is_json() && !args.quiet {
        talk(&format!("sent {}", sender.sent));
    }
    Ok(())
}

/// Where a body comes from.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// The argument with this number, from 1.
    Argument(usize),
    /// The line of standard input with this number, from 1.
    Line(usize),
}

/// Bodies on their way.
struct Sender<'a> {
    producer: Producer,
    args: &'a SendArgs,
    clock: Clock,
    output: &'a Output,
    batch: Vec<(Origin, Outgoing)>,
    sent: u64,
    pace: Pace,
}

impl Sender<'_> {
    async fn send_all(&mut self) -> Result<(), Failure> {
        for (at, body) in self.args.bodies.iter().enumerate() {
            if body == "-" {
                self.send_lines().await?;
            } else {
                self.send_body(Origin::Argument(at + 1), body.as_bytes()).await?;
            }
        }
        self.flush().await
    }

    async fn send_lines(&mut self) -> Result<(), Failure> {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = std::io::stdin().lock().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
            read.with_context(|| format!("cannot read line {number} of standard input"))
                .map_err(Failure::environment)?;
            if line.is_empty() {
                break;
            }
            let body = line.strip_suffix(b"\n").unwrap_or(&line);
            let body = body.strip_suffix(b"\r").unwrap_or(body);
            if body.len() as u64 > LINE_BYTES_MAX {
                self.flush().await?;
                let error = anyhow!("it has more than {LINE_BYTES_MAX} bytes");
                return Err(self.refuse(Origin::Line(number), error));
            }
            self.send_body(Origin::Line(number), body).await?;
        }
        Ok(())
    }

    async fn send_body(&mut self, origin: Origin, body: &[u8]) -> Result<(), Failure> {
        for _ in 0..self.args.count {
            let message = self.message(body);
            if let Err(error) = message.validate() {
                self.flush().await?;
                return Err(self.refuse(origin, error.into()));
            }
            self.batch.push((origin, message));
            // What has an order is sent one by one: a broker need not keep it within a request.
            let has_order = self.args.lite_topic.is_some() || self.args.message_group.is_some();
            if has_order || self.args.rate.is_some() || self.batch.len() >= BATCH {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Sends what waits. When some of it cannot be sent, the rest is, and the first failure is told.
    async fn flush(&mut self) -> Result<(), Failure> {
        let (origins, batch): (Vec<_>, Vec<_>) = std::mem::take(&mut self.batch).into_iter().unzip();
        if batch.is_empty() {
            return Ok(());
        }
        self.pace.wait(batch.len() as u64).await;
        let mut first_failure = None;
        for (origin, sent) in origins.into_iter().zip(self.producer.send_batch(batch).await) {
            let sent = match sent {
                Ok(sent) => sent,
                Err(error) => {
                    first_failure.get_or_insert((origin, error));
                    continue;
                }
            };
            self.sent += 1;
            if self.args.quiet {
                continue;
            }
            if self.output.is_json() {
                self.output.data(
                    &json!({ "message-id": sent.message_id.as_str(), "offset": sent.offset }).to_string(),
                );
            } else {
                self.output.data(sent.message_id.as_str());
            }
        }
        if let Some((origin, error)) = first_failure {
            return Err(self.fail(origin, error));
        }
        // Ids that nobody can learn: better to stop.
        self.output.written()
    }

    fn refuse(&self, origin: Origin, error: anyhow::Error) -> Failure {
        Failure::config(error.context(self.told(origin)))
    }

    fn fail(&self, origin: Origin, error: SendError) -> Failure {
        let is_ours = matches!(error, SendError::Invalid { .. } | SendError::WrongKind { .. });
        let error = anyhow::Error::new(error).context(self.told(origin));
        if is_ours { Failure::config(error) } else { Failure::environment(error) }
    }

    /// Which one was not sent, and how much was.
    fn told(&self, origin: Origin) -> String {
        let sent = match self.sent {
            0 => "no message was".to_owned(),
            1 => "1 message was".to_owned(),
            sent => format!("{sent} messages were"),
        };
        format!("{origin} was not sent ({sent})")
    }

    fn message(&self, body: &[u8]) -> Outgoing {
        let args = self.args;
        let (topic, body) = (args.topic.as_str(), body.to_vec());
        let mut message = if let Some(lite_topic) = &args.lite_topic {
            Outgoing::lite(topic, lite_topic.as_str(), body)
        } else if let Some(group) = &args.message_group {
            Outgoing::fifo(topic, group.as_str(), body)
        } else if let Some(delay) = args.delay {
            let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            let at = self.clock.wall().as_unix_millis().saturating_add(millis);
            Outgoing::delay(topic, Timestamp::from_unix_millis(at), body)
        } else {
            Outgoing::normal(topic, body)
        };
        if let Some(tag) = &args.tag {
            message = message.with_tag(tag.as_str());
        }
        for key in &args.keys {
            message = message.with_key(key.as_str());
        }
        for (name, value) in &args.properties {
            message = message.with_property(name.as_str(), value.as_str());
        }
        message
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument(number) => write!(f, "message {number}"),
            Self::Line(number) => write!(f, "line {number} of standard input"),
        }
    }
}

/// Keeps to a rate by sleeping until the next message is due.
struct Pace {
    per_second: Option<u64>,
    began: Option<tokio::time::Instant>,
    due: u64,
}

impl Pace {
    const fn new(per_second: Option<u64>) -> Self {
        Self { per_second, began: None, due: 0 }
    }

    async fn wait(&mut self, messages: u64) {
        let Some(per_second) = self.per_second else { return };
        let began = *self.began.get_or_insert_with(tokio::time::Instant::now);
        tokio::time::sleep_until(began + Duration::from_secs_f64(self.due as f64 / per_second as f64)).await;
        self.due += messages;
    }
}
