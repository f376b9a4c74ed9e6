//! The two laws: one for each number of ranks, and one over all.

use super::fit::{Fit, fit};
use crate::aether::Threads;
use crate::cell::{Cell, Op};
use crate::results::Row;

/// The most ranks that [`growth`] is fitted to; beyond, it predicts.
pub const SEEN: usize = 16;

/// A time is a latency plus bytes over a bandwidth, for one operation between so many ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The weights of 1 and of the bytes.
    pub fit: Fit<2>,
}

impl Line {
    /// Microseconds.
    pub fn latency(&self) -> f64 {
        self.fit.weights[0]
    }

    /// Gigabytes a second.
    pub fn bandwidth(&self) -> f64 {
        1e-3 / self.fit.weights[1]
    }

    /// Microseconds for an array of so many bytes.
    pub fn predict(&self, bytes: usize) -> f64 {
        self.fit.predict(&[1.0, bytes as f64])
    }
}

/// A time is a constant, plus so much for each rank, plus what the operation reads and writes over a
/// bandwidth, for one operation between any number of ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// The weights of 1, of the ranks, and of the bytes that move.
    pub fit: Fit<3>,
}

impl Growth {
    /// Microseconds.
    pub fn predict(&self, cell: &Cell) -> f64 {
        self.fit.predict(&terms(cell))
    }

    /// Gigabytes that are read or written a second.
    pub fn bandwidth(&self) -> f64 {
        1e-3 / self.fit.weights[2]
    }
}

/// The law of one operation between so many ranks. Absent if too little was measured.
pub fn line(rows: &[Row], op: Op, ranks: usize) -> Option<Line> {
    let of_it = rows.iter().filter(|row| row.cell.op == op && row.cell.ranks == ranks);
    let cases: Vec<_> =
        of_it.filter_map(|row| Some(([1.0, row.cell.bytes as f64], measured(row)?))).collect();
    fit(&cases).map(|fit| Line { fit })
}

/// The law of one operation between any number of ranks, fitted to 2 to [`SEEN`] of them.
pub fn growth(rows: &[Row], op: Op) -> Option<Growth> {
    let of_it = rows.iter().filter(|row| row.cell.op == op && (2..=SEEN).contains(&row.cell.ranks));
    let cases: Vec<_> = of_it.filter_map(|row| Some((terms(&row.cell), measured(row)?))).collect();
    fit(&cases).map(|fit| Growth { fit })
}

/// Microseconds.
pub(super) fn measured(row: &Row) -> Option<f64> {
    row.of(Threads::NAME).map(|it| it.median()).filter(|it| it.is_finite())
}

fn terms(cell: &Cell) -> [f64; 3] {
    [1.0, cell.ranks as f64, moved(cell) as f64]
}

/// The bytes that are read and written if every input is read once and every output written once. The root
/// of a broadcast has its own already.
fn moved(cell: &Cell) -> usize {
    let (given, got) = (cell.given() * size_of::<f32>(), cell.got() * size_of::<f32>());
    match cell.op {
        Op::Broadcast => given + (cell.ranks - 1) * got,
        _ => cell.ranks * (given + got),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Series;

    fn rows(time: impl Fn(&Cell) -> f64) -> Vec<Row> {
        let cell = |ranks, bytes| Cell { op: Op::AllReduce, ranks, bytes };
        let cells = [2, 4, 8, 16, 64]
            .into_iter()
            .flat_map(|ranks| [1024, 65536, 1 << 24].map(|bytes| cell(ranks, bytes)));
        let row = |cell: Cell| Row {
            series: vec![Series { name: Threads::NAME.into(), micros: vec![time(&cell)] }],
            cell,
        };
        cells.map(row).collect()
    }

    #[test]
    fn a_line_has_the_latency_and_the_bandwidth_of_its_ranks() {
        let rows = rows(|cell| cell.ranks as f64 + cell.bytes as f64 / 5000.0);
        let line = line(&rows, Op::AllReduce, 8).unwrap();
        assert!((line.latency() - 8.0).abs() < 1e-6 && (line.bandwidth() - 5.0).abs() < 1e-6);
        assert!((line.predict(10_000) - 10.0).abs() < 1e-6);
        assert!(super::line(&rows, Op::AllReduce, 32).is_none());
        assert!(super::line(&rows, Op::Broadcast, 8).is_none());
    }

    #[test]
    fn growth_is_fitted_to_few_ranks_and_predicts_many() {
        let law = |cell: &Cell| 1.5 + 2.0 * cell.ranks as f64 + moved(cell) as f64 / 8000.0;
        // Beyond what it may see, everything takes twice as long.
        let rows = rows(|cell| if cell.ranks > SEEN { 2.0 * law(cell) } else { law(cell) });
        let growth = growth(&rows, Op::AllReduce).unwrap();
        assert!((growth.bandwidth() - 8.0).abs() < 1e-6, "{growth:?}");
        let far = Cell { op: Op::AllReduce, ranks: 64, bytes: 1 << 24 };
        assert!((growth.predict(&far) / law(&far) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn what_moves_is_every_input_and_every_output() {
        let moved = |op| moved(&Cell { op, ranks: 4, bytes: 1024 });
        assert_eq!(Op::ALL.map(moved), [8192, 5120, 5120, 4096, 8192]);
    }
}
