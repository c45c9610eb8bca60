//! `tidegate policy replay`: recorded messages before another policy.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use tidegate_connector::units::format_duration;
use tidegate_policy::{
    Answer, CheckReport, Comparison, Kind, PolicySpec, Recorded, RecordingReader, Replay, Sandbox,
};

use super::answer::Answer as Told;
use super::check::show as show_rungs;
use super::engine;
use super::subject::patient;
use crate::cli::ReplayArgs;
use crate::exit::Failure;
use crate::output::{Output, pair_line, talk};

pub(super) fn run(args: &ReplayArgs, output: &Output) -> Result<(), Failure> {
    let spec = patient(args.settings.spec(args.with.as_deref())?);
    let mut reader = open(&args.recording)?;
    let header = reader.header().clone();
    let mut found = Findings::new(load(&spec, output)?, usize::from(args.top));
    for recorded in &mut reader {
        let recorded =
            recorded.with_context(|| format!("`{}`", args.recording.display())).map_err(Failure::config)?;
        found.note(&recorded);
    }
    let end = reader.end();
    if output.is_json() {
        let mut value = found.json();
        value["recording"] = json!(header);
        value["recording-end"] = json!(end);
        output.data(&value.to_string());
    } else {
        found.show(output);
        let masked: Vec<_> = header.masked_values().collect();
        if !masked.is_empty() {
            talk(&format!(
                "masked in this recording: {}; rules that look at these do not find what they look for",
                masked.join(", ")
            ));
        }
        // What is missing makes what is shown less sure, and does not belong into it.
        match end {
            Some(end) if end.missed > 0 => talk(&format!(
                "{} decisions are missing in the recording; a policy with a memory may answer differently after a gap",
                end.missed
            )),
            Some(_) => {}
            None => talk("the recording was broken off: it does not say how it ended"),
        }
    }
    match found.comparison().differing() {
        differing if differing > 0 && args.fail_on_difference => {
            Err(Failure::runtime(anyhow!("{differing} of {} verdicts differ", found.comparison().compared)))
        }
        _ => Ok(()),
    }
}

/// Opens a recording.
pub(super) fn open(path: &Path) -> Result<RecordingReader<BufReader<File>>, Failure> {
    File::open(path)
        .map_err(anyhow::Error::new)
        .and_then(|file| Ok(RecordingReader::new(BufReader::new(file))?))
        .with_context(|| format!("cannot replay `{}`", path.display()))
        .map_err(Failure::config)
}

/// Loads a throttle policy, to be asked as a flow does.
fn load(spec: &PolicySpec, output: &Output) -> Result<Replay, Failure> {
    let engine = engine(std::slice::from_ref(spec))?;
    let (report, sandbox) = Sandbox::load(&engine, spec);
    let sandbox = sandbox.ok_or_else(|| not_loaded(spec, &report, output))?;
    sandbox.replay().ok_or_else(|| {
        let (file, world) = (spec.component.display(), sandbox.world());
        Failure::config(anyhow!("`{file}` is a `{world}`, and recordings are of throttle policies"))
    })
}

pub(super) fn not_loaded(spec: &PolicySpec, report: &CheckReport, output: &Output) -> Failure {
    if !output.is_json() {
        show_rungs(report, output);
    }
    let reason = report.failure().unwrap_or("no reason is known");
    Failure::config(anyhow!("`{}` does not load: {reason}", spec.component.display()))
}

/// What came of asking again.
struct Findings {
    replay: Replay,
    /// Deferred by both, for another time.
    other_delays: u64,
    /// Messages whose body is not whole in the recording.
    cut_bodies: u64,
    top: usize,
    first: Vec<Differing>,
    last: VecDeque<Differing>,
    /// Why the policy could not answer, counted.
    no_answers: BTreeMap<&'static str, u64>,
}

/// One message on which they differed.
struct Differing {
    number: u64,
    key: String,
    id: String,
    was: String,
    is: String,
}

impl Findings {
    fn new(replay: Replay, top: usize) -> Self {
        Self {
            replay,
            other_delays: 0,
            cut_bodies: 0,
            top,
            first: Vec::new(),
            last: VecDeque::new(),
            no_answers: BTreeMap::new(),
        }
    }

    const fn comparison(&self) -> &Comparison {
        self.replay.comparison()
    }

    fn note(&mut self, recorded: &Recorded) {
        let was = recorded.followed();
        let answer = self.replay.ask(recorded);
        let is = Kind::said(&answer);
        self.cut_bodies += u64::from(recorded.is_cut());
        if let Answer::OnError { cause, .. } | Answer::Stop { cause } = &answer {
            *self.no_answers.entry(cause.label()).or_default() += 1;
        }
        if was == is {
            self.other_delays += u64::from(recorded.delay() != delay(&answer));
            return;
        }
        let number = self.comparison().compared;
        let (key, id) = (recorded.key().to_owned(), recorded.message_id().to_owned());
        let differing = Differing { number, key, id, was: told(recorded), is: shown(answer) };
        if self.first.len() < self.top {
            self.first.push(differing);
        } else if self.top > 0 {
            if self.last.len() == self.top {
                self.last.pop_front();
            }
            self.last.push_back(differing);
        }
    }

