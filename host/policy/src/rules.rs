//! Rules files: TOML on disk, checked against what the policy described, JSON at the boundary.

mod remaining;

use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use remaining::{Complaint, every_complaint};
use serde::Serialize;
use serde_json::Value;
use tidegate_connector::options::nearest;
use tidegate_connector::units::{parse_duration, parse_size};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::bindings::v1::lifecycle::{Parameter, ParameterKind};

/// One thing that is wrong with a rules file.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct RuleError {
    /// The file, when there is one.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: Option<usize>,
    /// Path of the key, such as `rule[2].rate`; empty when it is the whole.
    pub key: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        }
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// All that is wrong with a rules file; at least one thing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct RuleErrors(pub Vec<RuleError>);

impl fmt::Display for RuleErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("; ")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

/// What `configure` gets when nothing is set.
pub(crate) const NOTHING: &str = "{}";
/// Said of a rules file that sets nothing.
pub(crate) const SETS_NOTHING: &str = "the rules' file sets nothing, so every parameter has its default";

/// The text of a rules file and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a Path,
    pub(crate) text: &'a str,
}

/// A rules file, read: what fits is for `configure`, what does not is listed.
pub(crate) struct Reading {
    pub(crate) rules: Value,
    pub(crate) errors: Vec<RuleError>,
}

impl Reading {
    /// Whether no key is set.
    pub(crate) fn sets_nothing(&self) -> bool {
        self.rules.as_object().is_some_and(serde_json::Map::is_empty)
    }
}

/// Reads the rules and checks them against the described parameters.
pub(crate) fn read(source: Option<Source<'_>>, parameters: &[Parameter]) -> Result<Reading, RuleErrors> {
    let mut errors = Vec::new();
    let text = source.map_or("", |source| source.text);
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        RuleErrors(vec![problem(source, line, String::new(), format!("not TOML: {}", error.message()))])
    })?;
    let mut object = serde_json::Map::new();
    for (key, value) in table.get_ref() {
        let line = Some(line_of(text, key.span().start));
        let name = key.get_ref().as_ref();
        let parameter = parameters.iter().find(|parameter| parameter.name == name);
        let checked = match parameter {
            None => Err(unknown(name, parameters)),
            Some(parameter) => check(parameter, value.get_ref()),
        };
        match checked.and_then(|()| json(value.get_ref())) {
            Ok(value) => drop(object.insert(name.to_owned(), value)),
            Err(message) => errors.push(problem(source, line, name.to_owned(), message)),
        }
    }
    for parameter in parameters.iter().filter(|parameter| parameter.required) {
        if !table.get_ref().contains_key(parameter.name.as_str()) {
            let message = format!("is missing ({}: {})", kind_name(parameter.kind), parameter.summary);
            errors.push(problem(source, None, parameter.name.clone(), message));
        }
    }
    in_file_order(&mut errors);
    Ok(Reading { rules: Value::Object(object), errors })
}

/// Adds what the policy itself refuses, as far as that is not about what has been found already.
pub(crate) fn with_refusals(
    source: Option<Source<'_>>,
    mut errors: Vec<RuleError>,
    refusals: Vec<Complaint>,
) -> RuleErrors {
    let root = |key: &str| key.split(['.', '[']).next().unwrap_or_default().to_owned();
    let found: Vec<_> = errors.iter().map(|error| root(&error.key)).collect();
    let new = refusals
        .into_iter()
        .filter(|(key, _)| found.is_empty() || !key.is_empty() && !found.contains(&root(key)));
    errors.extend(new.map(|(key, message)| refusal(source, key, message)));
    in_file_order(&mut errors);
    RuleErrors(errors)
}

/// What has no line is missing, and comes last.
fn in_file_order(errors: &mut [RuleError]) {
    errors.sort_by_key(|error| error.line.unwrap_or(usize::MAX));
}

/// The policy's own refusal, with the line of the key that it names.
fn refusal(source: Option<Source<'_>>, key: String, message: String) -> RuleError {
    let line = source.and_then(|source| {
        let table = DeTable::parse(source.text).ok()?;
        locate(table.get_ref(), &key).map(|offset| line_of(source.text, offset))
    });
    problem(source, line, key, message)
}

