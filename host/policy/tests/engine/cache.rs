//! What was compiled before is not compiled again, unless anything about it is wrong.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant as StdInstant};

use tempfile::TempDir;
use tidegate_policy::{CheckReport, Engine, EngineOptions, Limits, PolicySpec, Rung, RungOutcome, check};
use tidegate_telemetry::Telemetry;
use tidegate_test_guests::Guest;

use crate::support::{engine_options, metric};

/// One process after another, with the same component and the same directory for what they compile.
struct Starts {
    dir: TempDir,
    spec: PolicySpec,
}

/// What one of them did.
struct Start {
    report: CheckReport,
    compiled: f64,
    from_cache: f64,
}

impl Starts {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let component = dir.path().join("fair.wasm");
        fs::write(&component, Guest::default().component()).unwrap();
        let patient = Duration::from_secs(60);
        let spec = PolicySpec {
            limits: Limits { start_deadline: patient, compile_timeout: patient, ..Limits::default() },
            ..PolicySpec::new("fair", component)
        };
        Self { dir, spec }
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("state/compiled")
    }

    fn start(&self) -> Start {
        self.start_with(engine_options())
    }

    fn start_with(&self, mut options: EngineOptions) -> Start {
        let telemetry = Telemetry::default();
        options.cache_dir = Some(self.cache());
        let engine = Engine::new(options, telemetry.clone()).unwrap();
        let report = check(&engine, &self.spec);
        let count = |source| {
            metric(&telemetry, &format!("tidegate_policy_compilations_total{{source=\"{source}\"}}"))
        };
        Start { report, compiled: count("compiler"), from_cache: count("cache") }
    }

    /// The compiled files, once there are so many; they are written after the component is used already.
    fn files(&self, count: usize) -> Vec<PathBuf> {
        let began = StdInstant::now();
        loop {
            let files = compiled(&self.cache());
            if files.len() == count {
                return files;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{files:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn file(&self) -> PathBuf {
        self.files(1).remove(0)
    }
}

fn compiled(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "compiled")).collect()
}

impl Start {
    fn compiled_anew(&self) {
        assert!(self.report.passed, "{:#?}", self.report);
        assert_eq!((self.compiled, self.from_cache), (1.0, 0.0));
    }

    fn came_from_the_cache(&self) {
        assert!(self.report.passed, "{:#?}", self.report);
        assert_eq!((self.compiled, self.from_cache), (0.0, 1.0));
        let rung = self.report.rungs.iter().find(|report| report.rung == Rung::Compile).unwrap();
        assert_eq!(rung.outcome, RungOutcome::Noted("compiled at an earlier start".to_owned()));
    }
}

#[test]
fn the_second_start_compiles_nothing() {
    let starts = Starts::new();
    starts.start().compiled_anew();
    starts.file();
    starts.start().came_from_the_cache();
    starts.start().came_from_the_cache();
    fs::write(&starts.spec.component, Guest::rejecting("other").component()).unwrap();
    starts.start().compiled_anew();
    starts.files(2);
}

#[test]
fn a_file_that_is_not_what_was_written_is_compiled_anew_and_replaced() {
    let starts = Starts::new();
    starts.start().compiled_anew();
    let file = starts.file();
    let whole = fs::read(&file).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    let mut another = b"tidegate".to_vec();
    another.extend_from_slice(&whole);
    let damaged = [changed, whole[..whole.len() - 1].to_vec(), whole[..100].to_vec(), Vec::new(), another];
    for bytes in damaged {
        fs::write(&file, bytes).unwrap();
        starts.start().compiled_anew();
        let began = StdInstant::now();
        while fs::read(&file).is_ok_and(|bytes| bytes.len() != whole.len()) || !file.exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "it was not written again");
            std::thread::sleep(Duration::from_millis(5));
        }
        starts.start().came_from_the_cache();
    }
}

#[test]
fn what_another_engine_compiled_is_compiled_anew() {
    let starts = Starts::new();
    starts.start().compiled_anew();
    let ours = starts.file();
    starts.start_with(EngineOptions { counts_fuel: true, ..engine_options() }).compiled_anew();
    let both = starts.files(2);
    let theirs = both.iter().find(|path| **path != ours).unwrap();
    // Under the name of ours: the seal is whole, and wasmtime finds the other configuration.
    fs::copy(theirs, &ours).unwrap();
    starts.start().compiled_anew();
}

