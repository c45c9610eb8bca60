//! The README's section "The life of a policy", done as it stands, in each language.
//!
//! Every command of it is run, in order, in a fresh directory; each must end well and write what the README shows. What is
//! promised beyond that is looked up in the host, see [`PROMISES`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in the helpers of a test, a failure is the test's failure"
)]
#![allow(
    clippy::print_stdout,
    reason = "what took how long is shown beside a failure, and with `--nocapture`"
)]

mod likeness;
mod readme;
mod shell;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_process_tests::{PATIENCE, eventually, http_ask, program_path, run_to_end};

use likeness::is_like;
use readme::Step;
use shell::{Outcome, Shell};

const SECTION: &str = "The life of a policy";
/// Limits on time are for a machine that has time; other tests are about them.
const PATIENT_LIMITS: &str =
    "limits = { deadline = \"1s\", start-deadline = \"60s\", compile-timeout = \"600s\" }";
/// Commands that only look: whoever follows the README looks again until there is what was told.
const LOOKS: [&str; 2] = ["tidegate policy status", "tidegate policy diff"];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "compiles a policy; `cargo xtask test` runs it as the step `walk`"]
async fn a_policy_in_rust() {
    walk("rust").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "compiles a component of 12 MB four times; `cargo xtask test` runs it as the step `walk`"]
async fn a_policy_in_javascript() {
    walk("js").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "compiles a component of 18 MB four times; `cargo xtask test` runs it as the step `walk`"]
async fn a_policy_in_python() {
    walk("python").await;
}

#[test]
fn what_the_section_mentions_is_there() {
    let commands = readme::quoted(&readme(), SECTION, "tidegate ");
    assert!(commands.iter().any(|command| command.starts_with("tidegate policy bench")), "{commands:?}");
    for command in commands {
        let words = command.split(' ').skip(1).take_while(|word| word.starts_with(char::is_lowercase));
        let words: Vec<&str> = words.take(2).collect();
        let flags: Vec<&str> = command.split(' ').filter(|word| word.starts_with("--")).collect();
        let help = run_to_end(&std::env::temp_dir(), &[&words[..], &["--help"]].concat());
        assert_eq!(help.code, Some(0), "`{command}`: {}", help.stderr);
        assert!(flags.iter().all(|flag| help.stdout.contains(flag)), "`{command}`: {}", help.stdout);
    }
}

async fn walk(language: &'static str) {
    let steps = readme::steps(&readme(), SECTION).expect("the section can be followed");
    let mut walk = Walk::start(language);
    let mut promises = PROMISES.iter().peekable();
    for step in walk.fill_in(steps) {
        let began = tokio::time::Instant::now();
        let outcome = walk.take(&step).await;
        let first = step.command.lines().next().unwrap_or_default();
        println!("{:>7.1} s  README.md:{}: {first}", began.elapsed().as_secs_f64(), step.line);
        if let Some((_, promise)) = promises.next_if(|(after, _)| step.command.starts_with(after)) {
            walk.keep(*promise, &outcome).await;
            println!("{:>7.1} s  {promise:?}", began.elapsed().as_secs_f64());
        }
    }
    assert_eq!(promises.next(), None, "the README has no such command, or not in this order");
}

/// What somebody who follows the README is promised.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Promise {
    AllCasesPass,
    AShadowIsOnlyCounted,
    VerdictsAreFollowed,
    TheMistakeIsFollowed,
    TheFormerGenerationIsBack,
    TheHostEndsWell,
}

/// After which command each is looked up, in order. An edit of the README that takes one away is told.
const PROMISES: [(&str, Promise); 6] = [
    ("tidegate policy test", Promise::AllCasesPass),
    ("tidegate policy diff", Promise::AShadowIsOnlyCounted),
    ("tidegate policy status busy", Promise::VerdictsAreFollowed),
    ("tidegate send", Promise::TheMistakeIsFollowed),
    ("tidegate policy rollback busy", Promise::TheFormerGenerationIsBack),
    ("kill", Promise::TheHostEndsWell),
];

/// Somebody who follows the README.
struct Walk {
    shell: Shell,
    directory: TempDir,
    language: &'static str,
    broker: String,
    admin: String,
    /// Digest of the rules that were enforced first.
    rules: Value,
    /// Messages that had been deferred when these rules had done their work.
    deferred: u64,
}

