//! A durable store on this machine for deliveries whose broker forgets them once they are handed over.
//!
//! Most brokers keep a message until it is settled, and the host keeps nothing. Where a broker is told that a message is
//! done as soon as it is here, the only copy is here, and has to outlive the process. A [`Spool`] is that copy: what is
//! admitted is written to a file and durable before the broker is told, is handed out until it is settled, and is handed out
//! again by the next process, before anything new, if this one ends first. It knows no broker: what tells two deliveries of
//! one message is the message's id.
//!
//! `Ledger` decides, without I/O: what is in the spool, what of it is handed out and until when, what is due, what
//! is to be written. `store` is the file, one transaction for each write, synchronized before it counts; [`Spool`] is the
//! thread around both, since a disk may take its time and the runtime's threads may not wait for it.
//!
//! # What is promised
//!
//! *Nothing is lost* that was once durable, whatever ends the process. *Nothing comes twice* as long as one process lives;
//! across two, what was settled and not yet durably removed comes again. A store that cannot be written is trouble that is
//! told, and passes by itself: nothing new is taken in meanwhile, and what is there is kept. A store that is damaged gives
//! back what can be read of it (`store`), and the damage is told.
#![forbid(unsafe_code)]

mod entry;
mod handle;
mod ledger;
mod spool;
mod store;

pub use ledger::Limits;
pub use spool::{Admitted, Arrived, NotWritten, Place, PlaceError, Settings, Spool, Written};
