//! What the workers said: each delivery that one of them took, and how it was settled.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tokio::time::Instant;

use super::duplicates::Rules;
use crate::ledger::Place;

/// Milliseconds since the run began.
pub(crate) type Millis = u64;

/// A worker's process, by the order of starts.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct LifeId(pub(crate) usize);

/// Where a worker settles.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Way {
    /// On the stream of the host that gave the message out.
    Owner,
    /// At the other host.
    Other,
}

/// A worker's process.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) worker: String,
    pub(crate) way: Way,
    pub(crate) killed_at: Option<Millis>,
}

/// One delivery to one worker.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) place: Place,
    /// The message's id: another one for what was stored twice, where brokers give them.
    pub(crate) message: Box<str>,
    pub(crate) life: LifeId,
    pub(crate) took_at: Millis,
    /// When its lease ends, as the worker was told: by the time that the message was under way later than it really does.
    pub(crate) lease_ends: Millis,
    /// When the worker first asked somebody to settle it.
    pub(crate) settled_at: Option<Millis>,
    /// When the worker was told that its acceptance is done.
    pub(crate) confirmed_at: Option<Millis>,
    /// When it was told that its deferral or release is done.
    pub(crate) given_back_at: Option<Millis>,
}

/// The death of a node of the brokers.
#[derive(Clone, Debug)]
pub(crate) struct NodeKill {
    pub(crate) at: Millis,
    /// Whose leases ended with it.
    pub(crate) columns: BTreeSet<u32>,
}

/// What is known of the run, as far as duplicates are concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) lives: Vec<Life>,
    pub(crate) host_kills: Vec<Millis>,
    pub(crate) node_kills: Vec<NodeKill>,
    /// How often messages had to be sent again.
    pub(crate) sent_again: BTreeMap<Place, u64>,
}

/// Everything that workers write, taken line by line.
#[derive(Debug)]
pub(crate) struct Journal {
    began: Instant,
    pub(crate) record: Record,
    /// Deliveries of each place, in their order.
    places: Vec<Vec<Vec<usize>>>,
    /// By life and the end of the receipt.
    open: HashMap<(LifeId, String), usize>,
    receipts: HashSet<String>,
    handed_out_twice: u64,
    /// The highest attempt that anybody was told.
    attempts_max: u64,
    /// Answers by way, status and verdict.
    answers: BTreeMap<(Way, String), u64>,
    /// Acceptances that were done while the host that gave the messages out was dead.
    orphans: u64,
    host_is_down: bool,
    unreadable: u64,
    /// All lines of each life.
    texts: Vec<String>,
    untouched: usize,
}

impl Journal {
    pub(crate) fn new(columns: u32, per_column: u32) -> Self {
        Self {
            began: Instant::now(),
            record: Record::default(),
            places: vec![vec![Vec::new(); per_column as usize]; columns as usize],
            open: HashMap::new(),
            receipts: HashSet::new(),
            handed_out_twice: 0,
            attempts_max: 0,
            answers: BTreeMap::new(),
            orphans: 0,
            host_is_down: false,
            unreadable: 0,
            texts: Vec::new(),
            untouched: columns as usize * per_column as usize,
        }
    }

