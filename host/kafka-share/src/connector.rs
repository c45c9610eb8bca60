//! The connector `kafka-sharegroup` of the host: a source of several members, and the settler of its deliveries.
//!
//! [`connect`] starts the members and gives their [`Link`]. [`TABLE`] has the options that users write, [`REFUSED`] those of
//! other clients that mean nothing here.
//!
//! A lease is a record's lock, and belongs to the member that acquired it: only this host can settle it, as long as it
//! runs. A deferral is a lock that is kept: the keeper renews it until it is due, and the source hands the very same delivery
//! out again, so that it does not count at the broker. What the keeper may hold is bounded in count, bytes and time; past
//! that a record is kept for the rest of its lock and then released.
//!
//! With `ack = "implicit"` a lease is the host's own: records are accepted at their brokers once they are durable in a spool
//! (`spooled`), which hands them out until they are settled.

mod check;
mod handle;
mod incoming;
mod keeper;
mod members;
mod observer;
mod options;
mod settler;
mod source;
mod spooled;
mod table;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use check::check;
pub use options::{HoldLimits, SourceOptions, SpoolOptions};
pub use table::{REFUSED, TABLE};
use tidegate_connector::tls::TlsError;
use tidegate_connector::{Clock, Settler, Source};
use tidegate_model::Routing;
use tidegate_spool::Spool;
use tidegate_telemetry::Telemetry;

use self::members::Members;

/// What receipts of these deliveries have as their namespace, which no RocketMQ settler is for: they are settled by the host
/// that took them.
pub const NAMESPACE: &str = "kafka-sharegroup";

/// Whether a delivery's lock belongs to one member, so that only the host that took it can settle it.
#[must_use]
pub fn only_owner_settles(routing: &Routing) -> bool {
    *routing.namespace == *NAMESPACE
}

/// A running source and the settler of its deliveries.
pub struct Link {
    /// Where deliveries come from.
    pub source: Arc<dyn Source>,
    /// How they are settled.
    pub settler: Arc<dyn Settler>,
}

/// Why a source cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// TLS as chosen cannot be had.
    #[error("source `{name}` cannot use TLS")]
    Tls {
        /// The source.
        name: Arc<str>,
        /// Why not.
        #[source]
        source: TlsError,
    },
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    Random(getrandom::Error),
    /// The operating system gave no thread for the spool.
    #[error("the operating system gave no thread for the spool")]
    Thread(#[source] io::Error),
}

/// Starts the members of a source, which join their group and go on until the source is closed. A cluster that is not there
/// is tried for ever; the source's status tells. With implicit acknowledgement its spool is in the directory `spools`; one that
/// cannot be used is tried for ever, too.
///
/// # Errors
/// When it cannot be used at all. Nothing runs then.
pub fn connect(
    options: SourceOptions,
    spools: &Path,
    clock: Clock,
    telemetry: Telemetry,
    name: Arc<str>,
) -> Result<Link, ConnectError> {
    let spool_options = options.spool;
    let members = Members::start(options, clock, telemetry, name)?;
    let Some(options) = spool_options else {
        return Ok(Link {
            source: Arc::new(source::ShareSource::new(Arc::clone(&members))),
            settler: Arc::new(settler::ShareSettler::new(members)),
        });
    };
    let settings = tidegate_spool::Settings {
        name: Arc::clone(&members.name),
        directory: spools.to_owned(),
        limits: options.limits,
        lease: options.lease,
        routing: Arc::clone(&members.routing),
        life: members.life,
    };
    let spool = Spool::start(settings, clock, members.telemetry.clone()).map_err(ConnectError::Thread)?;
    let spool = Arc::new(spool);
    Ok(Link {
        source: Arc::new(spooled::SpooledSource::new(Arc::clone(&members), Arc::clone(&spool))),
        settler: Arc::new(spooled::SpooledSettler::new(members, spool)),
    })
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}
