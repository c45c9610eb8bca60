//! The ladder: every check that a candidate passes before it goes into force, off the hot path.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use serde_json::Value;
use tidegate_model::{Message, MessageId, Standing, Timestamp};
use wasmparser::{Validator, WasmFeatures};

use crate::bindings::v1::lifecycle::Description;
use crate::cause::Failure;
use crate::engine::{Compiled, Engine};
use crate::error::{LoadError, Rung};
use crate::files::Files;
use crate::grants::{Access, Grants};
use crate::guest::{Call, Moment};
use crate::instance::Instance;
use crate::log_tail::printable;
use crate::partitioner::OutgoingRecord;
use crate::prepared::{Linked, Prepared};
use crate::random::SplitMix64;
use crate::renewal::LeaseFacts;
use crate::rules::{self, Complaint, Source};
use crate::section::{self, Built, Kind, Outline, Trailer, TrailerState, kind, outline};
use crate::spec::{Limits, PolicySpec};
use crate::state::State;
use crate::world::{self, World};

/// One check and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RungReport {
    /// Which.
    pub rung: Rung,
    /// What came of it.
    pub outcome: RungOutcome,
    /// Wall time.
    #[serde(rename = "took-us", serialize_with = "micros")]
    pub took: Duration,
}

/// What came of a check.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "result", content = "text")]
pub enum RungOutcome {
    /// It is as it should be.
    Passed,
    /// It is as it should be, and there is something to say about it.
    Noted(String),
    /// It is not; the candidate is refused.
    Failed(String),
    /// Not looked at, because an earlier check failed.
    Skipped,
}

fn micros<S: Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
}

/// What passed the whole ladder.
pub(crate) struct Candidate {
    pub(crate) prepared: Arc<Prepared>,
    /// For `configure`.
    pub(crate) rules_json: Arc<str>,
    pub(crate) rules_sha256: Option<Arc<str>>,
}

/// The checks done so far.
#[derive(Debug, Default)]
pub(crate) struct Ladder {
    rungs: Vec<RungReport>,
}

/// A value, and something to say about the check that gave it.
type Step<T> = Result<(T, Option<String>), LoadError>;

impl Ladder {
    /// Reads the files.
    pub(crate) fn read(&mut self, spec: &PolicySpec) -> Result<Files, LoadError> {
        let files = self.climb(Rung::Read, || Ok((Files::read(spec)?, None)))?;
        let note = format!("{} bytes", files.component.len());
        self.climb(Rung::Size, || Ok(((), Some(note))))?;
        Ok(files)
    }

    /// All the other checks. `live` is what runs: when the component is the same, only the rules are checked.
    pub(crate) fn check(
        &mut self,
        engine: &Engine,
        spec: &PolicySpec,
        files: &Files,
        live: Option<&Arc<Prepared>>,
    ) -> Result<Candidate, LoadError> {
        let limits = &spec.limits;
        let state = Arc::new(State::new(SELF_TEST_STATE_ENTRIES));
        let (prepared, mut instance) = match live.filter(|live| is_compiled(live, spec, files)) {
            Some(live) => {
                self.climb(Rung::Digest, || digest(spec, files))?;
                let instance = self.instantiate(engine, &live.linked, limits, &state)?;
                (Arc::clone(live), instance)
            }
            None => self.prepare(engine, spec, files, &state)?,
        };
        let source = files.rules.as_ref().map(|rules| Source { file: &rules.file, text: &rules.text });
        let asking = Asking { engine, linked: &prepared.linked, limits, state: &state };
        let rules = self.climb(Rung::Rules, || {
            let reading = rules::read(source, &prepared.description.parameters).map_err(LoadError::Rules)?;
            if !reading.errors.is_empty() {
                // The policy is asked about the rest, so that all mistakes are told together.
                let refusals = asking.refusals(reading.rules, None);
                let errors = rules::with_refusals(source, reading.errors, refusals);
                return Err(LoadError::Rules(errors));
            }
            let note = match source {
                None => Some("no rules file".to_owned()),
                Some(_) => reading.sets_nothing().then(|| rules::SETS_NOTHING.to_owned()),
            };
            Ok((reading.rules, note))
        })?;
        let rules_json = rules.to_string();
        self.climb(Rung::Configure, || {
            let answer = instance.configure(limits, &rules_json).map_err(LoadError::Configure)?;
            answer.map(|()| ((), None)).map_err(|error| {
                let refusals = asking.refusals(rules, Some((error.key, error.message)));
                LoadError::Refused(rules::with_refusals(source, Vec::new(), refusals))
            })
        })?;
        self.climb(Rung::SelfTest, || {
            let note =
                self_test(engine, &mut instance, prepared.world, limits).map_err(LoadError::SelfTest)?;
            Ok(((), Some(note)))
        })?;
        Ok(Candidate { prepared, rules_json: rules_json.into(), rules_sha256: files.rules_sha256().cloned() })
    }

