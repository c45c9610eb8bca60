//! The sink that writes JSON lines to a file, which is set aside when it is full or old.
//!
//! What is in the file is what was accepted, in the order in which the flow emitted it. After a crash there may be more:
//! lines that were written but not yet accepted come again, so that a line can be there twice, with the same message id.
//! Flows that name the same sink write to one file, one after the other, each all that it has.
//! A disk that is full, a directory that is gone, a file that may not be written: the sink holds what it has, tries again
//! with growing waits, and goes on by itself.

mod options;
mod place;
mod stamp;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use tidegate_connector::{Backoff, Clock, Inbox, News, Notice, Sink, SinkError, SinkMonitor};
use tidegate_model::{Emission, Outcome, Report};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::sink::{
    MovedAway, ReleaseCause, Released, Removed, Retried, Rotated, TailCut, Written as LinesWritten,
};
use tokio::sync::Mutex;
use tokio::task::JoinError;

pub use self::options::{FILE, FileOptions};
use self::place::Place;
use self::writer::{Note, Writer, Written};
use crate::parts::{Lateness, Recorder, SinkParts};
use crate::trouble::Trouble;

/// Lines under way: so many that one write to the disk pays for hundreds.
const CREDITS: usize = 1024;
/// The first wait after a failure: what a full disk needs is seldom there sooner.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// The longest: whoever has freed a disk does not want to wait longer to see it work.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// A write that takes longer is said to be in trouble. Nothing can end it.
const STALL: Duration = Duration::from_secs(10);
/// The shortest and the longest sleep between two looks at whether a file is old: not at once again when it cannot be set
/// aside, and not too late when the clock is set meanwhile.
const LOOK_MIN: Duration = Duration::from_secs(1);
const LOOK_MAX: Duration = Duration::from_secs(60);

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Somebody else writes to it.
    #[error(
        "`{}` is written by another sink or another process, which holds `{}`; give each its own file",
        path.display(), lock.display()
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// The lock.
        lock: PathBuf,
    },
    /// The lock cannot be taken.
    #[error("`{}` cannot be made or locked: {problem}", path.display())]
    Lock {
        /// The lock.
        path: PathBuf,
        /// Why.
        problem: io::Error,
    },
    /// Its directory is not there.
    #[error(
        "the directory `{}` of `{}` cannot be used: {problem}; the host does not make it",
        directory.display(), path.display()
    )]
    NoDirectory {
        /// The file.
        path: PathBuf,
        /// Where it was to be.
        directory: PathBuf,
        /// Why.
        problem: io::Error,
    },
    /// There is a directory, a pipe, a device.
    #[error("`{}` is no regular file", path.display())]
    NotAFile {
        /// Where.
        path: PathBuf,
    },
    /// It cannot be opened.
    #[error("`{}` cannot be opened: {problem}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: io::Error,
    },
    /// It cannot be written.
    #[error("`{}` cannot be written: {problem}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: io::Error,
    },
    /// The disk did not take it.
    #[error("`{}` cannot be brought to the disk: {problem}", path.display())]
    Sync {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: io::Error,
    },
    /// It cannot be set aside.
    #[error("`{}` cannot be renamed to `{}`: {problem}", path.display(), to.display())]
    Rotate {
        /// The file.
        path: PathBuf,
        /// Its new name.
        to: PathBuf,
        /// Why.
        problem: io::Error,
    },
    /// The directory cannot be read or brought to the disk.
    #[error("the directory `{}` cannot be read or brought to the disk: {problem}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        problem: io::Error,
    },
    /// Somebody took it away while it was written to.
    #[error("`{}` was moved or removed by somebody else again and again", path.display())]
    Moved {
        /// Where it was.
        path: PathBuf,
    },
}

impl FileError {
    /// Whether it is a mistake of whoever chose the place, and not a trouble that passes.
    fn is_mistake(&self) -> bool {
        match self {
            Self::Locked { .. } | Self::NoDirectory { .. } | Self::NotAFile { .. } => true,
            Self::Lock { problem, .. } | Self::Open { problem, .. } => matches!(
                problem.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::InvalidFilename
            ),
            _ => false,
        }
    }
}

/// A file that is open and locked, for the flows that write to it.
#[derive(Clone, Debug)]
pub struct OpenFile {
    writer: Arc<Mutex<Writer>>,
    /// What one flow finds wrong with the file is wrong for all.
    trouble: Arc<Trouble>,
}

/// Writes deliveries to a file; they are accepted once the disk has them.
#[derive(Debug)]
pub struct File {
    recorder: Recorder,
    desk: Desk,
}

/// Everything but what makes records.
#[derive(Debug)]
struct Desk {
    name: Arc<str>,
    clock: Clock,
    telemetry: Telemetry,
    file: OpenFile,
    /// Emissions not reported yet, in order; the credits bound them.
    held: VecDeque<Emission>,
    /// Whether the flow is about to end.
    draining: bool,
    /// Whether the inbox has ended.
    ended: bool,
}

