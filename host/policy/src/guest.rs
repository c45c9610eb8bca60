//! What the host gives to a guest: the message of the current call, state, clock and log.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_model::{Instant, Message, Standing, Timestamp};
use wasmtime::component::{HasData, Resource};

use crate::bindings::v1::given::{clock, delivery, log, outgoing, state};
use crate::deadline::Deadline;
use crate::grants::{Access, Budget};
use crate::limiter::Limiter;
use crate::log_tail::LogTail;
use crate::partitioner::OutgoingRecord;
use crate::random::SplitMix64;
use crate::renewal::LeaseFacts;
use crate::state::{Limit, State};

/// The only message a guest ever sees: the one of the current call. Guests hold a borrowed handle to it, and its
/// number in the host is always the same, so a call moves nothing in or out of a table.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub enum CurrentMessage {}

impl CurrentMessage {
    /// A handle to lend to the guest for one call.
    pub(crate) fn lend() -> Resource<Self> {
        Resource::new_borrow(0)
    }
}

/// The lease that a renewal policy is asked about, as [`CurrentMessage`].
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub enum CurrentLease {}

impl CurrentLease {
    /// A handle to lend to the guest for one call.
    pub(crate) fn lend() -> Resource<Self> {
        Resource::new_borrow(0)
    }
}

/// The record that a partitioner is asked about, as [`CurrentMessage`].
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub enum CurrentRecord {}

impl CurrentRecord {
    /// A handle to lend to the guest for one call.
    pub(crate) fn lend() -> Resource<Self> {
        Resource::new_borrow(0)
    }
}

/// What one Store holds beside the instance.
pub(crate) struct Guest {
    pub(crate) limiter: Limiter,
    pub(crate) deadline: Deadline,
    pub(crate) log: LogTail,
    /// When it is, for this call.
    pub(crate) moment: Moment,
    /// Set for the length of a decision about a message or its lease.
    pub(crate) call: Option<Call>,
    /// Set for the length of a decision about a lease.
    pub(crate) lease: Option<LeaseFacts>,
    /// Set for the length of a decision about a record.
    pub(crate) record: Option<OutgoingRecord>,
    /// What it was granted, which may be nothing.
    pub(crate) access: Arc<Access>,
    /// What is left of that to the call.
    pub(crate) budget: Budget,
    state: Arc<State>,
}

/// The frozen clock of one call, and the beginning of its random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) wall: Timestamp,
    pub(crate) now: Instant,
    pub(crate) random: SplitMix64,
}

/// The facts that one decision may look at.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) source: Arc<str>,
    pub(crate) message: Arc<Message>,
    pub(crate) key: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) age: Duration,
    pub(crate) waited: Duration,
    pub(crate) deferred: Duration,
    pub(crate) standing: Standing,
}

impl Guest {
    pub(crate) fn new(
        memory_bytes: usize,
        log_bytes: usize,
        state: Arc<State>,
        access: Arc<Access>,
        moment: Moment,
    ) -> Self {
        Self {
            limiter: Limiter::new(memory_bytes),
            deadline: Deadline::default(),
            log: LogTail::new(log_bytes),
            moment,
            call: None,
            lease: None,
            record: None,
            access,
            budget: Budget::default(),
            state,
        }
    }

    fn message(&self) -> Option<&Message> {
        self.call.as_ref().map(|call| &*call.message)
    }

    /// Reads from the current call. A guest holds a handle only while a call lasts, so the default is never seen.
    fn fact<T: Default>(&self, read: impl FnOnce(&Call) -> T) -> T {
        self.call.as_ref().map(read).unwrap_or_default()
    }
}

impl HasData for Guest {
    type Data<'a> = &'a mut Self;
}