#[test]
fn what_comes_from_the_cache_has_no_more_than_the_pool() {
    let mut starts = Starts::new();
    starts.spec.limits.memory_bytes = 256 << 20;
    fs::write(&starts.spec.component, Guest::beginning_with_pages(2_048).component()).unwrap();
    let large = EngineOptions { instances_max: 4, memory_bytes_max: 256 << 20, ..engine_options() };
    starts.start_with(large).compiled_anew();
    starts.file();
    let small = starts.start();
    assert!(!small.report.passed);
    assert!(small.report.failure().unwrap().contains("memory"), "{:#?}", small.report);
}

#[test]
fn nobody_else_may_look_into_it() {
    let starts = Starts::new();
    fs::create_dir_all(starts.cache()).unwrap();
    fs::set_permissions(starts.cache(), fs::Permissions::from_mode(0o777)).unwrap();
    starts.start().compiled_anew();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&starts.cache()), mode(&starts.file())), (0o700, 0o600));
    assert_eq!(fs::read_dir(starts.cache()).unwrap().count(), 1, "nothing else is left in it");
}

#[test]
fn without_a_directory_that_is_its_own_it_compiles_as_ever() {
    let starts = Starts::new();
    fs::create_dir_all(starts.cache().parent().unwrap()).unwrap();
    fs::write(starts.cache(), "a file where the directory should be").unwrap();
    starts.start().compiled_anew();
    starts.start().compiled_anew();
    assert!(starts.cache().is_file());

    let starts = Starts::new();
    fs::create_dir_all(starts.cache()).unwrap();
    // Only the superuser can give a directory away; others cannot have one of somebody else's to begin with.
    if chown(starts.cache(), Some(12_345), None).is_ok() {
        starts.start().compiled_anew();
        starts.start().compiled_anew();
        assert_eq!(compiled(&starts.cache()), Vec::<PathBuf>::new());
    }
}

#[test]
fn compiled_code_is_no_policy() {
    let starts = Starts::new();
    starts.start().compiled_anew();
    fs::copy(starts.file(), &starts.spec.component).unwrap();
    let start = starts.start();
    assert!(!start.report.passed);
    let reason = start.report.failure().unwrap();
    assert!(
        reason.contains("fair.wasm is compiled machine code (policies are never loaded precompiled)"),
        "{reason}"
    );
}

#[test]
fn the_time_for_compiling_holds_with_a_cache_too() {
    let mut starts = Starts::new();
    starts.spec.limits.compile_timeout = Duration::ZERO;
    let late = starts.start();
    assert!(late.report.failure().unwrap().contains("longer than 0 s"), "{:#?}", late.report);
    // What was too late this time is there the next time.
    starts.file();
    starts.spec.limits.compile_timeout = Duration::from_secs(60);
    starts.start().came_from_the_cache();
}

/// Prints what the cache saves for the shipped policies: medians of the compile rung.
#[test]
#[ignore = "measures, proves nothing"]
fn compiling_against_loading() {
    const ROUNDS: usize = 21;
    for name in ["fair-share", "cost-share", "rate-rules", "patient", "steady"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../policies/{name}.wasm"));
        let starts = Starts::new();
        fs::copy(&path, &starts.spec.component).unwrap();
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for file in compiled(&starts.cache()) {
                fs::remove_file(file).unwrap();
            }
            for (n, times) in took.iter_mut().enumerate() {
                let start = starts.start();
                assert_eq!([start.compiled, start.from_cache][n], 1.0);
                let rung = start.report.rungs.iter().find(|report| report.rung == Rung::Compile);
                times.push(rung.unwrap().took);
                starts.file();
            }
        }
        let [compiling, loading] = took.map(|mut times| {
            times.sort_unstable();
            times[ROUNDS / 2]
        });
        let bytes = |path: &Path| fs::metadata(path).unwrap().len();
        println!(
            "{name}: {} bytes, {} compiled; compiling {compiling:?}, loading {loading:?}",
            bytes(&path),
            bytes(&starts.file())
        );
    }
}
