use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tidegate_model::Message;

use super::*;

fn entry(sequence: u64, low_water: u64, bytes: usize) -> Entry {
    let mut message = Message::new("orders", format!("m-{sequence}"));
    message.body = Bytes::from(vec![u8::try_from(sequence % 251).unwrap(); bytes]);
    Entry {
        sequence: Sequence(sequence),
        low_water: Sequence(low_water),
        attempt: 1,
        message: Arc::new(message),
    }
}

fn append(store: &Store, entries: impl IntoIterator<Item = Entry>) {
    let entries: Vec<_> = entries.into_iter().map(|entry| (entry.sequence, entry.encode())).collect();
    let next = entries.last().map_or(Sequence(1), |(sequence, _)| sequence.next());
    store.write(&Batch { entries, next, ..Batch::default() }).expect("it is written");
}

fn sequences(opened: &Opened) -> Vec<u64> {
    opened.found.iter().map(|found| found.sequence.0).collect()
}

#[test]
fn what_was_written_is_found_by_the_next_one_with_its_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.redb");
    let opened = Store::open(&path).unwrap();
    assert_eq!((opened.found.len(), opened.next), (0, Sequence(1)));
    append(&opened.store, (1..=5).map(|sequence| entry(sequence, 1, 10_000)));
    let due = Some(Timestamp::from_unix_millis(99));
    let changes = Changes {
        removed: [Sequence(2), Sequence(5)].into(),
        states: [(Sequence(3), State { attempt: 4, due })].into(),
    };
    opened.store.write(&Batch { changes: Some(&changes), ..Batch::default() }).unwrap();
    assert!(matches!(Store::open(&path), Err(StoreError::Taken)), "one at a time");
    drop(opened);
    let opened = Store::open(&path).unwrap();
    assert_eq!(sequences(&opened), [1, 3, 4]);
    assert_eq!(opened.found[1].state, State { attempt: 4, due });
    assert_eq!(opened.found[2].state, State { attempt: 1, due: None });
    assert_eq!(opened.next, Sequence(6), "no sequence is used twice");
    assert!(opened.damage.is_none() && opened.unreadable.is_empty());
    let loaded = opened.store.load(&[Sequence(4), Sequence(5)]).unwrap();
    assert_eq!(loaded[0].as_ref().unwrap().message.id.as_str(), "m-4");
    assert!(loaded[1].is_none());
    opened.store.probe(1 << 20).unwrap();
}

#[test]
fn a_file_of_something_else_is_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.redb");
    fs::write(&path, "not a store").unwrap();
    let opened = Store::open(&path).unwrap();
    let damage = opened.damage.as_ref().expect("it is told");
    assert_eq!(fs::read(&damage.kept_as).unwrap(), b"not a store");
    append(&opened.store, [entry(1, 1, 10)]);
    drop(opened);
    assert_eq!(sequences(&Store::open(&path).unwrap()), [1]);
}

#[test]
fn what_was_certainly_settled_is_not_salvaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.redb");
    let opened = Store::open(&path).unwrap();
    append(&opened.store, (1..=40).map(|sequence| entry(sequence, 1, 300)));
    let changes = Changes { removed: (1..=39).map(Sequence).collect(), ..Changes::default() };
    opened.store.write(&Batch { changes: Some(&changes), ..Batch::default() }).unwrap();
    append(&opened.store, [entry(41, 40, 300)]);
    drop(opened);
    // The header: nothing can be opened.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xaa; 512], 0).unwrap();
    let opened = Store::open(&path).unwrap();
    assert!(opened.damage.is_some());
    assert_eq!(sequences(&opened), [40, 41]);
    assert_eq!(opened.next, Sequence(42));
}

/// What is done to a file between two lives.
#[derive(Clone, Debug)]
enum Harm {
    Cut(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Blank(prop::sample::Index, usize),
}

fn harms() -> impl Strategy<Value = Harm> {
    prop_oneof![
        any::<prop::sample::Index>().prop_map(Harm::Cut),
        (any::<prop::sample::Index>(), 1..=255_u8).prop_map(|(at, by)| Harm::Flip(at, by)),
        (any::<prop::sample::Index>(), 1..5_000_usize).prop_map(|(at, length)| Harm::Blank(at, length)),
    ]
}

impl Harm {
    fn apply(&self, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        match self {
            Self::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Self::Flip(at, by) => {
                let at = at.index(bytes.len());
                bytes[at] ^= by;
            }
            Self::Blank(at, length) => {
                let at = at.index(bytes.len());
                let end = (at + length).min(bytes.len());
                bytes[at..end].fill(0);
            }
        }
        fs::write(path, bytes).unwrap();
    }
}

/// Entries of which some frame is whole in these bytes.
fn whole(bytes: &[u8]) -> std::collections::BTreeSet<u64> {
    let marks = bytes.windows(crate::entry::MAGIC.len()).enumerate();
    marks
        .filter(|(_, window)| *window == crate::entry::MAGIC)
        .filter_map(|(at, _)| {
            let length = crate::entry::payload_length(&bytes[at..]).ok()?;
            let frame = bytes.get(at..at + crate::entry::HEADER_BYTES + length)?;
            Some(Entry::decode(frame).ok()?.sequence.0)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever is done to the file: it opens, nothing that is whole is lost, nothing is made up, and it goes on.
    #[test]
    fn a_damaged_file_opens_with_what_can_be_read(
        sizes in prop::collection::vec(0..9_000_usize, 1..40),
        removed in prop::collection::btree_set(1..40_u64, 0..10),
        harms in prop::collection::vec(harms(), 1..4),
        is_clean: bool,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("orders.redb");
        let opened = Store::open(&path).unwrap();
        let count = sizes.len() as u64;
        append(&opened.store, (1..).zip(sizes).map(|(sequence, bytes)| entry(sequence, 1, bytes)));
        let changes =
            Changes { removed: removed.iter().copied().map(Sequence).collect(), ..Changes::default() };
        opened.store.write(&Batch { changes: Some(&changes), ..Batch::default() }).unwrap();
        let copy = directory.path().join("copy.redb");
        if is_clean {
            drop(opened);
            fs::copy(&path, &copy).unwrap();
        } else {
            // As a process leaves it that is killed.
            fs::copy(&path, &copy).unwrap();
            drop(opened);
        }
        harms.iter().for_each(|harm| harm.apply(&copy));
        let whole = whole(&fs::read(&copy).unwrap());
        let opened = Store::open(&copy).expect("it opens");
        let found: std::collections::BTreeSet<u64> = sequences(&opened).into_iter().collect();
        prop_assert!(found.iter().all(|sequence| (1..=count).contains(sequence)));
        for sequence in whole.iter().filter(|sequence| !removed.contains(sequence)) {
            prop_assert!(found.contains(sequence), "{sequence} is whole and was not found: {:?}", opened.damage);
        }
        for entry in opened.store.load(&opened.found.iter().map(|found| found.sequence).collect::<Vec<_>>()).unwrap() {
            prop_assert!(entry.is_some());
        }
        append(&opened.store, [entry(1_000, 1, 10)]);
        drop(opened);
        prop_assert!(sequences(&Store::open(&copy).unwrap()).contains(&1_000));
    }
}
