//! `tidegate options`: what can be written for a connector.

use anyhow::anyhow;
use serde_json::Value;
use tidegate_config::{reference, reference_json};
use tidegate_connector::options::nearest;

use crate::catalog::CONNECTORS;
use crate::cli::OptionsArgs;
use crate::exit::Failure;
use crate::output::Output;

pub(crate) fn run(args: &OptionsArgs, output: &Output) -> Result<(), Failure> {
    let tables = || CONNECTORS.iter().map(|connector| connector.table());
    let Some(name) = &args.connector else {
        if output.is_json() {
            output.data(&Value::Array(tables().map(reference_json).collect()).to_string());
        } else {
            let width = tables().map(|table| table.connector.len()).max().unwrap_or(0);
            for table in tables() {
                output.data(&format!("{:width$}  {}", table.connector, table.summary));
            }
        }
        return Ok(());
    };
    let Some(table) = tables().find(|table| table.connector == name) else {
        let names: Vec<_> = tables().map(|table| table.connector).collect();
        let hint = nearest(name, names.iter().copied())
            .map(|near| format!(", did you mean `{near}`?"))
            .unwrap_or_else(|| ".".to_owned());
        let known = names.join("`, `");
        return Err(Failure::config(anyhow!("there is no connector `{name}`{hint} There are `{known}`.")));
    };
    if output.is_json() {
        output.data(&reference_json(table).to_string());
    } else {
        output.data(reference(table).trim_end());
    }
    Ok(())
}
