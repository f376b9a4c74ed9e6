//! From `--devices` to devices.

use aether::{Device, DeviceKind, Registry};

use crate::cli::DeviceChoice;
use crate::failure::{Failure, Result};

/// The devices that were asked for.
pub(crate) fn devices(choice: &DeviceChoice) -> Result<Vec<Device>> {
    let registry = Registry::default();
    for kind in choice.kinds() {
        if !registry.kinds().any(|it| it == kind) {
            let name = kind.to_string().to_uppercase();
            return Err(Failure::new(format!(
                "train on {choice}: this build has no {name} devices"
            )));
        }
    }
    match choice {
        DeviceChoice::All(DeviceKind::CPU) => {
            // Any number of CPU devices is there; more than the CPU runs threads is no use.
            let threads = std::thread::available_parallelism().map_or(1, |it| it.get());
            let count = u32::try_from(threads).unwrap_or(u32::MAX);
            Ok(registry.first(DeviceKind::CPU, count)?)
        }
        DeviceChoice::All(kind) => Ok(registry.all(*kind)?),
        DeviceChoice::First(kind, count) => Ok(registry.first(*kind, count.get())?),
        DeviceChoice::These(ids) => {
            let named = ids.iter().map(|it| registry.device(&it.to_string()));
            Ok(named.collect::<aether::Result<_>>()?)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use std::num::NonZeroU32;

    use aether::DeviceId;

    use super::*;

    #[test]
    fn a_count_takes_the_first_and_a_list_those_that_it_names() {
        let four = DeviceChoice::First(DeviceKind::CPU, NonZeroU32::new(4).unwrap());
        assert_eq!(devices(&four).unwrap(), Device::cpus(4));
        let these = [5, 0].map(|it| DeviceId::new(DeviceKind::CPU, it));
        let these = devices(&DeviceChoice::These(these.into())).unwrap();
        assert_eq!(these, [Device::cpu(5), Device::cpu(0)]);
        let all = devices(&DeviceChoice::All(DeviceKind::CPU)).unwrap();
        assert!(!all.is_empty() && all == Device::cpus(all.len() as u32));
    }

    #[test]
    fn a_kind_that_this_build_has_not_got_is_named() {
        let two = NonZeroU32::new(2).unwrap();
        for (choice, name) in [
            (DeviceChoice::All(DeviceKind::CUDA), "cuda:all"),
            (DeviceChoice::First(DeviceKind::CUDA, two), "cuda:2"),
        ] {
            let failure = devices(&choice).unwrap_err().to_string();
            assert_eq!(failure, format!("train on {name}: this build has no CUDA devices"));
        }
    }
}
