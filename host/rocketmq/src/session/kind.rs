//! As what a client makes itself known.

use tidegate_proto::rocketmq::ClientType;

/// What a client does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// Consumes the lite topics of a main topic.
    LiteConsumer,
    /// Settles deliveries of lite topics that another host received: never subscribes, since events that brokers then
    /// send its way would wait there (measured: up to 19 s).
    LiteSettler,
    /// Consumes a topic of another kind, or settles its deliveries.
    SimpleConsumer,
    /// Sends.
    Producer,
}

/// As what it is known to a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ClientKind {
    Producer,
    SimpleConsumer,
    /// Known from 5.5.1.
    LiteSimpleConsumer,
    /// Known from 5.5.0, where it can do all that the other one does.
    LitePushConsumer,
}

impl Role {
    /// Whether it holds a lite subscription.
    pub(super) const fn subscribes(self) -> bool {
        matches!(self, Self::LiteConsumer)
    }

    pub(super) const fn first_kind(self) -> ClientKind {
        match self {
            Self::LiteConsumer | Self::LiteSettler => ClientKind::LiteSimpleConsumer,
            Self::SimpleConsumer => ClientKind::SimpleConsumer,
            Self::Producer => ClientKind::Producer,
        }
    }
}

impl ClientKind {
    /// The protocol's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Producer => "PRODUCER",
            Self::SimpleConsumer => "SIMPLE_CONSUMER",
            Self::LiteSimpleConsumer => "LITE_SIMPLE_CONSUMER",
            Self::LitePushConsumer => "LITE_PUSH_CONSUMER",
        }
    }

    pub(crate) const fn to_proto(self) -> ClientType {
        match self {
            Self::Producer => ClientType::Producer,
            Self::SimpleConsumer => ClientType::SimpleConsumer,
            Self::LiteSimpleConsumer => ClientType::LiteSimpleConsumer,
            Self::LitePushConsumer => ClientType::LitePushConsumer,
        }
    }

    /// The kind that an older server may know.
    pub(super) const fn older(self) -> Option<Self> {
        match self {
            Self::LiteSimpleConsumer => Some(Self::LitePushConsumer),
            Self::Producer | Self::SimpleConsumer | Self::LitePushConsumer => None,
        }
    }
}
