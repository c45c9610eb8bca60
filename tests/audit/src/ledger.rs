//! What was sent and what came out, and whether the promises held.

use std::collections::BTreeMap;
use std::fmt;

/// One message's place: its lite topic and its number within it, from 0.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Place {
    pub(crate) lite_topic: u32,
    pub(crate) number: u32,
}

/// Deliveries of every message, in the order in which the host wrote them.
#[derive(Debug)]
pub(crate) struct Ledger {
    deliveries: Vec<Vec<u32>>,
    /// The highest number first delivered so far, by lite topic.
    first_delivered: Vec<Option<u32>>,
    out_of_order: Vec<Place>,
    unreadable_lines: u64,
    foreign: u64,
    first_deliveries: u64,
    repeated: u64,
}

/// The outcome.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Verdict {
    sent: u64,
    delivered: u64,
    repeated: u64,
    missing: u64,
    out_of_order: u64,
    unreadable_lines: u64,
    foreign: u64,
    unacked_at_broker: u64,
    deliveries_by_count: BTreeMap<u32, u64>,
}

impl Ledger {
    pub(crate) fn new(lite_topics: u32, messages_per_lite_topic: u32) -> Self {
        Self {
            deliveries: vec![vec![0; messages_per_lite_topic as usize]; lite_topics as usize],
            first_delivered: vec![None; lite_topics as usize],
            out_of_order: Vec::new(),
            unreadable_lines: 0,
            foreign: 0,
            first_deliveries: 0,
            repeated: 0,
        }
    }

    /// Takes one line of the host's standard output.
    pub(crate) fn observe(&mut self, line: &str) {
        match place_of(line) {
            Some(place) => self.deliver(place),
            // A host that is killed in the middle of a line has not acknowledged what the line was about.
            None => self.unreadable_lines += 1,
        }
    }

    fn deliver(&mut self, place: Place) {
        let Some(count) = self
            .deliveries
            .get_mut(place.lite_topic as usize)
            .and_then(|numbers| numbers.get_mut(place.number as usize))
        else {
            self.foreign += 1;
            return;
        };
        *count += 1;
        if *count > 1 {
            self.repeated += 1;
            return;
        }
        self.first_deliveries += 1;
        let last = &mut self.first_delivered[place.lite_topic as usize];
        if last.is_some_and(|last| place.number < last) {
            self.out_of_order.push(place);
        }
        *last = Some(last.map_or(place.number, |last| last.max(place.number)));
    }

    /// Messages delivered at least once.
    pub(crate) const fn delivered(&self) -> u64 {
        self.first_deliveries
    }

    /// The first few messages that never came, for the report.
    pub(crate) fn missing(&self, limit: usize) -> Vec<Place> {
        let all = self.deliveries.iter().enumerate().flat_map(|(lite_topic, numbers)| {
            numbers.iter().enumerate().filter(|(_, count)| **count == 0).map(move |(number, _)| Place {
                lite_topic: u32::try_from(lite_topic).unwrap_or(u32::MAX),
                number: u32::try_from(number).unwrap_or(u32::MAX),
            })
        });
        all.take(limit).collect()
    }

    /// The outcome, with what the broker says is still not acknowledged.
    pub(crate) fn verdict(&self, unacked_at_broker: u64) -> Verdict {
        let sent: u64 = self.deliveries.iter().map(|numbers| numbers.len() as u64).sum();
        let mut deliveries_by_count = BTreeMap::new();
        for count in self.deliveries.iter().flatten() {
            *deliveries_by_count.entry(*count).or_insert(0) += 1;
        }
        Verdict {
            sent,
            delivered: self.first_deliveries,
            repeated: self.repeated,
            missing: sent - self.first_deliveries,
            out_of_order: self.out_of_order.len() as u64,
            unreadable_lines: self.unreadable_lines,
            foreign: self.foreign,
            unacked_at_broker,
            deliveries_by_count,
        }
    }
}

impl Verdict {
    /// Whether every promise held.
    pub(crate) const fn holds(&self) -> bool {
        self.missing == 0 && self.out_of_order == 0 && self.foreign == 0 && self.unacked_at_broker == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sent                                   {:>9}", self.sent)?;
        writeln!(f, "delivered at least once                {:>9}", self.delivered)?;
        writeln!(f, "deliveries beyond the first            {:>9}", self.repeated)?;
        writeln!(f, "never delivered                        {:>9}", self.missing)?;
        writeln!(f, "first deliveries out of order          {:>9}", self.out_of_order)?;
        writeln!(f, "not acknowledged at the broker         {:>9}", self.unacked_at_broker)?;
        writeln!(f, "lines cut short by a kill              {:>9}", self.unreadable_lines)?;
        for (count, messages) in &self.deliveries_by_count {
            writeln!(f, "messages delivered {count:>3} times             {messages:>9}")?;
        }
        write!(f, "{}", if self.holds() { "every promise held" } else { "A PROMISE WAS BROKEN" })
    }
}

/// The body of a message: its place, then padding.
pub(crate) fn body(place: Place, bytes: usize) -> String {
    let mut body = format!("{}/{} ", place.lite_topic, place.number);
    while body.len() < bytes {
        body.push('.');
    }
    body
}

fn place_of(line: &str) -> Option<Place> {
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        value: std::borrow::Cow<'a, str>,
    }
    let line: Line<'_> = serde_json::from_str(line).ok()?;
    let (place, _) = line.value.split_once(' ')?;
    let (lite_topic, number) = place.split_once('/')?;
    Some(Place { lite_topic: lite_topic.parse().ok()?, number: number.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(ledger: &mut Ledger, lite_topic: u32, number: u32) {
        let body = body(Place { lite_topic, number }, 32);
        ledger.observe(&format!(r#"{{"value":"{body}","metadata":{{}},"receipt":"tg1.x"}}"#));
    }

    #[test]
    fn all_once_in_order_holds() {
        let mut ledger = Ledger::new(2, 3);
        for number in 0..3 {
            observe(&mut ledger, 0, number);
            observe(&mut ledger, 1, number);
        }
        assert!(ledger.verdict(0).holds());
        assert!(!ledger.verdict(1).holds());
    }

    #[test]
    fn repeats_are_allowed_but_not_overtaking() {
        let mut ledger = Ledger::new(1, 3);
        for number in [0, 1, 0, 1, 2] {
            observe(&mut ledger, 0, number);
        }
        assert!(ledger.verdict(0).holds());
        let mut ledger = Ledger::new(1, 3);
        for number in [0, 2, 1] {
            observe(&mut ledger, 0, number);
        }
        assert!(!ledger.verdict(0).holds());
    }

    #[test]
    fn a_missing_one_is_found() {
        let mut ledger = Ledger::new(1, 3);
        observe(&mut ledger, 0, 0);
        observe(&mut ledger, 0, 2);
        assert!(!ledger.verdict(0).holds());
        assert_eq!(ledger.missing(9), [Place { lite_topic: 0, number: 1 }]);
    }

    #[test]
    fn half_a_line_counts_as_nothing() {
        let mut ledger = Ledger::new(1, 1);
        ledger.observe(r#"{"value":"0/0 ..."#);
        assert_eq!(ledger.delivered(), 0);
    }
}