    /// Keys by their differences, most first.
    fn keys(&self) -> Vec<(&str, u64)> {
        let mut keys: Vec<_> = self.comparison().by_key.iter().map(|(key, count)| (&**key, *count)).collect();
        keys.sort_by_key(|(_, count)| Reverse(*count));
        keys.truncate(self.top);
        keys
    }

    fn json(&self) -> Value {
        let comparison = self.comparison();
        let pairs: Vec<_> = comparison
            .pairs
            .iter()
            .map(|((was, is), count)| json!({ "recorded": was, "new": is, "count": count }))
            .collect();
        let keys: Vec<_> =
            self.keys().into_iter().map(|(key, count)| json!({ "key": key, "differing": count })).collect();
        let list = |differing: &Differing| {
            json!({
                "number": differing.number, "key": differing.key, "id": differing.id,
                "recorded": differing.was, "new": differing.is,
            })
        };
        json!({
            "messages": comparison.compared,
            "differing": comparison.differing(),
            "other-delays": self.other_delays,
            "cut-bodies": self.cut_bodies,
            "pairs": pairs,
            "keys": keys,
            "further-keys": comparison.further_keys,
            "no-answers": self.no_answers,
            "first": self.first.iter().map(list).collect::<Vec<_>>(),
            "last": self.last.iter().map(list).collect::<Vec<_>>(),
        })
    }

    fn show(&self, output: &Output) {
        let comparison = self.comparison();
        let (all, differing) = (comparison.compared, comparison.differing());
        output.data(&format!("{all} messages, {differing} verdicts differ"));
        if self.other_delays > 0 {
            output.data(&format!("{} more were deferred by both, for another time", self.other_delays));
        }
        if self.cut_bodies > 0 {
            let cut = self.cut_bodies;
            output.data(&format!(
                "{cut} bodies are not whole in the recording; zeros stand for what is missing"
            ));
        }
        for (cause, count) in &self.no_answers {
            output.data(&format!("no answer to {count}: {cause}"));
        }
        if all == 0 {
            return;
        }
        output.data("");
        for ((was, is), count) in &comparison.pairs {
            output.data(&pair_line(was.label(), is.label(), *count));
        }
        let keys = self.keys();
        if !keys.is_empty() {
            output.data("\nkeys that differ most");
            for (key, count) in keys {
                output.data(&format!("  {count:>8}  {}", key.escape_debug()));
            }
        }
        self.list("first", self.first.iter(), output);
        self.list("last", self.last.iter(), output);
    }

    fn list<'a>(
        &self,
        which: &str,
        differing: impl ExactSizeIterator<Item = &'a Differing>,
        output: &Output,
    ) {
        if differing.len() > 0 {
            output.data(&format!("\n{which} messages that differ"));
        }
        for message in differing {
            let Differing { number, key, id, was, is } = message;
            let (id, key) = (id.escape_debug(), key.escape_debug());
            output.data(&format!("  {number:>8}  {id} of {key}: {was}  ->  {is}"));
        }
    }
}

fn delay(answer: &Answer) -> Option<std::time::Duration> {
    use tidegate_model::Verdict;
    match answer {
        Answer::Verdict(Verdict::Defer(deferral)) => Some(deferral.delay),
        _ => None,
    }
}

/// What became of a recorded message, in one line.
fn shown(answer: Answer) -> String {
    match answer {
        Answer::Verdict(said) => Told::Verdict(said).to_string(),
        Answer::OnError { verdict, cause } => {
            format!("no answer ({cause}); on-error: {}", Told::Verdict(verdict))
        }
        Answer::Stop { cause } => format!("no answer ({cause}); on-error: stop"),
    }
}

fn told(recorded: &Recorded) -> String {
    let mut text = recorded.followed().label().to_owned();
    if let Some(delay) = recorded.delay() {
        text.push_str(&format!(" {}", format_duration(delay)));
    }
    if let Some(reason) = recorded.reason() {
        text.push_str(&format!(": {reason}"));
    }
    match recorded.on_error() {
        Some(cause) => format!("{text} (on-error: {cause})"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_policy::Cause;

    use super::*;

    #[test]
    fn an_answer_for_people_is_one_line() {
        let told = shown(Answer::Stop { cause: Cause::Timeout });
        assert_eq!(told, "no answer (timeout); on-error: stop");
    }
}
