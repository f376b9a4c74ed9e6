//! A driver's suite over processes: each rank's calls are made by a process of its own.
//!
//! [`Processes`] is a driver whose communicators stand for members of a group in worker processes. What a
//! rank is told to call goes to its worker over a socket, with the bytes of its source; the worker copies
//! them into memory of its own, makes the call on its member of a group of the driver under test, which all
//! workers joined over a [`Directory`](aether_collective::Directory), and sends back how it ended and what
//! the destination holds. So the cases of [`crate::collectives`] run as they are, and what they see is the
//! driver across processes: its errors, its deadlines, its bits.
//!
//! Workers are this program, started again: a test program asks [`worker`] first in its `main`. They are
//! kept for the next group, and end with the program that started them, however it ends. A device of the
//! suite has one worker, so that groups of the same device are led by one process.
//!
//! ```no_run
//! use aether_collective::CollectiveDriver;
//! use aether_conformance::collectives::{self, CollectiveFixture};
//! use aether_conformance::processes::{self, Processes, Remote};
//! use aether_core::Device;
//! use aether_host::Host;
//!
//! struct Apart;
//!
//! impl Remote for Apart {
//!     type Driver = Host;
//!     const NAME: &'static str = "host";
//! }
//!
//! struct Fixture;
//!
//! impl CollectiveFixture for Fixture {
//!     type Driver = Processes<Apart>;
//!
//!     fn devices(&self, count: usize) -> Option<Vec<Device>> {
//!         Some(Device::cpus(count as u32))
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     if let Some(code) = processes::worker::<Apart>() {
//!         return code;
//!     }
//!     let code = aether_conformance::run(collectives::trials(Fixture));
//!     processes::dismiss();
//!     code
//! }
//! ```

mod driver;
mod formed;
mod memory;
mod pool;
mod proxy;
mod seat;
mod serve;
mod sheet;
mod wire;

use std::process::ExitCode;

use aether_collective::CollectiveDriver;
use aether_core::{Device, Result};

pub use driver::{Processes, Range};
pub use proxy::Proxy;

/// What runs in the worker processes.
pub trait Remote: Send + Sync + 'static {
    /// The driver under test.
    type Driver: CollectiveDriver;

    /// What tells the workers of this one from those of others in the same test program.
    const NAME: &'static str;

    /// Whether the workers are threads of the test program instead: what fails in processes and not in
    /// threads fails because of the processes.
    const IN_THREADS: bool = false;

    /// The device with which a worker joins, by the index of the suite's device.
    ///
    /// # Errors
    /// What keeps it from being used.
    fn device(index: u32) -> Result<Device> {
        Ok(Device::cpu(index))
    }

    /// The device on whose memory the worker makes its calls. Provided as the device that joined.
    ///
    /// # Errors
    /// What keeps it from being used.
    fn memory(device: &Device) -> Result<Device> {
        Ok(device.clone())
    }
}

/// Serves as a worker, if this process was started as one of `R`: to be asked before anything else of a
/// test program's `main`. `None` if it was not.
pub fn worker<R: Remote>() -> Option<ExitCode> {
    pool::is_worker_of::<R>().then(serve::process::<R>)
}

/// Ends all workers and waits for them. Without it they end soon after the program that started them.
pub fn dismiss() {
    pool::dismiss();
}
