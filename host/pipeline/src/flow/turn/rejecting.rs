//! Rejected deliveries: to the dead-letter sink, to the broker's own dead letters, or back when they are too many.

use std::sync::Arc;

use tidegate_connector::{Notice, RenewError, Reports, SinkTrouble, Support};
use tidegate_model::{DeadLetter, DeliveryId, Emission, Handle, Instant, SettleError, Settlement, Verb};
use tidegate_telemetry::events::flow::{DeadLetterEnd, DeadLetterRefused, PausedByDeadLetters, Rejected};

use super::super::Pause;
use super::Turner;
use crate::flow::breaker::Ruling;
use crate::flow::dead_letter::{Heard, Refused};
use crate::flow::settle::{Meaning, Told};

impl Turner {
    /// What the broker is told of a settlement now. A rejected delivery whose flow has a dead-letter sink goes there first.
    pub(super) fn route(&mut self, now: Instant, settlement: Settlement) -> Option<Told> {
        let Verb::Reject { reason } = &settlement.verb else { return Some(Told::itself(settlement)) };
        match self.breaker.judge(now) {
            Ruling::Pass => {}
            Ruling::Trip => {
                self.pause_for_dead_letters();
                return Some(self.hold_back(settlement));
            }
            Ruling::HoldBack => return Some(self.hold_back(settlement)),
        }
        let key = self.options.key_rule.key_of(&settlement.message);
        let native = self.settler.support(&settlement.verb) == Support::Native;
        let broker = native.then_some("broker");
        self.telemetry.emit(Rejected {
            flow: &self.options.name,
            message_id: settlement.message.id.as_str(),
            key: &key,
            reason,
            dead_letter: self.options.dead_letter_name.as_deref().or(broker),
        });
        if self.dead_letters.is_some() {
            let emission = self.emission_of(&settlement, key, reason, now);
            if let Some(dead_letters) = &mut self.dead_letters {
                dead_letters.push(settlement, emission);
            }
            return None;
        }
        self.count_dead_letter(if native { DeadLetterEnd::Broker } else { DeadLetterEnd::Dropped });
        Some(Told::itself(settlement))
    }

    /// What the dead-letter sink gets.
    fn emission_of(&self, settlement: &Settlement, key: Arc<str>, reason: &str, now: Instant) -> Emission {
        // It is held until its settlement has its result.
        let story = self.book.story(settlement.id);
        let by_policy = story.is_some_and(|story| story.rejected_by_policy);
        let received_at = story.map_or(now, |story| story.received_at);
        let first_received_at = story.map_or(received_at, |story| story.first_received_at);
        let dead_letter = DeadLetter {
            flow: Arc::clone(&self.options.name),
            source: Arc::clone(&self.options.source_name),
            policy: self.options.throttle_name.clone().filter(|_| by_policy),
            reason: reason.into(),
            first_received_at: self.clock.wall_at(first_received_at),
            last_received_at: self.clock.wall_at(received_at),
        };
        Emission {
            id: settlement.id,
            message: Arc::clone(&settlement.message),
            key,
            order: None,
            attempt: settlement.attempt,
            handle: settlement.handle.clone(),
            received_at,
            expires_at: story.map_or(now, |story| story.expires_at),
            dead_letter: Some(Arc::new(dead_letter)),
        }
    }

    fn count_dead_letter(&mut self, end: DeadLetterEnd) {
        self.progress.dead_letter(end);
        self.totals.dead_letters.count(end);
    }

    fn hold_back(&mut self, settlement: Settlement) -> Told {
        self.count_dead_letter(DeadLetterEnd::HeldBack);
        Told {
            settlement: Settlement { verb: Verb::Release, ..settlement },
            meaning: Meaning::GivenBack {
                why: "the flow has rejected too many messages and paused itself",
                by_sink: false,
            },
        }
    }

    fn pause_for_dead_letters(&mut self) {
        let cause = Pause::DeadLetters {
            burst: self.options.dead_letter_burst,
            window: self.options.dead_letter_window,
        };
        self.telemetry.emit(PausedByDeadLetters { flow: &self.options.name, reason: &cause.to_string() });
        self.pause(cause);
    }

    pub(super) fn handle_dead_letter_reports(&mut self, reports: Reports) {
        let Some(dead_letters) = &mut self.dead_letters else { return };
        for wish in reports.renewals {
            // It is on its way to be settled; nobody can keep it.
            let (id, result) = (wish.id, Err(RenewError::LeaseGone));
            dead_letters.note(|| Notice::Renewed { id, result });
        }
        for heard in dead_letters.handle_reports(reports.ended) {
            let Heard::Refused(Refused { message_id, said, wait, in_a_row }) = heard else {
                self.dead_letter_trouble = None;
                self.count_dead_letter(DeadLetterEnd::Taken);
                continue;
            };
            self.breaker.take_back();
            self.count_dead_letter(DeadLetterEnd::Refused);
            let since =
                self.dead_letter_trouble.as_ref().map_or_else(|| self.clock.now(), |trouble| trouble.since);
            self.dead_letter_trouble = Some(SinkTrouble { since, detail: said.clone() });
            self.telemetry.emit(DeadLetterRefused {
                flow: &self.options.name,
                sink: self.options.dead_letter_name.as_deref().unwrap_or_default(),
                message_id: message_id.as_str(),
                said: &said,
                wait,
                in_a_row,
            });
        }
    }

    /// Tells a dead-letter sink that wants to know what the broker said about what it had.
    pub(super) fn note_buried(
        &mut self,
        id: DeliveryId,
        meaning: Meaning,
        result: &Result<Option<Handle>, SettleError>,
    ) {
        let had_it = matches!(meaning, Meaning::Burial | Meaning::GivenBack { by_sink: true, .. });
        if let Some(dead_letters) = &mut self.dead_letters
            && had_it
        {
            let result = result.as_ref().map(|_| ()).map_err(Clone::clone);
            dead_letters.note(|| Notice::Settled { id, result });
        }
    }
}
