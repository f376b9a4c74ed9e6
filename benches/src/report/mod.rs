//! What is told of results: tables, plots and files, made of nothing but what was measured.

mod files;
mod pages;
mod plot;
mod table;

pub use files::{load, publish, save};
pub use table::row_in_words;
