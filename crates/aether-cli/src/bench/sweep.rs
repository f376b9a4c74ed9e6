//! The sizes of a sweep.

/// From `min` to `max`, each `factor` times the one before, as nccl-tests does with -b, -e and -f
/// (`TimeTest` in its src/common.cu). It ends where the next size would not fit 64 bits.
pub(super) fn sizes(min: u64, max: u64, factor: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(min), move |it| it.checked_mul(factor))
        .take_while(move |it| *it <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_the_factor_up_to_the_largest() {
        let all = |min, max, factor| sizes(min, max, factor).collect::<Vec<_>>();
        assert_eq!(all(32, 4096, 8), [32, 256, 2048]);
        assert_eq!(all(32, 2048, 8), [32, 256, 2048]);
        assert_eq!(all(7, 7, 2), [7]);
        assert_eq!(all(u64::MAX / 2, u64::MAX, 2), [u64::MAX / 2, u64::MAX - 1]);
        assert_eq!(all(u64::MAX, u64::MAX, 2), [u64::MAX]);
    }
}
