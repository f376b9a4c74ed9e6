//! What it costs to grow: aether's times by ranks and bytes, and laws that were fitted to them.

mod fit;
mod laws;

use aether::Device;
use serde::{Deserialize, Serialize};

pub use fit::{Fit, fit};
pub use laws::{Growth, Line, SEEN, growth, line};

use crate::aether::Threads;
use crate::cell::{Cell, Op, sizes};
use crate::contender::Contender;
use crate::failure::Result;
use crate::memory::Memory;
use crate::results::Row;
use crate::setting::Setting;
use crate::turns::{Plan, measure};

/// The numbers of ranks, each a thread.
pub const RANKS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The largest array.
const MOST: usize = 16 << 20;

/// The part's results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Where and when.
    pub setting: Setting,
    /// The cells, in which aether is alone.
    pub rows: Vec<Row>,
}

/// The cells between so many ranks: every second size if `quick`.
pub fn cells(ranks: usize, quick: bool) -> Vec<Cell> {
    let step = if quick { 2 } else { 1 };
    let of = |op| sizes(ranks, MOST).step_by(step).map(move |bytes| Cell { op, ranks, bytes });
    Op::ALL.into_iter().flat_map(of).collect()
}

/// Measures it, and tells `progress` of each cell before it begins.
///
/// # Errors
/// What a rank met, or a thread that can't be had.
pub fn run(plan: Plan, quick: bool, mut progress: impl FnMut(&Cell)) -> Result<Scaling> {
    let mut scaling = Scaling { setting: Setting::here(plan.turns), rows: Vec::new() };
    for ranks in RANKS {
        let devices = Device::cpus(ranks as u32);
        let cells = cells(ranks, quick);
        let most = cells.iter().map(|cell| cell.bytes).max().unwrap_or(MOST);
        let memory = Memory::new(&devices, most)?;
        std::thread::scope(|scope| {
            let mut contenders: [Box<dyn Contender + '_>; 1] =
                [Box::new(Threads::new(scope, &memory, &devices)?)];
            for cell in &cells {
                progress(cell);
                scaling.rows.push(measure(cell, &mut contenders, plan)?);
            }
            Ok::<_, crate::failure::Failure>(())
        })?;
    }
    Ok(scaling)
}
