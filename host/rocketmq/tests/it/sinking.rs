//! The sink, with a flow that does what a lease book would.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_connector::template::Template;
use tidegate_connector::{Notice, Outbox, Sink as _, SinkError, VoidCause, inbox};
use tidegate_devbroker::{Control, Effect, Fault, Group, Method, Options, Topic, TopicKind as Kind};
use tidegate_model::{
    DeadLetter, Delivery, DeliveryId, Emission, Handle, Message, Outcome, Report, Timestamp, Verb,
};
use tidegate_rocketmq::{GrpcSink, SinkOptions, TopicKind};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::{Consumer, PATIENCE, Stage, bodies, eventually, options};

const DOWN: &str = "connect to 127.0.0.1:10911 failed. RemotingConnectException";

#[tokio::test]
async fn what_is_received_is_sent_on_with_all_that_it_has() {
    let stage = Stage::with(with_targets()).await;
    let mut rig = Rig::lite(&stage, "out-{lite-topic}").await;
    let source = stage.consumer(stage.lite()).await;
    let producer = stage.producer().await;
    let message = tidegate_rocketmq::Outgoing::lite("T", "tenant-1", "hello");
    producer
        .send(message.with_tag("red").with_key("order-1").with_property("who", "me"))
        .await
        .expect("sent");
    let received = source.receive(1).await.remove(0);
    rig.emit(vec![emission(&stage, 1, Arc::clone(&received.message))]);
    assert_eq!(rig.outcome().await, (1, Outcome::Accepted));
    let sent_on = stage.consumer(stage.of("OUT", "GO", TopicKind::Lite)).await;
    let delivery = sent_on.receive(1).await.remove(0);
    let message = &delivery.message;
    assert_eq!(message.lite_topic.as_deref(), Some("out-tenant-1"));
    assert_eq!((&*message.body, message.tag.as_deref()), (&b"hello"[..], Some("red")));
    assert_eq!(message.keys, ["order-1".into()]);
    assert_eq!(message.property("who"), Some("me"));
    assert_ne!(message.id, received.message.id, "it is another message");
    sent_on.settle_one(&delivery, Verb::Accept).await.expect("it can be acknowledged");
    rig.end().await.expect("ended well");
    source.source.close().await;
    sent_on.source.close().await;
    producer.close().await;
}

/// Reported for naive copies: with the broker's own property a message came back to its old lite topic, un-ackable.
#[tokio::test]
async fn a_lite_message_that_is_sent_to_a_normal_topic_is_there_and_nowhere_else() {
    let stage = Stage::with(with_targets()).await;
    let mut rig = Rig::start(&stage, SinkOptions::new(stage.client(), "N")).await;
    let mut message = message("tenant-1", "hello");
    message.properties.push(("INNER_MULTI_DISPATCH".into(), Bytes::from_static(b"%LMQ%$T$tenant-1")));
    rig.emit(vec![emission(&stage, 1, Arc::new(message))]);
    assert_eq!(rig.outcome().await, (1, Outcome::Accepted));
    let audit = stage.control.audit();
    assert_eq!(audit.messages.iter().map(|message| &*message.topic).collect::<Vec<_>>(), ["N"]);
    let consumer = stage.consumer(stage.of("N", "GN", TopicKind::Normal)).await;
    let delivery = consumer.receive(1).await.remove(0);
    assert_eq!(delivery.message.properties, []);
    rig.end().await.expect("ended well");
    consumer.source.close().await;
}

#[tokio::test]
async fn the_order_of_each_lite_topic_survives_every_fault_and_nothing_is_lost() {
    const TENANTS: usize = 8;
    const MESSAGES: usize = 30;
    let stage = Stage::with(with_targets()).await;
    let mut sink = SinkOptions::new(stage.client(), "OUT");
    sink.client.request_timeout = Duration::from_millis(400);
    sink.lite_topic = Some(template("{lite-topic}"));
    let rig = Rig::start(&stage, sink).await;
    let trouble = tokio::spawn(trouble(stage.control.clone()));
    let mut flow = Flow::new(rig, TENANTS, MESSAGES);
    let running = flow.run(&stage);
    tokio::time::timeout(2 * PATIENCE, running).await.expect("all is accepted in the end");
    trouble.await.expect("no panic");
    let given_back = flow.given_back;
    assert!(given_back > 0, "the faults did reach the flow");
    flow.rig.end().await.expect("ended well");
    stage.control.clear_faults();
    let consumer = stage.consumer(stage.of("OUT", "GO", TopicKind::Lite)).await;
    let stored = read_all(&consumer, TENANTS, MESSAGES).await;
    for tenant in 0..TENANTS {
        let mut highest = 0;
        for number in &stored[&format!("tenant-{tenant}")] {
            assert!(*number <= highest, "{tenant}: {stored:?}");
            highest = highest.max(number + 1);
        }
        assert_eq!(highest, MESSAGES);
    }
    consumer.source.close().await;
}

