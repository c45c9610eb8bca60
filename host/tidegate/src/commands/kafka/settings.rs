//! `tidegate kafka group configure`: a group's settings, shown or changed.

use serde_json::{Value, json};
use tidegate_kafka_share::admin::{GroupConfiguration, SettingChange, ShareGroupAdmin};

use super::{failure, or_dash, show, with_admin};
use crate::cli::ConfigureArgs;
use crate::exit::Failure;
use crate::output::{Output, talk};

pub(super) async fn run(args: &ConfigureArgs, output: &Output) -> Result<(), Failure> {
    let set = args.settings.iter().map(|(name, value)| SettingChange {
        name: name.as_str().into(),
        value: Some(value.as_str().into()),
    });
    let unset = args.unset.iter().map(|name| SettingChange { name: name.as_str().into(), value: None });
    let changes: Vec<_> = set.chain(unset).collect();
    let group = args.group.as_str();
    let settings = with_admin(&args.cluster, async |admin: &mut ShareGroupAdmin| {
        if changes.is_empty() {
            return admin.configuration(group).await.map(Some).map_err(|error| failure(error.fault(), error));
        }
        let configured = admin.configure(group, &changes).await;
        configured.map(|()| None).map_err(|error| failure(error.fault(), error))
    })
    .await?;
    let Some(settings) = settings else {
        if output.is_json() {
            let changes: Vec<Value> =
                changes.iter().map(|change| json!({ "name": change.name, "value": change.value })).collect();
            output.data(&json!({ "group": group, "changed": changes }).to_string());
        } else {
            talk(&format!("share group `{group}` is configured; it takes half a second to be in force"));
        }
        return Ok(());
    };
    if output.is_json() {
        output.data(&json!({ "group": group, "settings": all_json(&settings) }).to_string());
        return Ok(());
    }
    let mut rows = vec![["SETTING", "VALUE", "FROM"].map(str::to_owned).to_vec()];
    rows.extend(settings.settings().iter().map(|setting| {
        vec![setting.name.to_string(), or_dash(setting.value.as_deref()), setting.source.name().to_owned()]
    }));
    show(&rows, output);
    Ok(())
}

fn all_json(settings: &GroupConfiguration) -> Vec<Value> {
    let settings = settings.settings().iter().map(
        |setting| json!({ "name": setting.name, "value": setting.value, "from": setting.source.name() }),
    );
    settings.collect()
}