    /// The checks done, and those that were not reached as skipped.
    pub(crate) fn into_rungs(self) -> Vec<RungReport> {
        let mut rungs = self.rungs;
        if rungs.iter().any(|report| matches!(report.outcome, RungOutcome::Failed(_))) {
            let missing =
                Rung::ALL.into_iter().filter(|rung| rungs.iter().all(|report| report.rung != *rung));
            let skipped: Vec<_> = missing
                .map(|rung| RungReport { rung, outcome: RungOutcome::Skipped, took: Duration::ZERO })
                .collect();
            rungs.extend(skipped);
        }
        rungs
    }

    /// What depends on the component alone.
    pub(crate) fn prepare(
        &mut self,
        engine: &Engine,
        spec: &PolicySpec,
        files: &Files,
        state: &Arc<State>,
    ) -> Result<(Arc<Prepared>, Instance), LoadError> {
        let bytes = &files.component;
        self.climb(Rung::Format, || format(spec, bytes))?;
        self.climb(Rung::Digest, || digest(spec, files))?;
        let outline = self.climb(Rung::Validate, || validate(spec, bytes))?;
        let trailer = self.climb(Rung::Section, || section(spec, bytes, &outline))?;
        self.climb(Rung::Version, || version(&outline))?;
        let world = self.climb(Rung::Exports, || exports(spec, &outline))?;
        self.climb(Rung::Imports, || imports(world, &spec.grants, &outline))?;
        let component = self.climb(Rung::Compile, || {
            let sha256 = Arc::clone(&files.component_sha256);
            let (component, compiled) =
                engine.compile(Arc::clone(bytes), sha256, spec.limits.compile_timeout)?;
            let from_cache = compiled == Compiled::FromCache;
            Ok((component, from_cache.then(|| "compiled at an earlier start".to_owned())))
        })?;
        let linked = self.climb(Rung::Link, || {
            let access = Arc::new(Access::new(
                spec.grants.clone(),
                Arc::clone(&spec.name),
                spec.limits.hostcall_bytes,
                engine.clock(),
                engine.telemetry().clone(),
            ));
            let linked = engine
                .linker(world, &spec.grants)
                .and_then(|linker| linker.instantiate_pre(&component))
                .and_then(|component| Linked::new(component, world, outline.observes(), access));
            let linked = linked.map_err(|error| LoadError::Link { message: format!("{error:#}") })?;
            Ok((linked, None))
        })?;
        let mut instance = self.instantiate(engine, &linked, &spec.limits, state)?;
        let description = self.climb(Rung::Describe, || {
            let description = instance.describe(&spec.limits).map_err(LoadError::Describe)?;
            check_description(&description)?;
            let note = format!("{} {}: {}", description.name, description.version, description.summary);
            Ok((description, Some(note)))
        })?;
        let sha256 = Arc::clone(&files.component_sha256);
        let Outline { imports, .. } = outline;
        Ok((Arc::new(Prepared { sha256, world, linked, description, trailer, imports }), instance))
    }

    fn instantiate(
        &mut self,
        engine: &Engine,
        linked: &Linked,
        limits: &Limits,
        state: &Arc<State>,
    ) -> Result<Instance, LoadError> {
        self.climb(Rung::Instantiate, || {
            let instance = Instance::start(engine, linked, limits, state, moment(engine));
            Ok((instance.map_err(LoadError::Instantiate)?, None))
        })
    }

    #[allow(clippy::disallowed_methods, reason = "measures how long a check takes, decides nothing")]
    fn climb<T>(&mut self, rung: Rung, step: impl FnOnce() -> Step<T>) -> Result<T, LoadError> {
        let began = Instant::now();
        let result = step();
        let took = began.elapsed();
        let (rung, outcome) = match &result {
            Ok((_, None)) => (rung, RungOutcome::Passed),
            Ok((_, Some(note))) => (rung, RungOutcome::Noted(note.clone())),
            Err(error) => (error.rung(), RungOutcome::Failed(sentence(error))),
        };
        self.rungs.push(RungReport { rung, outcome, took });
        result.map(|(value, _)| value)
    }
}

/// How to ask a component about rules: each time another instance, since an instance is configured once.
struct Asking<'a> {
    engine: &'a Engine,
    linked: &'a Linked,
    limits: &'a Limits,
    state: &'a Arc<State>,
}