fn problem(source: Option<Source<'_>>, line: Option<usize>, key: String, message: String) -> RuleError {
    RuleError { file: source.map(|source| source.file.to_owned()), line, key, message }
}

fn unknown(name: &str, parameters: &[Parameter]) -> String {
    let names = || parameters.iter().map(|parameter| parameter.name.as_str());
    if let Some(near) = nearest(name, names()) {
        return format!("unknown key, did you mean `{near}`?");
    }
    match names().collect::<Vec<_>>().join("`, `") {
        known if known.is_empty() => "unknown key; this policy has no rules".to_owned(),
        known => format!("unknown key; this policy knows `{known}`"),
    }
}

fn check(parameter: &Parameter, value: &DeValue<'_>) -> Result<(), String> {
    let fits = match (parameter.kind, value) {
        (ParameterKind::Boolean, DeValue::Boolean(_))
        | (ParameterKind::Integer, DeValue::Integer(_))
        | (ParameterKind::Number, DeValue::Integer(_) | DeValue::Float(_))
        | (ParameterKind::Text, DeValue::String(_))
        | (ParameterKind::List, DeValue::Array(_))
        | (ParameterKind::Table, DeValue::Table(_)) => true,
        (ParameterKind::Duration, DeValue::String(text)) => {
            return parse_duration(text).map(drop).map_err(|error| error.to_string());
        }
        (ParameterKind::Size, DeValue::String(text)) => {
            return parse_size(text).map(drop).map_err(|error| error.to_string());
        }
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(format!(
        "must be {}, not {} {}",
        kind_name(parameter.kind),
        article(value.type_str()),
        value.type_str()
    ))
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

const fn kind_name(kind: ParameterKind) -> &'static str {
    match kind {
        ParameterKind::Boolean => "`true` or `false`",
        ParameterKind::Integer => "a whole number",
        ParameterKind::Number => "a number",
        ParameterKind::Text => "a string",
        ParameterKind::Duration => "a duration such as `250ms` or `1m30s`",
        ParameterKind::Size => "a size such as `64KiB`",
        ParameterKind::List => "an array",
        ParameterKind::Table => "a table",
    }
}

/// TOML as JSON: the same shapes, and dates as their text.
fn json(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(value) => Value::String(value.to_string()),
        DeValue::Integer(value) => {
            let parsed = i64::from_str_radix(value.as_str(), value.radix());
            Value::from(parsed.map_err(|_| format!("{} does not fit 64 bits", value.as_str()))?)
        }
        DeValue::Float(value) => {
            let number = value.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            Value::Number(number.ok_or_else(|| format!("{} is not a finite number", value.as_str()))?)
        }
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| json(item.get_ref())).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let pairs = table
                .iter()
                .map(|(key, value)| Ok((key.get_ref().clone().into_owned(), json(value.get_ref())?)));
            Value::Object(pairs.collect::<Result<_, String>>()?)
        }
    })
}

/// The offset of the deepest part of `path` (such as `rule[2].rate`) that is in the file.
fn locate(root: &DeTable<'_>, path: &str) -> Option<usize> {
    let mut deepest = None;
    let mut inside = Some(root);
    for segment in path.split('.') {
        let (name, items) = key_and_items(segment);
        let Some((key, value)) = inside.and_then(|table| table.iter().find(|(key, _)| key.get_ref() == name))
        else {
            break;
        };
        deepest = Some(key.span().start);
        let mut value: &Spanned<DeValue<'_>> = value;
        for index in items.filter_map(|item| item.parse::<usize>().ok()) {
            let Some(item) = value.get_ref().as_array().and_then(|items| items.get(index)) else {
                return deepest;
            };
            deepest = Some(item.span().start);
            value = item;
        }
        inside = value.get_ref().as_table();
    }
    deepest
}

/// The parts of one segment of a path: its key, and the numbers in brackets behind that.
fn key_and_items(segment: &str) -> (&str, impl Iterator<Item = &str>) {
    let (key, items) = segment.split_at(segment.find('[').unwrap_or(segment.len()));
    (key, items.split(['[', ']']).filter(|item| !item.is_empty()))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests;
