//! How groups are configured, to be seen and to be changed; how nodes are, to be seen.

use std::ops::RangeInclusive;
use std::time::Duration;

use kafka_wire::{
    DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, describe_configs_request, describe_configs_response,
    incremental_alter_configs_request, incremental_alter_configs_response,
};
use kafka_wire_core::StrBytes;

use super::Cluster;
use crate::error_code::{
    CLUSTER_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, INVALID_CONFIG, INVALID_REQUEST, NONE,
};
use crate::options::{GroupOptions, Reset};
use crate::wire::message;

/// Kafka's types of what is configured.
const NODE: i8 = 4;
const GROUP: i8 = 32;

/// Where a value comes from: the node's file, Kafka itself, the group.
const STATIC: i8 = 4;
const DEFAULT: i8 = 5;
const OF_GROUP: i8 = 8;

/// What a change does.
const SET: i8 = 0;
const DELETE: i8 = 1;

const RESET: &str = "share.auto.offset.reset";
const ISOLATION: &str = "share.isolation.level";
const LOCK: &str = "share.record.lock.duration.ms";
const DELIVERIES: &str = "share.delivery.count.limit";
const LOCKS: &str = "share.partition.max.record.locks";
const SESSION: &str = "share.session.timeout.ms";
const HEARTBEAT: &str = "share.heartbeat.interval.ms";
const ASSIGNMENT: &str = "share.assignment.interval.ms";
const RENEW: &str = "share.renew.acknowledge.enable";

/// What of a group can be configured.
pub(super) const NAMES: [&str; 9] =
    [RESET, ISOLATION, LOCK, DELIVERIES, LOCKS, SESSION, HEARTBEAT, ASSIGNMENT, RENEW];

impl Cluster {
    pub(super) fn describe_configurations(
        &self,
        node: i32,
        body: &DescribeConfigsRequest,
    ) -> DescribeConfigsResponse {
        let results = body.resources.iter().map(|resource| self.describe_configuration(node, resource));
        message!(DescribeConfigsResponse { results: results.collect() })
    }

    fn describe_configuration(
        &self,
        node: i32,
        resource: &describe_configs_request::DescribeConfigsResource,
    ) -> describe_configs_response::DescribeConfigsResult {
        let name = resource.resource_name.as_str();
        let mut result = message!(describe_configs_response::DescribeConfigsResult {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
        });
        let entries: Vec<(&str, String, i8)> = match resource.resource_type {
            GROUP if self.denied_groups.contains(name) => {
                result.error_code = GROUP_AUTHORIZATION_FAILED;
                return result;
            }
            GROUP => {
                let (options, own) = (self.group_options(name), self.configured.get(name));
                let source = |key| if own.is_some_and(|own| own.contains(key)) { OF_GROUP } else { DEFAULT };
                NAMES.into_iter().map(|key| (key, value(options, key), source(key))).collect()
            }
            NODE if !self.options.describe_nodes => {
                result.error_code = CLUSTER_AUTHORIZATION_FAILED;
                return result;
            }
            NODE if name == node.to_string() => {
                let lines = self.options.properties.iter();
                lines.map(|(key, value)| (key.as_str(), value.clone(), STATIC)).collect()
            }
            _ => {
                result.error_code = INVALID_REQUEST;
                return result;
            }
        };
        let wanted = |key: &str| {
            resource.configuration_keys.as_ref().is_none_or(|keys| keys.iter().any(|one| one.as_str() == key))
        };
        let entries = entries.into_iter().filter(|(key, ..)| wanted(key));
        result.configs = entries
            .map(|(key, value, source)| {
                message!(describe_configs_response::DescribeConfigsResourceResult {
                    name: StrBytes::from(key),
                    value: Some(StrBytes::from(value.as_str())),
                    config_source: source,
                })
            })
            .collect();
        result
    }

    pub(super) fn alter_configurations(
        &mut self,
        body: &IncrementalAlterConfigsRequest,
    ) -> IncrementalAlterConfigsResponse {
        let mut responses = Vec::new();
        for resource in &body.resources {
            let (error_code, text) = match self.alter_configuration(resource, body.validate_only) {
                Ok(()) => (NONE, None),
                Err((code, text)) => (code, Some(StrBytes::from(text.as_str()))),
            };
            responses.push(message!(incremental_alter_configs_response::AlterConfigsResourceResponse {
                error_code: error_code,
                error_message: text,
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
            }));
        }
        message!(IncrementalAlterConfigsResponse { responses: responses })
    }

