use async_trait::async_trait;
use tidegate_connector::TellSettled;
use tidegate_model::{DeliveryId, Routing, Timestamp};

use super::*;
use crate::rights::Rights;

/// Answers the first of a batch, and never the rest.
struct Stuck;

#[async_trait]
impl ReceiptSettler for Stuck {
    fn serves(&self, _: &Receipt) -> bool {
        true
    }

    async fn settle_each(&self, _: Vec<SettleByReceipt>, tell: &TellSettled<'_>) {
        tell(vec![(0, Ok(None))]);
        std::future::pending::<()>().await;
    }

    async fn close(&self) {}
}

fn receipt(number: u64) -> Receipt {
    Receipt {
        routing: Routing::default(),
        topic: "topic".into(),
        lite_topic: None,
        message_id: format!("message-{number}").into(),
        handle: format!("handle-{number}").into(),
        attempt: 1,
        owner: "elsewhere".into(),
        flow: "tenants".into(),
        delivery: DeliveryId(number),
        expires_at: Timestamp::from_unix_millis(0),
    }
}

fn router() -> SettleRouter {
    SettleRouter {
        key: ReceiptKey::new([7; 32]),
        host_id: "here".into(),
        registry: Arc::default(),
        others: Some(Arc::new(Stuck)),
        forwarder: Arc::new(Forwarder::start([], Clock::start(), Telemetry::default()).unwrap()),
        owner_settles: |routing| *routing.namespace == *"owner",
        clock: Clock::start(),
        telemetry: Telemetry::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_broker_has_answered_does_not_wait_for_what_it_has_not() {
    let router = router();
    let anyone = Rights::default().admit(None).unwrap();
    let settlements = (0..3).map(|number| proto::Settlement {
        receipt: receipt(number).encode(&router.key),
        verdict: Some(proto::settlement::Verdict::Accept(proto::Accept {})),
        cost: None,
    });
    let began = tokio::time::Instant::now();
    let told = Mutex::new(Vec::new());
    let tell = |at: usize, one: Told| told.lock().push((at, one.status, began.elapsed()));
    router.settle_each(&anyone, settlements.collect(), Terms::OWN, &tell).await;
    let late = (proto::Status::RetryLater, PATIENCE);
    let expected = [(0, proto::Status::Done, Duration::ZERO), (1, late.0, late.1), (2, late.0, late.1)];
    let told = told.into_inner();
    let whole = |elapsed: Duration| Duration::from_secs(elapsed.as_secs());
    let told: Vec<_> = told.into_iter().map(|(at, status, elapsed)| (at, status, whole(elapsed))).collect();
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_the_broker_has_answered_is_told_as_well() {
    let router = router();
    let anyone = Rights::default().admit(None).unwrap();
    let renewals = (0..2)
        .map(|number| proto::Renewal { receipt: receipt(number).encode(&router.key), length_ms: 60_000 });
    let kept = router.renew(&anyone, renewals.collect(), Terms::OWN).await;
    let statuses: Vec<_> = kept.iter().map(|kept| kept.told.status).collect();
    assert_eq!(statuses, [proto::Status::Done, proto::Status::RetryLater]);
}

#[test]
fn a_delay_that_nobody_can_mean_is_refused_with_the_limit() {
    let read = |delay_ms| {
        let verdict = Some(proto::settlement::Verdict::Defer(proto::Defer { delay_ms }));
        Wish::read(&proto::Settlement { receipt: String::new(), verdict, cost: None })
    };
    let month = u64::try_from(LENGTH_MAX.as_millis()).expect("a month");
    assert!(read(0).is_ok() && read(month).is_ok());
    for delay in [month + 1, u64::MAX] {
        let told = read(delay).err().expect("refused");
        assert!(told.contains("30 days") && told.contains(&delay.to_string()), "{told}");
    }
}
