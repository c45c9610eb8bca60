//! Consumes a number of records as a member of a share group with krafka, acknowledges each explicitly, and says on standard
//! output when it began, had its first record, and had its last one acknowledged.
#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use krafka::Kafka;
use krafka::share_consumer::AcknowledgementMode;

/// Of one poll.
const WAIT: Duration = Duration::from_millis(500);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Arguments: bootstrap servers, topic, group, number of records, and settings as `key=value` under the names that Java's
/// client gives them.
#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, topic, group, records, settings @ ..] = arguments.as_slice() else {
        bail!("usage: BOOTSTRAP TOPIC GROUP RECORDS [KEY=VALUE]..");
    };
    let records: usize = records.parse().context("the number of records")?;
    println!("began");
    let kafka = Kafka::builder(bootstrap.clone()).connect().await?;
    let mut builder =
        kafka.share_consumer(group.as_str()).acknowledgement_mode(AcknowledgementMode::Explicit);
    for setting in settings {
        let (key, value) = setting.split_once('=').with_context(|| format!("{setting} is not KEY=VALUE"))?;
        builder = match key {
            "max.poll.records" => builder.max_poll_records(value.parse()?),
            "fetch.max.bytes" => builder.fetch_max_bytes(value.parse()?),
            _ => bail!("{key} is not among what is set here"),
        };
    }
    let consumer = builder.build().await?;
    consumer.subscribe([topic.as_str()]).await?;
    let mut received = 0;
    while received < records {
        let batch = consumer.poll(WAIT).await?;
        if received == 0 && !batch.is_empty() {
            println!("first");
        }
        for record in &batch {
            consumer.ack(record)?;
        }
        received += batch.len();
    }
    for (partition, result) in consumer.commit().await? {
        result.with_context(|| format!("acknowledging of partition {}", partition.partition))?;
    }
    println!("done");
    consumer.close().await?;
    Ok(())
}
