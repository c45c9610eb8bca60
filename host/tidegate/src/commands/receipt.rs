//! `tidegate receipt`: explains a receipt, and checks it when there is a key.

use std::time::Duration;

use anyhow::anyhow;
use serde_json::json;
use tidegate_connector::Clock;
use tidegate_connector::units::format_duration;
use tidegate_model::Receipt;
use tidegate_model::receipt::DecodeError;

use super::block_on;
use super::receipts::{Given, Key, each_batch, key_at, key_of};
use crate::catalog;
use crate::cli::ReceiptArgs;
use crate::exit::Failure;
use crate::output::Output;

/// Receipts that are read before they are explained.
const BATCH: usize = 100;

/// What is known of a receipt's tag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tag {
    Good,
    Bad,
    Unchecked,
}

pub(crate) fn run(args: &ReceiptArgs, output: &Output) -> Result<(), Failure> {
    let key = match (&args.key_file, &args.config) {
        (Some(path), _) => Some(key_at(path)?),
        (None, Some(config)) => Some(key_of(&catalog::read(config)?)?),
        (None, None) => None,
    };
    let clock = Clock::start();
    let (mut bad, mut unread) = (0_u64, 0_u64);
    let explaining = each_batch(&args.receipts, BATCH, async |batch| {
        for given in batch {
            match Receipt::decode_unverified(&given.text) {
                Ok(receipt) => {
                    let tag = check(&given.text, key.as_ref());
                    bad += u64::from(tag == Tag::Bad);
                    explain(&given, &receipt, (tag, key.as_ref()), clock, output);
                }
                Err(error) => {
                    unread += 1;
                    tell_unread(&given, &error, output);
                }
            }
        }
        output.written()
    });
    block_on(explaining)?;
    match (unread, bad) {
        (0, 0) => Ok(()),
        (0, bad) => {
            let than = key.as_ref().map(|key| format!(" than that in `{}`", key.path().display()));
            Err(Failure::runtime(anyhow!(
                "{bad} of these receipts were altered, or made by hosts with another key{}",
                than.unwrap_or_default()
            )))
        }
        (unread, _) => Err(Failure::config(anyhow!("{unread} of these texts are no receipts"))),
    }
}

fn check(text: &str, key: Option<&Key>) -> Tag {
    match key.map(|key| key.decode(text)) {
        None => Tag::Unchecked,
        Some(Ok(_)) => Tag::Good,
        Some(Err(_)) => Tag::Bad,
    }
}

/// Everything but the handle, which is of use only with the rest and would only be in the way.
fn explain(given: &Given, receipt: &Receipt, (tag, key): (Tag, Option<&Key>), clock: Clock, output: &Output) {
    let Receipt {
        routing, topic, lite_topic, message_id, attempt, owner, flow, delivery, expires_at, ..
    } = receipt;
    let (now, end) = (clock.wall().as_unix_millis(), expires_at.as_unix_millis());
    if output.is_json() {
        let tag = match tag {
            Tag::Good => "good",
            Tag::Bad => "bad",
            Tag::Unchecked => "unchecked",
        };
        return output.data(
            &json!({
                "line": given.line,
                "tag": tag,
                "flow": flow,
                "host": owner,
                "delivery": delivery.0,
                "endpoint": routing.endpoint,
                "namespace": routing.namespace,
                "consumer-group": routing.group,
                "topic": topic,
                "lite-topic": lite_topic,
                "message-id": message_id.as_str(),
                "delivery-attempt": attempt,
                "expires-at": end,
                "expired": end <= now,
            })
            .to_string(),
        );
    }
    let rounded = |millis: u64| format_duration(Duration::from_secs(millis / 1000));
    let lease = if end > now {
        format!("ends in {}", rounded(end - now))
    } else {
        format!("ended {} ago, unless it was renewed", rounded(now - end))
    };
    let tag = match tag {
        Tag::Good => "good: a host of this fleet made it".to_owned(),
        Tag::Bad => {
            let path = key.map(|key| key.path().display().to_string()).unwrap_or_default();
            format!("BAD: it was altered, or made by a host with another key than that in `{path}`")
        }
        Tag::Unchecked => "not checked: --key-file or --config names the key".to_owned(),
    };
    if let Some(line) = given.line {
        output.data(&format!("{:<13} {line}", "line"));
    }
    let namespace = if routing.namespace.is_empty() { "(none)" } else { &*routing.namespace };
    for (name, value) in [
        ("message", message_id.as_str()),
        ("topic", topic),
        ("lite topic", lite_topic.as_deref().unwrap_or("(none)")),
        ("attempt", &attempt.to_string()),
        ("lease", &lease),
        ("group", &routing.group),
        ("namespace", namespace),
        ("endpoint", &routing.endpoint),
        ("flow", flow),
        ("given out by", &format!("host {owner}, delivery {delivery}")),
        ("tag", &tag),
    ] {
        output.data(&format!("{name:<13} {value}"));
    }
    output.data("");
}

fn tell_unread(given: &Given, error: &DecodeError, output: &Output) {
    if output.is_json() {
        output.data(&json!({ "line": given.line, "error": error.to_string() }).to_string());
    } else {
        output.data(&format!("no receipt: {}: {error}\n", given.place()));
    }
}
