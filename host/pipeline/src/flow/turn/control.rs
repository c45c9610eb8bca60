//! What an operator tells a flow, and how it ends.

use tidegate_connector::Notice;
use tidegate_lease::Valves;
use tidegate_telemetry::events::flow::{JoinState, Joined, StateChanged, WaitsForSink};

use super::super::{Drain, FlowState, Pause};
use super::Turner;
use crate::flow::dead_letter::DeadLetters;

impl Turner {
    pub(super) fn handle_valves(&mut self, valves: Valves) {
        self.book.handle_valves(valves);
        if self.renewer.is_some() {
            self.options.renewal.length_max = valves.max_invisible_duration;
            self.book.handle_renewal_options(self.clock.now(), Some(self.options.renewal));
        }
    }

    // === pauses ===

    /// Whether that changes something; the state when it cannot.
    pub(super) fn set_paused(&mut self, paused: bool) -> Result<bool, FlowState> {
        match (self.state, paused) {
            (FlowState::Running, true) => {
                self.pause(Pause::Operator);
                Ok(true)
            }
            (FlowState::Paused, false) => {
                self.resume();
                Ok(true)
            }
            (FlowState::Running, false) | (FlowState::Paused, true) => Ok(false),
            (state, _) => Err(state),
        }
    }

    /// Receives nothing more and gives back what no sink has. Receives under way end by themselves, which takes at most
    /// a poll, and the book gives back what they bring; breaking them off would leave that to the end of its leases.
    pub(super) fn pause(&mut self, cause: Pause) {
        self.pause = Some(cause);
        if self.state == FlowState::Running {
            self.book.handle_drain(self.clock.now());
            self.source.set_receiving(false);
            self.set_state(FlowState::Paused);
        }
    }

    fn resume(&mut self) {
        self.pause = None;
        self.breaker.reset();
        self.book.handle_resume();
        self.source.set_receiving(true);
        self.set_state(FlowState::Running);
    }

    /// At once in the status, so that whoever asked for it sees it there.
    fn set_state(&mut self, state: FlowState) {
        self.state = state;
        let mut status = self.status.lock();
        (status.state, status.pause, status.drain) = (self.state, self.pause, self.drain);
        drop(status);
        self.say_state(None);
    }

    // === the end ===

    pub(super) async fn start_draining(&mut self) {
        if !self.state.is_live() {
            return;
        }
        self.pause = None;
        if self.failure.is_none() {
            self.drain = Some(Drain { held: self.book.counts().in_flight, ..Drain::default() });
        }
        self.set_state(FlowState::Draining);
        let (arrivals, broken_off) = self.workers.stop().await;
        for arrival in arrivals {
            self.handle_arrival(arrival);
        }
        for granted in broken_off {
            self.handle_received(granted, Vec::new());
        }
        self.book.handle_drain(self.clock.now());
        let deliveries = self.book.counts().emitted;
        if deliveries > 0 {
            let at_most = self.options.drain_timeout;
            self.telemetry.emit(WaitsForSink { flow: &self.options.name, deliveries, at_most });
        }
        self.sink.note(|| Notice::Draining);
        if let Some(dead_letters) = &mut self.dead_letters {
            dead_letters.note(|| Notice::Draining);
        }
    }

    pub(super) async fn fail(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
        self.drain = None;
        self.start_draining().await;
    }

    /// Whether nothing is left to do: all settled, or all that could be when the sink is gone.
    pub(super) fn is_finished(&self) -> bool {
        let sink_done = self.book.is_drained() || self.sink.has_ended();
        let dead_letters_done = self.dead_letters.as_ref().is_none_or(DeadLetters::is_idle);
        self.state == FlowState::Draining && sink_done && dead_letters_done && self.settling.is_idle()
    }

    pub(super) async fn finish(&mut self) {
        self.sink.close().await;
        if let Some(dead_letters) = &mut self.dead_letters {
            dead_letters.close().await;
        }
        self.end(None);
    }

    /// Ends a flow that took too long to end.
    pub(in crate::flow) fn break_off(&mut self) {
        let left = self.book.counts().in_flight;
        let remark = (left > 0).then(|| {
            format!("{left} deliveries were not finished in time; they come again when their leases end")
        });
        self.end(remark);
    }

    fn end(&mut self, remark: Option<String>) {
        self.state = if self.failure.is_some() { FlowState::Failed } else { FlowState::Stopped };
        self.pause = None;
        self.publish();
        self.telemetry.emit(Joined { flow: &self.options.name, state: JoinState::Left });
        let reason = self.failure.take().or(remark);
        let mut status = self.status.lock();
        status.joined = false;
        status.remarks.extend(reason.clone());
        drop(status);
        self.say_state(reason.as_deref());
    }

    pub(super) fn say_state(&self, reason: Option<&str>) {
        self.telemetry.emit(StateChanged { flow: &self.options.name, state: self.state.metric(), reason });
    }
}
