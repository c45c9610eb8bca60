//! What the test runner's own output says.

/// Counts summed over all test binaries, and how long each took.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Results {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// Seconds by test binary, in the order they ran.
    pub(crate) binaries: Vec<(String, f64)>,
    /// Names of failed tests.
    pub(crate) failures: Vec<String>,
    /// What each failed test printed, under a line with its name.
    pub(crate) details: Vec<String>,
}

/// Lines kept of what one failed test printed; the whole is in the log.
const DETAIL_LINES: usize = 40;

impl Results {
    /// Reads the output of `cargo test`.
    pub(crate) fn parse(output: &str) -> Self {
        let mut results = Self::default();
        let mut binary = String::from("?");
        // Lines that may still be kept of the failed test whose output this is; `None` outside of any.
        let mut detail: Option<usize> = None;
        for line in output.lines() {
            if line.starts_with("---- ") {
                detail = Some(DETAIL_LINES);
            } else if line == "failures:" || line.starts_with("test result: ") {
                detail = None;
            } else if line == "stack backtrace:" {
                // What was said of it stands before it; several of these and a log that is cut loses the sentences.
                detail = detail.map(|_| 0);
            }
            if let Some(left) = &mut detail
                && let Some(fewer) = left.checked_sub(1)
            {
                *left = fewer;
                results.details.push(line.to_owned());
            }
            let line = line.trim();
            if let Some(running) = line.strip_prefix("Running ") {
                binary = binary_name(running);
            } else if let Some(documented) = line.strip_prefix("Doc-tests ") {
                binary = format!("{documented} (documentation)");
            } else if let Some(result) = line.strip_prefix("test result: ") {
                results.add(&binary, result);
            } else if let Some(name) =
                line.strip_prefix("test ").and_then(|test| test.strip_suffix(" ... FAILED"))
            {
                results.failures.push(format!("{binary}: {name}"));
            }
        }
        results
    }

    /// `ok. 12 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.01s`
    fn add(&mut self, binary: &str, result: &str) {
        let counts = result.split_once(". ").map_or(result, |(_, counts)| counts);
        let mut seconds = 0.0;
        for part in counts.split(';').map(str::trim) {
            let number = |text: &str| text.parse().unwrap_or(0);
            match part.split_once(' ') {
                Some((count, "passed")) => self.passed += number(count),
                Some((count, "failed")) => self.failed += number(count),
                Some((count, "ignored")) => self.ignored += number(count),
                Some(("finished", time)) => {
                    let digits = time.trim_start_matches("in ").trim_end_matches('s');
                    seconds = digits.parse().unwrap_or(0.0);
                }
                _ => {}
            }
        }
        self.binaries.push((binary.into(), seconds));
    }
}

/// `unittests src/lib.rs (target/debug/deps/tidegate_lease-0123456789abcdef)` is `tidegate_lease src/lib.rs`.
fn binary_name(running: &str) -> String {
    let Some((source, path)) = running.rsplit_once(" (") else { return running.into() };
    let file = path.trim_end_matches(')').rsplit('/').next().unwrap_or(path);
    let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
    format!("{name} {}", source.trim_start_matches("unittests "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
   Compiling tidegate-lease v0.1.0
     Running unittests src/lib.rs (target/debug/deps/tidegate_lease-0123456789abcdef)

running 3 tests
test book::tests::one ... ok
test book::tests::two ... FAILED
test book::tests::three ... ignored

failures:

---- book::tests::two stdout ----
assertion failed: two
stack backtrace:
   0: two

failures:
    book::tests::two

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.25s

     Running tests/real.rs (target/debug/deps/real-fedcba9876543210)

running 40 tests
test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 61.00s

   Doc-tests tidegate_lease

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn sums_over_binaries() {
        let results = Results::parse(OUTPUT);
        assert_eq!((results.passed, results.failed, results.ignored), (41, 1, 1));
        assert_eq!(results.failures, ["tidegate_lease src/lib.rs: book::tests::two"]);
        assert_eq!(results.details, ["---- book::tests::two stdout ----", "assertion failed: two"]);
        assert_eq!(
            results.binaries,
            [
                ("tidegate_lease src/lib.rs".to_owned(), 1.25),
                ("real tests/real.rs".to_owned(), 61.0),
                ("tidegate_lease (documentation)".to_owned(), 0.0),
            ]
        );
    }

    #[test]
    fn output_without_tests_has_none() {
        assert_eq!(Results::parse("error: could not compile"), Results::default());
    }
}
