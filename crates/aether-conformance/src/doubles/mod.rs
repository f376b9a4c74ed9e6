//! Test doubles: backends that behave as devices do that this machine may not have. They are for
//! tests alone, and no mode of the product.
//!
//! - [`Remote`]: a device that refuses direct access;
//! - [`Scrambled`]: a backend that is asynchronous for real, in an order of its own;
//! - [`wrapping`]: a relay to build broken backends from, which a suite has to catch.

mod remote;
mod scrambled;
pub mod wrapping;

pub use remote::{Remote, RemoteBuilder};
pub use scrambled::Scrambled;
