//! What members tell, as events of the host.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::kafka as events;

use crate::{AcknowledgeType, Event, Observer, Subject};

/// Tells what happens to one member.
#[derive(Debug)]
pub(super) struct MemberObserver {
    name: Arc<str>,
    member: usize,
    telemetry: Telemetry,
    /// What is in its way.
    open: Mutex<BTreeSet<Subject>>,
}

impl MemberObserver {
    pub(super) fn new(name: Arc<str>, member: usize, telemetry: Telemetry) -> Self {
        Self { name, member, telemetry, open: Mutex::default() }
    }

    fn trouble_ended(&self, subject: &Subject) {
        let (name, member) = (Arc::clone(&self.name), self.member);
        if self.open.lock().remove(subject) {
            self.telemetry.emit(events::TroubleEnded { name, member, subject: words(subject) });
        }
    }
}

impl Observer for MemberObserver {
    fn observe(&self, event: &Event) {
        let (name, member) = (Arc::clone(&self.name), self.member);
        match event {
            Event::Assigned { partitions } => {
                self.telemetry.emit(events::Assigned { name, member, partitions: *partitions });
            }
            Event::PutOut(code) => {
                self.telemetry.emit(events::PutOut { name, member, cause: code.to_string() });
            }
            Event::Damaged(damage) => self.telemetry.emit(events::RecordsDamaged {
                name,
                partition: damage.partition.to_string(),
                first: damage.offsets.0,
                last: damage.offsets.1,
                reason: Arc::clone(&damage.reason),
                verdict: if damage.verdict == AcknowledgeType::Release { "release" } else { "reject" },
            }),
            Event::Duplicated { offsets } => {
                self.telemetry.emit(events::RecordsDuplicated { name, records: *offsets });
            }
            Event::TroubleBegan(trouble) => {
                let is_new = self.open.lock().insert(trouble.subject.clone());
                let detail = trouble.to_string();
                self.telemetry.emit(events::TroubleBegan { name, member, detail, is_new });
            }
            Event::TroubleEnded(subject) => self.trouble_ended(subject),
            Event::Refused(complaint) => {
                self.telemetry.emit(events::MemberRefused { name, member, cause: complaint.to_string() });
            }
            Event::Left => {
                self.telemetry.emit(events::Assigned { name, member, partitions: 0 });
                let open: Vec<_> = self.open.lock().iter().cloned().collect();
                open.iter().for_each(|subject| self.trouble_ended(subject));
            }
            // Counted where they are handed on, or answered to whoever asked.
            Event::Delivered(_) | Event::Acknowledged(_) => {}
        }
    }
}

fn words(subject: &Subject) -> String {
    match subject {
        Subject::Cluster => "the cluster".to_owned(),
        Subject::Group => "the group".to_owned(),
        Subject::Broker(broker) => format!("broker {broker}"),
        Subject::Topic(topic) => format!("topic `{topic}`"),
    }
}
