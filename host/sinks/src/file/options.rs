//! What a user may choose about files.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_connector::options::{Default, Kind, OptionError, OptionSpec, Side, Table, Values};

/// Its options.
pub const FILE: Table = Table {
    connector: "file",
    summary: "Writes one JSON object a line to a file, which is set aside when it is full or old. A delivery is accepted once its line is on the disk.",
    options: &[
        option(
            PATH,
            Kind::Path,
            Default::Required,
            "The file to write to, in a directory that is there. Full and old files are set aside beside it under names with the time, such as `out-20260102T030405.678Z.jsonl` for `out.jsonl`; a lock file is there, too.",
        ),
        option(
            ROTATE_SIZE,
            Kind::Size { min: 1 << 10, max: 1 << 40 },
            Default::Value("64MiB"),
            "A file is set aside before it becomes larger. A single line that is larger has a file of its own.",
        ),
        option(
            ROTATE_INTERVAL,
            Kind::Duration { min_millis: 1_000, max_millis: 366 * 86_400_000 },
            Default::None,
            "A file is set aside when it was begun so long ago, also when nothing new comes; an empty one is not.",
        ),
        option(
            KEEP,
            Kind::Integer { min: 0, max: 100_000 },
            Default::Value("0"),
            "Files set aside that are kept, the newest; the others are removed. 0 keeps all.",
        ),
        option(
            FSYNC,
            Kind::Bool,
            Default::Value("true"),
            "Whether a delivery is accepted only once the disk has its line. Without, lines that were accepted are lost when the machine loses power, not when only the host dies.",
        ),
    ],
};

const PATH: &str = "path";
const ROTATE_SIZE: &str = "rotate-size";
const ROTATE_INTERVAL: &str = "rotate-interval";
const KEEP: &str = "keep";
const FSYNC: &str = "fsync";

const fn option(key: &'static str, kind: Kind, default: Default, summary: &'static str) -> OptionSpec {
    OptionSpec { key, kind, default, side: Side::Sink, secret: false, summary }
}

/// What to write where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileOptions {
    /// The file.
    pub path: PathBuf,
    /// Most bytes of a file, unless a single line has more.
    pub rotate_size: u64,
    /// Longest time that is written to one file.
    pub rotate_interval: Option<Duration>,
    /// Files set aside that are kept; 0 keeps all.
    pub keep: usize,
    /// Whether the disk must have a line before it counts as written.
    pub fsync: bool,
}

impl FileOptions {
    /// Options for `path` with the defaults of the table.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), rotate_size: 64 << 20, rotate_interval: None, keep: 0, fsync: true }
    }

    /// Reads the options. Opens nothing.
    ///
    /// # Errors
    /// Every mistake that the table alone cannot see.
    pub fn from_values(values: &Values) -> Result<Self, Vec<OptionError>> {
        let path = PathBuf::from(values.text(PATH).unwrap_or_default());
        if path.file_name().is_none() || values.text(PATH).is_some_and(|path| path.ends_with('/')) {
            let problem = "names no file, write it such as `records/out.jsonl`".to_owned();
            return Err(vec![OptionError::Invalid { key: PATH, problem }]);
        }
        let defaults = Self::new(path);
        Ok(Self {
            rotate_size: values.size(ROTATE_SIZE).unwrap_or(defaults.rotate_size),
            rotate_interval: values.duration(ROTATE_INTERVAL),
            keep: values.integer(KEEP).and_then(|keep| usize::try_from(keep).ok()).unwrap_or(defaults.keep),
            fsync: values.flag(FSYNC),
            ..defaults
        })
    }
}
