#![doc = include_str!("../README.md")]

pub mod checked;
pub mod collectives;
pub mod doubles;
pub mod memory;
#[cfg(unix)]
pub mod processes;
mod program;
pub mod suite;
pub mod transport;

/// What runs the trials, for a program that sorts them, adds its own or reads arguments of its own.
pub use libtest_mimic;
pub use program::run;
