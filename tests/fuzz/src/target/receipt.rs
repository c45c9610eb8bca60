//! Receipt texts.

use tidegate_model::{Receipt, ReceiptKey};

use super::Target;
use crate::mutate;
use crate::random::Random;

pub(super) struct Receipts {
    key: ReceiptKey,
}

impl Receipts {
    pub(super) fn new() -> Self {
        // The key that the seeds were made with.
        Self { key: ReceiptKey::new([7; 32]) }
    }
}

impl Target for Receipts {
    fn name(&self) -> &'static str {
        "receipts"
    }

    fn mutate(&self, random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut input = seed.to_vec();
        mutate::bytes(random, &mut input, other);
        input
    }

    /// What decodes is exactly what was encoded, and what fails says so in a sentence.
    fn run(&mut self, input: &[u8]) {
        let text = String::from_utf8_lossy(input);
        match Receipt::decode(&text, &self.key) {
            Ok(receipt) => assert_eq!(receipt.encode(&self.key), text, "two texts for one receipt"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        // The same bytes without the tag's protection: the layout's own decoder.
        let _ = Receipt::decode_unverified(&text);
    }
}
