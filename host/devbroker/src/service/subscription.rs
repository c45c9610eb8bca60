//! Heartbeats, lite subscriptions and the polite goodbye.

use std::collections::HashSet;
use std::sync::Arc;

use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::{Code, LiteSubscriptionAction};

use super::answer::{Answer, ok, status};
use super::call::{Call, name};
use super::route::unknown_topic;
use super::validate::check_lite_topic;
use crate::hub::Availability;
use crate::journal;
use crate::options::Group;
use crate::store::Interest;

/// How far beyond its quota the proxy lets a subscription go.
const QUOTA_TOLERANCE: usize = 300;

impl Call<'_> {
    /// Heartbeat: only a client that settled its settings is known.
    pub(super) fn heartbeat(&self, request: &wire::HeartbeatRequest) -> wire::HeartbeatResponse {
        let group = name(request.group.as_ref());
        let client_type = request.client_type;
        self.keep(|| journal::Call::Heartbeat { client_type, group: group.to_owned() });
        let group_asked = (!group.is_empty()).then_some(group);
        let checked = self.authorize(None, group_asked).and_then(|()| {
            if self.hub.proxies[self.proxy].settled(&self.client).is_none() {
                return Err(no_settings());
            }
            if self.is_unknown() && !group.is_empty() {
                return Err(group_not_found(group));
            }
            Ok(())
        });
        wire::HeartbeatResponse { status: Some(checked.err().unwrap_or_else(ok)) }
    }

    /// NotifyClientTermination.
    pub(super) fn terminate(
        &self,
        request: &wire::NotifyClientTerminationRequest,
    ) -> wire::NotifyClientTerminationResponse {
        let group = name(request.group.as_ref());
        self.keep(|| journal::Call::Terminate { group: group.to_owned() });
        let answer = match self.hub.proxies[self.proxy].forget_client(&self.client) {
            Some(settled) => {
                self.hub.unregister(self.proxy, &settled.group, &self.client);
                ok()
            }
            None => no_settings(),
        };
        wire::NotifyClientTerminationResponse { status: Some(answer) }
    }

    /// SyncLiteSubscription: needs no settings and, as measured, no permission.
    pub(super) fn sync_lite(
        &self,
        request: &wire::SyncLiteSubscriptionRequest,
    ) -> wire::SyncLiteSubscriptionResponse {
        let (topic, group) = (name(request.topic.as_ref()), name(request.group.as_ref()));
        self.keep(|| journal::Call::SyncLite {
            group: group.to_owned(),
            topic: topic.to_owned(),
            action: request.action,
            lite_topics: request.lite_topic_set.clone(),
        });
        match self.synced(topic, group, request) {
            Ok(()) => wire::SyncLiteSubscriptionResponse { status: Some(ok()) },
            Err(refusal) => wire::SyncLiteSubscriptionResponse::refused(refusal),
        }
    }

    fn synced(
        &self,
        topic: &str,
        group_name: &str,
        request: &wire::SyncLiteSubscriptionRequest,
    ) -> Result<(), wire::Status> {
        for lite_topic in &request.lite_topic_set {
            check_lite_topic(lite_topic)?;
        }
        for cell in self.hub.cells_of(self.proxy) {
            self.reach(cell)?;
        }
        if self.is_unknown() {
            return Err(unknown_topic(topic));
        }
        let group = self.hub.catalog.group(group_name);
        let bound = group.as_ref().and_then(|group| group.lite_bind_topic.clone());
        if bound.as_deref() != Some(topic) {
            let bound = bound.as_deref().unwrap_or("null");
            let text =
                format!("lite group {group_name} is expected to bind topic {bound}, but actual is {topic}");
            return Err(status(Code::IllegalTopic, text));
        }
        let Some(group) = group else { return Ok(()) };
        self.subscribe(topic, &group, request)
    }

    fn subscribe(
        &self,
        topic: &str,
        group: &Group,
        request: &wire::SyncLiteSubscriptionRequest,
    ) -> Result<(), wire::Status> {
        let action = LiteSubscriptionAction::try_from(request.action).map_err(|_| {
            status(Code::BadRequest, format!("unknown lite subscription action {}", request.action))
        })?;
        if group.wildcard && action == LiteSubscriptionAction::PartialAdd {
            let text = "IllegalStateException: subscribe lite operation is not supported for this group";
            return Err(status(Code::InternalServerError, text));
        }
        for cell in self.hub.cells_of(self.proxy) {
            cell.run(&self.hub.clock, |store, now| {
                let before = store.registered(topic, &group.name, &self.client).cloned();
                match self.interest(group, action, before, &request.lite_topic_set)? {
                    Some(interest) => store.register(now, topic, group, &self.client, interest),
                    None => store.unregister(now, topic, &group.name, &self.client),
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// What a client is registered for after an action; none ends the registration.
    fn interest(
        &self,
        group: &Group,
        action: LiteSubscriptionAction,
        before: Option<Interest>,
        names: &[String],
    ) -> Result<Option<Interest>, wire::Status> {
        if group.wildcard {
            return Ok(match action {
                LiteSubscriptionAction::CompleteAdd => Some(Interest::Everything),
                LiteSubscriptionAction::PartialAdd | LiteSubscriptionAction::PartialRemove => before,
                LiteSubscriptionAction::CompleteRemove => None,
            });
        }
        let mut known: HashSet<Arc<str>> = match before {
            Some(Interest::Names(names)) => names,
            Some(Interest::Everything) | None => HashSet::new(),
        };
        let names = names.iter().map(|name| Arc::from(name.as_str()));
        match action {
            LiteSubscriptionAction::PartialAdd => known.extend(names),
            LiteSubscriptionAction::PartialRemove => names.for_each(|name: Arc<str>| {
                known.remove(&name);
            }),
            LiteSubscriptionAction::CompleteAdd => known = names.collect(),
            LiteSubscriptionAction::CompleteRemove => return Ok(None),
        }
        let quota = group.subscription_quota;
        if known.len() > usize::try_from(quota).unwrap_or(usize::MAX).saturating_add(QUOTA_TOLERANCE) {
            let text = format!("lite subscription quota exceeded: {quota}");
            return Err(status(Code::LiteSubscriptionQuotaExceeded, text));
        }
        Ok(Some(Interest::Names(known)))
    }

    /// Whether the proxy still believes what it learnt while its broker was away.
    fn is_unknown(&self) -> bool {
        let now = self.hub.clock.now();
        self.hub.cells_of(self.proxy).all(|cell| cell.availability(now) == Availability::Unknown)
    }
}

fn no_settings() -> wire::Status {
    status(Code::UnrecognizedClientType, "cannot find client settings for this client")
}

fn group_not_found(group: &str) -> wire::Status {
    status(Code::IllegalConsumerGroup, format!("group not found: {group}"))
}
