//! Flows with ten workers, shared out by cost: beside the same flows without a policy.

use crate::caller;
use crate::flow::{Plan, Record, Tenant, run};

/// Parts of the work that may be lost to a policy.
const LOSS_MAX: f64 = 0.05;

/// From so many deliveries on the host delivers a message whatever its policy says.
const ATTEMPTS_MAX: u32 = 16;

/// A tenant that sends so many messages a second, which take so many seconds.
const fn tenant(name: &'static str, rate: f64, work: f64) -> Tenant {
    Tenant { name, rate, backlog: 0, begins: 0, work, is_ordered: false }
}

/// A tenant whose messages take fifty times as long as those of the others: it has sent a thousand, and sends more.
const HOT: Tenant = Tenant { backlog: 1_000, ..tenant("hot", 2.0, 5.0) };

const LIGHT: [&str; 4] = ["light-1", "light-2", "light-3", "light-4"];

/// Others, with so many messages a second each.
fn light(rate: f64) -> impl Iterator<Item = Tenant> {
    LIGHT.into_iter().map(move |name| tenant(name, rate, 0.1))
}

/// Without the policy and with it.
struct Both {
    without: Record,
    with: Record,
}

#[allow(clippy::print_stdout, reason = "a bound that breaks says little without the figures beside it")]
fn both(tenants: &[Tenant], is_ordered: bool, change: impl FnOnce(Plan<'_>) -> Plan<'_>) -> Both {
    let tenants: Vec<_> = tenants.iter().map(|tenant| Tenant { is_ordered, ..*tenant }).collect();
    let plan = change(Plan {
        tenants: &tenants,
        workers: 10,
        tokens_per_second: Some(1_000.0),
        seed: 1,
        warm_up: 60,
        counted: 120,
    });
    let both = Both { without: run(&plan, None), with: run(&plan, Some(caller())) };
    for (policy, record) in [("none", &both.without), ("cost-share", &both.with)] {
        println!(
            "ordered {is_ordered}, {policy}: {:.3} of the workers' time",
            record.work() / record.capacity
        );
        for tenant in &tenants {
            let served = &record.tenants[tenant.name];
            println!(
                "  {}: share {:.3}, {} messages, {} deferrals, p99 {} ms, {} attempts at most, the last at {} ms",
                tenant.name,
                record.share(tenant.name),
                served.messages,
                served.deferrals,
                served.p99(),
                served.most_attempts,
                served.last_done
            );
        }
    }
    both
}

impl Both {
    /// What passes because the host has had enough is no share.
    fn is_the_policys_doing(&self) {
        for (tenant, served) in &self.with.tenants {
            assert!(served.most_attempts < ATTEMPTS_MAX, "{tenant}: {}", served.most_attempts);
        }
    }

    /// What the policy loses of the work.
    fn loses_little(&self) {
        let (without, with) = (self.without.work(), self.with.work());
        assert!(with > without * (1.0 - LOSS_MAX), "{with:.0} instead of {without:.0} seconds of work");
    }

    fn never_defers(&self, tenants: &[&str]) {
        for tenant in tenants {
            assert_eq!(self.with.tenants[tenant].deferrals, 0, "{tenant}");
        }
    }
}

#[test]
fn two_keys_with_more_than_the_workers_can_do() {
    let tenants = [Tenant { begins: 20, ..HOT }, tenant("light", 120.0, 0.1)];
    let both = both(&tenants, false, |plan| plan);
    // Of two keys one may have three quarters.
    assert!(both.without.share("hot") > 0.9, "{}", both.without.share("hot"));
    assert!((0.4..0.8).contains(&both.with.share("hot")), "{}", both.with.share("hot"));
    both.is_the_policys_doing();
    both.loses_little();
    both.never_defers(&["light"]);
}

#[test]
fn five_keys_with_more_than_the_workers_can_do() {
    for is_ordered in [false, true] {
        let tenants: Vec<_> = [HOT].into_iter().chain(light(30.0)).collect();
        let both = both(&tenants, is_ordered, |plan| plan);
        // Of five keys one may have three tenths.
        assert!(both.without.share("hot") > 0.7, "{}", both.without.share("hot"));
        assert!((0.2..0.36).contains(&both.with.share("hot")), "{}", both.with.share("hot"));
        for tenant in LIGHT {
            assert!((0.15..0.2).contains(&both.with.share(tenant)), "{tenant}: {}", both.with.share(tenant));
        }
        both.is_the_policys_doing();
        both.loses_little();
        both.never_defers(&LIGHT);
    }
}

#[test]
fn what_the_others_leave_the_hot_key_has() {
    for is_ordered in [false, true] {
        let tenants: Vec<_> = [HOT].into_iter().chain(light(10.0)).collect();
        let both = both(&tenants, is_ordered, |plan| Plan { warm_up: 120, ..plan });
        // The others want four tenths, and have them.
        for tenant in LIGHT {
            let (without, with) = (both.without.tenants[tenant].work, both.with.tenants[tenant].work);
            assert!(with > 100.0 && with > 1.5 * without, "{tenant}: {with} instead of {without}");
            // Ten messages of the other, of five seconds each, may be before one of theirs.
            let p99 = both.with.tenants[tenant].p99();
            assert!(p99 < 20_000, "{tenant}: {p99} ms");
        }
        assert!(both.with.share("hot") > 0.5, "{}", both.with.share("hot"));
        both.loses_little();
        both.never_defers(&LIGHT);
    }
}

#[test]
fn few_messages_that_take_very_long() {
    let names: [&'static str; 19] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s"];
    let tenants: Vec<_> =
        [tenant("hot", 0.2, 20.0)].into_iter().chain(names.map(|name| tenant(name, 8.0, 0.1))).collect();
    for is_ordered in [false, true] {
        let both = both(&tenants, is_ordered, |plan| Plan { counted: 240, ..plan });
        // It wants four tenths with one message every five seconds, and of twenty keys one may have a tenth.
        assert!(both.without.share("hot") > 0.17, "{}", both.without.share("hot"));
        assert!((0.05..0.13).contains(&both.with.share("hot")), "{}", both.with.share("hot"));
        both.is_the_policys_doing();
        both.loses_little();
        both.never_defers(&names);
    }
}

#[test]
fn keys_that_are_all_alike_are_let_alone() {
    let tenants: Vec<_> = [tenant("one", 30.0, 0.1)].into_iter().chain(light(30.0)).collect();
    for is_ordered in [false, true] {
        let both = both(&tenants, is_ordered, |plan| plan);
        both.loses_little();
        both.never_defers(&LIGHT);
        both.never_defers(&["one"]);
    }
}

#[test]
fn many_cheap_messages_are_dear_too() {
    let tenants: Vec<_> = [tenant("flood", 400.0, 0.05)].into_iter().chain(light(10.0)).collect();
    let both = both(&tenants, false, |plan| Plan { warm_up: 30, counted: 30, ..plan });
    for tenant in LIGHT {
        assert!(both.with.share(tenant) > 0.09, "{tenant}: {}", both.with.share(tenant));
        assert!(both.with.tenants[tenant].p99() < 1_000, "{tenant}: {} ms", both.with.tenants[tenant].p99());
        assert!(both.without.tenants[tenant].p99() > 10_000, "the test is none");
    }
    both.is_the_policys_doing();
    both.loses_little();
    both.never_defers(&LIGHT);
}

/// Nothing is done later because a backlog waits at the broker instead of in the host: no worker is idle while a message
/// is deferred, be it that nobody knew what it costs or that the others had sent more just before.
#[test]
fn a_backlog_is_done_as_soon_as_without_a_policy() {
    for begins in [0, 20] {
        let tenants = [Tenant { rate: 0.0, backlog: 150, begins, ..HOT }, tenant("light", 20.0, 0.1)];
        for (is_ordered, seed) in [(false, 1), (false, 2), (false, 3), (true, 1)] {
            let both = both(&tenants, is_ordered, |plan| Plan { seed, warm_up: begins, counted: 95, ..plan });
            both.loses_little();
            if begins > 0 {
                // It was there first, and wants a fifth of the workers.
                both.never_defers(&["light"]);
                let (without, with) = (both.without.tenants["light"].p99(), both.with.tenants["light"].p99());
                assert!(with <= without, "{with} instead of {without} ms");
            }
        }
    }
}

#[test]
fn a_key_that_is_alone_has_all_workers() {
    for tenants in [[Tenant { backlog: 150, ..HOT }], [tenant("alone", 400.0, 0.05)]] {
        for is_ordered in [false, true] {
            let both = both(&tenants, is_ordered, |plan| Plan { warm_up: 0, counted: 60, ..plan });
            both.loses_little();
        }
    }
}

#[test]
fn the_unit_makes_no_difference() {
    let tenants: Vec<_> = [HOT].into_iter().chain(light(30.0)).collect();
    let share = |tokens_per_second| {
        let plan =
            Plan { tenants: &tenants, workers: 10, tokens_per_second, seed: 1, warm_up: 60, counted: 120 };
        run(&plan, Some(caller())).share("hot")
    };
    let [seconds, tokens] = [None, Some(1e6)].map(share);
    assert!((seconds - tokens).abs() < 0.01, "{seconds} and {tokens}");
}
