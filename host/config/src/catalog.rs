//! What a configuration may refer to: the connectors of this binary.

use tidegate_connector::options::{OptionError, Side, Table, Values, nearest};

/// The connectors that this binary has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Catalog<'a> {
    /// In the order in which they are listed to people.
    pub connectors: &'a [Connector<'a>],
}

/// One connector and the ways in which it can be used.
#[derive(Clone, Copy, Debug)]
pub struct Connector<'a> {
    table: &'a Table,
    is_source: bool,
    is_sink: bool,
    is_settler: bool,
    runs_alone: bool,
    unsupported: &'a [Unsupported],
    check: fn(Role, &Values) -> Vec<OptionError>,
}

/// An option that is in the table, and so in the reference, but that this version cannot follow; or one that is not there
/// and that people bring along from elsewhere. A configuration that gives it is refused: a key that does nothing misleads.
#[derive(Clone, Copy, Debug)]
pub struct Unsupported {
    /// The key.
    pub key: &'static str,
    /// Why and what to do, as the rest of a sentence that begins with the key.
    pub reason: &'static str,
}

/// The ways to use a connector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// In `[sources.NAME]`.
    Source,
    /// In `[sinks.NAME]`.
    Sink,
    /// In `[settlers.NAME]`.
    Settler,
}

impl<'a> Catalog<'a> {
    /// The connector with this identifier that can be used so.
    #[must_use]
    pub fn find(&self, role: Role, identifier: &str) -> Option<&'a Connector<'a>> {
        self.of(role).find(|connector| connector.table.connector == identifier)
    }

    /// Every connector that can be used so.
    pub fn of(&self, role: Role) -> impl Iterator<Item = &'a Connector<'a>> {
        self.connectors.iter().filter(move |connector| connector.can_be(role))
    }

    pub(crate) fn nearest(&self, role: Role, identifier: &str) -> Option<&'static str> {
        nearest(identifier, self.of(role).map(|connector| connector.table.connector))
    }
}

impl<'a> Connector<'a> {
    /// A connector for sources.
    #[must_use]
    pub const fn source(table: &'a Table) -> Self {
        Self {
            table,
            is_source: true,
            is_sink: false,
            is_settler: false,
            runs_alone: false,
            unsupported: &[],
            check: no_check,
        }
    }

    /// A connector for sinks.
    #[must_use]
    pub const fn sink(table: &'a Table) -> Self {
        Self {
            table,
            is_source: false,
            is_sink: true,
            is_settler: false,
            runs_alone: false,
            unsupported: &[],
            check: no_check,
        }
    }

    /// A connector for both.
    #[must_use]
    pub const fn source_and_sink(table: &'a Table) -> Self {
        Self {
            table,
            is_source: true,
            is_sink: true,
            is_settler: false,
            runs_alone: false,
            unsupported: &[],
            check: no_check,
        }
    }

    /// The same, also for settling by receipt, for which its options of both sides are enough.
    #[must_use]
    pub const fn and_settler(mut self) -> Self {
        self.is_settler = true;
        self
    }

    /// The same, for one that also does its work without a flow.
    #[must_use]
    pub const fn running_alone(mut self) -> Self {
        self.runs_alone = true;
        self
    }

    /// The same, with options that this version cannot follow.
    #[must_use]
    pub const fn refusing(mut self, unsupported: &'a [Unsupported]) -> Self {
        self.unsupported = unsupported;
        self
    }

    /// The same, with the connector's own look at values that are each valid by itself.
    #[must_use]
    pub const fn checked_by(mut self, check: fn(Role, &Values) -> Vec<OptionError>) -> Self {
        self.check = check;
        self
    }

    /// Whether it also does its work without a flow.
    #[must_use]
    pub const fn runs_alone(&self) -> bool {
        self.runs_alone
    }

    /// The connector's options.
    #[must_use]
    pub const fn table(&self) -> &'a Table {
        self.table
    }

    /// Whether it can be used so.
    #[must_use]
    pub const fn can_be(&self, role: Role) -> bool {
        match role {
            Role::Source => self.is_source,
            Role::Sink => self.is_sink,
            Role::Settler => self.is_settler,
        }
    }

    /// What is refused and in no table, with the reasons.
    pub(crate) fn refused_names(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_known = |key: &str| self.table.options.iter().any(|option| option.key == key);
        self.unsupported
            .iter()
            .filter(move |option| !is_known(option.key))
            .map(|option| (option.key, option.reason))
    }

    pub(crate) fn unsupported(&self, key: &str) -> Option<&'static str> {
        self.unsupported.iter().find(|option| option.key == key).map(|option| option.reason)
    }

    pub(crate) fn check(&self, role: Role, values: &Values) -> Vec<OptionError> {
        (self.check)(role, values)
    }
}

impl Role {
    /// All of them, in the order in which people meet them.
    pub const ALL: [Self; 3] = [Self::Source, Self::Sink, Self::Settler];

    /// The first part of its sections' headers.
    #[must_use]
    pub const fn section(self) -> &'static str {
        match self {
            Self::Source => "sources",
            Self::Sink => "sinks",
            Self::Settler => "settlers",
        }
    }

    /// What the key `connector` of such a section says.
    pub(crate) const fn connector_summary(self) -> &'static str {
        match self {
            Self::Source => "The connector that the messages come through.",
            Self::Sink => "The connector that the messages leave through.",
            Self::Settler => "The connector whose receipts are settled.",
        }
    }

    /// The connector's side that is read in this role.
    #[must_use]
    pub const fn side(self) -> Side {
        match self {
            Self::Source => Side::Source,
            Self::Sink => Side::Sink,
            Self::Settler => Side::Client,
        }
    }

    /// The word for one of them.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Sink => "sink",
            Self::Settler => "settler",
        }
    }
}

fn no_check(_role: Role, _values: &Values) -> Vec<OptionError> {
    Vec::new()
}
