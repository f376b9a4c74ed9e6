//! What is told of results: tables, plots and files, made of nothing but what was measured.

mod dtypes;
mod files;
mod movers;
mod pages;
mod plot;
mod scaling;
mod table;

pub use files::{load, publish, published, save};

use crate::results::Results;

/// The results for a terminal: the collectives by line, the other parts as on their pages.
pub fn in_words(results: &Results) -> String {
    let mut lines = Vec::new();
    if let Some(collectives) = &results.collectives {
        lines.extend(collectives.rows.iter().map(table::row_in_words));
        lines.extend(collectives.skipped.iter().map(|why| format!("skipped: {why}")));
    }
    lines.extend(results.dtypes.iter().map(dtypes::table));
    lines.extend(results.movers.iter().map(movers::table));
    lines.extend(results.scaling.iter().map(scaling::tables));
    lines.join("\n")
}
