//! The text as sections of flat keys, each with its place: `rocketmq.client.endpoints` is one key here, whether it
//! was written dotted, in a sub-table or quoted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tidegate_connector::options::{Raw, nearest};
use toml::de::{DeTable, DeValue};

use crate::error::{Error, Place, Problem};

/// What stands for a table with nothing in it; others are flattened.
pub(crate) const EMPTY_TABLE: Raw = Raw::Other("an empty table");

/// The longest name of a source, sink, policy or flow, in characters: names become labels and parts of paths.
const NAME_CHARS_MAX: usize = 64;
/// Errors of syntax that are reported at once; past these the rest follows from the first.
const SYNTAX_ERRORS_MAX: usize = 10;
/// Mistakes that are listed at once. A file with more of them is some other file.
const ERRORS_MAX: usize = 200;
/// How much of a key is shown, in bytes: the longest real one has about 120.
const KEY_BYTES_SHOWN_MAX: usize = 200;
/// What the parser says of a key that stands twice in one table. The only fault of syntax that leaves the rest of the
/// document as it was meant.
const DUPLICATE_KEY: &str = "duplicate key";

const SECTIONS: [&str; 7] = ["host", "policies", "sources", "sinks", "settlers", "peers", "flows"];
const SECTIONS_TEXT: &str =
    "[host], [policies.NAME], [sources.NAME], [sinks.NAME], [settlers.NAME], [peers.NAME], [flows.NAME]";

/// A configuration's text, split into blocks.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) host: Block,
    pub(crate) policies: Vec<Block>,
    pub(crate) sources: Vec<Block>,
    pub(crate) sinks: Vec<Block>,
    pub(crate) settlers: Vec<Block>,
    pub(crate) peers: Vec<Block>,
    pub(crate) flows: Vec<Block>,
}

/// One section, such as `[flows.tenants]`, with its keys flattened.
#[derive(Debug)]
pub(crate) struct Block {
    /// The last part of its header.
    pub(crate) name: Arc<str>,
    /// Its header, such as `flows.tenants`.
    pub(crate) path: String,
    header: Range<usize>,
    raw: BTreeMap<String, Raw>,
    spots: BTreeMap<String, Spot>,
}

/// Where a key and its value stand, in bytes.
#[derive(Clone, Debug)]
struct Spot {
    key: Range<usize>,
    value: Range<usize>,
}

/// Collects mistakes with their places.
#[derive(Debug)]
pub(crate) struct Reporter<'t> {
    file: Arc<str>,
    text: &'t str,
    line_starts: Vec<usize>,
    errors: Vec<Error>,
    /// Mistakes past [`ERRORS_MAX`].
    unlisted: usize,
}

impl Document {
    /// Splits a text. What is not a section, and what is not TOML, goes to the reporter; `None` when nothing after
    /// that can be trusted.
    pub(crate) fn read(reporter: &mut Reporter<'_>) -> Option<Self> {
        let (root, faults) = DeTable::parse_recoverable(reporter.text);
        let whole = faults.iter().all(|fault| fault.message() == DUPLICATE_KEY);
        let mut faults_told: Vec<_> =
            faults.iter().map(|fault| (fault.span().unwrap_or_default(), fault.message())).collect();
        // Every bracket left open at the same place is one mistake.
        faults_told.dedup();
        for (at, message) in faults_told.into_iter().take(SYNTAX_ERRORS_MAX) {
            let detail = plain(message.trim_end(), reporter.text.get(at.clone()).unwrap_or_default());
            reporter.report(at, String::new(), Problem::Syntax { detail });
        }
        if !whole {
            return None;
        }
        let mut document = Self {
            host: Block::new("host", "host".to_owned(), 0..0),
            policies: Vec::new(),
            sources: Vec::new(),
            sinks: Vec::new(),
            settlers: Vec::new(),
            peers: Vec::new(),
            flows: Vec::new(),
        };
        if root.get_ref().is_empty() && faults.is_empty() {
            reporter.report(0..0, String::new(), Problem::Empty);
            return None;
        }
        for (key, value) in root.get_ref() {
            let at = key.span();
            match key.get_ref().as_ref() {
                "host" => match value.get_ref() {
                    DeValue::Table(table) => {
                        document.host.header = at;
                        document.host.fill(reporter, table, "");
                    }
                    other => reporter.not_a_section("host", "host".to_owned(), other, at),
                },
                "policies" => document.policies = reporter.blocks("policies", value.get_ref(), at),
                "sources" => document.sources = reporter.blocks("sources", value.get_ref(), at),
                "sinks" => document.sinks = reporter.blocks("sinks", value.get_ref(), at),
                "settlers" => document.settlers = reporter.blocks("settlers", value.get_ref(), at),
                "peers" => document.peers = reporter.blocks("peers", value.get_ref(), at),
                "flows" => document.flows = reporter.blocks("flows", value.get_ref(), at),
                other => {
                    let problem =
                        Problem::UnknownSection { nearest: nearest(other, SECTIONS), known: SECTIONS_TEXT };
                    reporter.report(at, other.to_owned(), problem);
                }
            }
        }
        Some(document)
    }
}

