//! How a flow's task ends, and how others learn of it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Cuts a flow off that takes too long to end.
#[derive(Debug)]
pub(super) struct CutOff(watch::Sender<Option<Instant>>);

/// The flow's side of it.
#[derive(Debug)]
pub(super) struct IsCutOff(watch::Receiver<Option<Instant>>);

/// What the flow's task says at its end.
#[derive(Debug)]
pub(super) struct Life(watch::Sender<Option<bool>>);

/// Who waits for that.
#[derive(Debug)]
pub(super) struct Lives(watch::Receiver<Option<bool>>);

pub(super) fn cut_off() -> (CutOff, IsCutOff) {
    let (sender, receiver) = watch::channel(None);
    (CutOff(sender), IsCutOff(receiver))
}

pub(super) fn life() -> (Life, Lives) {
    let (sender, receiver) = watch::channel(None);
    (Life(sender), Lives(receiver))
}

impl CutOff {
    /// From now on it has at most so long, and no longer than it had.
    pub(super) fn set_no_later_than(&self, deadline: Duration) {
        let at = Instant::now().checked_add(deadline);
        self.0.send_modify(|set| *set = [*set, at].into_iter().flatten().min());
    }
}

impl IsCutOff {
    /// Resolves when its time is over, which may be never.
    pub(super) async fn passed(mut self) {
        loop {
            let at = *self.0.borrow_and_update();
            tokio::select! {
                () = sleep_until(at) => return,
                changed = self.0.changed() => if changed.is_err() {
                    // Nobody holds the flow any more, who could set another time.
                    return sleep_until(at).await;
                },
            }
        }
    }
}

impl Life {
    /// The flow has ended, in time or not.
    pub(super) fn end(self, in_time: bool) {
        self.0.send_replace(Some(in_time));
    }
}

impl Lives {
    /// Resolves when the flow has ended; true when it was in time.
    pub(super) async fn over(&self) -> bool {
        let mut life = self.0.clone();
        // An error means that the task is gone, which is an end as well.
        life.wait_for(Option::is_some).await.is_ok_and(|in_time| in_time.unwrap_or(true))
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_counts_and_none_is_never() {
        let (cut_off, is_cut_off) = cut_off();
        let began = Instant::now();
        let passed = tokio::spawn(is_cut_off.passed());
        tokio::time::sleep(10 * SECOND).await;
        cut_off.set_no_later_than(Duration::MAX);
        cut_off.set_no_later_than(5 * SECOND);
        cut_off.set_no_later_than(9 * SECOND);
        passed.await.expect("no panic");
        assert_eq!(began.elapsed(), 15 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_was_set_outlives_whoever_set_it() {
        let (cut_off, is_cut_off) = cut_off();
        cut_off.set_no_later_than(5 * SECOND);
        drop(cut_off);
        let began = Instant::now();
        is_cut_off.passed().await;
        assert_eq!(began.elapsed(), 5 * SECOND);
    }

    #[tokio::test]
    async fn a_task_that_is_gone_is_over() {
        let (life, lives) = life();
        drop(life);
        assert!(!lives.over().await);
        let (life, lives) = super::life();
        life.end(true);
        assert!(lives.over().await && lives.over().await);
    }
}