#[tokio::test]
async fn a_message_is_tried_three_times_and_then_given_back() {
    let stage = Stage::with(with_targets()).await;
    let mut rig = Rig::lite(&stage, "{lite-topic}").await;
    stage.control.inject(Fault::new(Method::SendMessage, code(50_001, DOWN), 2));
    rig.emit(vec![emission(&stage, 1, Arc::new(message("tenant-1", "x")))]);
    assert_eq!(rig.outcome().await, (1, Outcome::Accepted), "the third attempt");
    assert_eq!(stage.control.stats().count(Method::SendMessage), 3);
    stage.control.clear_requests();
    stage.control.inject(Fault::new(Method::SendMessage, code(50_001, DOWN), 3));
    rig.emit(vec![emission(&stage, 2, Arc::new(message("tenant-1", "y")))]);
    assert_eq!(rig.outcome().await, (2, Outcome::Released));
    assert_eq!(stage.control.stats().count(Method::SendMessage), 3, "no fourth");
    assert!(metric(&stage, "rocketmq_send_failures_total{source=\"sink\",code=\"INTERNAL_SERVER_ERROR\"} 1"));
    rig.end().await.expect("ended well");
}

#[tokio::test]
async fn the_number_of_attempts_can_be_chosen() {
    let stage = Stage::with(with_targets()).await;
    let mut sink = SinkOptions::new(stage.client(), "N");
    sink.attempts_max = 5;
    let mut rig = Rig::start(&stage, sink).await;
    stage.control.inject(Fault::new(Method::SendMessage, code(50_001, DOWN), 4));
    rig.emit(vec![emission(&stage, 1, Arc::new(message("tenant-1", "x")))]);
    assert_eq!(rig.outcome().await, (1, Outcome::Accepted), "the fifth attempt");
    rig.end().await.expect("ended well");
}

#[tokio::test]
async fn a_quota_keeps_its_own_lite_topic_out_and_is_named() {
    let mut options = with_targets();
    options.retention.lite_topics_max = 2;
    let stage = Stage::with(options).await;
    let mut rig = Rig::lite(&stage, "{lite-topic}").await;
    for (id, tenant) in [(1, "a"), (2, "b")] {
        rig.emit(vec![emission(&stage, id, Arc::new(message(tenant, "x")))]);
        assert_eq!(rig.outcome().await, (id, Outcome::Accepted));
    }
    let both = vec![
        emission(&stage, 3, Arc::new(message("c", "x"))),
        emission(&stage, 4, Arc::new(message("a", "x"))),
    ];
    rig.emit(both);
    assert_eq!(rig.outcome().await, (4, Outcome::Accepted), "the others go on");
    assert_eq!(rig.outcome().await, (3, Outcome::Released), "it is not the message's fault");
    assert!(metric(
        &stage,
        "rocketmq_send_failures_total{source=\"sink\",code=\"LITE_TOPIC_QUOTA_EXCEEDED\"} 1"
    ));
    assert!(!metric(&stage, "rocketmq_held_sinks{source=\"sink\"} 1"));
    rig.end().await.expect("ended well");
}

