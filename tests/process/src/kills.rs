//! Kills at random points.

use std::path::Path;
use std::time::Duration;

use crate::random::Random;
use crate::{Home, Program};

/// How long a life may go without anything coming out before it is killed all the same.
const LIFE_MAX: Duration = Duration::from_secs(5);
/// One life in so many is killed at any point of its start; the others when something has come out.
const EARLY: u64 = 4;

/// Starts the program in `home` and kills it, again and again: at random points of its start, and random moments after it
/// has put something into the file `out`. The points follow from `seed`.
pub async fn kill_again_and_again(home: &Home, arguments: &[&str], out: &Path, kills: u32, seed: u64) {
    let mut random = Random::new(seed);
    let length = || std::fs::metadata(out).map_or(0, |metadata| metadata.len());
    for _ in 0..kills {
        let before = length();
        let program = Program::start(home.path(), arguments);
        let began = tokio::time::Instant::now();
        let delay = if random.below(EARLY) == 0 {
            random.below(400)
        } else {
            while length() == before && began.elapsed() < LIFE_MAX {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            random.below(120)
        };
        tokio::time::sleep(Duration::from_millis(delay)).await;
        program.kill().await;
    }
}
