//! `tidegate tap`: a live sample of what a running host's flow decides.

mod line;

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Value, json};
use tidegate_admin::TapWanted;

use super::block_on;
use crate::admin_client::{AdminClient, segment};
use crate::cli::TapArgs;
use crate::commands::live::lines::Lines;
use crate::commands::live::text;
use crate::exit::Failure;
use crate::output::Output;

/// How much later than the tap's own time the last line may come.
const LATE: Duration = Duration::from_secs(15);

pub(crate) fn run(args: &TapArgs, output: &Output) -> Result<(), Failure> {
    let wanted = serde_json::to_value(wanted(args)).map_err(Failure::runtime)?;
    let mut taken = Taken { output, pieces: Lines::default(), shown: 0, end: None, reader_gone: false };
    output.progress(&format!("{}: no decision yet; Ctrl-C ends the tap", args.flow));
    let received = block_on(async {
        let path = format!("/api/flows/{}/tap", segment(&args.flow));
        let client = AdminClient::new(&args.admin.address);
        let receiving =
            client.post_and_receive(&path, &wanted, args.length + LATE, |bytes| taken.note(bytes));
        tokio::select! {
            received = receiving => received.map(|()| false),
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.map(|()| true).map_err(Failure::environment)
            }
        }
    });
    output.progress("");
    let shown = taken.shown;
    match (received, taken.end) {
        // Whoever read it has seen enough.
        _ if taken.reader_gone => Ok(()),
        (Ok(_), Some(end)) => {
            if !output.is_json() {
                output.data(&sentence(&args.flow, &end));
            }
            Ok(())
        }
        (Ok(true), None) => {
            let end = json!({ "end": "interrupted", "shown": shown });
            output.data(&if output.is_json() { end.to_string() } else { sentence(&args.flow, &end) });
            Ok(())
        }
        (Ok(false), None) => Err(broken_off(shown, "")),
        (Err(failure), _) if shown == 0 => Err(failure),
        (Err(failure), _) => Err(broken_off(shown, &format!(": {failure}"))),
    }
}

fn wanted(args: &TapArgs) -> TapWanted {
    TapWanted {
        length: args.length,
        count: args.count,
        sample: args.sample,
        key: args.key.clone(),
        verdicts: args.verdicts.iter().map(|verdict| (*verdict).into()).collect(),
        mask: args.mask.clone(),
        mask_keys: args.mask_keys,
        body_bytes: args.body_bytes,
    }
}

fn broken_off(shown: u64, cause: &str) -> Failure {
    Failure::Environment(anyhow!("the tap was broken off after {shown} decisions{cause}"))
}

/// How it ended, and what was missed.
fn sentence(flow: &str, end: &Value) -> String {
    let mut told = format!("{} decisions of {flow}", end["shown"]);
    told.push_str(match text(&end["end"]) {
        "time" => "; the time is over",
        "flow" => "; the flow has ended",
        "interrupted" => "; you ended it",
        _ => "",
    });
    match end["missed"].as_u64() {
        None | Some(0) => {}
        Some(missed) => told.push_str(&format!(
            "; {missed} are missing because they came too fast: --sample, --key and --verdict show fewer"
        )),
    }
    told
}

/// What came so far.
struct Taken<'a> {
    output: &'a Output,
    pieces: Lines,
    /// Decisions.
    shown: u64,
    /// The last line.
    end: Option<Value>,
    /// Whether nobody reads any more.
    reader_gone: bool,
}

impl Taken<'_> {
    /// Takes what came and shows it. An error ends the tap.
    fn note(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let whole = self.pieces.note(bytes);
        for line in whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(found) = serde_json::from_slice::<Value>(line) else { continue };
            self.show(line, found).map_err(|error| {
                self.reader_gone = error.kind() == io::ErrorKind::BrokenPipe;
                Failure::Environment(anyhow!("standard output cannot be written: {error}"))
            })?;
        }
        Ok(())
    }

    fn show(&mut self, line: &[u8], found: Value) -> io::Result<()> {
        let is_first = self.shown == 0;
        let (is_decision, is_end) = (found["verdict"].is_string(), found["end"].is_string());
        self.shown += u64::from(is_decision);
        let mut stdout = io::stdout().lock();
        if self.output.is_json() {
            stdout.write_all(line)?;
            stdout.write_all(b"\n")?;
        } else if !is_end {
            if is_decision && is_first {
                drop(stdout);
                self.output.progress("");
                stdout = io::stdout().lock();
                writeln!(stdout, "{}", line::head())?;
            }
            writeln!(stdout, "{}", line::of(&found, self.output))?;
        }
        if is_end {
            self.end = Some(found);
        }
        stdout.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_how_it_ended_and_what_was_missed() {
        let end =
            |cause: &str, missed: u64| json!({ "end": cause, "shown": 7, "missed": missed, "endings": 3 });
        assert_eq!(sentence("a", &end("count", 0)), "7 decisions of a");
        assert_eq!(sentence("a", &end("time", 0)), "7 decisions of a; the time is over");
        assert_eq!(
            sentence("a", &end("flow", 2)),
            "7 decisions of a; the flow has ended; 2 are missing because they came too fast: --sample, --key and \
             --verdict show fewer"
        );
        let interrupted = json!({ "end": "interrupted", "shown": 1 });
        assert_eq!(sentence("a", &interrupted), "1 decisions of a; you ended it");
    }
}