#[tokio::test]
async fn what_can_never_be_sent_is_rejected_with_the_reason() {
    let stage = Stage::with(with_targets()).await;
    let mut rig = Rig::lite(&stage, "{property:to}").await;
    let to = |to: &str| {
        let mut message = message("tenant-1", "x");
        message.properties.push(("to".into(), Bytes::copy_from_slice(to.as_bytes())));
        message
    };
    let mut large = to("a");
    large.body = Bytes::from(vec![b'x'; (4 << 20) + 1]);
    let mut reserved = to("b");
    reserved.properties.push(("KEYS".into(), Bytes::from_static(b"mine")));
    let batch = [message("tenant-1", "x"), to("a/b"), large, reserved, to("good")];
    let numbered = batch.into_iter().enumerate();
    rig.emit(numbered.map(|(n, message)| emission(&stage, n as u64, Arc::new(message))).collect());
    let mut outcomes = BTreeMap::new();
    for _ in 0..5 {
        let (id, outcome) = rig.outcome().await;
        outcomes.insert(id, outcome);
    }
    for (id, said) in [
        (0, "{property:to}"),
        (1, "the lite topic contains `/`"),
        (2, "4194305 bytes"),
        (3, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    ] {
        let Outcome::Rejected { reason } = &outcomes[&id] else { panic!("{id}: {outcomes:?}") };
        assert!(reason.contains(said), "{reason}");
    }
    assert_eq!(outcomes[&4], Outcome::Accepted);
    rig.end().await.expect("ended well");
}

/// A server refuses the whole request for it.
#[tokio::test]
async fn one_bad_message_of_a_batch_is_rejected_alone() {
    let stage = Stage::with(with_targets()).await;
    let mut rig = Rig::start(&stage, SinkOptions::new(stage.client(), "N")).await;
    let batch = (0..40).map(|number| {
        let mut message = message("tenant-1", "x");
        if number == 17 {
            message.properties.push(("KEYS".into(), Bytes::from_static(b"mine")));
        }
        emission(&stage, number, Arc::new(message))
    });
    rig.emit(batch.collect());
    for _ in 0..40 {
        let (id, outcome) = rig.outcome().await;
        assert_eq!(matches!(outcome, Outcome::Rejected { .. }), id == 17, "{id}: {outcome:?}");
    }
    assert_eq!(stage.control.audit().messages.len(), 39);
    rig.end().await.expect("ended well");
}

#[tokio::test]
async fn normal_messages_share_requests() {
    let stage = Stage::with(with_targets()).await;
    let mut rig = Rig::start(&stage, SinkOptions::new(stage.client(), "N")).await;
    rig.emit((0..256).map(|id| emission(&stage, id, Arc::new(message("tenant-1", "x")))).collect());
    for _ in 0..256 {
        assert_eq!(rig.outcome().await.1, Outcome::Accepted);
    }
    let requests = stage.control.stats().count(Method::SendMessage);
    assert!(requests <= 4, "{requests}");
    rig.end().await.expect("ended well");
}

#[tokio::test]
async fn a_message_group_keeps_its_order() {
    let stage = Stage::with(with_targets()).await;
    let mut sink = SinkOptions::new(stage.client(), "F");
    sink.message_group = Some(template("{key}"));
    let mut rig = Rig::start(&stage, sink).await;
    let numbered = (0..40)
        .map(|id| emission(&stage, id, Arc::new(message(&format!("tenant-{}", id % 2), &id.to_string()))));
    rig.emit(numbered.collect());
    for _ in 0..40 {
        assert_eq!(rig.outcome().await.1, Outcome::Accepted);
    }
    let consumer = stage.consumer(stage.of("F", "GF", TopicKind::Fifo)).await;
    let mut seen: HashMap<Arc<str>, Vec<u64>> = HashMap::new();
    for _ in 0..40 {
        if seen.values().map(Vec::len).sum::<usize>() == 40 {
            break;
        }
        let deliveries = consumer.receive(1).await;
        for delivery in &deliveries {
            let number = String::from_utf8_lossy(&delivery.message.body).parse().expect("a number");
            seen.entry(delivery.order.clone().expect("a group")).or_default().push(number);
        }
        assert!(consumer.settle(&deliveries, Verb::Accept).await.iter().all(Result::is_ok));
    }
    assert_eq!(seen.len(), 2);
    assert!(seen.values().all(|numbers| numbers.len() == 20 && numbers.is_sorted()), "{seen:?}");
    rig.end().await.expect("ended well");
    consumer.source.close().await;
}

/// The flow holds at its budget, the broker is not hammered, and all goes on by itself.
#[tokio::test]
async fn a_dead_broker_is_waited_for_and_nothing_is_lost() {
    for kill in [Kill::Broker, Kill::Proxy] {
        let stage = Stage::with(with_targets()).await;
        let mut sink = SinkOptions::new(stage.client(), "OUT");
        sink.client.request_timeout = Duration::from_millis(500);
        sink.lite_topic = Some(template("{lite-topic}"));
        let mut rig = Rig::start(&stage, sink).await;
        rig.emit(vec![emission(&stage, 0, Arc::new(message("first", "0")))]);
        assert_eq!(rig.outcome().await, (0, Outcome::Accepted));
        kill.stop(&stage.control).await;
        stage.control.clear_requests();
        let mut flow = Flow::new(rig, 200, 2);
        let silence = tokio::time::timeout(Duration::from_secs(4), flow.run(&stage)).await;
        assert!(silence.is_err(), "nobody is there to take anything");
        assert_eq!(flow.unreported(), flow.credits, "it keeps its credits");
        assert!(flow.given_back <= 3 * flow.credits, "{} in four seconds", flow.given_back);
        if matches!(kill, Kill::Broker) {
            let sends = stage.control.stats().count(Method::SendMessage);
            // At first as many as may be under way, three attempts each; then one at a time, each after a longer wait.
            assert!(sends <= 3 * (64 + 10), "{sends} in four seconds");
        }
        assert!(metric(&stage, "rocketmq_held_sinks{source=\"sink\"} 1"));
        kill.start(&stage.control).await;
        tokio::time::timeout(2 * PATIENCE, flow.run(&stage)).await.expect("it goes on by itself");
        assert!(metric(&stage, "rocketmq_held_sinks{source=\"sink\"} 0"));
        flow.rig.end().await.expect("ended well");
        let consumer = stage.consumer(stage.of("OUT", "GO", TopicKind::Lite)).await;
        let stored = read_all(&consumer, 200, 2).await;
        assert_eq!(stored.len(), 201, "and the one from before");
        consumer.source.close().await;
    }
}

#[tokio::test]
async fn a_flow_that_ends_while_nothing_can_be_sent_is_not_held_up() {
    for by_notice in [true, false] {
        let stage = Stage::with(with_targets()).await;
        stage.control.inject(Fault::new(Method::SendMessage, code(50_001, DOWN), u32::MAX));
        let mut rig = Rig::lite(&stage, "{lite-topic}").await;
        rig.emit(
            (0..30)
                .map(|id| emission(&stage, id, Arc::new(message(&format!("tenant-{}", id % 5), "x"))))
                .collect(),
        );
        eventually(|| metric(&stage, "rocketmq_held_sinks{source=\"sink\"} 1").then_some(())).await;
        let begun = Instant::now();
        if by_notice {
            rig.outbox.notify(vec![Notice::Draining]).expect("it reads");
        } else {
            rig.outbox.end_inbox();
        }
        for _ in 0..30 {
            assert_eq!(rig.outcome().await.1, Outcome::Released);
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        rig.end().await.expect("ended well");
    }
}

#[tokio::test]
async fn a_dead_letter_says_why_it_is_one() {
    let stage = Stage::with(with_targets()).await;
    let mut rig = Rig::start(&stage, SinkOptions::new(stage.client(), "N")).await;
    let mut emission = emission(&stage, 1, Arc::new(message("tenant-7", "x")));
    emission.attempt = 4;
    emission.order = None;
    // A dead letter's lease may be over: what counts is that it is kept.
    emission.expires_at = emission.received_at;
    emission.dead_letter = Some(Arc::new(DeadLetter {
        flow: "tenants".into(),
        source: "orders".into(),
        policy: Some("quota".into()),
        reason: "over quota for ever".into(),
        first_received_at: Timestamp::from_unix_millis(1_000),
        last_received_at: Timestamp::from_unix_millis(2_000),
    }));
    let id = emission.message.id.to_string();
    rig.emit(vec![emission]);
    assert_eq!(rig.outcome().await, (1, Outcome::Accepted));
    let consumer = stage.consumer(stage.of("N", "GN", TopicKind::Normal)).await;
    let delivery = consumer.receive(1).await.remove(0);
    for (name, value) in [
        ("reason", "over quota for ever"),
        ("flow", "tenants"),
        ("source", "orders"),
        ("policy", "quota"),
        ("topic", "T"),
        ("lite-topic", "tenant-7"),
        ("message-id", &id),
        ("attempts", "4"),
        ("first-received-at", "1000"),
        ("last-received-at", "2000"),
    ] {
        assert_eq!(delivery.message.property(&format!("tidegate-dead-letter-{name}")), Some(value));
    }
    assert_eq!(bodies(&[delivery]), ["x"]);
    rig.end().await.expect("ended well");
    consumer.source.close().await;
}

#[tokio::test]
async fn a_topic_of_another_kind_holds_the_sink_and_blames_no_message() {
    let stage = Stage::with(with_targets()).await;
    let mut rig = Rig::start(&stage, SinkOptions::new(stage.client(), "OUT")).await;
    rig.emit(vec![emission(&stage, 1, Arc::new(message("tenant-1", "x")))]);
    assert_eq!(rig.outcome().await, (1, Outcome::Released));
    let code = "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE";
    assert!(metric(&stage, &format!("rocketmq_send_failures_total{{source=\"sink\",code=\"{code}\"}} 1")));
    rig.end().await.expect("ended well");
}

/// A running sink, as a flow holds it.
struct Rig {
    outbox: Outbox,
    task: JoinHandle<Result<(), SinkError>>,
    credits: usize,
    reports: std::collections::VecDeque<Report>,
}

impl Rig {
    async fn lite(stage: &Stage, lite_topic: &str) -> Self {
        let mut options = SinkOptions::new(stage.client(), "OUT");
        options.lite_topic = Some(template(lite_topic));
        Self::start(stage, options).await
    }

    async fn start(stage: &Stage, options: SinkOptions) -> Self {
        let sink = GrpcSink::connect(options, stage.clock, stage.telemetry.clone(), "sink".into()).await;
        let sink = Box::new(sink.expect("set up"));
        let credits = sink.credits();
        assert!(sink.wants_notices());
        let (outbox, inbox) = inbox(credits);
        Self {
            outbox,
            task: tokio::spawn(sink.run(inbox)),
            credits,
            reports: std::collections::VecDeque::new(),
        }
    }

    fn emit(&self, emissions: Vec<Emission>) {
        assert!(self.outbox.emit(emissions), "it runs");
    }

    async fn report(&mut self) -> Report {
        while self.reports.is_empty() {
            let reports = tokio::time::timeout(PATIENCE, self.outbox.reports()).await.expect("a report");
            self.reports.extend(reports.expect("it runs").ended);
        }
        self.reports.pop_front().expect("not empty")
    }

    async fn outcome(&mut self) -> (u64, Outcome) {
        let report = self.report().await;
        (report.id.0, report.outcome)
    }

    async fn end(self) -> Result<(), SinkError> {
        let Self { mut outbox, task, .. } = self;
        outbox.end_inbox();
        tokio::time::timeout(PATIENCE, task).await.expect("in time").expect("no panic")
    }
}

/// Emits the messages of each lite topic in order; what is given back comes again with all that follows it.
struct Flow {
    rig: Rig,
    credits: usize,
    messages: usize,
    tenants: Vec<Tenant>,
    next_id: u64,
    with_sink: HashMap<u64, (usize, usize)>,
    given_back: usize,
    notices: Vec<Notice>,
}

#[derive(Default)]
struct Tenant {
    next: usize,
    accepted: usize,
    /// Emitted and not overtaken, in order, and whether it is accepted.
    emitted: Vec<(u64, bool)>,
}

impl Flow {
    fn new(rig: Rig, tenants: usize, messages: usize) -> Self {
        let credits = rig.credits;
        let tenants = (0..tenants).map(|_| Tenant::default()).collect();
        Self {
            rig,
            credits,
            messages,
            tenants,
            next_id: 0,
            with_sink: HashMap::new(),
            given_back: 0,
            notices: Vec::new(),
        }
    }

    fn unreported(&self) -> usize {
        self.with_sink.len()
    }

    async fn run(&mut self, stage: &Stage) {
        while self.tenants.iter().any(|tenant| tenant.accepted < self.messages) {
            self.emit(stage).await;
            let report = self.rig.report_for_ever().await;
            self.handle(&report);
            let notices = std::mem::take(&mut self.notices);
            self.notices.extend(self.rig.outbox.notify(notices).err().unwrap_or_default());
        }
    }

    async fn emit(&mut self, stage: &Stage) {
        let mut batch = Vec::new();
        loop {
            let before = batch.len();
            for (at, tenant) in self.tenants.iter_mut().enumerate() {
                if tenant.next < self.messages && self.with_sink.len() < self.credits {
                    self.next_id += 1;
                    let name = format!("tenant-{at}");
                    let mut message = message(&name, &tenant.next.to_string());
                    message.id = format!("{name}-{}", tenant.next).into();
                    batch.push(emission(stage, self.next_id, Arc::new(message)));
                    self.with_sink.insert(self.next_id, (at, tenant.next));
                    tenant.emitted.push((self.next_id, false));
                    tenant.next += 1;
                }
            }
            if batch.len() == before {
                break;
            }
        }
        if !batch.is_empty() {
            self.rig.emit(batch);
        }
    }

    fn handle(&mut self, report: &Report) {
        let (at, number) = self.with_sink.remove(&report.id.0).expect("one report for each");
        let tenant = &mut self.tenants[at];
        let Some(place) = tenant.emitted.iter().position(|(id, _)| *id == report.id.0) else {
            // What is said about it has no effect.
            self.notices.push(Notice::Void { id: report.id, cause: VoidCause::Overtaken });
            return;
        };
        self.notices.push(Notice::Settled { id: report.id, result: Ok(()) });
        if report.outcome == Outcome::Accepted {
            tenant.emitted[place].1 = true;
        } else {
            assert_eq!(report.outcome, Outcome::Released);
            self.given_back += 1;
            tenant.emitted.truncate(place);
            tenant.next = number;
        }
        while tenant.emitted.first().is_some_and(|(_, accepted)| *accepted) {
            tenant.emitted.remove(0);
            tenant.accepted += 1;
        }
    }
}

impl Rig {
    async fn report_for_ever(&mut self) -> Report {
        while self.reports.is_empty() {
            self.reports.extend(self.outbox.reports().await.expect("it runs").ended);
        }
        self.reports.pop_front().expect("not empty")
    }
}

#[derive(Clone, Copy)]
enum Kill {
    Broker,
    Proxy,
}

impl Kill {
    async fn stop(self, control: &Control) {
        match self {
            Self::Broker => control.stop_broker_at(0),
            Self::Proxy => control.stop_proxy_at(0).await,
        }
    }

    async fn start(self, control: &Control) {
        match self {
            Self::Broker => control.start_broker_at(0, Duration::from_millis(500)),
            Self::Proxy => control.start_proxy_at(0).await,
        }
    }
}

/// One fault after another for a while: answers that fail, answers that are lost, connections that break.
async fn trouble(control: Control) {
    let faults = [
        (code(50_001, DOWN), 4),
        (Effect::DropReply, 1),
        (Effect::Grpc { code: 14, message: "gone".into() }, 5),
        (code(42_900, "slow down"), 3),
        (Effect::CloseStream, 4),
        (code(40_014, "the expected type is UNSPECIFIED, but actual type is LITE"), 3),
        (code(42_901, "too many lite topics"), 2),
    ];
    for round in 0..6 {
        for (effect, times) in faults.clone() {
            control.inject(Fault::new(Method::SendMessage, effect, times));
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        if round == 3 {
            control.restart_proxy(Duration::from_millis(200)).await;
        }
    }
    control.clear_faults();
}

/// Reads until as many lite topics as there are `tenants` have their last message; gives the numbers of each in the order of the broker.
async fn read_all(consumer: &Consumer, tenants: usize, messages: usize) -> BTreeMap<String, Vec<usize>> {
    let mut stored: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let number =
        |delivery: &Delivery| String::from_utf8_lossy(&delivery.message.body).parse().expect("a number");
    loop {
        let complete = stored.values().filter(|numbers| numbers.contains(&(messages - 1))).count();
        if complete == tenants {
            return stored;
        }
        let deliveries = consumer.receive(1).await;
        for delivery in &deliveries {
            let tenant = delivery.message.lite_topic.as_deref().expect("a lite topic").to_owned();
            stored.entry(tenant).or_default().push(number(delivery));
        }
        assert!(consumer.settle(&deliveries, Verb::Accept).await.iter().all(Result::is_ok));
    }
}

/// The topics of the other tests, and a lite topic `OUT` with its group `GO`.
fn with_targets() -> Options {
    let mut options = options();
    options.topics.push(Topic::new("OUT", Kind::Lite));
    options.groups.push(Group::lite("GO", "OUT"));
    options
}

fn message(lite_topic: &str, body: &str) -> Message {
    let mut message = Message::new("T", format!("{lite_topic}-{body}"));
    message.lite_topic = Some(lite_topic.into());
    message.body = Bytes::copy_from_slice(body.as_bytes());
    message
}

fn emission(stage: &Stage, id: u64, message: Arc<Message>) -> Emission {
    let now = stage.clock.now();
    let order = message.lite_topic.clone();
    Emission {
        id: DeliveryId(id),
        key: order.clone().unwrap_or_default(),
        order,
        message,
        attempt: 1,
        handle: Handle { routing: Arc::default(), text: "".into() },
        received_at: now,
        expires_at: now + Duration::from_secs(600),
        dead_letter: None,
    }
}

fn template(text: &str) -> Template {
    Template::parse(text).expect("a template")
}

fn code(code: i32, message: &str) -> Effect {
    Effect::Code { code, message: message.to_owned() }
}

fn metric(stage: &Stage, line: &str) -> bool {
    stage.telemetry.encode().lines().any(|shown| shown == format!("tidegate_{line}"))
}
