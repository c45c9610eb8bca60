//! Answers to a batch, as they come: from a flow's task to whoever asked.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Where the answers to one batch are put.
#[derive(Debug)]
pub(crate) struct Collector<T> {
    inner: Mutex<Inner<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner<T> {
    ready: Vec<(usize, Option<T>)>,
    open: usize,
}

/// The right to give one answer. Dropped without one, it says that there is none.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    collector: Arc<Collector<T>>,
    at: usize,
    answered: bool,
}

impl<T> Collector<T> {
    /// A collector and as many rights to answer.
    pub(crate) fn new(places: &[usize]) -> (Arc<Self>, Vec<Reply<T>>) {
        let inner = Inner { ready: Vec::with_capacity(places.len()), open: places.len() };
        let collector = Arc::new(Self { inner: Mutex::new(inner), changed: Notify::new() });
        let reply = |at: &usize| Reply { collector: Arc::clone(&collector), at: *at, answered: false };
        let replies = places.iter().map(reply).collect();
        (collector, replies)
    }

    /// Answers that have come since the last time, by their place; at least one, or none when all have come. `None`
    /// stands for an answer that nobody will give.
    pub(crate) async fn next(&self) -> Vec<(usize, Option<T>)> {
        loop {
            let changed = self.changed.notified();
            {
                let mut inner = self.inner.lock();
                if !inner.ready.is_empty() || inner.open == 0 {
                    return std::mem::take(&mut inner.ready);
                }
            }
            changed.await;
        }
    }

    /// All answers that come within a time, by their place.
    pub(crate) async fn all(&self, patience: Duration) -> Vec<(usize, Option<T>)> {
        let mut answers = Vec::new();
        let collecting = async {
            loop {
                let some = self.next().await;
                if some.is_empty() {
                    return;
                }
                answers.extend(some);
            }
        };
        // Those that are missing then are told so.
        let _ = tokio::time::timeout(patience, collecting).await;
        answers
    }

    fn put(&self, at: usize, answer: Option<T>) {
        let mut inner = self.inner.lock();
        inner.ready.push((at, answer));
        inner.open -= 1;
        drop(inner);
        self.changed.notify_one();
    }
}

impl<T> Reply<T> {
    pub(crate) fn give(mut self, answer: T) {
        self.answered = true;
        self.collector.put(self.at, Some(answer));
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if !self.answered {
            self.collector.put(self.at, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_place_gets_one_answer() {
        let (collector, replies) = Collector::new(&[3, 5, 8]);
        let mut replies = replies.into_iter();
        replies.next().unwrap().give("three");
        assert_eq!(collector.next().await, [(3, Some("three"))]);
        drop(replies.next());
        replies.next().unwrap().give("eight");
        assert_eq!(collector.next().await, [(5, None), (8, Some("eight"))]);
        assert!(collector.next().await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends() {
        let (collector, mut replies) = Collector::new(&[0, 1]);
        replies.swap_remove(0).give(7);
        assert_eq!(collector.all(Duration::from_secs(1)).await, [(0, Some(7))]);
    }
}
