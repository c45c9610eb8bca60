//! One decoder under fire.

mod config;
mod receipt;
mod records;
mod reply;

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::random::Random;

/// A decoder, its seeds and what must hold whatever it is given.
pub(crate) trait Target {
    /// Its name for `--target`, and of its directory of seeds below `corpus/`.
    fn name(&self) -> &'static str;

    /// What mutation begins from.
    fn seeds(&self) -> io::Result<Vec<Vec<u8>>> {
        files(self.name())
    }

    /// Whether mutation should begin from this seed.
    fn likes(&self, _seed: &[u8]) -> bool {
        true
    }

    /// Longest that one input may take: a second where a millisecond is usual means that the time grows faster than
    /// the input.
    fn slow(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Makes an input from two seeds.
    fn mutate(&self, random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8>;

    /// Decodes `input` and checks what must hold; panics when it does not.
    fn run(&mut self, input: &[u8]);
}

/// All of them.
pub(crate) fn all() -> io::Result<Vec<Box<dyn Target>>> {
    Ok(vec![
        Box::new(receipt::Receipts::new()),
        Box::new(config::Configurations),
        Box::new(records::Records::new()),
        Box::new(reply::Replies::start()?),
    ])
}

/// An input that broke its target.
#[derive(Debug)]
pub(crate) struct Finding {
    /// Where the input was saved.
    pub(crate) saved: PathBuf,
    /// What the panic said, or that the input took too long.
    pub(crate) reason: String,
}

/// Runs all seeds, then mutations of them for so long. Returns how many inputs were run.
pub(crate) fn fire(target: &mut dyn Target, seed: u64, limit: Duration) -> io::Result<Result<u64, Finding>> {
    let seeds = target.seeds()?;
    let liked: Vec<&Vec<u8>> = seeds.iter().filter(|seed| target.likes(seed)).collect();
    let mut random = Random::new(seed);
    let started = now();
    let mut count = 0;
    for input in seeds.iter().cloned().map(Some).chain(std::iter::repeat(None)) {
        if input.is_none() && started.elapsed() >= limit {
            break;
        }
        let input = input.unwrap_or_else(|| {
            let (first, second) = (random.below(liked.len()), random.below(seeds.len()));
            target.mutate(&mut random, liked[first], &seeds[second])
        });
        if let Err(reason) = try_one(target, &input) {
            let saved = save(target.name(), seed, count, &input)?;
            return Ok(Err(Finding { saved, reason }));
        }
        count += 1;
    }
    Ok(Ok(count))
}

/// Runs one input that was saved before.
pub(crate) fn try_one(target: &mut dyn Target, input: &[u8]) -> Result<(), String> {
    let before = now();
    panic::catch_unwind(AssertUnwindSafe(|| target.run(input))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })?;
    let took = before.elapsed();
    if took > target.slow() { Err(format!("took {took:?} for {} bytes", input.len())) } else { Ok(()) }
}

fn files(name: &str) -> io::Result<Vec<Vec<u8>>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut paths: Vec<_> =
        fs::read_dir(&directory)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    // The order of a directory differs between machines, and a seed must mean the same on all.
    paths.sort();
    if paths.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("no seeds in {}", directory.display())));
    }
    paths.iter().map(fs::read).collect()
}

fn save(name: &str, seed: u64, count: u64, input: &[u8]) -> io::Result<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
    fs::create_dir_all(&directory)?;
    let path = directory.join(format!("{name}-{seed}-{count}"));
    fs::write(&path, input)?;
    Ok(path)
}

#[allow(clippy::disallowed_methods, reason = "a fuzzer runs for a real time")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_survives_its_seeds_and_a_few_mutations() {
        for mut target in all().unwrap() {
            let name = target.name();
            let ended = fire(&mut *target, 1, Duration::from_millis(50)).unwrap();
            let count = ended.unwrap_or_else(|finding| panic!("{name}: {finding:?}"));
            assert!(count > 1, "{name} ran {count} inputs");
        }
    }

    struct Fragile;

    impl Target for Fragile {
        fn name(&self) -> &'static str {
            "receipts"
        }

        fn mutate(&self, random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
            let mut input = seed.to_vec();
            crate::mutate::bytes(random, &mut input, other);
            input
        }

        fn run(&mut self, input: &[u8]) {
            assert!(input.first() != Some(&0xff), "a first byte of 255");
        }
    }

    #[test]
    fn a_broken_target_is_found_and_its_input_can_be_played_again() {
        let finding = fire(&mut Fragile, 3, Duration::from_secs(600)).unwrap().unwrap_err();
        assert!(finding.reason.contains("a first byte of 255"), "{finding:?}");
        let input = fs::read(&finding.saved).unwrap();
        fs::remove_file(&finding.saved).unwrap();
        try_one(&mut Fragile, &input).unwrap_err();
    }
}
