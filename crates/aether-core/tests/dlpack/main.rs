//! DLPack: what goes out, what comes in, and who may touch the memory meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod deferred;
mod export;
mod foreign;
mod held;
mod import;
mod malformed;
mod stream;

/// Values that tell where they stand.
pub(crate) fn numbers(count: usize) -> Vec<u32> {
    (0..count as u32).map(|it| it * 7 + 3).collect()
}