// === impl Block ===

impl Block {
    fn new(name: &str, path: String, header: Range<usize>) -> Self {
        Self { name: name.into(), path, header, raw: BTreeMap::new(), spots: BTreeMap::new() }
    }

    /// What was written, by flat key.
    pub(crate) fn raw(&self) -> &BTreeMap<String, Raw> {
        &self.raw
    }

    /// Takes one key out, so that it is not looked for among the connector's options.
    pub(crate) fn take(&mut self, key: &str) -> Option<Raw> {
        self.raw.remove(key)
    }

    /// Makes one value of the texts below `group`, whose keys are the user's own. What is no text stays where it is, to
    /// be told of.
    pub(crate) fn gather(&mut self, group: &str) {
        let is_below = |key: &str| key.strip_prefix(group).is_some_and(|rest| rest.starts_with('.'));
        let below: Vec<_> = self.raw.keys().filter(|key| is_below(key)).cloned().collect();
        let mut pairs = BTreeMap::new();
        for key in below {
            let Some(Raw::Text(text)) = self.raw.get(&key) else { continue };
            pairs.insert(key[group.len() + 1..].to_owned(), text.clone());
            self.raw.remove(&key);
            if let Some(spot) = self.spots.remove(&key) {
                self.spots.entry(group.to_owned()).or_insert(spot);
            }
        }
        if !pairs.is_empty() {
            self.raw.insert(group.to_owned(), Raw::Pairs(pairs));
        }
    }

    /// Adds the keys of a table, each after `prefix`.
    fn fill(&mut self, reporter: &mut Reporter<'_>, table: &DeTable<'_>, prefix: &str) {
        for (key, value) in table {
            let flat = format!("{prefix}{}", key.get_ref());
            if let DeValue::Table(inner) = value.get_ref()
                && !inner.is_empty()
            {
                self.fill(reporter, inner, &format!("{flat}."));
                continue;
            }
            let spot = Spot { key: key.span(), value: value.span() };
            if self.raw.contains_key(&flat) {
                reporter.report(spot.key, format!("{}.{flat}", self.path), Problem::Twice);
                continue;
            }
            self.raw.insert(flat.clone(), raw(value.get_ref()));
            self.spots.insert(flat, spot);
        }
    }
}

// === impl Reporter ===

impl<'t> Reporter<'t> {
    pub(crate) fn new(file: &str, text: &'t str) -> Self {
        // A byte order mark is no column.
        let first = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let line_starts =
            std::iter::once(first).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { file: file.into(), text, line_starts, errors: Vec::new(), unlisted: 0 }
    }

    /// How many mistakes were reported so far.
    pub(crate) fn count(&self) -> usize {
        self.errors.len() + self.unlisted
    }

    /// A mistake in what is written for `key`: it is shown at the value.
    pub(crate) fn at_value(&mut self, block: &Block, key: &str, problem: Problem) {
        let at = block.spots.get(key).map_or(&block.header, |spot| &spot.value);
        self.report(at.clone(), format!("{}.{key}", block.path), problem);
    }

    /// A mistake in `key` itself, or its absence: it is shown at the key, or at the header.
    pub(crate) fn at_key(&mut self, block: &Block, key: &str, problem: Problem) {
        let at = block.spots.get(key).map_or(&block.header, |spot| &spot.key);
        self.report(at.clone(), format!("{}.{key}", block.path), problem);
    }