impl Asking<'_> {
    /// All that the component refuses in these rules, given the first. An instance that fails has no more to say.
    fn refusals(&self, rules: Value, first: Option<Complaint>) -> Vec<Complaint> {
        rules::every_complaint(rules, first, |json| {
            let moment = moment(self.engine);
            let instance = Instance::start(self.engine, self.linked, self.limits, self.state, moment);
            let refused =
                instance.and_then(|mut instance| instance.configure(self.limits, json)).ok()?.err()?;
            Some((refused.key, refused.message))
        })
    }
}

/// Whether what runs is what a candidate's component would become.
fn is_compiled(live: &Prepared, spec: &PolicySpec, files: &Files) -> bool {
    live.sha256 == files.component_sha256
        && *live.linked.grants() == spec.grants
        && spec.world.is_none_or(|world| world == live.world)
}

/// An error with its causes.
pub(crate) fn sentence(error: &LoadError) -> String {
    use std::error::Error as _;
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Bytes of a name or a version, which are labels of metrics and keys of files.
const NAME_BYTES_MAX: usize = 128;

/// State for a self-test, which must not touch the policy's own.
const SELF_TEST_STATE_ENTRIES: usize = 64;

fn moment(engine: &Engine) -> Moment {
    let clock = engine.clock();
    Moment { wall: clock.wall(), now: clock.now(), random: SplitMix64::new(engine.next_seed()) }
}

/// Asks a policy about something with something in every field; answers its answer, as a note.
fn self_test(
    engine: &Engine,
    instance: &mut Instance,
    world: World,
    limits: &Limits,
) -> Result<String, Failure> {
    let (deadline, moment) = (limits.start_deadline, moment(engine));
    match world {
        World::ThrottlePolicy => {
            instance.decide(deadline, moment, sample()).map(|verdict| format!("{verdict:?}"))
        }
        World::RenewalPolicy => {
            let lease = LeaseFacts {
                remaining: Duration::from_secs(5),
                length: Duration::from_secs(60),
                renewals: 0,
                emitted: false,
                queue_position: 0,
            };
            instance.renew(deadline, moment, sample(), lease).map(|answer| format!("{answer:?}"))
        }
        World::PartitionerPolicy => {
            let record = OutgoingRecord {
                topic: "self-test".into(),
                key: Some("self-test".into()),
                headers: vec![("self-test".into(), "true".into())],
                value: "self-test".into(),
            };
            instance
                .partition(deadline, moment, record, 8)
                .map(|partition| format!("partition {partition} of 8"))
        }
        // It might ask a service, and an answer from there is nothing that a check should ask for.
        World::CredentialResolver => Ok("resolvers are asked only when a connection needs it".to_owned()),
    }
}

/// A message with something in every field.
fn sample() -> Call {
    let message = Message {
        topic: "self-test".into(),
        lite_topic: Some("self-test".into()),
        group: None,
        id: MessageId::from("self-test"),
        tag: Some("self-test".into()),
        keys: vec!["self-test".into()],
        properties: vec![("self-test".into(), b"true".to_vec().into())],
        body: b"self-test".to_vec().into(),
        body_state: tidegate_model::BodyState::Intact,
        born_at: Some(Timestamp::default()),
        stored_at: Some(Timestamp::default()),
    };
    let standing = Standing {
        key_in_flight: 1,
        flow_in_flight: 1,
        flow_budget: 32,
        flow_queued: 0,
        flow_emitted: 0,
        active_keys: 1,
        key_rate: 0.1,
        flow_rate: 0.1,
        flow_throughput: 0.1,
        key_share: 1.0,
    };
    Call {
        source: "self-test".into(),
        message: Arc::new(message),
        key: "self-test".into(),
        attempt: 1,
        age: Duration::ZERO,
        waited: Duration::ZERO,
        deferred: Duration::ZERO,
        standing,
    }
}

fn format(spec: &PolicySpec, bytes: &[u8]) -> Step<()> {
    let found = match kind(bytes) {
        Kind::Component => return Ok(((), None)),
        Kind::Module => {
            "a core module and not a component; `tidegate policy build` makes a component of it".to_owned()
        }
        Kind::Other => format!("{} and not a WebAssembly component", other_format(bytes)),
    };
    Err(LoadError::Format { path: spec.component.clone(), found })
}

fn other_format(bytes: &[u8]) -> &'static str {
    match bytes {
        [] => "empty",
        [0, b'a', b's', b'm', ..] => "WebAssembly of a version that this host does not know",
        [0x7f, b'E', b'L', b'F', ..] => "compiled machine code (policies are never loaded precompiled)",
        [0x1f, 0x8b, ..] => "gzip (unpack it first)",
        [b'P', b'K', ..] => "a zip archive (unpack it first)",
        [b'<', ..] => "HTML or XML, perhaps the error page of a download",
        _ if std::str::from_utf8(bytes).is_ok() => "a text",
        _ => "something unknown",
    }
}

