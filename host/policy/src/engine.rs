//! The one wasmtime engine of the process: how it is set up, its ticker, and compiling off to the side.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use tidegate_connector::Clock;
use tidegate_telemetry::{Telemetry, events};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::bindings::v1::given;
use crate::cache::{Cache, CacheError};
use crate::grants::Grants;
use crate::guest::Guest;
use crate::ticker::Ticker;
use crate::world::World;

/// Native stack that a guest may use. A guest's frames lie on its caller's thread, so every thread that calls a
/// policy needs four times as much (2 MiB, which is what tokio's and the standard library's threads have).
const WASM_STACK_BYTES: usize = 512 << 10;

/// Instance metadata of one component or module; large JavaScript and Python components pass wasmtime's own 1 MiB.
const INSTANCE_BYTES_MAX: usize = 10 << 20;

/// What one component may be made of, so that no policy takes the places of others in the pool. An encoded component is
/// its own module and two small ones for its imports; one in Python is linked of some twenty, which share a memory.
const CORE_INSTANCES_MAX: u32 = 64;
const MEMORIES_MAX: u32 = 2;
const TABLES_MAX: u32 = 4;

/// Compilations that ran into their timeout and still go on. wasmtime cannot be told to stop compiling, so this is
/// what bounds the processors that bad files may keep busy.
const OVERDUE_COMPILATIONS_MAX: usize = 2;

/// How the engine is set up.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Instances that can live at once in the pool: one for each flow and policy, and one for a candidate.
    pub instances_max: u32,
    /// The largest `memory_bytes` of all policies. Address space is reserved for it, not memory.
    pub memory_bytes_max: usize,
    /// Beginning of all random numbers that policies see.
    pub seed: u64,
    /// The process's clock.
    pub clock: Clock,
    /// A directory of the host's own for what was compiled, so that the next start need not compile it again. Code
    /// that lies in it is run: nobody else may write to it, and it is closed to others when it is opened.
    pub cache_dir: Option<PathBuf>,
    /// Whether what policies execute is counted, for those who measure them: code that counts is slower.
    pub counts_fuel: bool,
}

impl EngineOptions {
    /// Room for a hundred instances of 64 MiB, and no cache.
    #[must_use]
    pub const fn new(clock: Clock, seed: u64) -> Self {
        Self {
            instances_max: 100,
            memory_bytes_max: 64 << 20,
            seed,
            clock,
            cache_dir: None,
            counts_fuel: false,
        }
    }
}

/// Why there is no engine. Nothing that a policy can cause.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// wasmtime does not work on this machine.
    #[error("cannot set up WebAssembly on this machine: {0}")]
    Setup(String),
    /// The system gave no thread.
    #[error("cannot start the policy engine's ticker thread")]
    Ticker(#[source] std::io::Error),
}

/// Where instances get their memory from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Allocator {
    /// A pool reserved at start: a fresh instance takes some ten microseconds.
    Pooling,
    /// The system, for each instance anew: some twenty microseconds, and slower on many threads.
    OnDemand,
}

impl Allocator {
    /// The name, as metrics have it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pooling => "pooling",
            Self::OnDemand => "on-demand",
        }
    }
}

/// The engine. One per process; clones are handles to the same.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    wasm: wasmtime::Engine,
    allocator: Allocator,
    telemetry: Telemetry,
    clock: Clock,
    seeds: AtomicU64,
    overdue: Arc<AtomicUsize>,
    cache: Option<Arc<Cache>>,
    instances: Arc<()>,
    memory_bytes_max: usize,
    counts_fuel: bool,
    /// Ends with the engine.
    _ticker: Ticker,
}

