//! `tidegate policy record`: what a running host's flow decides, in a file.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use tidegate_admin::RecordingWanted;
use tidegate_policy::{End, EndCause};

use super::block_on;
use super::lines::Lines;
use crate::admin_client::{AdminClient, segment};
use crate::cli::RecordArgs;
use crate::exit::Failure;
use crate::new_file::{cannot_write, create_private};
use crate::output::{Output, talk};

/// How much later than the recording's own time the last line may come.
const LATE: Duration = Duration::from_secs(15);

pub(super) fn run(args: &RecordArgs, output: &Output) -> Result<(), Failure> {
    let file = args.output.as_path();
    let is_stdout = file == Path::new("-");
    let wanted = wanted(args)?;
    // First of all, so that nothing is recorded for a file that cannot be.
    let mut to: Box<dyn Write> =
        if is_stdout { Box::new(io::stdout()) } else { Box::new(create_private(file)?) };
    let mut taken = Taken::default();
    let received = block_on(async {
        let path = format!("/api/flows/{}/recording", segment(&args.flow));
        let take = |lines: &[u8]| {
            let whole = taken.note(lines);
            output.progress(&format!("{} decisions; Ctrl-C ends the recording", taken.decisions()));
            let written = to.write_all(&whole).and_then(|()| to.flush());
            written.with_context(cannot_write(file)).map_err(Failure::Environment)
        };
        let client = AdminClient::new(&args.admin.address);
        let receiving = client.post_and_receive(&path, &wanted, args.length + LATE, take);
        tokio::select! {
            received = receiving => received.map(|()| Received::ToTheEnd),
            interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| Received::Interrupted).map_err(Failure::environment),
        }
    });
    output.progress("");
    let end = taken.end();
    match (received, end) {
        (Ok(_), Some(end)) => {
            tell(args, &end, is_stdout, output);
            Ok(())
        }
        (Ok(Received::Interrupted), None) if taken.lines > 0 => {
            let end = End { end: EndCause::Interrupted, recorded: taken.decisions(), missed: 0 };
            end.write(&mut to).with_context(cannot_write(file)).map_err(Failure::Environment)?;
            tell(args, &end, is_stdout, output);
            Ok(())
        }
        (received, _) if taken.lines == 0 => {
            if !is_stdout {
                // It is empty and nobody else's: it was made just now.
                let _ = std::fs::remove_file(file);
            }
            received.map(|_| ())
        }
        (broken_off, _) => {
            let cause = broken_off.err().map_or_else(String::new, |failure| format!(": {failure}"));
            let kept = if is_stdout {
                "what came can be replayed".to_owned()
            } else {
                format!("`{}` has what came, and can be replayed", file.display())
            };
            Err(Failure::Environment(anyhow!(
                "the recording was broken off after {} decisions{cause}; {kept}",
                taken.decisions()
            )))
        }
    }
}

/// How receiving went.
enum Received {
    ToTheEnd,
    Interrupted,
}

fn wanted(args: &RecordArgs) -> Result<Value, Failure> {
    let wanted = RecordingWanted {
        length: args.length,
        count: args.count,
        sample: args.sample,
        mask: args.mask.clone(),
        mask_keys: args.mask_keys,
        body_bytes: args.body_bytes,
    };
    serde_json::to_value(wanted).map_err(Failure::runtime)
}

fn tell(args: &RecordArgs, end: &End, is_stdout: bool, output: &Output) {
    let End { end: cause, recorded, missed } = *end;
    let (flow, file) = (&args.flow, args.output.display());
    let told = if output.is_json() {
        json!({ "flow": flow, "file": args.output, "end": cause, "recorded": recorded, "missed": missed })
            .to_string()
    } else {
        let mut told = format!("{recorded} decisions of {flow} in {file}");
        match cause {
            EndCause::Flow => told.push_str("; the flow has ended"),
            EndCause::Interrupted => told.push_str("; you ended it"),
            EndCause::Time | EndCause::Count => {}
        }
        if missed > 0 {
            told.push_str(&format!(
                "; {missed} are missing because they came too fast: --sample records only some keys, and the answers of \
                 a policy with a memory may differ after a gap"
            ));
        }
        told
    };
    // Standard output is the recording's then.
    if is_stdout { talk(&told) } else { output.data(&told) }
}

/// What came so far.
#[derive(Debug, Default)]
struct Taken {
    /// Whole lines.
    lines: u64,
    /// The last of them.
    last: Vec<u8>,
    pieces: Lines,
}

impl Taken {
    /// Takes what came; gives the lines that are whole now.
    fn note(&mut self, bytes: &[u8]) -> Vec<u8> {
        let whole = self.pieces.note(bytes);
        let mut lines = whole.split_inclusive(|byte| *byte == b'\n');
        if let Some(last) = lines.next_back() {
            self.lines += 1 + lines.count() as u64;
            last.clone_into(&mut self.last);
        }
        whole
    }

    /// Without the header and the end.
    fn decisions(&self) -> u64 {
        self.lines.saturating_sub(1 + u64::from(self.end().is_some()))
    }

    fn end(&self) -> Option<End> {
        serde_json::from_slice(&self.last).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_in_whatever_pieces_they_come() {
        let text = b"{\"tidegate-recording\":1}\n{\"a\":1}\n{\"end\":\"time\",\"recorded\":1,\"missed\":0}\n";
        for size in 1..text.len() {
            let mut taken = Taken::default();
            let whole: Vec<u8> = text.chunks(size).flat_map(|piece| taken.note(piece)).collect();
            assert_eq!(whole, text);
            assert_eq!((taken.lines, taken.decisions()), (3, 1));
            assert_eq!(taken.end(), Some(End { end: EndCause::Time, recorded: 1, missed: 0 }));
        }
    }
}