impl FileOptions {
    /// Looks whether a file can be written at the place, and makes nothing there. Answers the file as the system knows it,
    /// with links followed. Whether somebody else writes to it is only seen by [`OpenFile::open`].
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub fn check_place(&self) -> Result<PathBuf, FileError> {
        let place = Place::resolve(&self.path)?;
        place.look_ahead()?;
        Ok(place.file().to_owned())
    }
}

impl OpenFile {
    /// Opens and locks the file of the sink `name`. A line at its end that was cut short is cut off.
    ///
    /// # Errors
    /// When the place is wrong: no such directory, no right to write there, no regular file, or somebody else writes to
    /// it. Trouble that passes, such as a full disk, is none: the sink then begins in trouble.
    pub fn open(
        name: &Arc<str>,
        options: FileOptions,
        clock: Clock,
        telemetry: &Telemetry,
    ) -> Result<Self, FileError> {
        let mut writer = Writer::new(options)?;
        let opened = writer.tend(clock.wall());
        // Whatever else it is, the first write tells.
        opened.or_else(|error| if error.is_mistake() { Err(error) } else { Ok(()) })?;
        let trouble = Trouble::new(Arc::clone(name), telemetry.clone(), clock, 1);
        tell(name, telemetry, writer.take_notes());
        Ok(Self { writer: Arc::new(Mutex::new(writer)), trouble: Arc::new(trouble) })
    }

    /// The sink of one flow.
    #[must_use]
    pub fn sink(&self, parts: SinkParts) -> File {
        let SinkParts { name, source, issuer, clock, telemetry } = parts;
        let recorder = Recorder::new(source, issuer, clock);
        let (file, held) = (self.clone(), VecDeque::new());
        File { recorder, desk: Desk { name, clock, telemetry, file, held, draining: false, ended: false } }
    }
}

#[async_trait]
impl Sink for File {
    fn credits(&self) -> usize {
        CREDITS
    }

    /// For those of renewals, and for the one that says that the flow is about to end: then nobody waits for a disk.
    fn wants_notices(&self) -> bool {
        true
    }

    fn monitors(&self) -> Vec<Arc<dyn SinkMonitor>> {
        vec![Arc::clone(&self.desk.file.trouble) as Arc<dyn SinkMonitor>]
    }

    async fn run(self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        let Self { recorder, mut desk } = *self;
        let mut backoff = Backoff::new(WAIT_FIRST, WAIT_MAX, 1);
        loop {
            desk.take_what_is_there(&mut inbox);
            if desk.held.is_empty() {
                if desk.ended {
                    return Ok(());
                }
                let look = desk.time_to_rotation().await;
                tokio::select! {
                    news = inbox.news() => desk.take(news),
                    () = async { tokio::time::sleep(look.unwrap_or_default()).await }, if look.is_some() => {
                        desk.tend().await?;
                    }
                }
                continue;
            }
            desk.release_late(&inbox).await;
            if desk.held.is_empty() {
                continue;
            }
            let done = desk.write(&recorder).await?;
            let error = desk.settle(done, &inbox).await;
            let Some(error) = error else {
                backoff.reset();
                continue;
            };
            desk.file.trouble.fails(&error.to_string());
            if desk.draining || desk.ended {
                desk.release_all(&inbox).await;
                continue;
            }
            let wait = backoff.next_wait();
            let (detail, failures) = (error.to_string(), backoff.failures());
            desk.telemetry.emit(Retried { sink: &desk.name, detail: &detail, failures, again_in: wait });
            desk.wait(wait, &mut inbox).await;
        }
    }
}

impl Desk {
    fn take(&mut self, news: Option<News>) {
        match news {
            None => self.ended = true,
            Some(News::Emissions(emissions)) => self.held.extend(emissions),
            Some(News::Notices(notices)) => notices.iter().for_each(|notice| self.heed(notice)),
        }
    }

    fn heed(&mut self, notice: &Notice) {
        match notice {
            Notice::Draining => self.draining = true,
            Notice::Renewed { id, result: Ok(expires_at) } => {
                let renewed = self.held.iter_mut().filter(|emission| emission.id == *id);
                renewed.for_each(|emission| emission.expires_at = emission.expires_at.max(*expires_at));
            }
            _ => {}
        }
    }

    /// Takes everything that waits, so that one write to the disk carries it all.
    fn take_what_is_there(&mut self, inbox: &mut Inbox) {
        while !self.ended
            && let Some(news) = inbox.news().now_or_never()
        {
            self.take(news);
        }
    }

