use super::*;

const BOUNDS: Bounds = Bounds { size_max: 3, initialize_delay: Duration::from_millis(30) };
const TOPIC: [u8; 16] = [7; 16];

fn options(interval: u64) -> GroupOptions {
    GroupOptions {
        assignment_interval: Duration::from_millis(interval),
        session_timeout: Duration::from_secs(6),
        ..GroupOptions::default()
    }
}

fn topics() -> Known {
    Known::from([("t".to_owned(), (Uuid::from_bytes(TOPIC), 4))])
}

fn ms(at: u64) -> Duration {
    Duration::from_millis(at)
}

struct Bench {
    group: Group,
    options: GroupOptions,
    known: Known,
}

impl Bench {
    fn new(interval: u64) -> Self {
        Self { group: Group::founded(), options: options(interval), known: topics() }
    }

    fn beat(
        &mut self,
        at: u64,
        member: &str,
        epoch: i32,
        topics: Option<&[&str]>,
    ) -> Result<(i32, Option<Vec<i32>>), i16> {
        let topics = topics.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let beat = Beat { member, epoch, rack: None, client: None, topics };
        let told = self.group.heartbeat(beat, ms(at), &self.options, BOUNDS, &self.known);
        let told = told.map_err(|(code, _)| code)?;
        let partitions = told.assignment.map(|assignment| assignment.into_values().flatten().collect());
        Ok((told.epoch, partitions))
    }
}

#[test]
fn the_first_assignment_is_empty_until_the_interval_is_over() {
    let mut bench = Bench::new(1_000);
    assert_eq!(bench.beat(0, "a", 0, Some(&["t"])), Ok((2, Some(vec![]))));
    assert_eq!(bench.beat(50, "a", 2, None), Ok((2, None)));
    assert_eq!(bench.beat(999, "a", 2, None), Ok((2, None)));
    assert_eq!(bench.beat(1_000, "a", 2, None), Ok((3, Some(vec![0, 1, 2, 3]))));
    assert_eq!(bench.beat(1_050, "a", 3, None), Ok((3, None)));
    let mut quick = Bench::new(0);
    assert_eq!(quick.beat(0, "a", 0, Some(&["t"])), Ok((2, Some(vec![]))));
    assert_eq!(quick.beat(30, "a", 2, None), Ok((3, Some(vec![0, 1, 2, 3]))));
}

#[test]
fn epochs_that_are_taken_and_those_that_are_not() {
    let mut bench = Bench::new(0);
    bench.beat(0, "a", 0, Some(&["t"])).expect("joins");
    bench.beat(30, "a", 2, None).expect("is in");
    assert_eq!(bench.beat(40, "a", 2, None), Ok((3, None)), "an answer may have been lost");
    assert_eq!(bench.beat(40, "a", 4, None), Err(FENCED_MEMBER_EPOCH));
    assert_eq!(bench.beat(40, "a", 3, None), Ok((3, None)), "fencing changes nothing");
    assert_eq!(bench.beat(40, "b", 3, None), Err(UNKNOWN_MEMBER_ID));
    assert_eq!(bench.beat(40, "b", -1, None), Err(UNKNOWN_MEMBER_ID));
    assert_eq!(bench.beat(40, "b", 0, None), Err(INVALID_REQUEST));
    assert_eq!(bench.beat(40, "b", 0, Some(&[])), Err(INVALID_REQUEST));
    assert_eq!(bench.beat(50, "a", -1, None), Ok((-1, None)));
    assert_eq!(bench.beat(50, "a", -1, None), Err(UNKNOWN_MEMBER_ID));
}

#[test]
fn members_share_and_silent_ones_are_put_out() {
    let mut bench = Bench::new(0);
    bench.beat(0, "a", 0, Some(&["t"])).expect("joins");
    bench.beat(30, "a", 2, None).expect("is in");
    assert_eq!(bench.beat(40, "b", 0, Some(&["t"])), Ok((4, Some(vec![2, 3]))));
    assert_eq!(bench.beat(41, "a", 3, None), Ok((4, Some(vec![0, 1]))));
    bench.beat(42, "c", 0, Some(&["t"])).expect("joins");
    assert_eq!(bench.beat(43, "d", 0, Some(&["t"])), Err(GROUP_MAX_SIZE_REACHED));
    assert_eq!(bench.beat(6_035, "b", 4, None), Ok((5, Some(vec![2]))));
    let (epoch, partitions) = bench.beat(6_042, "b", 5, None).expect("is in");
    assert_eq!((epoch, partitions), (6, Some(vec![0, 1, 2, 3])), "a and c were silent");
    assert_eq!(bench.beat(6_043, "a", 4, None), Err(UNKNOWN_MEMBER_ID));
}

#[test]
fn topics_come_and_go() {
    let mut bench = Bench::new(0);
    bench.known.clear();
    bench.beat(0, "a", 0, Some(&["t"])).expect("joins");
    assert_eq!(bench.beat(100, "a", 2, None), Ok((2, None)));
    bench.known = topics();
    assert_eq!(bench.beat(110, "a", 2, None), Ok((2, None)));
    assert_eq!(bench.beat(140, "a", 2, None), Ok((3, Some(vec![0, 1, 2, 3]))));
    bench.known.clear();
    assert_eq!(bench.beat(150, "a", 3, None), Ok((4, Some(vec![]))));
    bench.known = Known::from([("t".to_owned(), (Uuid::from_bytes([8; 16]), 1))]);
    bench.beat(160, "a", 4, None).expect("is in");
    assert_eq!(bench.beat(190, "a", 4, None), Ok((5, Some(vec![0]))));
}
