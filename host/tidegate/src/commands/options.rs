//! `tidegate options`: what can be written in a configuration.

use anyhow::anyhow;
use serde_json::Value;
use tidegate_config::{
    Role, SECTIONS, Section, reference, reference_json, role_reference, role_reference_json, role_summary,
    section_reference, section_reference_json,
};
use tidegate_connector::options::{Table, nearest};

use crate::catalog::{CATALOG, CONNECTORS};
use crate::cli::OptionsArgs;
use crate::exit::Failure;
use crate::output::Output;

/// What has keys.
enum Place {
    Section(&'static Section),
    /// Sections whose keys are those of a connector.
    Role(Role),
    Connector(&'static Table),
}

pub(crate) fn run(args: &OptionsArgs, output: &Output) -> Result<(), Failure> {
    match &args.name {
        None => list(output),
        Some(name) => show(&find(name)?, output),
    }
    Ok(())
}

fn list(output: &Output) {
    if output.is_json() {
        output.data(&Value::Array(places().map(|place| place.json()).collect()).to_string());
        return;
    }
    let width = places().map(|place| place.name().len()).max().unwrap_or(0);
    let table = |place: Place| output.data(&format!("  {:width$}  {}", place.name(), place.summary()));
    output.data("Sections:");
    sections().for_each(table);
    output.data("Connectors, for [sources.NAME], [sinks.NAME] and [settlers.NAME]:");
    connectors().for_each(table);
}

fn show(place: &Place, output: &Output) {
    if output.is_json() {
        output.data(&place.json().to_string());
    } else {
        output.data(place.text().trim_end());
    }
}

fn find(name: &str) -> Result<Place, Failure> {
    if let Some(place) = places().find(|place| place.name() == name) {
        return Ok(place);
    }
    let names: Vec<_> = places().map(|place| place.name()).collect();
    let hint = nearest(name, names.iter().copied())
        .map(|near| format!(", did you mean `{near}`?"))
        .unwrap_or_else(|| ".".to_owned());
    let known = names.join("`, `");
    Err(Failure::config(anyhow!("there is no section or connector `{name}`{hint} There are `{known}`.")))
}

fn places() -> impl Iterator<Item = Place> {
    sections().chain(connectors())
}

fn sections() -> impl Iterator<Item = Place> {
    SECTIONS.iter().map(Place::Section).chain(Role::ALL.into_iter().map(Place::Role))
}

fn connectors() -> impl Iterator<Item = Place> {
    CONNECTORS.iter().map(|connector| Place::Connector(connector.table()))
}

impl Place {
    const fn name(&self) -> &'static str {
        match self {
            Self::Section(section) => section.table.connector,
            Self::Role(role) => role.section(),
            Self::Connector(table) => table.connector,
        }
    }

    const fn summary(&self) -> &'static str {
        match self {
            Self::Section(section) => section.table.summary,
            Self::Role(role) => role_summary(*role),
            Self::Connector(table) => table.summary,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Section(section) => section_reference(section),
            Self::Role(role) => role_reference(&CATALOG, *role),
            Self::Connector(table) => reference(table),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Section(section) => section_reference_json(section),
            Self::Role(role) => role_reference_json(&CATALOG, *role),
            Self::Connector(table) => reference_json(table),
        }
    }
}
