//! Bandwidths, in GB/s, as nccl-tests defines them.

use std::time::Duration;

use super::Op;

/// The size over the time: `algbw = S/t` in nccl-tests' doc/PERFORMANCE.md, where S is the size
/// that the row says.
pub(super) fn algorithm(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() {
        // Faster than the clock, such as a copy of nothing: no bandwidth can be told.
        return 0.0;
    }
    bytes as f64 / 1e9 / time.as_secs_f64()
}

/// What `algorithm` is multiplied by to give the bus bandwidth, which no number of ranks changes
/// for ever so good an implementation.
///
/// The factors of the collectives are those of nccl-tests: the summary in its doc/PERFORMANCE.md,
/// and `SendRecvGetBw` and `ScatterGetBw` in src/sendrecv.cu and src/scatter.cu. Replicate moves
/// what broadcast moves; memcpy stays on its device.
pub(super) fn bus_factor(op: Op, ranks: usize) -> f64 {
    let n = ranks as f64;
    match op {
        Op::AllReduce => 2.0 * (n - 1.0) / n,
        Op::AllGather | Op::AllToAll | Op::ReduceScatter | Op::Scatter => (n - 1.0) / n,
        Op::Broadcast | Op::Memcpy | Op::Replicate | Op::SendRecv => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabyte_a_second_is_ten_to_the_ninth() {
        assert_eq!(algorithm(4_000_000_000, Duration::from_secs(2)), 2.0);
        assert_eq!(algorithm(1000, Duration::from_micros(1)), 1.0);
        assert_eq!(algorithm(0, Duration::ZERO), 0.0);
    }

    #[test]
    fn the_factors_are_those_of_nccl_tests() {
        for (op, of_4, of_1) in [
            (Op::AllReduce, 1.5, 0.0),
            (Op::AllGather, 0.75, 0.0),
            (Op::ReduceScatter, 0.75, 0.0),
            (Op::AllToAll, 0.75, 0.0),
            (Op::Scatter, 0.75, 0.0),
            (Op::Broadcast, 1.0, 1.0),
            (Op::SendRecv, 1.0, 1.0),
            (Op::Replicate, 1.0, 1.0),
            (Op::Memcpy, 1.0, 1.0),
        ] {
            assert_eq!((bus_factor(op, 4), bus_factor(op, 1)), (of_4, of_1), "{op}");
        }
    }
}
