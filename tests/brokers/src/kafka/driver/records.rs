//! Records: written, in transactions too, and deleted.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use kafka_wire::{
    DeleteRecordsRequest, EndTxnRequest, InitProducerIdRequest, ListOffsetsRequest, ProduceRequest,
    delete_records_request, list_offsets_request, produce_request,
};

use super::{BROKER_TIMEOUT_MS, Driver, code, only, settle};
use crate::kafka::connection::{CallError, accepted};
use crate::kafka::record::{Producer, Record, batch};

/// Stand for times in requests for offsets.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
/// What is appended needs all replicas that are in sync.
const ALL: i16 = -1;
/// How long a transaction may stay open before the broker aborts it.
const TRANSACTION_TIMEOUT_MS: i32 = 60_000;

impl Driver {
    /// Appends records as one batch and gives the offset of the first.
    ///
    /// # Errors
    /// When the broker refuses, or has no leader for a minute.
    pub async fn produce(&self, topic: &str, partition: i32, records: &[Record]) -> Result<i64, CallError> {
        self.produce_batch(topic, partition, batch(records, Producer::ANONYMOUS)).await
    }

    /// Appends a batch as it is.
    ///
    /// # Errors
    /// When the broker refuses, or has no leader for a minute.
    pub async fn produce_batch(&self, topic: &str, partition: i32, batch: Bytes) -> Result<i64, CallError> {
        self.append(topic, partition, batch, None, code::UNSETTLED_LEADER).await
    }

    async fn append(
        &self,
        topic: &str,
        partition: i32,
        batch: Bytes,
        transaction: Option<&str>,
        unsettled: &[i16],
    ) -> Result<i64, CallError> {
        const VERSION: i16 = 13;
        let what = || format!("writing to {topic}-{partition}");
        settle(&what(), unsettled, async || {
            let (id, leader) = self.led(topic, partition).await?;
            let mut of_partition = produce_request::PartitionProduceData::default();
            of_partition.index = partition;
            of_partition.records = Some(batch.clone());
            let mut of_topic = produce_request::TopicProduceData::default();
            of_topic.topic_id = id;
            of_topic.partition_data = vec![of_partition];
            let mut request = ProduceRequest::default();
            request.transactional_id = transaction.map(Into::into);
            request.acks = ALL;
            request.timeout_ms = BROKER_TIMEOUT_MS;
            request.topic_data = vec![of_topic];
            let response = self.call(leader, &request, VERSION).await?;
            let of_topic = only(response.responses, "ProduceRequest")?;
            let result = only(of_topic.partition_responses, "ProduceRequest")?;
            accepted(what, result.error_code, result.error_message.as_ref())?;
            Ok(result.base_offset)
        })
        .await
    }