impl Engine {
    /// Sets the engine up and starts its ticker. When the pool cannot be reserved, the event says what was asked
    /// for and why not, and instances come from the system.
    ///
    /// # Errors
    /// When wasmtime does not work here at all.
    pub fn new(options: EngineOptions, telemetry: Telemetry) -> Result<Self, EngineError> {
        let (wasm, allocator) = match wasmtime::Engine::new(&pooling(&options)) {
            Ok(wasm) => (wasm, Allocator::Pooling),
            Err(error) => {
                telemetry.emit(events::policy::PoolUnavailable {
                    instances: options.instances_max,
                    memory_bytes: options.memory_bytes_max as u64,
                    reason: &format!("{error:#}"),
                });
                let wasm = wasmtime::Engine::new(&common(options.counts_fuel))
                    .map_err(|error| EngineError::Setup(format!("{error:#}")))?;
                (wasm, Allocator::OnDemand)
            }
        };
        telemetry.emit(events::policy::EngineReady { allocator: allocator.label() });
        let cache = options.cache_dir.and_then(|directory| {
            let opened = Cache::open(&directory, &wasm, options.clock.wall());
            opened.map(Arc::new).inspect_err(|error| tell_trouble(&telemetry, error)).ok()
        });
        let ticker = Ticker::start(wasm.weak()).map_err(EngineError::Ticker)?;
        Ok(Self(Arc::new(Inner {
            wasm,
            allocator,
            telemetry,
            clock: options.clock,
            seeds: AtomicU64::new(options.seed),
            overdue: Arc::new(AtomicUsize::new(0)),
            cache,
            instances: Arc::new(()),
            memory_bytes_max: options.memory_bytes_max,
            counts_fuel: options.counts_fuel,
            _ticker: ticker,
        })))
    }

    /// Where instances get their memory from.
    #[must_use]
    pub fn allocator(&self) -> Allocator {
        self.0.allocator
    }

    /// Instances that live now, candidates' included.
    #[must_use]
    pub fn instances(&self) -> usize {
        Arc::strong_count(&self.0.instances) - 1
    }

    /// Counts an instance for as long as the token lives.
    pub(crate) fn count_instance(&self) -> Arc<()> {
        Arc::clone(&self.0.instances)
    }

    /// The most that any instance may have: a slot of the pool.
    pub(crate) fn memory_bytes_max(&self) -> usize {
        self.0.memory_bytes_max
    }

    /// Whether what policies execute is counted.
    #[must_use]
    pub fn counts_fuel(&self) -> bool {
        self.0.counts_fuel
    }

    pub(crate) fn wasm(&self) -> &wasmtime::Engine {
        &self.0.wasm
    }

    /// What a component of that world with those grants is given, and nothing else.
    pub(crate) fn linker(&self, world: World, grants: &Grants) -> wasmtime::Result<Linker<Guest>> {
        let mut linker = Linker::new(&self.0.wasm);
        for interface in world.imports().iter().filter(|interface| grants.has(interface)) {
            match *interface {
                "delivery" => given::delivery::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest| guest)?,
                "outgoing" => given::outgoing::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest| guest)?,
                "state" => given::state::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest| guest)?,
                "clock" => given::clock::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest| guest)?,
                "log" => given::log::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest| guest)?,
                "env" => given::env::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest| guest)?,
                "files" => given::files::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest| guest)?,
                "http" => given::http::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest| guest)?,
                _ => {}
            }
        }
        Ok(linker)
    }

    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.0.telemetry
    }

    pub(crate) fn clock(&self) -> Clock {
        self.0.clock
    }

    /// The seed of one more sequence of random numbers.
    pub(crate) fn next_seed(&self) -> u64 {
        self.0.seeds.fetch_add(1, Ordering::Relaxed)
    }

    /// Compiles on a thread of its own, which is left behind when it takes too long; or takes what was compiled before
    /// of the component with that digest.
    pub(crate) fn compile(
        &self,
        bytes: Arc<[u8]>,
        sha256: Arc<str>,
        timeout: Duration,
    ) -> Result<(Component, Compiled), CompileError> {
        if self.0.overdue.load(Ordering::Acquire) >= OVERDUE_COMPILATIONS_MAX {
            return Err(CompileError::Busy);
        }
        let (done, result) = sync_channel(1);
        let wasm = self.0.wasm.clone();
        let overdue = Arc::clone(&self.0.overdue);
        let (cache, clock) = (self.0.cache.clone(), self.0.clock);
        let telemetry = self.0.telemetry.clone();
        // Counted from the beginning, so that the thread itself can take the count back whenever it ends.
        overdue.fetch_add(1, Ordering::AcqRel);
        let thread = std::thread::Builder::new().name("policy-compile".into()).spawn(move || {
            let compiled =
                contained(|| load_or_compile(&wasm, cache.as_deref(), clock, &telemetry, &bytes, &sha256));
            overdue.fetch_sub(1, Ordering::AcqRel);
            let fresh = compiled.as_ref().ok().filter(|(_, how)| *how == Compiled::Anew);
            let fresh = fresh.map(|(component, _)| component.clone());
            // Nobody waits any more when the timeout has passed.
            let _ = done.send(compiled);
            // Nobody waits for the disk, and what took too long now is there at once the next time.
            if let (Some(cache), Some(component)) = (cache, fresh)
                && let Err(error) = cache.store(&sha256, &component, clock.wall())
            {
                tell_trouble(&telemetry, &error);
            }
        });
        if let Err(error) = thread {
            self.0.overdue.fetch_sub(1, Ordering::AcqRel);
            return Err(CompileError::Thread(error));
        }
        match result.recv_timeout(timeout) {
            Ok(compiled) => compiled.map_err(|error| CompileError::Refused(format!("{error:#}"))),
            Err(RecvTimeoutError::Timeout) => Err(CompileError::TimedOut(timeout)),
            Err(RecvTimeoutError::Disconnected) => {
                Err(CompileError::Refused("the compiler ended without a word".to_owned()))
            }
        }
    }
}

