//! The detector: it is silent about clean programs, and reports every missing order in every run.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod bounds;
mod deaf;
mod programs;
mod toy;
