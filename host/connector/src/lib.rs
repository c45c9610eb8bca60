//! What a connector is.
//!
//! A connector gives the host a [`Source`] and its [`Settler`], or a [`Sink`], or all three, and says with
//! [`Support`] which settlements it can really do. Its options are an [`options::Table`], from which come the TOML
//! keys, their errors, `tidegate options` and the reference.
//!
//! This crate knows no concrete connector and no broker.
#![forbid(unsafe_code)]

mod backoff;
pub mod check;
mod clock;
pub mod files;
mod monitor;
pub mod options;
pub mod origin;
pub mod secret;
mod settle;
mod sink;
mod source;
pub mod template;
pub mod tls;
pub mod units;

pub use backoff::Backoff;
pub use clock::Clock;
pub use monitor::{SinkMonitor, SinkStatus, SinkTrouble};
pub use settle::{ReceiptSettler, SettleByReceipt, SettledByReceipt, TellSettled};
pub use sink::{
    Inbox, News, Notice, Outbox, RenewError, RenewalWish, Reporter, Reports, Sink, SinkError, VoidCause,
    inbox, inbox_of,
};
pub use source::{ReceiveError, ReceiveFault, Settler, Source, Support};
