//! `tidegate send`: messages to a RocketMQ topic.

use std::io::BufRead as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use secrecy::SecretString;
use serde_json::json;
use tidegate_connector::Clock;
use tidegate_model::Timestamp;
use tidegate_rocketmq::{ClientOptions, Endpoints, Fixed, Keys, Outgoing, Producer, SendError, Tls, Trust};
use tidegate_telemetry::Telemetry;

use super::block_on;
use crate::cli::SendArgs;
use crate::exit::Failure;
use crate::output::Output;

/// Where the secret key is read from: never an argument, which every user of the machine can see.
const SECRET_KEY_VARIABLE: &str = "TIDEGATE_SECRET_KEY";
/// Messages in one request.
const BATCH: usize = 32;

pub(crate) fn run(args: &SendArgs, output: &Output) -> Result<(), Failure> {
    let options = client_options(args)?;
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
    if !output.is_json() {
        output.talk(&format!("sent {}", sender.sent));
    }
    Ok(())
}

/// Bodies on their way.
struct Sender<'a> {
    producer: Producer,
    args: &'a SendArgs,
    clock: Clock,
    output: &'a Output,
    batch: Vec<Outgoing>,
    sent: u64,
    pace: Pace,
}

impl Sender<'_> {
    async fn send_all(&mut self) -> Result<(), Failure> {
        for body in &self.args.bodies {
            if body == "-" {
                for line in std::io::stdin().lock().lines() {
                    let line = line.context("cannot read standard input").map_err(Failure::environment)?;
                    self.send_body(&line).await?;
                }
            } else {
                self.send_body(body).await?;
            }
        }
        self.flush().await
    }

    async fn send_body(&mut self, body: &str) -> Result<(), Failure> {
        for _ in 0..self.args.count {
            self.batch.push(self.message(body));
            // What has an order is sent one by one: a broker need not keep it within a request.
            let has_order = self.args.lite_topic.is_some() || self.args.message_group.is_some();
            if has_order || self.args.rate.is_some() || self.batch.len() >= BATCH {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        self.pace.wait(batch.len() as u64).await;
        for sent in self.producer.send_batch(batch).await {
            let sent = sent.map_err(send_failure)?;
            self.sent += 1;
            if self.output.is_json() {
                self.output.data(
                    &json!({ "message-id": sent.message_id.as_str(), "offset": sent.offset }).to_string(),
                );
            } else {
                self.output.data(sent.message_id.as_str());
            }
        }
        Ok(())
    }

    fn message(&self, body: &str) -> Outgoing {
        let args = self.args;
        let (topic, body) = (args.topic.as_str(), body.to_owned());
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

fn client_options(args: &SendArgs) -> Result<ClientOptions, Failure> {
    let endpoints = Endpoints::parse(&args.endpoints)
        .with_context(|| format!("--endpoints `{}`", args.endpoints))
        .map_err(Failure::config)?;
    let mut options = ClientOptions::new(endpoints);
    if let Some(access_key) = &args.access_key {
        let secret_key = std::env::var(SECRET_KEY_VARIABLE).map_err(|_| {
            Failure::config(anyhow!(
                "--access-key needs the secret key in the variable {SECRET_KEY_VARIABLE}"
            ))
        })?;
        let keys = Keys::new(access_key.as_str(), SecretString::from(secret_key));
        options.credentials = std::sync::Arc::new(Fixed::new(keys));
    }
    if args.tls || args.tls_ca_file.is_some() {
        let trust = args.tls_ca_file.clone().map_or(Trust::SystemRoots, Trust::CaFile);
        options.tls = Tls::On { trust, identity: None };
    }
    Ok(options)
}

fn send_failure(error: SendError) -> Failure {
    match error {
        SendError::Invalid { .. } | SendError::WrongKind { .. } => Failure::config(error),
        SendError::Failed { .. } => Failure::environment(error),
    }
}