    pub(crate) fn now(&self) -> Millis {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A worker is started.
    pub(crate) fn begin(&mut self, worker: &str, way: Way) -> LifeId {
        self.record.lives.push(Life { worker: worker.to_owned(), way, killed_at: None });
        self.texts.push(String::new());
        LifeId(self.record.lives.len() - 1)
    }

    /// A worker is about to be killed: what it still has written is read after this, and was written before.
    pub(crate) fn kill(&mut self, life: LifeId) {
        let now = self.now();
        self.record.lives[life.0].killed_at = Some(now);
    }

    /// The host that gives messages out is about to be killed, or was started again.
    pub(crate) fn host(&mut self, is_down: bool) {
        self.host_is_down = is_down;
        if is_down {
            let now = self.now();
            self.record.host_kills.push(now);
        }
    }

    /// A node of the brokers is about to be killed, and the leases of these columns with it.
    pub(crate) fn node(&mut self, columns: &[u32]) {
        let (at, columns) = (self.now(), columns.iter().copied().collect());
        self.record.node_kills.push(NodeKill { at, columns });
    }

    /// Takes a line of a worker.
    pub(crate) fn take(&mut self, life: LifeId, line: &str) {
        let now = self.now();
        self.take_at(now, life, line);
    }

    pub(crate) fn take_at(&mut self, now: Millis, life: LifeId, line: &str) {
        self.texts[life.0].push_str(line);
        self.texts[life.0].push('\n');
        let now = self.record.lives[life.0].killed_at.map_or(now, |killed_at| now.min(killed_at));
        let understood = match line.split_once(' ') {
            Some(("took", rest)) => self.took(now, life, rest),
            Some(("settles", rest)) => self.settles(now, life, rest),
            Some((status @ ("done" | "expired" | "unknown" | "refused" | "unsettled"), rest)) => {
                self.answered(now, life, status, rest)
            }
            // Said to people: `subscribed at`, `the stream broke`, `left`.
            _ => Some(()),
        };
        // A worker that is killed in the middle of a line has not finished it.
        self.unreadable += u64::from(understood.is_none());
    }

    /// `ID PLACE attempt N for LEASE ms by RECEIPT`
    fn took(&mut self, now: Millis, life: LifeId, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let [message, place, "attempt", attempt, "for", lease, "ms", "by", receipt] = words[..] else {
            return None;
        };
        let place = place_of(place)?;
        let lease: Millis = lease.parse().ok()?;
        self.attempts_max = self.attempts_max.max(attempt.parse().ok()?);
        let at = self.record.deliveries.len();
        let deliveries = self.places.get_mut(place.lite_topic as usize)?.get_mut(place.number as usize)?;
        self.untouched -= usize::from(deliveries.is_empty());
        deliveries.push(at);
        self.handed_out_twice += u64::from(!self.receipts.insert(receipt.to_owned()));
        self.open.insert((life, end_of(receipt)), at);
        self.record.deliveries.push(Delivery {
            place,
            message: message.into(),
            life,
            took_at: now,
            lease_ends: now + lease,
            settled_at: None,
            confirmed_at: None,
            given_back_at: None,
        });
        Some(())
    }

    /// `VERDICT ID PLACE attempt N by …END`
    fn settles(&mut self, now: Millis, life: LifeId, line: &str) -> Option<()> {
        let (_, at) = self.known(life, line)?;
        self.record.deliveries[at].settled_at.get_or_insert(now);
        Some(())
    }

    /// `VERDICT ID PLACE attempt N by …END DETAIL`
    fn answered(&mut self, now: Millis, life: LifeId, status: &str, line: &str) -> Option<()> {
        let (verdict, at) = self.known(life, line)?;
        let way = self.record.lives[life.0].way;
        let delivery = &mut self.record.deliveries[at];
        *self.answers.entry((way, format!("{status} {verdict}"))).or_insert(0) += 1;
        match (status, verdict) {
            ("done", "accept") => {
                delivery.confirmed_at.get_or_insert(now);
                self.orphans += u64::from(self.host_is_down && way == Way::Other);
            }
            ("done", _) => {
                delivery.given_back_at.get_or_insert(now);
            }
            _ => {}
        }
        Some(())
    }

    /// The verdict of a line, and the delivery that it is about.
    fn known<'a>(&self, life: LifeId, line: &'a str) -> Option<(&'a str, usize)> {
        let words: Vec<&str> = line.splitn(8, ' ').collect();
        let [verdict, _, place, "attempt", _, "by", end, ..] = words[..] else { return None };
        let at = *self.open.get(&(life, end.trim_start_matches('…').to_owned()))?;
        (place_of(place)? == self.record.deliveries[at].place).then_some((verdict, at))
    }

    /// Messages that came at least once.
    pub(crate) fn delivered(&self) -> u64 {
        let sent: usize = self.places.iter().map(Vec::len).sum();
        (sent - self.untouched) as u64
    }

    /// Messages that never came.
    pub(crate) fn missing(&self) -> Vec<Place> {
        self.each_place().filter(|(_, deliveries)| deliveries.is_empty()).map(|(place, _)| place).collect()
    }

    /// Messages that nobody has in hand any more, but that nobody was told to be done: their last worker was told
    /// something else, or nothing, and no kill may have kept the answer from it.
    pub(crate) fn unsettled(&self, rules: Rules) -> Vec<Place> {
        let is_open = |deliveries: &[usize]| {
            deliveries.last().is_some_and(|at| {
                let last = &self.record.deliveries[*at];
                last.confirmed_at.is_none() && !rules.may_be_settled_unheard(&self.record, last)
            })
        };
        self.each_place().filter(|(_, deliveries)| is_open(deliveries)).map(|(place, _)| place).collect()
    }