    /// All of it, or nothing.
    fn alter_configuration(
        &mut self,
        resource: &incremental_alter_configs_request::AlterConfigsResource,
        validate_only: bool,
    ) -> Result<(), (i16, String)> {
        let group = resource.resource_name.as_str();
        if resource.resource_type != GROUP {
            return Err((INVALID_REQUEST, "Only groups can be configured here.".to_owned()));
        }
        if self.denied_groups.contains(group) {
            return Err((GROUP_AUTHORIZATION_FAILED, "Group authorization failed.".to_owned()));
        }
        let wrong = |text: String| (INVALID_CONFIG, text);
        let mut options = self.group_options(group).clone();
        let mut configured = self.configured.get(group).cloned().unwrap_or_default();
        for change in &resource.configs {
            let key = NAMES.into_iter().find(|name| *name == change.name.as_str());
            let key = key.ok_or_else(|| wrong(format!("Unknown group config name: {}", change.name)))?;
            match (change.config_operation, &change.value) {
                (SET, Some(value)) => {
                    set(&mut options, key, value, Bounds::Checked).map_err(wrong)?;
                    configured.insert(key);
                }
                (DELETE, _) => {
                    let default = value(&self.options.group, key);
                    set(&mut options, key, &default, Bounds::Unchecked).map_err(wrong)?;
                    configured.remove(key);
                }
                _ => return Err((INVALID_REQUEST, "Only values can be set and deleted here.".to_owned())),
            }
        }
        if !validate_only {
            self.configurations.insert(group.to_owned(), options);
            self.configured.insert(group.to_owned(), configured);
        }
        Ok(())
    }
}

fn value(options: &GroupOptions, key: &str) -> String {
    match key {
        RESET => match options.reset {
            Reset::Latest => "latest".to_owned(),
            Reset::Earliest => "earliest".to_owned(),
        },
        ISOLATION if options.read_committed => "read_committed".to_owned(),
        ISOLATION => "read_uncommitted".to_owned(),
        LOCK => options.record_lock_duration.as_millis().to_string(),
        DELIVERIES => options.delivery_count_limit.to_string(),
        LOCKS => options.partition_max_record_locks.to_string(),
        SESSION => options.session_timeout.as_millis().to_string(),
        HEARTBEAT => options.heartbeat_interval.as_millis().to_string(),
        ASSIGNMENT => options.assignment_interval.as_millis().to_string(),
        _ => options.renew_acknowledge.to_string(),
    }
}

/// Whether a value must be within the bounds that a node has by default.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Bounds {
    Checked,
    /// It is the cluster's own value, which a test may have put anywhere.
    Unchecked,
}

fn set(options: &mut GroupOptions, key: &str, value: &str, bounds: Bounds) -> Result<(), String> {
    let unknown = || format!("Invalid value {value} for configuration {key}");
    let number = |range: RangeInclusive<u64>| {
        let number: u64 = value.parse().map_err(|_| unknown())?;
        if bounds == Bounds::Unchecked {
            Ok(number)
        } else if number > *range.end() {
            Err(format!(
                "{key} must be less than or equal to group.{}",
                key.replacen("share.", "share.max.", 1)
            ))
        } else if number < *range.start() {
            Err(format!(
                "{key} must be greater than or equal to group.{}",
                key.replacen("share.", "share.min.", 1)
            ))
        } else {
            Ok(number)
        }
    };
    let millis = |range| number(range).map(Duration::from_millis);
    match key {
        RESET => {
            options.reset = match value {
                "latest" => Reset::Latest,
                "earliest" => Reset::Earliest,
                _ => return Err(unknown()),
            };
        }
        ISOLATION => {
            options.read_committed = match value {
                "read_committed" => true,
                "read_uncommitted" => false,
                _ => return Err(unknown()),
            };
        }
        LOCK => options.record_lock_duration = millis(15_000..=60_000)?,
        DELIVERIES => options.delivery_count_limit = i16::try_from(number(2..=10)?).map_err(|_| unknown())?,
        LOCKS => {
            options.partition_max_record_locks =
                i64::try_from(number(100..=4_000)?).map_err(|_| unknown())?;
        }
        SESSION => options.session_timeout = millis(45_000..=60_000)?,
        HEARTBEAT => options.heartbeat_interval = millis(5_000..=15_000)?,
        ASSIGNMENT => options.assignment_interval = millis(0..=15_000)?,
        _ => options.renew_acknowledge = value.parse().map_err(|_| unknown())?,
    }
    Ok(())
}
