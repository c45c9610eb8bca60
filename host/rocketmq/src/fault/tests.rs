use super::*;
use crate::options::TopicKind;

#[test]
fn known_texts_tell_apart_what_shares_a_code() {
    let receive = |text| of_status(Method::ReceiveMessage, 50_001, text);
    assert_eq!(
        receive("Cannot invoke \"apache.rocketmq.v2.Settings.getClientType()\" because \"settings\" is null"),
        Reason::SettingsUnknown
    );
    assert_eq!(
        receive("send request to 10.0.0.1:10911 failed. RemotingSendRequestException"),
        Reason::BrokerDown
    );
    assert_eq!(receive("connect to 10.0.0.1:10911 failed. RemotingConnectException"), Reason::BrokerDown);
    assert_eq!(receive("something else"), Reason::ServerTrouble);
    assert_eq!(of_status(Method::AckMessage, 50_001, "Parse failed, dataList size 1"), Reason::Refused);
    let conflict = "the expected type is UNSPECIFIED, but actual type is LITE";
    assert_eq!(of_status(Method::SendMessage, 40_014, conflict), Reason::TopicUnknown);
    assert_eq!(of_status(Method::SendMessage, 40_014, "the expected type is LITE"), Reason::WrongMessageType);
    let bound = |text| of_status(Method::SyncLiteSubscription, 40_002, text);
    assert_eq!(bound("lite group G is expected to bind topic null, but actual is T"), Reason::GroupNotLite);
    assert_eq!(
        bound("lite group G is expected to bind topic A, but actual is T"),
        Reason::GroupBoundElsewhere
    );
    assert_eq!(
        of_status(Method::Heartbeat, 40_015, "cannot find client settings for this client"),
        Reason::SettingsUnknown
    );
}

#[test]
fn unknown_codes_go_by_their_class() {
    for (code, reason) in [
        (40_099, Reason::Refused),
        (40_150, Reason::Access),
        (42_950, Reason::Throttled),
        (50_999, Reason::ServerTrouble),
        (60_000, Reason::Malformed),
        (0, Reason::Malformed),
        (-1, Reason::Malformed),
    ] {
        assert_eq!(of_status(Method::AckMessage, code, ""), reason, "{code}");
    }
}

#[test]
fn a_topic_that_is_gone_is_the_brokers_trouble_only_after_a_good_start() {
    let error = CallError::answered(&subject(), Method::ReceiveMessage, 40_402, "No topic route info");
    assert_eq!(error.receive_fault(false), ReceiveFault::Subscription);
    assert_eq!(error.receive_fault(true), ReceiveFault::Broker);
    let group = CallError::answered(&subject(), Method::SyncLiteSubscription, 40_003, "group not found: G");
    assert_eq!(group.receive_fault(true), ReceiveFault::Broker);
    let bound = "lite group G is expected to bind topic A, but actual is T";
    let bound = CallError::answered(&subject(), Method::SyncLiteSubscription, 40_002, bound);
    assert_eq!(bound.receive_fault(true), ReceiveFault::Subscription);
}

#[test]
fn a_stale_handle_is_never_retried() {
    let error = CallError::answered(&subject(), Method::AckMessage, 40_013, "receipt handle is expired");
    assert_eq!(error.settle_fault(), SettleFault::LeaseGone);
    assert!(!error.reason().is_retryable());
}

/// Illegal topic and group answers carry a hint on `lite.bind.topic` (a reported trap: rocketmq 10895).
#[test]
fn a_group_that_is_not_bound_gets_the_command_that_binds_it() {
    for (code, text) in [
        (40_003, "group not found: G"),
        (40_003, "regular group cannot use LITE mode: G"),
        (40_002, "lite group G is expected to bind topic A, but actual is T"),
    ] {
        let error = CallError::answered(&subject(), Method::SyncLiteSubscription, code, text).to_string();
        assert!(error.contains("+lite.bind.topic=T,+lite.sub.wildcard=true"), "{error}");
        assert!(error.contains("-g G"), "{error}");
    }
}

#[test]
fn access_point_and_route_endpoint_are_shown_apart() {
    let error = CallError::answered(&subject(), Method::ReceiveMessage, 40_100, "check signature failed.");
    assert_eq!(
        error.to_string(),
        "cannot receive from topic `T` as group `G`: the server answered 40100 UNAUTHORIZED `check signature \
         failed.`; check `rocketmq.client.access-key` and `rocketmq.client.secret-key`, and that this user may subscribe \
         to topic `T` with group `G` (action Sub on both) (access point proxy:8081, route endpoint 10.0.0.5:8081)"
    );
}

#[test]
fn a_stack_trace_is_cut_to_its_first_line() {
    let trace = format!("java.lang.IllegalStateException: {}\n\tat a.b.C.d(E.java:1)", "x".repeat(1_000));
    let error = CallError::answered(&subject(), Method::AckMessage, 50_001, &trace).to_string();
    assert!(!error.contains("E.java"), "{error}");
    assert!(error.len() < 500, "{error}");
}

fn subject() -> Subject {
    Subject {
        access_point: "proxy:8081".into(),
        endpoint: Some("10.0.0.5:8081".into()),
        topic: Some("T".into()),
        group: Some("G".into()),
        topic_kind: Some(TopicKind::Lite),
        names: &crate::OptionNames::KEYS,
    }
}

/// Whoever gave flags is not told of keys.
#[test]
fn advice_speaks_of_options_by_the_names_that_it_is_given() {
    const FLAGS: crate::OptionNames = crate::OptionNames {
        endpoints: "--endpoints",
        tls: "--tls",
        tls_ca_file: "--tls-ca-file",
        tls_cert_file: None,
        tls_key_file: None,
        access_key: "--access-key",
        secret_key: "SECRET_KEY",
        request_timeout: None,
    };
    let producer = Subject { endpoint: None, group: None, topic_kind: None, names: &FLAGS, ..subject() };
    for reason in [
        Reason::Unreachable,
        Reason::TimedOut,
        Reason::NotAProxy,
        Reason::TlsMismatch,
        Reason::TlsFailed,
        Reason::Access,
        Reason::TopicUnknown,
        Reason::WrongMessageType,
        Reason::TooLarge,
        Reason::LiteTopicQuota,
    ] {
        let said = CallError::other(&producer, Method::SendMessage, reason, "x").to_string();
        assert!(said.contains("; ") && !said.contains("rocketmq.client"), "{said}");
    }
}

#[test]
fn what_is_too_large_is_not_tried_again() {
    let text =
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit";
    let error = CallError::answered(&subject(), Method::SendMessage, 50_001, text);
    assert_eq!(error.reason(), Reason::TooLarge);
    assert!(!error.reason().is_retryable());
}