fn digest(spec: &PolicySpec, files: &Files) -> Step<()> {
    let found = &*files.component_sha256;
    match &spec.sha256 {
        Some(pinned) if !pinned.eq_ignore_ascii_case(found) => Err(LoadError::Digest {
            path: spec.component.clone(),
            found: found.to_owned(),
            pinned: pinned.clone(),
        }),
        Some(_) => Ok(((), Some(format!("{found}, as pinned")))),
        None => Ok(((), Some(found.to_owned()))),
    }
}

fn validate(spec: &PolicySpec, bytes: &[u8]) -> Step<Outline> {
    let invalid = |error: wasmparser::BinaryReaderError| LoadError::Invalid {
        path: spec.component.clone(),
        message: error.message().to_owned(),
        offset: error.offset(),
        bytes: bytes.len(),
    };
    // The proposals that components of today's tools use; the engine refuses what it does not run.
    Validator::new_with_features(WasmFeatures::default()).validate_all(bytes).map_err(invalid)?;
    Ok((outline(bytes).map_err(invalid)?, None))
}

fn section(spec: &PolicySpec, bytes: &[u8], outline: &Outline) -> Step<Option<Trailer>> {
    let broken = |message| LoadError::Section { path: spec.component.clone(), message };
    match &outline.trailer {
        TrailerState::Whole(trailer) => Ok((Some(trailer.clone()), trailer.built.as_ref().map(said_of))),
        TrailerState::Absent => match section::built(bytes) {
            // A file that is cut after its exports is a component still, and perhaps one that observes no more.
            Some(built) => Err(broken(format!(
                "{} was built with the SDK, and the section that ends such a file is missing (a whole \
                 copy has it; `tidegate policy build` adds it to what another tool encoded)",
                said_of(&built)
            ))),
            None => {
                let note =
                    "none: built by another tool than `tidegate policy build`, so nothing proves it complete";
                Ok((None, Some(note.to_owned())))
            }
        },
        TrailerState::Broken(message) => Err(broken(message.clone())),
    }
}

/// The file's own words, which nobody has checked.
fn said_of(built: &Built) -> String {
    printable(&format!("{} {}, {}", built.name, built.version, built.sdk), 3 * NAME_BYTES_MAX)
}

/// Read from names alone, before anything is compiled.
fn version(outline: &Outline) -> Step<()> {
    let names: Vec<_> = outline.exports.iter().chain(&outline.imports).cloned().collect();
    match world::version_advice(&names) {
        Some(advice) => Err(LoadError::Version { advice }),
        None => Ok(((), Some(format!("policy API {}", world::served())))),
    }
}

/// The world that the component is of: the one that it is configured for, else the one that it exports.
fn exports(spec: &PolicySpec, outline: &Outline) -> Step<World> {
    let found = World::found_in(&outline.exports);
    let world = spec.world.or_else(|| found.first().copied()).unwrap_or(World::ThrottlePolicy);
    match world::missing_export(world, &outline.exports) {
        Some((export, advice)) => Err(LoadError::Export { export, advice }),
        None if outline.observes() => Ok((world, Some(format!("{world}, and it observes endings")))),
        None => Ok((world, Some(world.to_string()))),
    }
}

fn imports(world: World, grants: &Grants, outline: &Outline) -> Step<()> {
    for import in &outline.imports {
        if let Some(advice) =
            world::import_advice(world, import).or_else(|| world::grant_advice(grants, import))
        {
            return Err(LoadError::Import { import: import.clone(), advice });
        }
    }
    Ok(((), Some(outline.imports.join(", "))))
}

fn check_description(description: &Description) -> Result<(), LoadError> {
    let parameters = &description.parameters;
    if description.name.is_empty() {
        return Err(LoadError::Description("it has no name".to_owned()));
    }
    let names = parameters.iter().map(|parameter| ("the name of a parameter", &parameter.name));
    let own = [("its name", &description.name), ("its version", &description.version)];
    for (what, name) in own.into_iter().chain(names) {
        if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let name = printable(name, NAME_BYTES_MAX);
            return Err(LoadError::Description(format!(
                "{what} is one line of at most {NAME_BYTES_MAX} bytes, and not `{name}`"
            )));
        }
    }
    for (n, parameter) in parameters.iter().enumerate() {
        if parameter.name.is_empty() || parameters[..n].iter().any(|other| other.name == parameter.name) {
            let message = format!("the parameter `{}` has no name or is described twice", parameter.name);
            return Err(LoadError::Description(message));
        }
    }
    Ok(())
}
