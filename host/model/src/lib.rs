//! The words of tidegate as types.
//!
//! A [`Delivery`] is one handing-out of a [`Message`] by a broker, held under a lease. A throttle policy answers
//! with a [`Verdict`]; what the broker is told is a [`Settlement`]; whoever may settle later holds a [`Receipt`].
//!
//! This crate does no I/O, reads no clock and knows no broker.
#![forbid(unsafe_code)]

mod delivery;
mod flow;
mod message;
pub mod receipt;
mod renewal;
mod settlement;
mod time;
mod verdict;

pub use delivery::{Delivery, DeliveryId, Handle, Routing};
pub use flow::{Capacity, DeadLetter, Emission, Report};
pub use message::{BodyState, Message, MessageId};
pub use receipt::{Receipt, ReceiptIssuer, ReceiptKey};
pub use renewal::Renewal;
pub use settlement::{Outcome, SettleError, SettleFault, Settlement, Verb};
pub use time::{Instant, Timestamp};
pub use verdict::{Deferral, Standing, Verdict};
