//! The connector against the development broker and against peers that misbehave, over real sockets.
#![allow(clippy::expect_used, reason = "a helper that cannot go on fails its test")]

mod access;
mod checks;
mod lite;
mod pooling;
mod producing;
mod resolving;
mod road;
mod simple;
mod sinking;
mod support;
mod trouble;
