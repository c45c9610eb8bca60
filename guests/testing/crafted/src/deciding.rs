//! Policies that do what policies do, and say which of them it was.

use crate::{DELIVER, Guest, escaped};

impl Guest {
    /// A policy that rejects every message for `reason`, so that a test sees which one decided.
    #[must_use]
    pub fn rejecting(reason: &str) -> Self {
        let text = escaped(reason);
        Self {
            fields: format!("(data (i32.const 1536) \"{text}\")"),
            decide: format!(
                "(i32.store8 (i32.const 256) (i32.const 2)) (i32.store (i32.const 264) (i32.const 1536)) \
                 (i32.store (i32.const 268) (i32.const {})) (i32.const 256)",
                reason.len()
            ),
            ..Self::default()
        }
    }

    /// Reads the attempt, the size of the body and the key of each message, and delivers it.
    #[must_use]
    pub fn reading_three_fields() -> Self {
        Self::default()
            .import("delivery", "[method]message.attempt", "$attempt", "(param i32) (result i32)")
            .import("delivery", "[method]message.body-size", "$body_size", "(param i32) (result i32)")
            .import("delivery", "[method]message.key", "$key", "(param i32 i32)")
            .before_verdict(
                "(drop (call $attempt (local.get $message))) (drop (call $body_size (local.get $message))) \
                 (call $key (local.get $message) (i32.const 512))",
            )
    }

    /// Logs so many lines of so many bytes in each decision.
    #[must_use]
    pub fn logging(lines: u32, bytes: u32) -> Self {
        Self {
            memory: format!("(memory (export \"memory\") {})", 2 + bytes / 65_536),
            ..Self::default()
        }
        .import("log", "write", "$log", "(param i32 i32 i32)")
        .before_verdict(&format!(
            "(memory.fill (i32.const 4096) (i32.const 120) (i32.const {bytes})) (local.set $n (i32.const {lines})) \
             (loop $more (call $log (i32.const 1) (i32.const 4096) (i32.const {bytes})) \
             (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $more (local.get $n)))"
        ))
    }

    /// Takes a token from a bucket that holds three and never fills: delivers what has one, rejects the others.
    #[must_use]
    pub fn with_three_tokens() -> Self {
        Self::with_bucket("0", "3")
    }

    /// Takes a token from a bucket with a burst that is no number.
    #[must_use]
    pub fn with_a_bucket_of_nan() -> Self {
        Self::with_bucket("1", "nan")
    }

    /// Delivers a message when the time that it sees is the same twice, and its random numbers differ.
    #[must_use]
    pub fn looking_at_its_clock() -> Self {
        Self::default()
            .import("clock", "now", "$now", "(result i64)")
            .import("clock", "elapsed", "$elapsed", "(result i64)")
            .import("clock", "random", "$random", "(result i64)")
            .before_verdict(
                "(if (i64.ne (call $now) (call $now)) (then unreachable)) \
                 (if (i64.ne (call $elapsed) (call $elapsed)) (then unreachable)) \
                 (if (i64.eq (call $random) (call $random)) (then unreachable))",
            )
    }

    /// Changes so many buckets at each decision, none of them twice.
    #[must_use]
    pub fn filling_buckets(each_time: u32) -> Self {
        let take = "(param i32 i32 i32 i32 f64 f64 f64) (result i64)";
        // The key is a number of 28 bits, 7 in each byte, so that it is text.
        let digit = |at: u32| {
            format!(
                "(i32.store8 (i32.const {}) (i32.and (i32.shr_u (global.get $key_number) (i32.const {})) \
                 (i32.const 127)))",
                1_600 + at,
                7 * at
            )
        };
        let key: String = (0..4).map(digit).collect();
        let mut guest = Self::default().import("state", "take", "$take", take).before_verdict(&format!(
            "(local.set $n (i32.const {each_time})) \
             (loop $more (global.set $key_number (i32.add (global.get $key_number) (i32.const 1))) {key} \
             (drop (call $take (i32.const 1536) (i32.const 2) (i32.const 1600) (i32.const 4) (f64.const 1) \
             (f64.const 1) (f64.const 2))) \
             (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $more (local.get $n)))"
        ));
        guest.fields = "(global $key_number (mut i32) (i32.const 0))".to_owned();
        guest
    }

    fn with_bucket(rate: &str, burst: &str) -> Self {
        let take = "(param i32 i32 i32 i32 f64 f64 f64) (result i64)";
        Self::rejecting("no token").import("state", "take", "$take", take).before_verdict(&format!(
            "(if (i64.eqz (call $take (i32.const 1536) (i32.const 2) (i32.const 1536) (i32.const 2) (f64.const 1) \
             (f64.const {rate}) (f64.const {burst}))) (then (call $give_back (local.get $message)) (return {DELIVER})))"
        ))
    }
}
