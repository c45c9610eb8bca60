//! How a group is configured.

use std::time::Duration;

use kafka_wire::{
    DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest,
    describe_configs_request, incremental_alter_configs_request,
};

use super::ShareGroupAdmin;
use super::calls::{Node, Patience, Trouble, complained, only};
use super::error::{ConfigurationError, ConfigureError};
use crate::{Complaint, ErrorCode};

/// Kafka's types of what is configured.
const BROKER: i8 = 4;
const GROUP: i8 = 32;
/// What a change does.
const SET: i8 = 0;
const DELETE: i8 = 1;
/// Settings of groups of other types, which the broker lists for any group.
const OF_OTHER_TYPES: [&str; 2] = ["consumer.", "streams."];

/// The settings of a group, in the order of their names. A group need not exist to have some.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupConfiguration {
    settings: Vec<GroupSetting>,
}

/// One setting.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupSetting {
    /// Kafka's name of it, such as `share.record.lock.duration.ms`.
    pub name: Box<str>,
    /// What is in force.
    pub value: Option<Box<str>>,
    /// Where that comes from.
    pub source: SettingSource,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SettingSource {
    /// The group has it of its own.
    Group,
    /// The brokers' configuration.
    Broker,
    /// Kafka's default.
    Default,
    /// Kafka's number of something else.
    Other(i8),
}

/// One change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SettingChange {
    /// Kafka's name of the setting.
    pub name: Box<str>,
    /// The value to set; `None` to follow the brokers again.
    pub value: Option<Box<str>>,
}

impl SettingSource {
    const fn of(code: i8) -> Self {
        match code {
            8 => Self::Group,
            2..=4 => Self::Broker,
            5 => Self::Default,
            other => Self::Other(other),
        }
    }

    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Broker => "broker",
            Self::Default => "default",
            Self::Other(_) => "other",
        }
    }
}

impl GroupConfiguration {
    /// All of it.
    #[must_use]
    pub fn settings(&self) -> &[GroupSetting] {
        &self.settings
    }

    /// What is in force for a name; `None` when the broker has no such setting.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| &*setting.name == name)?.value.as_deref()
    }

    /// Deliveries after which a record is archived. Told since Kafka 4.3.
    #[must_use]
    pub fn delivery_count_limit(&self) -> Option<u32> {
        self.value("share.delivery.count.limit")?.parse().ok()
    }

    /// How long a record is acquired for.
    #[must_use]
    pub fn record_lock_duration(&self) -> Option<Duration> {
        self.value("share.record.lock.duration.ms")?.parse().ok().map(Duration::from_millis)
    }

    /// Whether locks can be renewed. Told since Kafka 4.3.
    #[must_use]
    pub fn renews_locks(&self) -> Option<bool> {
        self.value("share.renew.acknowledge.enable")?.parse().ok()
    }

    /// Where the group begins in a topic that is new to it: `latest`, `earliest` or `by_duration:…`.
    #[must_use]
    pub fn reset_policy(&self) -> Option<&str> {
        self.value("share.auto.offset.reset")
    }

    /// Whether records of transactions come before these are committed: `read_uncommitted` or `read_committed`.
    #[must_use]
    pub fn isolation_level(&self) -> Option<&str> {
        self.value("share.isolation.level")
    }

    #[cfg(test)]
    pub(super) fn of(settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| GroupSetting {
            name: (*name).into(),
            value: Some((*value).into()),
            source: SettingSource::Group,
        });
        Self { settings: settings.collect() }
    }
}

impl ShareGroupAdmin {
    /// How a group is configured, whether it exists or not. Takes the right DescribeConfigs to the group.
    ///
    /// # Errors
    /// When it cannot be seen.
    pub async fn configuration(&mut self, group: &str) -> Result<GroupConfiguration, ConfigurationError> {
        let patience = self.patience();
        self.configuration_within(group, &patience).await
    }

