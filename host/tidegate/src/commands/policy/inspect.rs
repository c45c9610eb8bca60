//! `tidegate policy inspect`: what a component is.

use std::fmt::Write as _;

use anyhow::{Context as _, anyhow};
use serde_json::json;
use tidegate_policy::{Described, Inspection, Workbench, inspect};

use super::answer::size;
use super::engine;
use super::subject::{refused, tried};
use crate::cli::InspectArgs;
use crate::exit::Failure;
use crate::output::Output;

pub(super) fn run(args: &InspectArgs, output: &Output) -> Result<(), Failure> {
    let path = &args.component;
    let bytes = std::fs::read(path)
        .with_context(|| format!("cannot read `{}`", path.display()))
        .map_err(Failure::config)?;
    let inspection = inspect(&bytes)
        .with_context(|| format!("`{}` is {}", path.display(), size(bytes.len())))
        .map_err(Failure::config)?;
    let described = if args.quick {
        None
    } else {
        let spec = tried(path);
        let engine = engine(std::slice::from_ref(&spec))?;
        let workbench = Workbench::look(&engine, &spec).map_err(|error| refused(path, error))?;
        Some(workbench.described())
    };
    if output.is_json() {
        let mut value = json!(inspection);
        if let (Some(object), Some(described)) = (value.as_object_mut(), &described) {
            object.insert("description".to_owned(), json!(described));
        }
        output.data(&value.to_string());
    } else if args.markdown {
        let described = described.ok_or_else(|| Failure::config(anyhow!("it was not asked")))?;
        output.data(markdown(&inspection, &described).trim_end());
    } else {
        show(&inspection, described.as_ref(), output);
    }
    Ok(())
}

fn show(inspection: &Inspection, described: Option<&Described>, output: &Output) {
    let row = |name: &str, value: &str| output.data(&format!("{name:<9}  {value}"));
    let list = |name: &str, values: &[String]| {
        for (n, value) in values.iter().enumerate() {
            row(if n == 0 { name } else { "" }, value);
        }
    };
    if let Some(described) = described {
        row("policy", &format!("{} {}", described.name, described.version));
        row("summary", &described.summary);
    }
    let world = inspection.world.map_or("none that this host knows", |world| world.name());
    row("world", &format!("{world}{}", if inspection.observes { ", and it observes endings" } else { "" }));
    row("contract", inspection.contract.as_deref().unwrap_or("none"));
    if let Some(built) = inspection.trailer.as_ref().and_then(|trailer| trailer.built.as_ref()) {
        row("built", &format!("{} {}, with {}", built.name, built.version, built.sdk));
    }
    row(
        "sealed",
        if inspection.trailer.is_some() {
            "yes, it is complete"
        } else {
            "no, so nothing proves it complete"
        },
    );
    row("size", &size(inspection.bytes));
    row("sha256", &inspection.sha256);
    list("imports", &inspection.imports);
    list("exports", &inspection.exports);
    let grants = inspection.grants_needed.join(", ");
    row("grants", if grants.is_empty() { "none needed" } else { &grants });
    let Some(described) = described else { return };
    if described.parameters.is_empty() {
        row("rules", "none");
        return;
    }
    output.data("");
    let cells: Vec<[&str; 4]> = described
        .parameters
        .iter()
        .map(|parameter| [&*parameter.name, parameter.kind, value(parameter), &*parameter.summary])
        .collect();
    let head = ["parameter", "kind", "default", "summary"];
    let width = |n: usize| {
        let widths = cells.iter().chain([&head]).map(|row| row[n].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2)];
    for [name, kind, default, summary] in [head].iter().chain(&cells) {
        let [a, b, c] = widths;
        output.data(format!("{name:<a$}  {kind:<b$}  {default:<c$}  {summary}").trim_end());
    }
}

/// What holds when it is not set.
fn value(parameter: &tidegate_policy::DescribedParameter) -> &str {
    match &parameter.default {
        _ if parameter.required => "required",
        Some(default) => default,
        None => "",
    }
}

/// A page about the policy's rules.
fn markdown(inspection: &Inspection, described: &Described) -> String {
    let mut page = format!("# {} {}\n\n{}\n\n", described.name, described.version, described.summary);
    // Writing to a string has no way to fail.
    let _ = writeln!(
        page,
        "A `{}` for {}, {}.\n",
        inspection.world.map_or("policy", |world| world.name()),
        inspection
            .contract
            .as_deref()
            .map_or_else(String::new, |version| format!("tidegate:policy@{version}")),
        size(inspection.bytes),
    );
    if described.parameters.is_empty() {
        page.push_str("It has no rules.\n");
        return page;
    }
    page.push_str("| Key | Kind | Default | What it does |\n|---|---|---|---|\n");
    for parameter in &described.parameters {
        let default = match value(parameter) {
            "" => String::new(),
            "required" if parameter.required => "required".to_owned(),
            default => format!("`{}`", cell(default)),
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {default} | {} |",
            cell(&parameter.name),
            parameter.kind,
            cell(&parameter.summary)
        );
    }
    page
}

/// Text that ends no cell and no line.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}
