//! Kafka's error codes, as far as this broker answers them.

/// What the broker has no code for: a deleted topic in a share session, a share partition nobody initialised.
pub const UNKNOWN_SERVER_ERROR: i16 = -1;
/// No error.
pub const NONE: i16 = 0;
/// There is no such partition, or its share partition is not loaded here.
pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
/// There is no leader at the moment.
pub const LEADER_NOT_AVAILABLE: i16 = 5;
/// Another node leads the partition.
pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// There is no coordinator at the moment.
pub const COORDINATOR_NOT_AVAILABLE: i16 = 15;
/// Another node is the coordinator.
pub const NOT_COORDINATOR: i16 = 16;
/// The topic's name cannot be one.
pub const INVALID_TOPIC_EXCEPTION: i16 = 17;
/// The member is not, or no longer, in the group.
pub const UNKNOWN_MEMBER_ID: i16 = 25;
/// No right to the topic.
pub const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
/// No right to the group.
pub const GROUP_AUTHORIZATION_FAILED: i16 = 30;
/// No right to the cluster.
pub const CLUSTER_AUTHORIZATION_FAILED: i16 = 31;
/// The SASL mechanism is not offered.
pub const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
/// A request came before its time.
pub const ILLEGAL_SASL_STATE: i16 = 34;
/// The version is not known.
pub const UNSUPPORTED_VERSION: i16 = 35;
/// The topic exists.
pub const TOPIC_ALREADY_EXISTS: i16 = 36;
/// A number of partitions that cannot be one.
pub const INVALID_PARTITIONS: i16 = 37;
/// A configuration has no such value, or no such name.
pub const INVALID_CONFIG: i16 = 40;
/// The request contradicts itself.
pub const INVALID_REQUEST: i16 = 42;
/// Wrong credentials.
pub const SASL_AUTHENTICATION_FAILED: i16 = 58;
/// The group has members.
pub const NON_EMPTY_GROUP: i16 = 68;
/// There is no such group.
pub const GROUP_ID_NOT_FOUND: i16 = 69;
/// The group is full.
pub const GROUP_MAX_SIZE_REACHED: i16 = 81;
/// There is no topic with this id.
pub const UNKNOWN_TOPIC_ID: i16 = 100;
/// The member's epoch is ahead of what it was told.
pub const FENCED_MEMBER_EPOCH: i16 = 110;
/// The record is not acquired by this member.
pub const INVALID_RECORD_STATE: i16 = 121;
/// There is no share session of this member.
pub const SHARE_SESSION_NOT_FOUND: i16 = 122;
/// The share session is at another epoch.
pub const INVALID_SHARE_SESSION_EPOCH: i16 = 123;
/// The node has as many share sessions as it may.
pub const SHARE_SESSION_LIMIT_REACHED: i16 = 133;
