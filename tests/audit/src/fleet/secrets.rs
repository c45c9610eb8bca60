//! The run's secrets, each a text that is nowhere else, and the search for them in all that came out.

use anyhow::bail;
use tidegate_process_tests::secrets::{Haul, Leak, Marker};

/// A secret of the run.
pub(crate) struct Secrets {
    /// The broker's key of the host that takes messages.
    pub(crate) taker: Marker,
    /// The broker's key of the host that only settles.
    pub(crate) settler: Marker,
    /// The key of the fleet's receipts.
    pub(crate) fleet: Marker,
    /// Bearer tokens, by worker.
    pub(crate) tokens: Vec<Marker>,
}

impl Secrets {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            taker: Marker::new("the broker's key of the host that takes"),
            settler: Marker::new("the broker's key of the host that settles"),
            fleet: Marker::new("the key of the fleet"),
            tokens: (0..workers)
                .map(|worker| Marker::new(&format!("the token of worker {worker}")))
                .collect(),
        }
    }

    /// What the fleet's key file has: 32 bytes in hexadecimal digits, most of them the marker.
    pub(crate) fn key_file(&self) -> String {
        let bytes = self.fleet.text().bytes().chain(std::iter::repeat(b'.')).take(32);
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Marker> {
        [&self.taker, &self.settler, &self.fleet].into_iter().chain(&self.tokens)
    }

    /// Whatever of them shows. The search itself is proved by `control`, which is no secret: it must be found in each of
    /// these pieces, plainly or encoded.
    pub(crate) fn search(&self, haul: &Haul, control: &Marker, pieces: &[&str]) -> anyhow::Result<Vec<Leak>> {
        let seen = haul.leaks([control]);
        let unseen: Vec<_> =
            pieces.iter().filter(|piece| !seen.iter().any(|leak| leak.from.contains(**piece))).collect();
        if !unseen.is_empty() {
            bail!(
                "the search does not find what is no secret in {unseen:?}: what came out was not collected"
            );
        }
        Ok(haul.leaks(self.all()))
    }
}

/// A text that is no secret, and goes the ways that secrets must not go.
pub(crate) fn control() -> Marker {
    Marker::new("no secret at all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_is_found_in_the_form_in_which_it_is_given() {
        let secrets = Secrets::new(2);
        let mut haul = Haul::default();
        haul.add("log", format!("{} {}", control().core(), secrets.key_file()));
        haul.add("metrics", format!("{} {}", control().core(), secrets.tokens[1].text()));
        let leaks = secrets.search(&haul, &control(), &["log", "metrics"]).unwrap();
        let found: Vec<_> = leaks.iter().map(|leak| (&*leak.marker, leak.form)).collect();
        assert_eq!(found, [("the key of the fleet", "hex"), ("the token of worker 1", "plain")]);
        assert_eq!(secrets.key_file().len(), 64);
    }

    #[test]
    fn a_search_that_finds_nothing_proves_nothing() {
        let mut haul = Haul::default();
        haul.add("log", control().core());
        haul.add("metrics", "");
        let error = Secrets::new(1).search(&haul, &control(), &["log", "metrics"]).unwrap_err();
        assert!(error.to_string().contains("metrics"), "{error}");
    }
}
