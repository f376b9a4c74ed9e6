//! The suite for a [`CollectiveDriver`]: every line of aether's semantics of the collectives, as cases.
//!
//! The author of a driver implements [`CollectiveFixture`] and runs [`trials`] in a test program with
//! `harness = false`. A case that can't run is printed as ignored with the reason; so is one about a
//! row of the semantics from which the driver differs, as its
//! [`Capabilities`](aether_collective::Capabilities) say.
//!
//! ```
//! use aether_conformance::collectives::{self, CollectiveFixture};
//! use aether_core::Device;
//! use aether_host::Host;
//!
//! #[derive(Clone)]
//! struct OnTheHost;
//!
//! impl CollectiveFixture for OnTheHost {
//!     type Driver = Host;
//!
//!     fn devices(&self, count: usize) -> Option<Vec<Device>> {
//!         Some(Device::cpus(count as u32))
//!     }
//! }
//!
//! let trials = collectives::trials(OnTheHost);
//! assert!(trials.iter().any(|it| it.name() == "collectives::order::sums_go_in_rank_order"));
//! ```
//!
//! Results are compared with a naive [`reference`](mod@reference), bit for bit. Memory is filled and read through
//! chunks, so devices that the host can't address are tested too. A test of the suite itself runs
//! [`cases`] on a broken [`Subject`].

mod absence;
mod after_failure;
pub(crate) mod bench;
pub(crate) mod buffer;
mod calls;
mod cycles;
mod departure;
mod disagreement;
mod floats;
mod in_place;
mod integers;
mod member;
mod messages;
mod moves;
pub mod operation;
mod order;
mod ordering;
pub mod reference;
mod refusals;
mod results;
mod rows;
mod shapes;
pub mod subject;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aether_collective::{CollectiveDriver, Driver, GroupConfig};
use aether_core::Device;
use libtest_mimic::Trial;

use crate::checked::Checked;
use crate::suite::{Outcome, passed, skipped};
use bench::{Bench, Step, Stop};
use subject::{Fixed, Subject};

pub use rows::ROWS;

/// The driver under test, and where it runs.
pub trait CollectiveFixture: Send + Sync + 'static {
    /// The driver.
    type Driver: CollectiveDriver;

    /// So many devices that can form a group; `None` if there aren't as many, and the cases that need
    /// them are skipped.
    ///
    /// Cases run side by side unless the test program is given `--test-threads=1`, and a device that
    /// waits in two groups at once can look like a circle: give devices of their own to each call where
    /// there are enough.
    fn devices(&self, count: usize) -> Option<Vec<Device>>;

    /// So many devices of a backend that a detector watches; `None` if the driver doesn't run on such
    /// devices, and what the detector would see is then not tested.
    ///
    /// Provided as [`CollectiveFixture::devices`] by way of a [`Checked`] around their backend, where
    /// they share one and the driver [supports](Driver::supports) them so. More is
    /// seen around a backend that is asynchronous, such as
    /// [`Scrambled`](crate::doubles::Scrambled).
    fn watched(&self, count: usize) -> Option<(Arc<Checked>, Vec<Device>)> {
        let devices = self.devices(count)?;
        let first = devices.first()?;
        let checked = Checked::around(first.backend().clone());
        let watched: Vec<_> = devices.iter().map(|it| checked.device(it.id())).collect();
        let shared = devices.iter().all(|it| it.shares_backend(first));
        (shared && watched.iter().all(Self::Driver::supports)).then_some((checked, watched))
    }

    /// The configuration of the groups. Its name becomes the beginning of their names.
    fn config(&self) -> GroupConfig {
        GroupConfig::default()
    }

    /// The deadline in the cases that wait for one to pass: as short as it may be with calls that go
    /// well still ending before it.
    fn deadline(&self) -> Duration {
        Duration::from_millis(250)
    }

    /// How long anything may take before it counts as hanging.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }
}

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its theme and what it states.
    pub name: &'static str,
    run: fn(&Bench<'_>) -> Step,
}

impl Case {
    /// Runs it.
    ///
    /// # Errors
    /// What is wrong with the driver.
    pub fn run(&self, subject: &dyn Subject) -> Outcome {
        let about =
            |row: &str| ROWS.iter().any(|(name, cases)| *name == row && cases.contains(&self.name));
        if let Some(it) = subject.capabilities().differences.iter().find(|it| about(it.row)) {
            return skipped(format!("documented difference: {}: {}", it.row, it.instead));
        }
        match (self.run)(&Bench { subject, case: self.name }) {
            Ok(()) => passed(),
            Err(Stop::Skipped(reason)) => skipped(reason),
            Err(Stop::Failed(why)) => Err(why.into()),
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All cases, by theme.
pub fn cases() -> Vec<Case> {
    let themes: [&[Case]; 16] = [
        absence::CASES,
        after_failure::CASES,
        cycles::CASES,
        departure::CASES,
        disagreement::CASES,
        floats::CASES,
        in_place::CASES,
        integers::CASES,
        messages::CASES,
        moves::CASES,
        order::CASES,
        ordering::CASES,
        refusals::CASES,
        results::CASES,
        rows::CASES,
        shapes::CASES,
    ];
    themes.concat()
}

/// The suite over a fixture, as trials of libtest-mimic.
pub fn trials<F: CollectiveFixture>(fixture: F) -> Vec<Trial> {
    let subject = Arc::new(Fixed(fixture));
    let trial = |case: Case| {
        let subject = Arc::clone(&subject);
        let name = format!("collectives::{}", case.name);
        Trial::ignorable_test(name, move || case.run(subject.as_ref()))
    };
    cases().into_iter().map(trial).collect()
}

/// Lists the cases of a theme: functions by the names of their cases.
macro_rules! theme {
    ($theme:literal: $($case:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[
            $(super::Case { name: concat!($theme, "::", stringify!($case)), run: $case },)*
        ];
    };
}
use theme;
