//! The recording of `tidegate demo --record`.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tidegate_pipeline::{Host, Recording, RecordingOptions};
use tidegate_policy::{End, Masking};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::report::Recorded;
use crate::exit::Failure;
use crate::new_file::{cannot_write, create_private};

/// Longer than any demo.
const LENGTH: Duration = Duration::from_secs(600);

/// Writes while the demo plays.
#[derive(Debug)]
pub(super) struct RecordTask {
    file: PathBuf,
    writer: JoinHandle<anyhow::Result<End>>,
}

/// A new file for it.
#[derive(Debug)]
pub(super) struct RecordFile {
    path: PathBuf,
    to: File,
}

impl RecordFile {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        Ok(Self { path: path.to_owned(), to: create_private(path)? })
    }

    /// Begins to write into it.
    pub(super) fn record(self, host: &Host, flow: &str) -> anyhow::Result<RecordTask> {
        let masking = Masking::default();
        let options = RecordingOptions { length: LENGTH, count_max: u64::MAX, sample: 1.0, masking };
        let recording = host.record(flow, options).context("the demo has that flow")??;
        let runtime = Handle::current();
        let writer = tokio::task::spawn_blocking(move || write(recording, self.to, &runtime));
        Ok(RecordTask { file: self.path, writer })
    }
}

impl RecordTask {
    /// Waits for the last line, which comes when the flow has ended.
    pub(super) async fn end(self) -> anyhow::Result<Recorded> {
        let Self { file, writer } = self;
        let written = writer.await.context("the recording was not written to its end")?;
        let End { end, recorded, missed } = written.with_context(cannot_write(&file))?;
        Ok(Recorded { file, end, recorded, missed })
    }
}

fn write(mut recording: Recording, mut to: File, runtime: &Handle) -> anyhow::Result<End> {
    while let Some(lines) = runtime.block_on(recording.next_lines()) {
        to.write_all(&lines)?;
    }
    recording.end().cloned().context("it did not end")
}