    /// Waits before the next try, unless the flow ends meanwhile.
    async fn wait(&mut self, wait: Duration, inbox: &mut Inbox) {
        let until = tokio::time::Instant::now() + wait;
        while !self.draining && !self.ended {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                news = inbox.news() => self.take(news),
            }
        }
    }

    async fn time_to_rotation(&self) -> Option<Duration> {
        let due = self.file.writer.lock().await.rotation_due()?.as_unix_millis();
        let wait = Duration::from_millis(due.saturating_sub(self.clock.wall().as_unix_millis()));
        Some(wait.clamp(LOOK_MIN, LOOK_MAX))
    }

    /// Sets the file aside when it is old. What goes wrong there is told by the next write.
    async fn tend(&self) -> Result<(), SinkError> {
        let mut writer = Arc::clone(&self.file.writer).lock_owned().await;
        let now = self.clock.wall();
        let job = tokio::task::spawn_blocking(move || {
            let _ = writer.tend(now);
            writer.take_notes()
        });
        let notes = self.finish(job).await?;
        tell(&self.name, &self.telemetry, notes);
        Ok(())
    }

    /// Writes all that is held, which stays there.
    async fn write(&mut self, recorder: &Recorder) -> Result<Written, SinkError> {
        let mut writer = Arc::clone(&self.file.writer).lock_owned().await;
        let now = self.clock.wall();
        let (mut held, recorder) = (std::mem::take(&mut self.held), recorder.clone());
        let job = tokio::task::spawn_blocking(move || {
            let written =
                writer.write(now, held.make_contiguous(), |emission, line| recorder.write(emission, line));
            (writer.take_notes(), held, written)
        });
        let (notes, held, written) = self.finish(job).await?;
        self.held = held;
        tell(&self.name, &self.telemetry, notes);
        Ok(written)
    }

    /// Waits for a job. There is no way to end one that the disk does not answer, but one to say so.
    async fn finish<T>(&self, mut job: tokio::task::JoinHandle<T>) -> Result<T, SinkError> {
        let done = match tokio::time::timeout(STALL, &mut job).await {
            Ok(done) => done,
            Err(_) => {
                self.file.trouble.fails(&format!("the disk has not answered for {STALL:?}"));
                job.await
            }
        };
        done.map_err(|error: JoinError| SinkError {
            sink: (*self.name).into(),
            detail: format!("its writer failed: {error}").into(),
        })
    }

    /// Reports what is done and gives back why the rest is not.
    async fn settle(&mut self, done: Written, inbox: &Inbox) -> Option<FileError> {
        let Written { durable, mut refused, bytes, error } = done;
        let lines = (durable - refused.len()) as u64;
        self.telemetry.emit(LinesWritten { sink: &self.name, lines, bytes });
        if error.is_none() {
            self.file.trouble.works();
        }
        let mut reports = Vec::with_capacity(durable);
        for (at, emission) in self.held.drain(..durable).enumerate() {
            let is_refused = refused.first().is_some_and(|(place, _)| *place == at);
            let outcome = if is_refused {
                let (_, problem) = refused.remove(0);
                Outcome::Rejected { reason: format!("it makes no JSON: {problem}").into() }
            } else {
                Outcome::Accepted
            };
            reports.push(Report { id: emission.id, outcome, cost: None });
        }
        if !reports.is_empty() {
            inbox.report(reports).await;
        }
        error
    }

    /// Gives back what comes again in any case.
    async fn release_late(&mut self, inbox: &Inbox) {
        let mut lateness = Lateness::new(self.clock.now());
        let (mut late, mut overtaken) = (Vec::new(), Vec::new());
        self.held.retain(|emission| {
            let reports = match lateness.of(emission) {
                None => return true,
                Some(ReleaseCause::Overtaken) => &mut overtaken,
                Some(_) => &mut late,
            };
            reports.push(Report { id: emission.id, outcome: Outcome::Released, cost: None });
            false
        });
        self.release(late, ReleaseCause::LeaseOver, inbox).await;
        self.release(overtaken, ReleaseCause::Overtaken, inbox).await;
    }

    async fn release_all(&mut self, inbox: &Inbox) {
        let released =
            |emission: Emission| Report { id: emission.id, outcome: Outcome::Released, cost: None };
        let all = self.held.drain(..).map(released).collect();
        self.release(all, ReleaseCause::Draining, inbox).await;
    }

    async fn release(&self, reports: Vec<Report>, cause: ReleaseCause, inbox: &Inbox) {
        if !reports.is_empty() {
            self.telemetry.emit(Released { sink: &self.name, cause, deliveries: reports.len() });
            inbox.report(reports).await;
        }
    }
}

fn tell(sink: &Arc<str>, telemetry: &Telemetry, notes: Vec<Note>) {
    for note in notes {
        match note {
            Note::Rotated { file, bytes } => telemetry.emit(Rotated { sink, file: &file, bytes }),
            Note::Removed { file, error } => {
                telemetry.emit(Removed { sink, file: &file, error: error.as_deref() });
            }
            Note::TailCut { file, bytes } => telemetry.emit(TailCut { sink, file: &file, bytes }),
            Note::MovedAway { file } => telemetry.emit(MovedAway { sink, file: &file }),
        }
    }
}

#[cfg(test)]
mod tests;
