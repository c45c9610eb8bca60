//! The reference of an option table, for people and for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate_connector::options::{Default, Kind, OptionSpec, Side, Table};

use crate::catalog::{Catalog, Connector, Role};
use crate::sections::Section;

/// The widest line, in characters: fits a terminal beside something else.
const LINE_CHARS_MAX: usize = 100;
/// How far summaries stand in.
const INDENT: &str = "    ";

/// The reference of a connector as text: a line of key, default and type for each option, its summary below.
#[must_use]
pub fn reference(table: &Table) -> String {
    text(table.connector, table)
}

/// The same of a section of the host's own.
#[must_use]
pub fn section_reference(section: &Section) -> String {
    text(section.header, section.table)
}

/// The reference of a connector as JSON.
#[must_use]
pub fn reference_json(table: &Table) -> Value {
    json!({ "connector": table.connector, "summary": table.summary, "options": options_json(table.options) })
}

/// The same of a section of the host's own.
#[must_use]
pub fn section_reference_json(section: &Section) -> Value {
    let Section { header, table } = section;
    json!({ "section": table.connector, "header": header, "summary": table.summary, "options": options_json(table.options) })
}

/// The reference of the sections of a role as text: the key that names the connector, then the options that each of the
/// connectors has there.
#[must_use]
pub fn role_reference(catalog: &Catalog<'_>, role: Role) -> String {
    let summary = format!("{}{}", role_summary(role), role_details(role));
    let mut text = lines(&role_header(role), &summary, &[connector_option(role)]);
    for connector in catalog.of(role) {
        let table = connector.table();
        let title = format!("With `connector = \"{}\"`", table.connector);
        let options: Vec<_> = table.on_side(role.side()).copied().collect();
        text.push('\n');
        text.push_str(&lines(&title, table.summary, &options));
    }
    text
}

/// The same as JSON.
#[must_use]
pub fn role_reference_json(catalog: &Catalog<'_>, role: Role) -> Value {
    let of_connector = |connector: &Connector<'_>| {
        let table = connector.table();
        let options: Vec<_> = table.on_side(role.side()).copied().collect();
        json!({ "connector": table.connector, "summary": table.summary, "options": options_json(&options) })
    };
    json!({
        "section": role.section(),
        "header": role_header(role),
        "summary": format!("{}{}", role_summary(role), role_details(role)),
        "options": options_json(&[connector_option(role)]),
        "connectors": catalog.of(role).map(of_connector).collect::<Vec<_>>(),
    })
}

/// What the sections of a role are for.
#[must_use]
pub const fn role_summary(role: Role) -> &'static str {
    match role {
        Role::Source => "Where messages come from. Each source feeds one flow.",
        Role::Sink => "Where accepted messages go, and dead letters.",
        Role::Settler => "How receipts of other hosts are settled: which cluster, and as whom.",
    }
}

/// What else is to be known about them.
const fn role_details(role: Role) -> &'static str {
    match role {
        Role::Source | Role::Sink => "",
        Role::Settler => {
            " A host that only settles has no flow, but a sink with `connector = \"handoff\"`, where workers bring their \
             receipts. `tidegate ack` and the like use settlers, too. Keys go to the endpoints given here and to the brokers \
             that these name, and nowhere else."
        }
    }
}

fn role_header(role: Role) -> String {
    format!("[{}.NAME]", role.section())
}

const fn connector_option(role: Role) -> OptionSpec {
    OptionSpec {
        key: "connector",
        kind: Kind::Text,
        default: Default::Required,
        side: Side::Both,
        secret: false,
        summary: role.connector_summary(),
    }
}

fn text(title: &str, table: &Table) -> String {
    lines(title, table.summary, table.options)
}

fn lines(title: &str, summary: &str, options: &[OptionSpec]) -> String {
    let rows: Vec<_> = options.iter().map(|spec| (spec, default_text(spec))).collect();
    let key_width = rows.iter().map(|(spec, _)| spec.key.chars().count()).max().unwrap_or(0);
    let default_width = rows.iter().map(|(_, default)| default.chars().count()).max().unwrap_or(0);

    let mut text = format!("{title}\n");
    wrap(&mut text, "", summary);
    for (spec, default) in rows {
        let start = format!("{:key_width$}  {default:default_width$}  ", spec.key);
        let rest = " ".repeat(start.chars().count());
        text.push('\n');
        wrap_after(&mut text, &start, &rest, &spec.kind.to_string());
        wrap(&mut text, INDENT, &summary_text(spec));
    }
    text
}

fn options_json(options: &[OptionSpec]) -> Vec<Value> {
    options
        .iter()
        .map(|spec| {
            json!({
                "key": spec.key,
                "type": spec.kind.to_string(),
                "required": spec.default == Default::Required,
                "default": match spec.default {
                    Default::Value(text) => Some(text),
                    Default::Required | Default::None => None,
                },
                "side": spec.side.to_string(),
                "secret": spec.secret,
                "summary": spec.summary,
            })
        })
        .collect()
}

fn default_text(spec: &OptionSpec) -> String {
    match spec.default {
        Default::Required => "required".to_owned(),
        Default::None => "none".to_owned(),
        Default::Value("") => "\"\"".to_owned(),
        Default::Value(text) => text.to_owned(),
    }
}

fn summary_text(spec: &OptionSpec) -> String {
    let mut text = spec.summary.to_owned();
    match spec.side {
        Side::Both => {}
        side => {
            let _ = write!(text, " For {side}s.");
        }
    }
    if spec.secret {
        text.push_str(" A secret: may be `env:NAME` or `file:PATH`.");
    }
    text
}

fn wrap(out: &mut String, indent: &str, text: &str) {
    wrap_after(out, indent, indent, text);
}

/// Writes `text` in lines of at most [`LINE_CHARS_MAX`], the first after `start`, the others after `rest`.
fn wrap_after(out: &mut String, start: &str, rest: &str, text: &str) {
    let mut line = start.to_owned();
    let mut line_is_bare = true;
    for word in text.split(' ') {
        let gap = usize::from(!line_is_bare);
        if !line_is_bare && line.chars().count() + gap + word.chars().count() > LINE_CHARS_MAX {
            out.push_str(line.trim_end());
            out.push('\n');
            rest.clone_into(&mut line);
            line_is_bare = true;
        }
        if !line_is_bare {
            line.push(' ');
        }
        line.push_str(word);
        line_is_bare = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests;
