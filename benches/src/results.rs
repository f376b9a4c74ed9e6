//! What was measured, as it is kept: every turn of every contender, so that whatever is told of it can be
//! told again without measuring.

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::dtypes::Dtypes;
use crate::limit::Stores;
use crate::movers::Movers;
use crate::scaling::Scaling;
use crate::setting::Setting;
use crate::statistics::{median, median_ratio};

/// Everything that was measured, each part when it was last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    /// The collectives, by everybody.
    pub collectives: Option<Collectives>,
    /// Other types than f32.
    pub dtypes: Option<Dtypes>,
    /// Residency.
    pub movers: Option<Movers>,
    /// What it costs to grow.
    pub scaling: Option<Scaling>,
}

impl Results {
    /// Takes over every part that was measured anew.
    pub fn replace(&mut self, newer: &Self) {
        let Self { collectives, dtypes, movers, scaling } = newer.clone();
        self.collectives = collectives.or(self.collectives.take());
        self.dtypes = dtypes.or(self.dtypes.take());
        self.movers = movers.or(self.movers.take());
        self.scaling = scaling.or(self.scaling.take());
    }
}

/// The collectives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Collectives {
    /// Where and when.
    pub setting: Setting,
    /// Who had no turn, and why.
    pub skipped: Vec<String>,
    /// The cells.
    pub rows: Vec<Row>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which one.
    #[serde(flatten)]
    pub cell: Cell,
    /// Every contender that took it.
    pub series: Vec<Series>,
}

/// One contender's turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Whose.
    pub name: String,
    /// Microseconds for one operation, by turn.
    pub micros: Vec<f64>,
}

impl Row {
    /// The contender of this name, if it took the cell.
    pub fn of(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|it| it.name == name)
    }

    /// The limit: of the two kinds of stores, the one with the lower median.
    pub fn limit(&self) -> Option<&Series> {
        better_stores(&self.series)
    }
}

/// Of the two kinds of stores, the one with the lower median.
pub fn better_stores(series: &[Series]) -> Option<&Series> {
    let by_stores = |it: &&Series| Stores::ALL.iter().any(|stores| stores.name() == it.name);
    series.iter().filter(by_stores).min_by(|a, b| a.median().total_cmp(&b.median()))
}

impl Series {
    /// Microseconds for one operation; infinite if there was no turn.
    pub fn median(&self) -> f64 {
        median(&self.micros).unwrap_or(f64::INFINITY)
    }

    /// How many times the other's time this takes: the median of the turns.
    pub fn ratio_to(&self, other: &Self) -> Option<f64> {
        median_ratio(&self.micros, &other.micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Op;

    #[test]
    fn the_limit_is_whichever_stores_are_faster() {
        let series =
            |name: &str, micros: &[f64]| Series { name: name.into(), micros: micros.into() };
        let row = |ordinary: &[f64], streaming: &[f64]| Row {
            cell: Cell { op: Op::AllReduce, ranks: 2, bytes: 8192 },
            series: vec![
                series("aether", &[1.0]),
                series(Stores::Ordinary.name(), ordinary),
                series(Stores::NonTemporal.name(), streaming),
            ],
        };
        assert_eq!(row(&[3.0, 9.0, 4.0], &[5.0, 5.0, 5.0]).limit().unwrap().median(), 4.0);
        assert_eq!(row(&[3.0, 9.0, 7.0], &[5.0, 5.0, 5.0]).limit().unwrap().median(), 5.0);
        let none = Row { series: vec![series("aether", &[1.0])], ..row(&[], &[]) };
        assert!(none.limit().is_none());
    }

    #[test]
    fn a_part_that_was_not_measured_stays_as_it_was() {
        let collectives =
            |skipped: &str| Collectives { skipped: vec![skipped.into()], ..Collectives::default() };
        let mut results = Results { collectives: Some(collectives("old")), ..Results::default() };
        results.replace(&Results { dtypes: Some(Dtypes::default()), ..Results::default() });
        assert_eq!(results.collectives, Some(collectives("old")));
        assert_eq!(results.dtypes, Some(Dtypes::default()));
        results.replace(&Results { collectives: Some(collectives("new")), ..Results::default() });
        assert_eq!(results.collectives, Some(collectives("new")));
    }
}
