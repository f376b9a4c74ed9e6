//! How fast other types are reduced than f32: bytes a second, of the same bytes.

use aether::{DType, Device, ReduceOp};
use serde::{Deserialize, Serialize};

use crate::aether::{Threads, Work};
use crate::failure::Result;
use crate::memory::Memory;
use crate::results::Series;
use crate::setting::Setting;
use crate::turns::Plan;

/// How many ranks.
pub const RANKS: u32 = 2;
/// The size that is published: the one from which the shares are aimed at.
pub const BYTES: usize = 16 << 20;

/// The reductions, each compared with its own of f32.
const OPS: [ReduceOp; 3] = [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max];

/// The part's results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dtypes {
    /// Where and when.
    pub setting: Setting,
    /// What each rank gave.
    pub bytes: usize,
    /// One for each type and reduction.
    pub rows: Vec<Reduction>,
}

/// One type by one reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduction {
    /// The type's name.
    pub dtype: String,
    /// The reduction's name.
    pub op: String,
    /// Microseconds of one all_reduce, by turn.
    pub micros: Vec<f64>,
}

/// The types that are measured.
pub fn types() -> impl Iterator<Item = DType> {
    // A bool is moved and never reduced.
    DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool)
}

/// The share of f32's bytes a second that is aimed at.
pub fn aim(dtype: &str) -> f64 {
    match dtype {
        "bf16" | "f16" => 0.8,
        _ if dtype.starts_with("f8") => 0.25,
        _ => 0.9,
    }
}

impl Dtypes {
    /// The type's bytes a second, in terms of f32's by the same reduction: the median of the turns.
    pub fn share(&self, row: &Reduction) -> Option<f64> {
        let same = self.rows.iter().find(|it| it.op == row.op && it.dtype == "f32")?;
        let series = |of: &Reduction| Series { name: of.dtype.clone(), micros: of.micros.clone() };
        series(same).ratio_to(&series(row))
    }
}

/// Measures it on arrays of so many bytes; `progress` is told of each turn.
///
/// # Errors
/// What a rank met.
pub fn run(plan: Plan, bytes: usize, mut progress: impl FnMut()) -> Result<Dtypes> {
    let devices = Device::cpus(RANKS);
    let memory = Memory::new(&devices, bytes)?;
    for buffers in &mut memory.all() {
        // Of these bytes, every type has ordinary numbers.
        let source = buffers.source.slice_mut::<u8>()?;
        source.iter_mut().enumerate().for_each(|(at, byte)| *byte = 0x30 + (at % 11) as u8);
    }
    std::thread::scope(|scope| {
        let mut threads = Threads::new(scope, &memory, &devices)?;
        let mut rows = Vec::new();
        for op in OPS {
            let of = |dtype: DType| Reduction {
                dtype: dtype.to_string(),
                op: op.to_string(),
                micros: Vec::new(),
            };
            let mut of_op: Vec<(DType, Reduction)> =
                types().map(|dtype| (dtype, of(dtype))).collect();
            for turn in 0..plan.turns {
                progress();
                let begin = turn % of_op.len();
                of_op.rotate_left(begin);
                for (dtype, row) in &mut of_op {
                    let took = threads.turn(Work::Reduce(*dtype, op, bytes), 1, 2)?;
                    row.micros.push(took.rounded());
                }
                of_op.rotate_right(begin);
            }
            rows.extend(of_op.into_iter().map(|(_, row)| row));
        }
        Ok(Dtypes { setting: Setting::here(plan.turns), bytes, rows })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_share_is_of_the_same_reduction_of_f32_in_the_same_turns() {
        let row = |dtype: &str, op: &str, micros: &[f64]| Reduction {
            dtype: dtype.into(),
            op: op.into(),
            micros: micros.into(),
        };
        let rows = vec![
            row("f32", "sum", &[1.0, 10.0, 1.0]),
            row("f32", "max", &[9.0; 3]),
            row("f16", "sum", &[2.0, 20.0, 2.0]),
            row("f16", "min", &[1.0; 3]),
        ];
        let dtypes = Dtypes { rows, ..Dtypes::default() };
        assert_eq!(dtypes.share(&dtypes.rows[2]), Some(0.5));
        assert_eq!(dtypes.share(&dtypes.rows[3]), None);
    }

    #[test]
    fn every_type_that_is_reduced_has_an_aim_and_is_measured() {
        let aims: Vec<f64> =
            ["f16", "bf16", "f8e4m3", "f8e5m2", "f64", "i8", "u64"].map(aim).into();
        assert_eq!(aims, [0.8, 0.8, 0.25, 0.25, 0.9, 0.9, 0.9]);
        let mut turns = 0;
        let plan = Plan { turns: 1, span: Duration::ZERO };
        let dtypes = run(plan, 4096, || turns += 1).unwrap();
        assert_eq!((turns, dtypes.rows.len()), (3, 3 * 14));
        assert!(dtypes.rows.iter().all(|row| row.micros.len() == 1 && dtypes.share(row).is_some()));
    }
}
