//! Which versions of which APIs a broker and this client have in common.

use kafka_wire::{
    ApiVersionsResponse, KafkaMessage, RequestResponsePair, ShareAcknowledgeRequest, ShareFetchRequest,
    ShareGroupHeartbeatRequest,
};
use kafka_wire_core::{ApiVersion, VersionRange};

/// What a broker offers.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// By key.
    ranges: Vec<(i16, VersionRange)>,
    /// Levels of the cluster's features.
    features: Vec<(Box<str>, i16)>,
}

/// A broker and this client have no version of an API in common.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", sentence(api, *ours, *theirs))]
pub struct VersionError {
    api: &'static str,
    ours: VersionRange,
    theirs: Option<VersionRange>,
}

/// An API as requests name it, without their `Request`.
pub(crate) fn api_name<R: KafkaMessage>() -> &'static str {
    R::NAME.strip_suffix("Request").unwrap_or(R::NAME)
}

/// The versions of `R` that this client speaks. One that is still being worked on is none.
pub(crate) fn ours<R: RequestResponsePair>() -> VersionRange {
    let all = R::SUPPORTED_VERSIONS;
    let newest = R::API_DESCRIPTOR.latest_stable_version().unwrap_or(all.max());
    VersionRange::try_new(all.min().value(), newest.value()).unwrap_or(all)
}

impl Versions {
    pub(super) fn of(answer: &ApiVersionsResponse) -> Self {
        // A range that ends before it begins is none.
        let mut ranges: Vec<_> = answer
            .api_keys
            .iter()
            .filter_map(|api| Some((api.api_key, VersionRange::try_new(api.min_version, api.max_version)?)))
            .collect();
        ranges.sort_by_key(|(key, _)| *key);
        let levels = answer.finalized_features.iter();
        let features =
            levels.map(|feature| (feature.name.as_str().into(), feature.max_version_level)).collect();
        Self { ranges, features }
    }

    /// The versions of `R` that the broker speaks; `None` when it has no such API.
    #[must_use]
    pub fn range<R: RequestResponsePair>(&self) -> Option<VersionRange> {
        let at = self.ranges.binary_search_by_key(&R::API_KEY.value(), |(key, _)| *key).ok()?;
        Some(self.ranges[at].1)
    }

    /// The newest version of `R` that the broker speaks and that is among `ours`.
    ///
    /// # Errors
    /// When there is none.
    pub fn best<R: RequestResponsePair>(&self, ours: VersionRange) -> Result<ApiVersion, VersionError> {
        let theirs = self.range::<R>();
        let common = theirs
            .map(|theirs| ours.max().min(theirs.max()))
            .filter(|newest| ours.contains(*newest) && theirs.is_some_and(|theirs| theirs.contains(*newest)));
        common.ok_or_else(|| VersionError { api: api_name::<R>(), ours, theirs })
    }

    /// The level that the cluster has a feature at, such as `share.version`; `None` when it is switched off, or the broker
    /// did not say.
    #[must_use]
    pub fn feature(&self, name: &str) -> Option<i16> {
        self.features.iter().find(|(known, _)| &**known == name).map(|(_, level)| *level)
    }

    /// Whether members can renew their locks and limit the records of a fetch: since Kafka 4.2.
    #[must_use]
    pub fn has_renewal(&self) -> bool {
        let second = VersionRange::new(2, 2);
        self.best::<ShareFetchRequest>(second).is_ok() && self.best::<ShareAcknowledgeRequest>(second).is_ok()
    }

    /// Whether a member of a share group can work with this broker at all.
    pub(super) fn check_share_groups(&self) -> Result<(), VersionError> {
        self.best::<ShareGroupHeartbeatRequest>(ours::<ShareGroupHeartbeatRequest>())?;
        self.best::<ShareFetchRequest>(ours::<ShareFetchRequest>())?;
        self.best::<ShareAcknowledgeRequest>(ours::<ShareAcknowledgeRequest>())?;
        Ok(())
    }
}