/// At most `len` bytes from `offset`.
fn range(bytes: &Bytes, offset: u32, len: u32) -> Vec<u8> {
    let rest = bytes.get(offset as usize..).unwrap_or_default();
    rest.get(..len as usize).unwrap_or(rest).to_vec()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds, never less than `duration`.
fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl delivery::Host for Guest {}

impl delivery::HostMessage for Guest {
    fn source(&mut self, _: Resource<CurrentMessage>) -> String {
        self.fact(|call| call.source.as_ref().to_owned())
    }

    fn topic(&mut self, _: Resource<CurrentMessage>) -> String {
        self.fact(|call| call.message.topic.as_ref().to_owned())
    }

    fn lite_topic(&mut self, _: Resource<CurrentMessage>) -> Option<String> {
        self.message()?.lite_topic.as_deref().map(str::to_owned)
    }

    fn key(&mut self, _: Resource<CurrentMessage>) -> String {
        self.fact(|call| call.key.as_ref().to_owned())
    }

    fn id(&mut self, _: Resource<CurrentMessage>) -> String {
        self.fact(|call| call.message.id.as_str().to_owned())
    }

    fn tag(&mut self, _: Resource<CurrentMessage>) -> Option<String> {
        self.message()?.tag.as_deref().map(str::to_owned)
    }

    fn property(&mut self, _: Resource<CurrentMessage>, name: String) -> Option<String> {
        self.message()?.property(&name).map(str::to_owned)
    }

    fn properties(&mut self, _: Resource<CurrentMessage>) -> Vec<(String, Vec<u8>)> {
        let pairs = |call: &Call| {
            let properties = call.message.properties.iter();
            properties.map(|(name, value)| (name.as_ref().to_owned(), value.to_vec())).collect()
        };
        self.fact(pairs)
    }

    fn body_size(&mut self, _: Resource<CurrentMessage>) -> u32 {
        self.fact(|call| u32::try_from(call.message.body.len()).unwrap_or(u32::MAX))
    }

    fn body(&mut self, _: Resource<CurrentMessage>, offset: u32, len: u32) -> Vec<u8> {
        self.fact(|call| range(&call.message.body, offset, len))
    }

    fn attempt(&mut self, _: Resource<CurrentMessage>) -> u32 {
        self.fact(|call| call.attempt)
    }

    fn age(&mut self, _: Resource<CurrentMessage>) -> u64 {
        self.fact(|call| millis(call.age))
    }

    fn waited(&mut self, _: Resource<CurrentMessage>) -> u64 {
        self.fact(|call| millis(call.waited))
    }

    fn deferred(&mut self, _: Resource<CurrentMessage>) -> u64 {
        self.fact(|call| millis(call.deferred))
    }

    fn standing(&mut self, _: Resource<CurrentMessage>) -> delivery::Standing {
        let standing = self.fact(|call| call.standing);
        delivery::Standing {
            key_in_flight: standing.key_in_flight,
            flow_in_flight: standing.flow_in_flight,
            flow_budget: standing.flow_budget,
            flow_queued: standing.flow_queued,
            flow_emitted: standing.flow_emitted,
            active_keys: standing.active_keys,
            key_rate: standing.key_rate,
            flow_rate: standing.flow_rate,
            flow_throughput: standing.flow_throughput,
            key_share: standing.key_share,
        }
    }

    /// An owned handle, as a lease gives one, stands for nothing that could be freed.
    fn drop(&mut self, _: Resource<CurrentMessage>) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl delivery::HostLease for Guest {
    fn message(&mut self, _: Resource<CurrentLease>) -> Resource<CurrentMessage> {
        Resource::new_own(0)
    }

    fn remaining(&mut self, _: Resource<CurrentLease>) -> u64 {
        millis(self.lease.unwrap_or_default().remaining)
    }

    fn length(&mut self, _: Resource<CurrentLease>) -> u64 {
        millis(self.lease.unwrap_or_default().length)
    }

    fn renewals(&mut self, _: Resource<CurrentLease>) -> u32 {
        self.lease.unwrap_or_default().renewals
    }

    fn emitted(&mut self, _: Resource<CurrentLease>) -> bool {
        self.lease.unwrap_or_default().emitted
    }

    fn queue_position(&mut self, _: Resource<CurrentLease>) -> u32 {
        self.lease.unwrap_or_default().queue_position
    }

    /// Only borrowed handles exist, and dropping one does not come here.
    fn drop(&mut self, _: Resource<CurrentLease>) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl outgoing::Host for Guest {}

impl outgoing::HostRecord for Guest {
    fn topic(&mut self, _: Resource<CurrentRecord>) -> String {
        self.record.as_ref().map(|record| record.topic.as_ref().to_owned()).unwrap_or_default()
    }

    fn key(&mut self, _: Resource<CurrentRecord>) -> Option<Vec<u8>> {
        Some(self.record.as_ref()?.key.as_ref()?.to_vec())
    }

    fn header(&mut self, _: Resource<CurrentRecord>, name: String) -> Option<String> {
        let (_, value) = self.record.as_ref()?.headers.iter().find(|(key, _)| **key == *name)?;
        std::str::from_utf8(value).ok().map(str::to_owned)
    }

    fn value_size(&mut self, _: Resource<CurrentRecord>) -> u32 {
        let bytes = self.record.as_ref().map_or(0, |record| record.value.len());
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    fn value(&mut self, _: Resource<CurrentRecord>, offset: u32, len: u32) -> Vec<u8> {
        self.record.as_ref().map(|record| range(&record.value, offset, len)).unwrap_or_default()
    }

    /// Only borrowed handles exist, and dropping one does not come here.
    fn drop(&mut self, _: Resource<CurrentRecord>) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl state::Host for Guest {
    fn take(
        &mut self,
        bucket: String,
        key: String,
        tokens: f64,
        limit: state::Limit,
    ) -> wasmtime::Result<u64> {
        let limit = Limit { rate_per_second: limit.rate_per_second, burst: limit.burst };
        let wait = self.state.take(self.moment.now, &bucket, &key, tokens, limit)?;
        Ok(millis_up(wait))
    }

    fn add(&mut self, counter: String, key: String, delta: i64, ttl: u64) -> i64 {
        self.state.add(self.moment.now, &counter, &key, delta, Duration::from_millis(ttl))
    }

    fn get(&mut self, counter: String, key: String) -> i64 {
        self.state.get(self.moment.now, &counter, &key)
    }
}

impl clock::Host for Guest {
    fn now(&mut self) -> u64 {
        self.moment.wall.as_unix_millis()
    }

    fn elapsed(&mut self) -> u64 {
        self.moment.now.as_millis()
    }

    fn random(&mut self) -> u64 {
        self.moment.random.next()
    }
}

impl log::Host for Guest {
    fn write(&mut self, level: log::Level, message: String) {
        self.log.write(level.into(), &message);
    }
}
