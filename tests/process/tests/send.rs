//! `tidegate send`: what it sends, and what it says when it cannot.

use tidegate_process_tests::{Ended, Home, TOPIC, run_with_input, start_broker};

const LIMIT: usize = 4 << 20;

fn send(endpoints: &str, more: &[&str], input: &[u8]) -> Ended {
    let arguments: Vec<&str> =
        ["send", "--endpoints", endpoints, "--topic", TOPIC].iter().chain(more).copied().collect();
    run_with_input(Home::new().path(), &arguments, input)
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_become_messages_up_to_the_one_that_cannot_be_sent() {
    let broker = start_broker().await;
    let endpoints = broker.address().to_string();
    let lines = |input: &[u8]| {
        tokio::task::block_in_place(|| send(&endpoints, &["--lite-topic", "tenant", "-"], input))
    };
    let good = lines(b"a\nb\r\nc");
    assert_eq!((good.code, good.stdout.lines().count()), (Some(0), 3), "{}", good.stderr);

    let empty = lines(b"a\nb\n\nc\n");
    assert_eq!((empty.code, empty.stdout.lines().count()), (Some(2), 2), "{}", empty.stderr);
    insta::assert_snapshot!(
        empty.stderr.trim_end(),
        @"error: line 3 of standard input was not sent (2 messages were): the body is empty, and RocketMQ takes only bodies of at least one byte"
    );

    let large = [b"a\n", "x".repeat(LIMIT + 1).as_bytes(), b"\nb\n"].concat();
    let large = lines(&large);
    assert_eq!((large.code, large.stdout.lines().count()), (Some(2), 1), "{}", large.stderr);
    let told = format!("the body has {} bytes, the server takes {LIMIT} at most", LIMIT + 1);
    assert!(large.stderr.starts_with("error: line 2 of standard input was not sent (1 message was)"));
    assert!(large.stderr.contains(&told), "{}", large.stderr);
    broker.stop().await;
}

/// The server counts its own properties too, so it refuses a body of exactly the size that it announces.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_only_the_server_finds_too_large_is_not_tried_again() {
    let broker = start_broker().await;
    let endpoints = broker.address().to_string();
    let body = "x".repeat(LIMIT);
    let ended =
        tokio::task::block_in_place(|| send(&endpoints, &["--lite-topic", "tenant", "-"], body.as_bytes()));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("after 1 attempts") && !ended.stderr.contains("(none)"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("send a smaller body"), "{}", ended.stderr);
    broker.stop().await;
}

#[test]
fn advice_names_the_flags_and_not_keys_of_a_configuration() {
    let ended = send("127.0.0.1:1", &["hello"], b"");
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("--endpoints") && !ended.stderr.contains("rocketmq.client"),
        "{}",
        ended.stderr
    );
    let ended = send("http://127.0.0.1:1", &["hello"], b"");
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("--endpoints") && !ended.stderr.contains("rocketmq.client"),
        "{}",
        ended.stderr
    );
    let ended = send("127.0.0.1:1", &["--tls-ca-file", "absent.pem", "hello"], b"");
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("`--tls-ca-file` names `absent.pem`")
            && !ended.stderr.contains("rocketmq.client"),
        "{}",
        ended.stderr
    );
}