impl VersionError {
    /// The API.
    #[must_use]
    pub const fn api(&self) -> &'static str {
        self.api
    }

    /// What this client speaks.
    #[must_use]
    pub const fn ours(&self) -> VersionRange {
        self.ours
    }

    /// What the broker speaks, if it has the API.
    #[must_use]
    pub const fn theirs(&self) -> Option<VersionRange> {
        self.theirs
    }
}

fn sentence(api: &str, ours: VersionRange, theirs: Option<VersionRange>) -> String {
    let offered = theirs.map_or_else(
        || format!("the broker has no {api}"),
        |theirs| format!("the broker offers {api} in versions {theirs}"),
    );
    let is_newer = theirs.is_some_and(|theirs| theirs.min() > ours.max());
    let advice = if is_newer {
        "use a newer tidegate"
    } else if api.starts_with("Share") {
        "share groups need Kafka 4.2 or newer; upgrade the broker (4.0 has another protocol, 4.1 no renewal)"
    } else {
        "upgrade the broker"
    };
    format!("{offered}, and this client speaks versions {ours}: {advice}")
}

#[cfg(test)]
mod tests {
    use kafka_wire::api_versions_response::{ApiVersion as Offer, FinalizedFeatureKey};
    use kafka_wire::{FindCoordinatorRequest, MetadataRequest};

    use super::*;

    fn offering(ranges: &[(i16, i16, i16)]) -> Versions {
        let mut answer = ApiVersionsResponse::default();
        answer.api_keys = ranges
            .iter()
            .map(|(key, min, max)| {
                let mut offer = Offer::default();
                (offer.api_key, offer.min_version, offer.max_version) = (*key, *min, *max);
                offer
            })
            .collect();
        let mut feature = FinalizedFeatureKey::default();
        (feature.name, feature.max_version_level) = ("share.version".into(), 1);
        answer.finalized_features = vec![feature];
        Versions::of(&answer)
    }

    fn best(versions: &Versions, min: i16, max: i16) -> Option<i16> {
        versions.best::<MetadataRequest>(VersionRange::new(min, max)).ok().map(ApiVersion::value)
    }

    #[test]
    fn the_newest_that_both_have() {
        let versions = offering(&[(10, 5, 4), (3, 4, 9)]);
        for (min, max, expected) in [
            (0, 13, Some(9)),
            (0, 6, Some(6)),
            (9, 13, Some(9)),
            (4, 4, Some(4)),
            (10, 13, None),
            (0, 3, None),
        ] {
            assert_eq!(best(&versions, min, max), expected, "{min}-{max}");
        }
        assert_eq!(versions.range::<FindCoordinatorRequest>(), None, "a range that ends before it begins");
        assert_eq!(versions.feature("share.version"), Some(1));
        assert_eq!(versions.feature("group.version"), None);
    }

    #[test]
    fn what_is_missing_is_told_with_both_ranges_and_what_to_do() {
        let kafka_4_2 = offering(&[(76, 1, 1), (78, 1, 2), (79, 1, 2)]);
        assert_eq!(kafka_4_2.check_share_groups(), Ok(()));
        assert!(kafka_4_2.has_renewal());
        let kafka_4_1 = offering(&[(76, 1, 1), (78, 1, 1), (79, 1, 1)]);
        assert_eq!(kafka_4_1.check_share_groups(), Ok(()));
        assert!(!kafka_4_1.has_renewal());
        let told = |ranges: &[_]| offering(ranges).check_share_groups().unwrap_err().to_string();
        assert_eq!(
            told(&[(76, 0, 0), (78, 0, 0), (79, 0, 0)]),
            "the broker offers ShareGroupHeartbeat in versions 0-0, and this client speaks versions 1-1: share groups \
             need Kafka 4.2 or newer; upgrade the broker (4.0 has another protocol, 4.1 no renewal)"
        );
        let none = told(&[(3, 0, 12)]);
        assert!(none.starts_with("the broker has no ShareGroupHeartbeat, and"), "{none}");
        let newer = told(&[(76, 1, 1), (78, 3, 4), (79, 1, 2)]);
        assert!(newer.contains("ShareFetch in versions 3-4") && newer.contains("newer tidegate"), "{newer}");
    }
}