    /// A mistake in the whole text.
    pub(crate) fn at_top(&mut self, problem: Problem) {
        self.report(0..0, String::new(), problem);
    }

    /// The place of a block's header.
    pub(crate) fn place_of(&self, block: &Block) -> Place {
        self.place(block.header.start, block.path.clone())
    }

    /// The place of a key's value.
    pub(crate) fn place_of_value(&self, block: &Block, key: &str) -> Place {
        let at = block.spots.get(key).map_or(&block.header, |spot| &spot.value);
        self.place(at.start, format!("{}.{key}", block.path))
    }

    /// Every mistake, those that were too many as one.
    pub(crate) fn into_errors(mut self) -> Vec<Error> {
        if self.unlisted > 0 {
            let place = self.place(self.text.len(), String::new());
            self.errors.push(Error { place, problem: Problem::Further { count: self.unlisted } });
        }
        self.errors
    }

    fn report(&mut self, at: Range<usize>, key: String, problem: Problem) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(Error { place: self.place(at.start, key), problem });
        } else {
            self.unlisted += 1;
        }
    }

    fn place(&self, offset: usize, mut key: String) -> Place {
        if key.len() > KEY_BYTES_SHOWN_MAX {
            key.truncate(key.floor_char_boundary(KEY_BYTES_SHOWN_MAX));
            key.push_str("...");
        }
        let offset = self.text.floor_char_boundary(offset).max(self.line_starts[0]);
        // The line starts at or before the offset, of which the first always is one.
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let line_start = self.line_starts[line - 1];
        let column = self.text[line_start..offset].chars().count() + 1;
        Place { file: Arc::clone(&self.file), line, column, key }
    }

    fn blocks(&mut self, section: &str, value: &DeValue<'_>, at: Range<usize>) -> Vec<Block> {
        let DeValue::Table(named) = value else {
            self.not_a_section(section, format!("{section}.NAME"), value, at);
            return Vec::new();
        };
        let mut blocks = Vec::new();
        for (key, value) in named {
            let (name, path) = (key.get_ref(), format!("{section}.{}", key.get_ref()));
            if !is_name(name) {
                self.report(key.span(), path, Problem::Name { max: NAME_CHARS_MAX });
                continue;
            }
            match value.get_ref() {
                DeValue::Table(table) => {
                    let mut block = Block::new(name, path, key.span());
                    block.fill(self, table, "");
                    blocks.push(block);
                }
                other => self.not_a_section(&path, format!("{section}.NAME"), other, key.span()),
            }
        }
        // In the order of the text, so that of two mistakes that belong together the later one is reported.
        blocks.sort_by_key(|block| block.header.start);
        blocks
    }

    fn not_a_section(&mut self, path: &str, header: String, value: &DeValue<'_>, at: Range<usize>) {
        self.report(at, path.to_owned(), Problem::NotASection { header, found: noun(value) });
    }
}

/// What the parser says, in plainer words where a beginner would not find the mistake by it. `found` is the text at
/// the place of the mistake, of which only keys are shown.
fn plain(message: &str, found: &str) -> String {
    let word_for_value = message.starts_with("invalid float")
        || message.starts_with("invalid boolean")
        || message.starts_with("string values must be quoted");
    match message {
        DUPLICATE_KEY => format!("`{}` stands here a second time", found.trim()),
        "recursion limit" => "keys or brackets are nested too deeply".to_owned(),
        _ if word_for_value => {
            "this is no number, date, `true` or `false`; text stands in quotes, such as \"info\"".to_owned()
        }
        _ => message.to_owned(),
    }
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(allowed)
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::Table(_) => EMPTY_TABLE,
        DeValue::String(text) => Raw::Text(text.clone().into_owned()),
        DeValue::Boolean(flag) => Raw::Bool(*flag),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Raw::Other("a number beyond 64 bits"), Raw::Integer),
        DeValue::Array(items) => {
            let text = |item: &toml::Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::String(text) => Some(text.clone().into_owned()),
                _ => None,
            };
            let texts: Option<Vec<_>> = items.iter().map(text).collect();
            texts.map_or(Raw::Other("an array with other things than texts"), Raw::List)
        }
        other => Raw::Other(noun(other)),
    }
}

fn noun(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests;