    /// How long nothing has come.
    pub(crate) fn quiet(&self) -> Millis {
        let last = self.record.deliveries.last().map_or(0, |delivery| delivery.took_at);
        self.now().saturating_sub(last)
    }

    pub(crate) const fn handed_out_twice(&self) -> u64 {
        self.handed_out_twice
    }

    pub(crate) const fn attempts_max(&self) -> u64 {
        self.attempts_max
    }

    pub(crate) const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    pub(crate) const fn orphans(&self) -> u64 {
        self.orphans
    }

    pub(crate) const fn answers(&self) -> &BTreeMap<(Way, String), u64> {
        &self.answers
    }

    pub(crate) const fn receipts(&self) -> &HashSet<String> {
        &self.receipts
    }

    /// What each life wrote, with the name of its worker.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.record.lives.iter().zip(&self.texts).map(|(life, text)| (&*life.worker, &**text))
    }

    fn each_place(&self) -> impl Iterator<Item = (Place, &[usize])> {
        self.places.iter().zip(0..).flat_map(|(numbers, lite_topic)| {
            let place = move |number| Place { lite_topic, number };
            numbers.iter().zip(0..).map(move |(deliveries, number)| (place(number), &**deliveries))
        })
    }
}

/// What workers tell deliveries apart by.
fn end_of(receipt: &str) -> String {
    receipt.get(receipt.len().saturating_sub(12)..).unwrap_or(receipt).to_owned()
}

fn place_of(body: &str) -> Option<Place> {
    let (lite_topic, number) = body.split_once('/')?;
    Some(Place { lite_topic: lite_topic.parse().ok()?, number: number.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { lite_columns: 2, lock: None };

    fn took(place: &str, receipt: &str) -> String {
        format!("took 01A {place} attempt 1 for 14000 ms by tg1.{receipt}")
    }

    #[tokio::test]
    async fn lines_become_deliveries_and_their_ends() {
        let mut journal = Journal::new(2, 3);
        let life = journal.begin("go", Way::Other);
        journal.take_at(10, life, "subscribed at host-1");
        journal.take_at(20, life, &took("1/2", "AAAABBBBCCCCDDDD"));
        assert_eq!(journal.unsettled(RULES), [Place { lite_topic: 1, number: 2 }]);
        for now in [60, 70] {
            journal.take_at(now, life, "settles accept 01A 1/2 attempt 1 by …BBBBCCCCDDDD");
        }
        assert_eq!(journal.record.deliveries[0].settled_at, Some(60), "tried again since");
        journal.take_at(90, life, "expired accept 01A 1/2 attempt 1 by …BBBBCCCCDDDD the lease had ended");
        assert_eq!(journal.unsettled(RULES).len(), 1, "told, but not done");
        journal.host(true);
        journal.take_at(95, life, "done accept 01A 1/2 attempt 1 by …BBBBCCCCDDDD");
        assert_eq!((journal.unsettled(RULES).len(), journal.missing().len(), journal.delivered()), (0, 5, 1));
        let delivery = &journal.record.deliveries[0];
        assert_eq!((delivery.took_at, delivery.lease_ends, delivery.confirmed_at), (20, 14_020, Some(95)));
        assert_eq!((journal.orphans(), journal.handed_out_twice(), journal.unreadable()), (1, 0, 0));
        journal.take_at(99, life, &took("1/2", "AAAABBBBCCCCDDDD"));
        assert_eq!((journal.handed_out_twice(), journal.attempts_max()), (1, 1));
    }

    #[tokio::test]
    async fn what_a_killed_worker_had_written_was_before_its_end() {
        let mut journal = Journal::new(1, 1);
        let life = journal.begin("go", Way::Owner);
        journal.record.lives[0].killed_at = Some(50);
        journal.take_at(70, life, &took("0/0", "AAAABBBBCCCCDDDD"));
        journal.take_at(70, life, "done accept 01A 0/0 att");
        assert_eq!((journal.record.deliveries[0].took_at, journal.unreadable()), (50, 1));
        assert!(
            journal.unsettled(RULES).is_empty(),
            "it may have been settled: whether it was is for the broker to say"
        );
    }

    #[tokio::test]
    async fn what_is_nobodys_is_unreadable() {
        let mut journal = Journal::new(1, 1);
        let life = journal.begin("go", Way::Owner);
        for line in [&*took("7/0", "A"), "done accept 01A 0/0 attempt 1 by …unknown", "took 01A"] {
            journal.take_at(1, life, line);
        }
        assert_eq!((journal.unreadable(), journal.delivered()), (3, 0));
    }
}
