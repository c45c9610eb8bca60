//! Settling through another host.

use std::time::Duration;

use serde_json::json;
use tidegate_client::{Client, Renewal, Settlement, Status, Verdict};
use tidegate_process_tests::{Home, eventually};
use tidegate_share_broker::Options;

use crate::{
    FIVE, FLEET, KEY, Owner, append, cluster, command, first, five_are_settled, held, other, receipt,
    settle_in_every_way, settle_one, start_other, tally,
};

#[tokio::test(flavor = "multi_thread")]
async fn each_verdict_has_its_effect_through_another_host() {
    let cluster = cluster(Options::quick()).await;
    append(&cluster, &FIVE);
    let owner = Owner::new(&cluster.bootstrap_servers(), "", "");
    let (program, service) = owner.start().await;
    let home = other(&first(&owner), "");
    let (passing, through) = start_other(&home).await;
    settle_in_every_way(&service, &through).await;
    five_are_settled(&cluster).await;
    // It has joined nothing.
    assert_eq!(cluster.with(|cluster, _| cluster.members(crate::GROUP)).len(), 1);
    assert_eq!(passing.metric("peer_up{peer=\"first\"}").await, 1);
    assert_eq!(
        passing.metric("peer_forwarded_total{peer=\"first\",kind=\"settle\",result=\"done\"}").await,
        8
    );
    assert_eq!(
        passing.metric("peer_forwarded_total{peer=\"first\",kind=\"renew\",result=\"done\"}").await,
        1
    );
    assert_eq!(program.metric("peer_received_total").await, 10);
    let log = passing.log();
    assert!(log.contains("a peer answers") && !log.contains(FLEET), "{log}");

    let checked = command(&home, &["check", "--connect"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("peer first\nanswer     ok       host host-"), "{}", checked.stdout);
    assert!(checked.stdout.contains("flows      ok       tenants"), "{}", checked.stdout);
    assert_eq!(passing.terminate().await.code, Some(0));
    assert_eq!(program.terminate().await.code, Some(0));
    cluster.stop().await;
}

/// The same over gRPC, by commands, and for a worker that says `elsewhere` first as it does with other brokers.
#[tokio::test(flavor = "multi_thread")]
async fn calls_and_commands_lead_to_the_owner() {
    let cluster = cluster(Options::quick()).await;
    append(&cluster, &["call", "command", "late", "elsewhere", "many-1", "many-2", "gone"]);
    let owner = Owner::new(&cluster.bootstrap_servers(), "", "");
    let (program, service) = owner.start().await;
    let home = other(&first(&owner), "");
    let (passing, through) = start_other(&home).await;
    let taken = service.pull_all(7).await;
    let client = Client::builder(format!("http://{}", through.address)).build().unwrap();

    let call = receipt(&taken, "call");
    let renewals = vec![Renewal { receipt: call.clone(), length: Duration::from_secs(20) }];
    let renewed = client.renew(renewals).await.unwrap();
    assert_eq!((renewed[0].status, &renewed[0].next_receipt), (Status::Done, &None), "{renewed:?}");
    assert!(renewed[0].lease > Duration::ZERO, "{renewed:?}");
    let accept = |receipt: String| Settlement { receipt, verdict: Verdict::accept().with_cost(1.5) };
    let batch = vec![accept(call), accept("tg1.rubbish".into()), accept(receipt(&taken, "many-1"))];
    let settled = client.settle(batch).await.unwrap();
    let statuses: Vec<Status> = settled.iter().map(|result| result.status).collect();
    assert_eq!(statuses, [Status::Done, Status::Refused, Status::Done], "{settled:?}");

    let (status, _) = service.ask(
        "POST",
        "/v1/elsewhere",
        &json!({ "receipts": [receipt(&taken, "elsewhere")] }).to_string(),
    );
    assert_eq!(status, 200);
    let told = settle_one(&through, &receipt(&taken, "elsewhere"), &json!({ "verdict": "accept" }));
    assert_eq!(told, ("done".into(), String::new()));

    let ended = command(&home, &["ack", &receipt(&taken, "command"), &receipt(&taken, "many-2")]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("2 settled (accept)"), "{ended:?}");
    let ended = command(&home, &["defer", "--delay", "1s", &receipt(&taken, "late")]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let again = service.pull_all(1).await;
    let ended = command(&home, &["reject", &receipt(&again, "late")]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // Settled otherwise before.
    let ended = command(&home, &["ack", "--json", &receipt(&again, "late")]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let line: serde_json::Value = serde_json::from_str(ended.stdout.trim()).unwrap();
    assert_eq!(
        (&line["status"], &line["detail"]),
        (&json!("unknown"), &json!("it was rejected before")),
        "{line}"
    );
    let ended = command(&home, &["release", &receipt(&taken, "gone")]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let again = service.pull_all(1).await;
    assert_eq!(through.settle(&again, &json!({ "verdict": "accept" })), ["done"]);

    eventually("six accepted and one rejected", || {
        let tally = tally(&cluster);
        ((tally.accepted, tally.rejected, tally.expired) == (6, 1, 0)).then_some(())
    })
    .await;
    eventually("nothing held", || (held(&service) == 0).then_some(())).await;
    assert_eq!(passing.terminate().await.code, Some(0));
    assert_eq!(program.terminate().await.code, Some(0));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_is_away_is_worth_another_try_and_one_that_is_new_says_so() {
    let cluster = cluster(Options::quick()).await;
    append(&cluster, &["a", "b"]);
    let owner = Owner::new(&cluster.bootstrap_servers(), "", "");
    let (program, service) = owner.start().await;
    let home = other(&first(&owner), "");
    let (passing, through) = start_other(&home).await;
    let taken = service.pull_all(2).await;
    let accept = json!({ "verdict": "accept" });
    assert_eq!(through.settle(crate::of(&taken, "a"), &accept), ["done"]);
    program.kill().await;
    let b = receipt(&taken, "b");
    for _ in 0..2 {
        let (status, told) = settle_one(&through, &b, &accept);
        assert_eq!(status, "retry-later", "{told}");
        assert!(told.contains("`first`") && told.contains("its locks end by themselves"), "{told}");
    }
    let ended = command(&home, &["ack", &b]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stdout.contains("retry-later"), "{ended:?}");
    assert_eq!(passing.metric("peer_up{peer=\"first\"}").await, 0);
    assert!(passing.log().contains("a peer cannot be asked"), "{}", passing.log());

    let (program, service) = owner.start().await;
    eventually("the owner's word", || {
        let (status, told) = settle_one(&through, &b, &accept);
        if status == "retry-later" {
            return None;
        }
        assert_eq!(status, "unknown", "{told}");
        assert!(told.contains("does not hold it any more"), "{told}");
        Some(())
    })
    .await;
    let again = service.pull_all(1).await;
    assert_eq!(crate::bodies(&again), ["b"]);
    assert_eq!(through.settle(&again, &accept), ["done"]);
    eventually("two accepted", || (tally(&cluster).accepted == 2).then_some(())).await;
    assert_eq!(passing.terminate().await.code, Some(0));
    assert_eq!(program.terminate().await.code, Some(0));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_passed_on_is_refused_with_what_to_do() {
    let cluster = cluster(Options::quick()).await;
    append(&cluster, &["a"]);
    let owner = Owner::new(&cluster.bootstrap_servers(), "", "");
    let (program, service) = owner.start().await;
    let taken = service.pull_all(1).await;
    let a = receipt(&taken, "a");
    let accept = json!({ "verdict": "accept" });
    let refused = async |home: &Home, token: Option<&str>, said: &[&str]| {
        let (passing, through) = start_other(home).await;
        let through = token.map_or_else(|| through.clone(), |token| through.with_token(token));
        let (status, told) = settle_one(&through, &a, &accept);
        assert_eq!(status, "refused", "{told}");
        for said in said {
            assert!(told.contains(said), "`{said}` is not in: {told}");
        }
        assert_eq!(passing.terminate().await.code, Some(0));
    };
    let nobody = other("", "");
    refused(&nobody, None, &["only host `host-", "[peers.NAME]", "`endpoint`"]).await;
    let ended = command(&nobody, &["ack", &a]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("refused") && ended.stdout.contains("[peers.NAME]"), "{ended:?}");

    let stranger = other(&first(&owner), "");
    stranger.write("peer.token", "wrong-0123456789abcdef");
    refused(&stranger, None, &["`first`", "this bearer token is not known here", "`token`"]).await;
    let checked = command(&stranger, &["check", "--connect"]).await;
    assert_eq!(checked.code, Some(3), "{checked:?}");
    assert!(
        checked.stdout.contains("answer     failed   this bearer token is not known here"),
        "{}",
        checked.stdout
    );
    assert!(checked.stderr.contains("peers that nothing can be passed on to: `first`"), "{}", checked.stderr);

    let without_right = other(&first(&owner), "tokens-file = \"tokens.toml\"");
    let tokens = "[tokens.elsewhere]\ntoken = \"elsewhere-0123456789\"\nflows = [\"others\"]\n";
    without_right.write("tokens.toml", tokens);
    refused(&without_right, Some("elsewhere-0123456789"), &["`elsewhere` has no right to flow `tenants`"])
        .await;

    let foreign = other(&first(&owner), "");
    foreign.write("fleet.key", KEY.replace('0', "f"));
    refused(&foreign, None, &["another receipt key"]).await;
    assert_eq!(program.metric("peer_received_total").await, 0, "nothing of it has reached the owner");

    let good = other(&first(&owner), "");
    let (passing, through) = start_other(&good).await;
    let forged = format!("{}A{}", &a[..40], &a[41..]);
    let forged = if forged == a { format!("{}B{}", &a[..40], &a[41..]) } else { forged };
    let (status, told) = settle_one(&through, &forged, &accept);
    assert_eq!(status, "refused", "{told}");
    assert_eq!(settle_one(&through, &a, &accept).0, "done");
    assert_eq!(passing.terminate().await.code, Some(0));
    assert_eq!(program.terminate().await.code, Some(0));
    cluster.stop().await;
}

/// Two hosts that have each other as peers, and a receipt of a third that neither has.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_round_in_circles() {
    let cluster = cluster(Options::quick()).await;
    append(&cluster, &["a"]);
    let owner = Owner::new(&cluster.bootstrap_servers(), "", "");
    let (program, service) = owner.start().await;
    let taken = service.pull_all(1).await;
    let left = other("", "");
    let (left_host, left_service) = start_other(&left).await;
    let right = other(&format!("[peers.left]\nendpoint = \"http://{}\"\n", left_service.address), "");
    let (right_host, right_service) = start_other(&right).await;
    let accept = json!({ "verdict": "accept" });
    let (status, told) = settle_one(&right_service, &receipt(&taken, "a"), &accept);
    assert_eq!(status, "refused", "{told}");
    assert!(told.contains("it is none of the peers `left`"), "{told}");
    assert_eq!(left_host.metric("peer_received_total").await, 0);
    for host in [left_host, right_host, program] {
        assert_eq!(host.terminate().await.code, Some(0));
    }
    cluster.stop().await;
}
