//! The task behind a consumer: carries calls and answers between the member and the network, and records and results between
//! the member and its users.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_model::Instant;
use tokio::sync::{mpsc, watch};
use tokio::time;

use super::calls::{Calls, Done};
use super::ready::Ready;
use super::said::{Run, Said, TOGETHER_MAX};
use super::{Command, ConsumerSettings, Observer, Status};
use crate::member::Member;
use crate::{AcknowledgeError, Connector, Event};

pub(super) struct Driver {
    member: Member,
    calls: Calls,
    ready: Ready,
    said: Said,
    settings: ConsumerSettings,
    clock: Clock,
    observer: Arc<dyn Observer>,
    status: Arc<Mutex<Status>>,
    /// Whether records are taken in.
    receiving: watch::Receiver<bool>,
    /// When a close must be over.
    closes_by: Option<Instant>,
}

enum Woken {
    Command(Option<Command>),
    Done(Box<Done>),
    Receiving(bool),
    Time,
}

impl Driver {
    pub(super) fn new(
        mut member: Member,
        settings: ConsumerSettings,
        connector: Connector,
        clock: Clock,
        observer: Arc<dyn Observer>,
        status: Arc<Mutex<Status>>,
        receiving: watch::Receiver<bool>,
    ) -> Self {
        member.start(clock.now());
        let calls =
            Calls::new(connector, settings.bootstrap.clone(), settings.request_timeout, settings.member.seed);
        Self {
            member,
            calls,
            ready: Ready::default(),
            said: Said::default(),
            settings,
            clock,
            observer,
            status,
            receiving,
            closes_by: None,
        }
    }

    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let now = self.clock.now();
            self.turn(now);
            if self.is_over(now) {
                break;
            }
            let timeout = self.timeout(now);
            let sleep = time::sleep_until(self.clock.deadline(timeout.unwrap_or(now)));
            let woken = tokio::select! {
                biased;
                done = self.calls.next() => Woken::Done(Box::new(done)),
                command = commands.recv() => Woken::Command(command),
                Ok(()) = self.receiving.changed() => Woken::Receiving(*self.receiving.borrow_and_update()),
                () = sleep, if timeout.is_some() => Woken::Time,
            };
            match woken {
                Woken::Done(done) => self.handle_done(*done),
                Woken::Command(command) => {
                    self.handle_command(command);
                    // What others said in the same moment goes into the same request.
                    while let Ok(command) = commands.try_recv() {
                        self.handle_command(Some(command));
                    }
                }
                Woken::Receiving(true) => self.member.resume(self.clock.now()),
                Woken::Receiving(false) => self.member.rest(self.clock.now()),
                Woken::Time => {}
            }
        }
        commands.close();
        self.status.lock().is_over = true;
        self.calls.close().await;
    }

    /// Does all that is to be done now.
    fn turn(&mut self, now: Instant) {
        loop {
            self.take_events();
            let is_receiving = *self.receiving.borrow();
            let given_back = if is_receiving { self.ready.hand_out(now) } else { self.ready.give_back() };
            for (lease, last, kind) in given_back {
                self.member.acknowledge(lease, last, kind, crate::member::OWN);
            }
            let (records, bytes) = if is_receiving { self.ready.demand() } else { (0, 0) };
            let room = self.settings.held_records_max.saturating_sub(self.member.held());
            if self.closes_by.is_none() {
                self.member.allow(records.min(room), bytes);
            }
            let mut has_called = false;
            while let Some(call) = self.member.poll_call(now) {
                has_called = true;
                self.calls.make(call);
            }
            if !has_called {
                break;
            }
        }
        self.take_events();
        self.tell_status();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.member.poll_event() {
            match event {
                Event::Delivered(batch) => self.ready.push(batch),
                Event::Acknowledged(done) => self.said.resolve(done),
                event => self.observer.observe(&event),
            }
        }
    }

    fn handle_command(&mut self, command: Option<Command>) {
        match command {
            Some(Command::Receive { records, bytes, reply }) => {
                // While closing the reply is dropped, which says so.
                if self.closes_by.is_none() {
                    self.ready.wait(records, bytes, reply);
                }
            }
            Some(Command::Acknowledge { acks, reply }) => {
                if acks.len() > TOGETHER_MAX {
                    let _ = reply.send(vec![Err(AcknowledgeError::Closed); acks.len()]);
                    return;
                }
                for Run { lease, last, kind, token } in self.said.add(acks, reply) {
                    self.member.acknowledge(lease, last, kind, token);
                }
            }
            Some(Command::Close) | None => {
                let now = self.clock.now();
                if self.closes_by.is_none() {
                    self.closes_by = Some(now + self.settings.close_timeout);
                    self.ready = Ready::default();
                    self.member.close(now);
                }
            }
        }
    }

    fn handle_done(&mut self, done: Done) {
        let now = self.clock.now();
        if let (crate::member::Target::Session(node), Some(has_renewal)) =
            (&done.call.target, done.has_renewal)
        {
            self.member.handle_connected(node.broker, has_renewal);
        }
        match done.result {
            Ok((answer, exchange)) => {
                self.observer.exchanged(&exchange);
                self.member.handle_answer(now, &done.call.target, answer);
            }
            Err(reason) => self.member.handle_failure(now, &done.call.target, &done.call.request, &reason),
        }
        let member = &self.member;
        self.calls.retain(|broker| member.has_session(broker), member.coordinator());
    }

    fn is_over(&self, now: Instant) -> bool {
        self.member.is_over() || self.closes_by.is_some_and(|closes_by| closes_by <= now)
    }

    fn timeout(&self, now: Instant) -> Option<Instant> {
        [self.member.poll_timeout(now), self.ready.stale_at(), self.closes_by].into_iter().flatten().min()
    }

    fn tell_status(&self) {
        let status = Status {
            is_joined: self.member.is_joined(),
            partitions: self.member.assigned(),
            held: self.member.held(),
            troubles: self.member.troubles().cloned().collect(),
            is_over: false,
        };
        let mut known = self.status.lock();
        if *known != status {
            *known = status;
        }
    }
}
