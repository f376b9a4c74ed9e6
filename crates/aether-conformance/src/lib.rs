//! The suites that the author of a backend runs against it, the detector that they run on, and the
//! test doubles that the workspace's own tests need.
//!
//! - [`memory`]: the suite for a [`aether_core::Backend`];
//! - [`collectives`]: the suite for a [`CollectiveDriver`](aether_collective::CollectiveDriver);
//! - [`transport`]: the suite for a [`Transport`](aether_residency::Transport);
//! - [`checked`]: [`Checked`](checked::Checked), a happens-before detector around any backend;
//! - [`doubles`]: backends that behave as devices do that this machine may not have.
//!
//! A suite is a list of named trials over a fixture that the author supplies. A test program with
//! `harness = false` runs it:
//!
//! ```
//! use std::process::ExitCode;
//!
//! use aether_conformance::memory::{self, MemoryFixture};
//! use aether_core::Device;
//!
//! #[derive(Clone)]
//! struct Host;
//!
//! impl MemoryFixture for Host {
//!     fn devices(&self) -> Result<Vec<Device>, String> {
//!         Ok(Device::cpus(3))
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     let arguments = libtest_mimic::Arguments::from_args();
//!     libtest_mimic::run(&arguments, memory::trials(Host)).exit_code()
//! }
//! ```

pub mod checked;
pub mod collectives;
pub mod doubles;
pub mod memory;
pub mod suite;
pub mod transport;
