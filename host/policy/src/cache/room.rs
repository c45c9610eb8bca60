//! Which files of the cache have to go.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A file that is still being written after so long never will be finished.
const UNFINISHED_MAX: Duration = Duration::from_secs(60 * 60);

/// One file of the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Kept {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// When it was last loaded or written.
    pub(super) used: SystemTime,
    /// Whether it is whole.
    pub(super) finished: bool,
}

/// What to delete: what was not used for `unused_max`, what was never finished, and then what was used longest ago
/// until the rest has `bytes_max`.
pub(super) fn to_delete(
    mut kept: Vec<Kept>,
    now: SystemTime,
    bytes_max: u64,
    unused_max: Duration,
) -> Vec<PathBuf> {
    // The newest first. What is from the future by this clock counts as used now.
    kept.sort_by_key(|file| std::cmp::Reverse(file.used));
    let mut bytes = 0_u64;
    let mut goes = |file: &Kept| {
        let unused = now.duration_since(file.used).unwrap_or_default();
        if !file.finished {
            return unused > UNFINISHED_MAX;
        }
        if unused > unused_max {
            return true;
        }
        bytes = bytes.saturating_add(file.bytes);
        bytes > bytes_max
    };
    kept.into_iter().filter(|file| goes(file)).map(|file| file.path).collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn file(name: &str, bytes: u64, day: u32, finished: bool) -> Kept {
        Kept { path: name.into(), bytes, used: UNIX_EPOCH + DAY * day, finished }
    }

    fn deleted(kept: Vec<Kept>) -> Vec<PathBuf> {
        to_delete(kept, UNIX_EPOCH + DAY * 100, 1_000, DAY * 30)
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let kept = vec![file("old", 400, 97, true), file("new", 400, 99, true), file("older", 400, 96, true)];
        assert_eq!(deleted(kept), [PathBuf::from("older")]);
    }

    #[test]
    fn what_was_not_used_for_a_month_goes_although_there_is_room() {
        let kept = vec![file("old", 1, 69, true), file("new", 1, 70, true), file("future", 1, 200, true)];
        assert_eq!(deleted(kept), [PathBuf::from("old")]);
    }

    #[test]
    fn what_is_being_written_stays_and_what_never_will_be_finished_goes() {
        let kept = vec![file("now", 5_000, 100, false), file("left", 1, 99, false)];
        assert_eq!(deleted(kept), [PathBuf::from("left")]);
    }

    #[test]
    fn an_empty_cache_has_nothing_to_delete() {
        assert_eq!(deleted(Vec::new()), Vec::<PathBuf>::new());
    }
}
