//! What the cases of all suites share: how a case ends, and what it expects.

use std::fmt::Debug;

use aether_core::{Chunk, Device, Element, Error, ErrorKind};
pub use libtest_mimic::{Completion, Failed};

/// How a case ends: it passed, it could not run (with the reason), or it failed.
pub type Outcome = Result<Completion, Failed>;

/// What makes the next copy or fill fail.
pub type Arm = Box<dyn Fn()>;

/// The case passed.
///
/// # Errors
/// None; it has the type of a case's last line.
pub fn passed() -> Outcome {
    Ok(Completion::Completed)
}

/// The case could not run here. It is printed as ignored, with the reason, and never as passed.
///
/// # Errors
/// None; it has the type of a case's last line.
pub fn skipped(reason: impl Into<String>) -> Outcome {
    Ok(Completion::ignored_with(reason.into()))
}

/// Expects a condition.
///
/// # Errors
/// What was expected, if it isn't so.
pub fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what().into()) }
}

/// Expects two values to be equal.
///
/// # Errors
/// Both values, if they aren't.
pub fn expect_equal<T: PartialEq<U> + Debug, U: Debug>(
    found: T,
    wanted: U,
    what: &str,
) -> Result<(), Failed> {
    expect(found == wanted, || format!("{what}: found {found:?}, wanted {wanted:?}"))
}

/// Expects an error of this kind.
///
/// # Errors
/// What came instead.
pub fn expect_error<T>(
    found: Result<T, Error>,
    kind: ErrorKind,
    what: &str,
) -> Result<Error, Failed> {
    match found {
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => Err(format!("{what}: wanted {kind:?}, found {error:?}").into()),
        Ok(_) => Err(format!("{what}: wanted {kind:?}, and it went well").into()),
    }
}

/// Expects two sequences to be equal, and names the first place where they differ.
///
/// # Errors
/// The first difference.
pub fn expect_same<T: PartialEq + Debug>(
    found: &[T],
    wanted: &[T],
    what: &str,
) -> Result<(), Failed> {
    if found == wanted {
        return Ok(());
    }
    let mut both = found.iter().zip(wanted).enumerate();
    if let Some((at, (one, two))) = both.find(|(_, (one, two))| one != two) {
        let all = found.len();
        return Err(format!("{what}: element {at} of {all} is {one:?}, wanted {two:?}").into());
    }
    expect_equal(found.len(), wanted.len(), &format!("{what}: the number of elements"))
}

/// Bytes that depend on their position and on `salt`, so that a wrong offset shows.
pub fn pattern(bytes: usize, salt: u64) -> Vec<u8> {
    let mut random = Random::new(salt);
    let words = std::iter::repeat_with(|| random.next_u64().to_ne_bytes());
    let mut pattern = words.take(bytes.div_ceil(8)).collect::<Vec<_>>().concat();
    pattern.truncate(bytes);
    pattern
}

/// A chunk of the device that holds these elements, in memory that the device's backend allocated.
///
/// # Errors
/// Whatever keeps them from getting there.
pub fn chunk_of<T: Element>(device: &Device, elements: &[T]) -> Result<Chunk, Failed> {
    let mut chunk = Chunk::allocate(device, size_of_val(elements))?;
    if device.host_addressable() {
        chunk.slice_mut::<T>()?.copy_from_slice(elements);
        return Ok(chunk);
    }
    Ok(Chunk::from_vec(device, elements.to_vec())?)
}

/// Numbers that look random, the same in every run with one seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number: splitmix64.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// The next number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next_u64() % limit.max(1) as u64) as usize
    }
}