impl Walk {
    fn start(language: &'static str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (broker, admin) = (free_address(), free_address());
        // Packages and what is compiled of them are kept between runs; nothing else is.
        let kept = |name: &str| kept_directory().join(name).to_string_lossy().into_owned();
        let programs = program_path().parent().expect("a directory").to_string_lossy().into_owned();
        let variables = [
            ("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap_or_default())),
            ("TIDEGATE_ADMIN", admin.clone()),
            ("CARGO_TARGET_DIR", kept("cargo")),
            ("npm_config_cache", kept("npm")),
            ("PIP_CACHE_DIR", kept("pip")),
        ];
        let shell = Shell::start(directory.path(), &variables);
        Self { shell, directory, language, broker, admin, rules: Value::Null, deferred: 0 }
    }

    /// The script for this language, for ports that are free and for a machine that is busy. All else is as in the README.
    fn fill_in(&self, mut steps: Vec<Step>) -> Vec<Step> {
        let replaced = [
            (" --lang rust", format!(" --lang {}", self.language)),
            ("tidegate broker", format!("tidegate broker --listen {}", self.broker)),
            ("tidegate send", format!("tidegate send --endpoints {}", self.broker)),
            ("\"127.0.0.1:8081\"", format!("\"{}\"", self.broker)),
            ("\"127.0.0.1:9640\"", format!("\"{}\"", self.admin)),
            ("mode = \"shadow\"", format!("mode = \"shadow\"\n{PATIENT_LIMITS}")),
        ];
        for (written, instead) in &replaced {
            assert!(
                steps.iter().any(|step| step.command.contains(written)),
                "no `{written}` is in the README"
            );
            for step in &mut steps {
                step.command = step.command.replace(written, instead);
            }
        }
        steps
    }

    /// Runs a command of the README.
    async fn take(&mut self, step: &Step) -> Outcome {
        let Step { line, command, output } = step;
        let looks = LOOKS.iter().any(|look| command.starts_with(look));
        let deadline = tokio::time::Instant::now() + PATIENCE * 5;
        loop {
            let outcome = self.shell.run(command);
            let is_as_told =
                outcome.code == 0 && output.as_ref().is_none_or(|output| is_like(output, &outcome.output));
            if is_as_told {
                return outcome;
            }
            let again = looks && tokio::time::Instant::now() < deadline;
            assert!(
                again,
                "README.md:{line}: `{command}` ended with code {}, and this is what it wrote:\n{}\n--- and should have \
                 written:\n{}\n--- the host's log:\n{}",
                outcome.code,
                outcome.output,
                output.as_deref().unwrap_or_default(),
                self.file("tidegate.log"),
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn keep(&mut self, promise: Promise, outcome: &Outcome) {
        match promise {
            Promise::AllCasesPass => {
                let cases = self.file("busy/tests/policy.toml").matches("[[case]]").count();
                assert!(
                    cases > 0 && outcome.output.ends_with(&format!("\n{cases} cases passed")),
                    "{outcome:?}"
                );
            }
            Promise::AShadowIsOnlyCounted => {
                let found = self.json("tidegate policy diff tenants")["comparisons"][0].clone();
                let compared = found["compared"].as_u64().unwrap();
                assert!(compared > 0 && found["differing"].as_u64() > Some(0), "{found}");
                let all_passed = || self.attempts("tenant-7") == vec![1; usize::try_from(compared).unwrap()];
                eventually("all delivered at once", || all_passed().then_some(())).await;
                assert_eq!((self.total("deferred"), self.total("rejected")), (0, 0));
            }
            Promise::VerdictsAreFollowed => {
                let sent = self.file("sent.log").lines().filter(|line| !line.starts_with("sent ")).count();
                let all_delivered = || self.attempts("tenant-7").len() == sent;
                eventually("all delivered at last", || all_delivered().then_some(())).await;
                assert!(self.attempts("tenant-7").iter().any(|attempt| *attempt > 1), "nothing was deferred");
                self.deferred = self.total("deferred");
                assert!(self.deferred > 0);
                let active = self.json("tidegate policy status busy")["active"].clone();
                assert_eq!((&active["number"], &active["origin"]), (&1.into(), &"files".into()), "{active}");
                self.rules = active["rules-sha256"].clone();
            }
            Promise::TheMistakeIsFollowed => {
                eventually("a deferral", || (self.total("deferred") > self.deferred).then_some(())).await;
                let active = self.json("tidegate policy status busy")["active"].clone();
                assert_eq!(active["number"], 2, "{active}");
                assert_ne!(active["rules-sha256"], self.rules, "{active}");
            }
            Promise::TheFormerGenerationIsBack => {
                let active = self.json("tidegate policy status busy")["active"].clone();
                let number = active["number"].as_u64().unwrap();
                assert!(outcome.output.contains(&format!("generation {number} is in force")), "{outcome:?}");
                assert_eq!((&active["origin"], &active["rules-sha256"]), (&"earlier".into(), &self.rules));
                // What the mistake held back comes, and what is sent now is not held back.
                let released = || self.attempts("tenant-8").first().is_some_and(|attempt| *attempt > 1);
                eventually("what was held back", || released().then_some(())).await;
                let send = format!("tidegate send --endpoints {} --topic LiteMainTopic", self.broker);
                assert_eq!(self.shell.run(&format!("{send} --lite-topic tenant-9 --count 3 job")).code, 0);
                eventually("its messages", || (self.attempts("tenant-9") == [1, 1, 1]).then_some(())).await;
            }
            Promise::TheHostEndsWell => {
                let log = || self.file("tidegate.log");
                eventually("the host's end", || log().contains("nothing left behind").then_some(())).await;
            }
        }
    }

    /// What a command writes as JSON.
    fn json(&mut self, command: &str) -> Value {
        let outcome = self.shell.run(&format!("{command} --json"));
        serde_json::from_str(&outcome.output)
            .unwrap_or_else(|error| panic!("{command}: {error}: {outcome:?}"))
    }

    /// A count of the flow.
    fn total(&self, name: &str) -> u64 {
        let (_, body) = http_ask(&self.admin, "GET", "/api/flows");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        body["flows"][0]["totals"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {body}"))
    }

    /// At which attempt each message of a lite topic was delivered.
    fn attempts(&self, lite_topic: &str) -> Vec<u64> {
        let delivered = self.file("delivered.jsonl");
        let records = delivered.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let own = records.filter(|record| record["metadata"]["lite-topic"] == lite_topic);
        own.map(|record| record["metadata"]["delivery-attempt"].as_u64().expect("an attempt")).collect()
    }

    /// A file in the directory; empty when it is not there.
    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }
}

fn readme() -> String {
    fs::read_to_string(repository().join("README.md")).expect("README.md")
}

/// Where packages are kept between runs.
fn kept_directory() -> PathBuf {
    let target = program_path().ancestors().nth(2).expect("the target directory").join("walkthrough");
    fs::create_dir_all(&target).expect("the target directory is ours");
    target
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// An address that nobody listens on.
fn free_address() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").to_string()
}
