//! How many files and connections this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, and gives what is the limit then; none when there is none. The soft one is low,
/// 1,024 as a rule, for the sake of old programs that this is none of.
pub(super) fn raise_limit() -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current != limits.maximum {
        // A system that does not let us stays as it is, and what it is then is what counts.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum });
    }
    getrlimit(Resource::Nofile).current
}
