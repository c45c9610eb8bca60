//! One worker: its credits and what it holds.

use std::collections::HashSet;
use std::sync::Arc;

use tidegate_model::DeliveryId;

use super::WorkerId;

/// How much a worker may hold without having settled it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Credits {
    pub(crate) messages: usize,
    /// `None`: no bound of its own.
    pub(crate) bytes: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    name: Arc<str>,
    pub(super) credits: Credits,
    held: HashSet<DeliveryId>,
    held_bytes: usize,
    /// Grows with each delivery, so that of equals the one that waited longest is next.
    pub(super) served: u64,
}

/// A worker, for people.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WorkerView {
    pub(crate) name: Arc<str>,
    pub(crate) credit_messages: usize,
    pub(crate) held: usize,
}

impl Worker {
    pub(super) fn new(id: WorkerId, name: Arc<str>, credits: Credits) -> Self {
        Self { id, name, credits, held: HashSet::new(), held_bytes: 0, served: 0 }
    }

    /// Messages that it has credits for.
    pub(super) fn room(&self) -> usize {
        let full = self.credits.bytes.is_some_and(|bytes| self.held_bytes >= bytes) && !self.held.is_empty();
        if full { 0 } else { self.credits.messages.saturating_sub(self.held.len()) }
    }

    /// Whether it has credits for one of this size. What is larger than all credits goes to one that holds nothing.
    pub(super) fn takes(&self, size_bytes: usize) -> bool {
        let fits = self.credits.bytes.is_none_or(|bytes| self.held_bytes + size_bytes <= bytes);
        self.room() > 0 && (fits || self.held.is_empty())
    }

    /// The part of its credits that is in use.
    pub(super) fn load(&self) -> f64 {
        let messages = self.held.len() as f64 / self.credits.messages.max(1) as f64;
        let bytes = self.credits.bytes.map_or(0.0, |bytes| self.held_bytes as f64 / bytes.max(1) as f64);
        messages.max(bytes)
    }

    pub(super) fn take(&mut self, delivery: DeliveryId, size_bytes: usize) {
        if self.held.insert(delivery) {
            self.held_bytes += size_bytes;
            self.served += 1;
        }
    }

    pub(super) fn free(&mut self, delivery: DeliveryId, size_bytes: usize) {
        if self.held.remove(&delivery) {
            self.held_bytes -= size_bytes;
        }
    }

    pub(super) fn into_held(self) -> Vec<DeliveryId> {
        self.held.into_iter().collect()
    }

    pub(super) fn view(&self) -> WorkerView {
        WorkerView {
            name: Arc::clone(&self.name),
            credit_messages: self.credits.messages,
            held: self.held.len(),
        }
    }
}
