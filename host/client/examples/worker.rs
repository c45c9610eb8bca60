//! A worker: takes messages of one flow from a tidegate host, does a pretend job with each, and settles it.
//!
//! `TIDEGATE_ADDRESS=http://127.0.0.1:9641 TIDEGATE_FLOW=jobs cargo run --example worker`
#![allow(clippy::print_stdout, reason = "it shows what it does")]

use std::env;
use std::error::Error;
use std::time::Duration;

use tidegate_client::{Delivery, Event, Verdict, Worker};
use tokio::signal::unix::{SignalKind, signal};

/// The pretend job. Says what is to become of the message.
async fn work(delivery: Delivery) -> Verdict {
    tokio::time::sleep(Duration::from_millis(50)).await;
    match &delivery.body[..] {
        b"reject" => Verdict::reject("it says so itself"),
        b"defer" if delivery.attempt == 1 => Verdict::defer(Duration::from_secs(1)),
        _ => Verdict::accept(),
    }
}

/// One line for each message, and a few about the host.
fn show(event: &Event) {
    match event {
        Event::Subscribed { host, .. } => println!("subscribed at {host}"),
        Event::Unsubscribed { detail, .. } => println!("the stream broke: {detail}"),
        Event::Settled { message_id, verdict, status, detail, .. } => {
            println!("{status} {verdict} {message_id} {detail}");
        }
        Event::Unsettled { message_id, detail, .. } => println!("unsettled {message_id} {detail}"),
        _ => {}
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let setting = |name: &str, otherwise: &str| env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let mut builder = Worker::builder(
        setting("TIDEGATE_ADDRESS", "http://127.0.0.1:9641"),
        setting("TIDEGATE_FLOW", "jobs"),
    );
    if let Ok(token) = env::var("TIDEGATE_TOKEN") {
        builder = builder.token(token);
    }
    let worker = builder
        .name(setting("TIDEGATE_WORKER", "rust"))
        .credits(4)
        .keep_leases(true)
        .observer(show)
        .build()?;
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    worker.run_until(work, stop).await?;
    println!("left");
    Ok(())
}
