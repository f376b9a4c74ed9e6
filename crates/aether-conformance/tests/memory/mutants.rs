//! Each broken backend, and the case that has to catch it.

use std::sync::Arc;
use std::time::Duration;

use aether_conformance::doubles::Remote;
use aether_conformance::doubles::wrapping::Relay;
use aether_conformance::memory::{self, MemoryFixture};
use aether_conformance::suite::{Completion, Failed};
use aether_core::{Backend, Device, DeviceId, DeviceKind};
use libtest_mimic::Trial;

use crate::broken::{Broken, Hook};
use crate::fixtures::{host, inner_remote, slow};

type Inner = fn() -> Arc<dyn Backend>;

/// What is broken, in which backend, and the case that fails on it.
const MUTANTS: [(Broken, Inner, &str); 22] = [
    (Broken::AllocatesTooMuch, host, "failures::too_much_memory_is_an_error_that_says_so"),
    (Broken::CopiesDenseRows, host, "copies::rows_move_and_what_lies_between_stays"),
    (Broken::CopiesFromTheStart, host, "copies::parts_of_any_size_at_any_offset"),
    (Broken::CopiesTooLittle, host, "copies::parts_of_any_size_at_any_offset"),
    (Broken::CopiesTooLittle, inner_remote, "copies::every_pair_copies_as_its_link_says"),
    (Broken::EndsEarly, slow, "streams::an_end_that_is_told_is_true"),
    (Broken::EndsNever, slow, "streams::every_end_comes"),
    (Broken::FillsBytes, host, "fills::elements_of_every_width_and_nothing_beside_them"),
    (Broken::FillsTooLittle, host, "fills::elements_of_every_width_and_nothing_beside_them"),
    (Broken::FillsTooMuch, host, "fills::elements_of_every_width_and_nothing_beside_them"),
    (Broken::ForgetsAlignment, host, "allocation::memory_is_as_large_and_aligned_as_asked"),
    (Broken::ForgetsOrder, slow, "ordering::a_read_sees_the_write_before_it"),
    (Broken::ForgetsOrder, slow, "ordering::a_write_leaves_the_reads_before_it_alone"),
    (Broken::ForgetsZeros, host, "allocation::host_memory_begins_as_zeros"),
    (
        Broken::HidesFailures,
        inner_remote,
        "failures::a_copy_that_fails_is_the_error_of_reads_until_overwritten",
    ),
    (Broken::Leaks, inner_remote, "lifetimes::memory_comes_back"),
    (Broken::Leaks, host, "lifetimes::memory_of_the_host_goes_back_to_the_system"),
    (Broken::LinksOneWay, inner_remote, "copies::a_link_is_the_same_both_ways"),
    (Broken::MixesStreams, slow, "streams::work_of_one_stream_runs_in_its_order"),
    (Broken::NamesNoDevice, host, "failures::too_much_memory_is_an_error_that_says_so"),
    (Broken::ServesAnyDevice, inner_remote, "bad_input::a_device_that_is_not_served_is_refused"),
    (Broken::SharesAllocations, host, "allocation::live_allocations_share_no_byte"),
];

/// A trial for each: it passes if the case fails.
pub(crate) fn trials() -> Vec<Trial> {
    let trial = |(broken, inner, name): (Broken, Inner, &'static str)| {
        Trial::test(format!("mutant::{broken:?}::{name}"), move || {
            let cases = memory::cases();
            let case = cases.iter().find(|it| it.name == name).ok_or("there is no such case")?;
            match case.run(&Mutant { broken, inner }) {
                Err(why) => expect_plain(&why),
                Ok(Completion::Completed) => Err(Failed::from("the case passed")),
                Ok(Completion::Ignored { reason }) => {
                    Err(format!("the case was skipped: {}", reason.unwrap_or_default()).into())
                }
            }
        })
        .with_kind("broken")
    };
    MUTANTS.into_iter().map(trial).collect()
}

/// Expects a message that speaks of what is wrong, and not of Rust.
fn expect_plain(why: &Failed) -> Result<(), Failed> {
    match why.message() {
        Some(said) if !said.contains("Some(") => Ok(()),
        said => Err(format!("the case says {said:?}").into()),
    }
}

struct Mutant {
    broken: Broken,
    inner: Inner,
}

impl Mutant {
    fn device(&self, inner: Arc<dyn Backend>, index: u32) -> Device {
        // SAFETY: the case relies on a broken promise, which is what it is for: `Hook` leaks memory
        // that would be freed in use, and the case touches no other.
        let relay = unsafe { Relay::new(inner, Hook::new(self.broken)) };
        relay.device(DeviceId::new(self.kind(), index))
    }

    fn kind(&self) -> DeviceKind {
        match (self.inner)().name() {
            "remote" => Remote::KIND,
            _ => DeviceKind::CPU,
        }
    }
}

impl MemoryFixture for Mutant {
    fn devices(&self) -> Result<Vec<Device>, String> {
        let first = self.device((self.inner)(), 0);
        let second = Device::new(DeviceId::new(self.kind(), 1), first.backend().clone());
        Ok(vec![first, second])
    }

    fn unknown_device(&self) -> Option<DeviceId> {
        Some(DeviceId::new(self.kind(), 99))
    }

    fn failing_copy(&self) -> Option<(Device, Box<dyn Fn()>)> {
        let remote = Remote::builder().build().ok()?;
        let device = self.device(remote.clone(), 0);
        Some((device, Box::new(move || remote.fail_copy_after(0))))
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(200)
    }
}