    /// Begins a transaction under an id; a transaction that is still open under it is aborted.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn transaction(&self, id: &str) -> Result<Transaction<'_>, CallError> {
        let (producer_id, epoch) = self.begin_producer(id).await?;
        Ok(Transaction { driver: self, id: id.into(), producer_id, epoch, sequences: BTreeMap::new() })
    }

    /// Waits until the transaction before it under the same id is wholly over.
    async fn begin_producer(&self, id: &str) -> Result<(i64, i16), CallError> {
        const VERSION: i16 = 5;
        let mut request = InitProducerIdRequest::default();
        request.transactional_id = Some(id.into());
        request.transaction_timeout_ms = TRANSACTION_TIMEOUT_MS;
        request.producer_id = -1;
        request.producer_epoch = -1;
        let what = || format!("beginning a transaction of {id}");
        settle(&what(), &unsettled_transaction(), async || {
            let coordinator = self.transaction_coordinator(id).await?;
            let response = self.call(coordinator, &request, VERSION).await?;
            accepted(what, response.error_code, None)?;
            Ok((response.producer_id, response.producer_epoch))
        })
        .await
    }

    /// Offsets from the first record there is to the end, where the next will be; uncommitted ones and transactions'
    /// markers count.
    ///
    /// # Errors
    /// When there is no such partition, or no leader for a minute.
    pub async fn offsets(&self, topic: &str, partition: i32) -> Result<Range<i64>, CallError> {
        Ok(self.offset_at(topic, partition, EARLIEST).await?
            ..self.offset_at(topic, partition, LATEST).await?)
    }

    async fn offset_at(&self, topic: &str, partition: i32, time: i64) -> Result<i64, CallError> {
        const VERSION: i16 = 10;
        let mut of_partition = list_offsets_request::ListOffsetsPartition::default();
        of_partition.partition_index = partition;
        of_partition.timestamp = time;
        let mut of_topic = list_offsets_request::ListOffsetsTopic::default();
        of_topic.name = topic.into();
        of_topic.partitions = vec![of_partition];
        let mut request = ListOffsetsRequest::default();
        request.replica_id = -1;
        request.topics = vec![of_topic];
        request.timeout_ms = BROKER_TIMEOUT_MS;
        let what = || format!("offsets of {topic}-{partition}");
        settle(&what(), code::UNSETTLED_LEADER, async || {
            let leader = self.leader(topic, partition).await?;
            let of_topic = only(self.call(leader, &request, VERSION).await?.topics, "ListOffsetsRequest")?;
            let result = only(of_topic.partitions, "ListOffsetsRequest")?;
            accepted(what, result.error_code, None)?;
            Ok(result.offset)
        })
        .await
    }

    /// Deletes all records before an offset and gives the first that is left.
    ///
    /// # Errors
    /// When the broker refuses, as with 1 beyond the end.
    pub async fn delete_records(&self, topic: &str, partition: i32, before: i64) -> Result<i64, CallError> {
        const VERSION: i16 = 2;
        let mut of_partition = delete_records_request::DeleteRecordsPartition::default();
        of_partition.partition_index = partition;
        of_partition.offset = before;
        let mut of_topic = delete_records_request::DeleteRecordsTopic::default();
        of_topic.name = topic.into();
        of_topic.partitions = vec![of_partition];
        let mut request = DeleteRecordsRequest::default();
        request.topics = vec![of_topic];
        request.timeout_ms = BROKER_TIMEOUT_MS;
        let what = || format!("deleting records of {topic}-{partition} before {before}");
        settle(&what(), code::UNSETTLED_LEADER, async || {
            let leader = self.leader(topic, partition).await?;
            let of_topic = only(self.call(leader, &request, VERSION).await?.topics, "DeleteRecordsRequest")?;
            let result = only(of_topic.partitions, "DeleteRecordsRequest")?;
            accepted(what, result.error_code, None)?;
            Ok(result.low_watermark)
        })
        .await
    }
}

/// An open transaction. Left alone, the broker aborts it after a minute.
///
/// Partitions join it by being written to (KIP-890), so that nothing announces them.
#[derive(Debug)]
pub struct Transaction<'a> {
    driver: &'a Driver,
    id: String,
    producer_id: i64,
    epoch: i16,
    /// The next record's number in each partition.
    sequences: BTreeMap<(String, i32), i32>,
}

impl Transaction<'_> {
    /// Appends records as one batch and gives the offset of the first.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        records: &[Record],
    ) -> Result<i64, CallError> {
        let next = self.sequences.entry((topic.to_owned(), partition)).or_default();
        let producer =
            Producer { id: self.producer_id, epoch: self.epoch, sequence: *next, transactional: true };
        let batch = batch(records, producer);
        let unsettled = [code::UNSETTLED_LEADER, &unsettled_transaction()].concat();
        let offset = self.driver.append(topic, partition, batch, Some(&self.id), &unsettled).await?;
        *next = next.saturating_add(i32::try_from(records.len()).unwrap_or(i32::MAX));
        Ok(offset)
    }

    /// Ends it well, and waits until the markers are written in every partition.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn commit(self) -> Result<(), CallError> {
        self.end(true).await
    }

    /// Takes it back, and waits until the markers are written in every partition.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn abort(self) -> Result<(), CallError> {
        self.end(false).await
    }

    async fn end(self, committed: bool) -> Result<(), CallError> {
        const VERSION: i16 = 5;
        let Self { driver, id, producer_id, epoch, .. } = self;
        let mut request = EndTxnRequest::default();
        request.transactional_id = id.as_str().into();
        request.producer_id = producer_id;
        request.producer_epoch = epoch;
        request.committed = committed;
        let what = || format!("ending a transaction of {id}");
        settle(&what(), &unsettled_transaction(), async || {
            let coordinator = driver.transaction_coordinator(&id).await?;
            let response = driver.call(coordinator, &request, VERSION).await?;
            accepted(what, response.error_code, None)
        })
        .await?;
        // The answer comes before the markers; the next beginning under this id comes after them.
        driver.begin_producer(&id).await.map(drop)
    }
}

fn unsettled_transaction() -> Vec<i16> {
    [code::UNSETTLED_COORDINATOR, &[code::CONCURRENT_TRANSACTIONS]].concat()
}