/// Where compiled code came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Compiled {
    Anew,
    FromCache,
}

/// A file that the compiler panics on is a bug in the compiler, and refused like any that it refuses.
fn contained<T>(compile: impl FnOnce() -> wasmtime::Result<T>) -> wasmtime::Result<T> {
    catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it did not say why");
        Err(wasmtime::Error::msg(format!("the compiler panicked: {text}")))
    })
}

#[allow(clippy::disallowed_methods, reason = "measures how long compiling takes, decides nothing")]
fn load_or_compile(
    wasm: &wasmtime::Engine,
    cache: Option<&Cache>,
    clock: Clock,
    telemetry: &Telemetry,
    bytes: &[u8],
    sha256: &str,
) -> wasmtime::Result<(Component, Compiled)> {
    let began = Instant::now();
    let cached = cache.and_then(|cache| {
        let loaded = cache.load(wasm, sha256, clock.wall());
        loaded.inspect_err(|error| tell_trouble(telemetry, error)).ok().flatten()
    });
    let (component, compiled) = match cached {
        Some(component) => (component, Compiled::FromCache),
        None => (Component::from_binary(wasm, bytes)?, Compiled::Anew),
    };
    telemetry.emit(events::policy::Compiled {
        component_sha256: sha256,
        from_cache: compiled == Compiled::FromCache,
        took: began.elapsed(),
    });
    Ok((component, compiled))
}

fn tell_trouble(telemetry: &Telemetry, error: &CacheError) {
    use std::error::Error as _;
    let reason = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    telemetry.emit(events::policy::CompileCacheTrouble { reason: &reason });
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("allocator", &self.0.allocator).finish_non_exhaustive()
    }
}

/// Why a file was not compiled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompileError {
    #[error("the compiler refuses it: {0}")]
    Refused(String),
    #[error("compiling it takes longer than {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    #[error("the compiler is still busy with files that take too long")]
    Busy,
    #[error("the system gives no thread to compile on")]
    Thread(#[source] std::io::Error),
}

/// Only what policies need: each proposal that is off is one that no advisory can hit.
fn common(counts_fuel: bool) -> Config {
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(counts_fuel)
        .max_wasm_stack(WASM_STACK_BYTES)
        .wasm_memory64(false)
        // The code between the parts of a composed component copies from one memory to another.
        .wasm_multi_memory(true)
        .wasm_relaxed_simd(false);
    config
}

fn pooling(options: &EngineOptions) -> Config {
    // Clearing by `madvise` costs more than by hand for small guests; with the kernel's page map only what was
    // touched is cleared, so that more may stay. Measured: 4 µs against 5–9 µs for a fresh instance.
    let keep_resident =
        if PoolingAllocationConfig::is_pagemap_scan_available() { 2 << 20 } else { 256 << 10 };
    let instances = options.instances_max;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .max_core_instances_per_component(CORE_INSTANCES_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        .total_core_instances(instances.saturating_mul(CORE_INSTANCES_MAX))
        .total_memories(instances.saturating_mul(MEMORIES_MAX))
        .total_tables(instances.saturating_mul(TABLES_MAX))
        .max_memory_size(options.memory_bytes_max)
        .max_component_instance_size(INSTANCE_BYTES_MAX)
        .max_core_instance_size(INSTANCE_BYTES_MAX)
        .linear_memory_keep_resident(keep_resident)
        .table_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto);
    let mut config = common(options.counts_fuel);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_panics_refuses() {
        let refused = |panics: fn() -> wasmtime::Result<()>| contained(panics).unwrap_err().to_string();
        assert_eq!(refused(|| panic!("a bug")), "the compiler panicked: a bug");
        assert_eq!(refused(|| panic!("bug {}", 7)), "the compiler panicked: bug 7");
        assert_eq!(contained(|| Ok(3)).unwrap(), 3);
    }
}