    pub(super) async fn configuration_within(
        &mut self,
        group: &str,
        patience: &Patience,
    ) -> Result<GroupConfiguration, ConfigurationError> {
        let answer = match self.ask_any(&asking(GROUP, group), patience).await {
            Ok(answer) => read(answer),
            Err(reason) => return Err(ConfigurationError::Reach { group: group.into(), reason }),
        };
        let mut settings = answer.map_err(|complaint| {
            let trouble = Trouble::Said { complaint, is_repeat: false };
            ConfigurationError::common(group, trouble).unwrap_or_else(|(complaint, _)| {
                ConfigurationError::Refused { group: group.into(), complaint }
            })
        })?;
        settings.retain(|setting| !OF_OTHER_TYPES.iter().any(|other| setting.name.starts_with(other)));
        Ok(GroupConfiguration { settings })
    }

    /// Changes settings of a group, which need not exist; all of them or none. In force within half a second. Takes the
    /// right AlterConfigs to the group.
    ///
    /// # Errors
    /// When the broker refuses, as for a value outside the cluster's limits.
    pub async fn configure(&mut self, group: &str, changes: &[SettingChange]) -> Result<(), ConfigureError> {
        let patience = self.patience();
        let mut resource = incremental_alter_configs_request::AlterConfigsResource::default();
        resource.resource_type = GROUP;
        resource.resource_name = group.into();
        resource.configs = changes
            .iter()
            .map(|change| {
                let mut config = incremental_alter_configs_request::AlterableConfig::default();
                config.name = (&*change.name).into();
                config.config_operation = if change.value.is_some() { SET } else { DELETE };
                config.value = change.value.as_deref().map(Into::into);
                config
            })
            .collect();
        let mut request = IncrementalAlterConfigsRequest::default();
        request.resources = vec![resource];
        let answer = match self.ask_any(&request, &patience).await {
            Ok(answer) => answer,
            Err(reason) => return Err(ConfigureError::Reach { group: group.into(), reason }),
        };
        let complaint = match only(answer.responses) {
            Ok(response) => complained(response.error_code, response.error_message.as_deref()),
            Err(complaint) => Some(complaint),
        };
        let Some(complaint) = complaint else { return Ok(()) };
        let trouble = Trouble::Said { complaint, is_repeat: false };
        Err(ConfigureError::common(group, trouble).unwrap_or_else(|(complaint, _)| {
            let group = group.into();
            match complaint.code {
                ErrorCode::INVALID_CONFIG | ErrorCode::INVALID_REQUEST => {
                    let reason = complaint.message.clone().unwrap_or_else(|| complaint.to_string().into());
                    ConfigureError::Invalid { group, reason }
                }
                _ => ConfigureError::Refused { group, complaint },
            }
        }))
    }

    /// A number of a broker's configuration; `None` when it is not told, for whatever reason.
    pub(super) async fn broker_numbers<const N: usize>(
        &mut self,
        node: &Node,
        names: [&str; N],
        patience: &Patience,
    ) -> [Option<i64>; N] {
        let mut request = asking(BROKER, &node.id.to_string());
        for resource in &mut request.resources {
            resource.configuration_keys = Some(names.iter().map(|name| (*name).into()).collect());
        }
        let settings = match self.ask(node, &request, patience).await {
            Ok(answer) => read(answer).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        names.map(|name| settings.iter().find(|one| &*one.name == name)?.value.as_deref()?.parse().ok())
    }
}

fn asking(kind: i8, name: &str) -> DescribeConfigsRequest {
    let mut resource = describe_configs_request::DescribeConfigsResource::default();
    resource.resource_type = kind;
    resource.resource_name = name.into();
    resource.configuration_keys = None;
    let mut request = DescribeConfigsRequest::default();
    request.resources = vec![resource];
    request
}

fn read(answer: DescribeConfigsResponse) -> Result<Vec<GroupSetting>, Complaint> {
    let result = only(answer.results)?;
    if let Some(complaint) = complained(result.error_code, result.error_message.as_deref()) {
        return Err(complaint);
    }
    let settings = result.configs.iter().map(|config| GroupSetting {
        name: config.name.as_str().into(),
        value: config.value.as_deref().map(Into::into),
        source: SettingSource::of(config.config_source),
    });
    let mut settings: Vec<_> = settings.collect();
    settings.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(settings)
}
