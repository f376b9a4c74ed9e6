//! Tables: anybody's CSV, with numbers in the columns and a class in one of them.

mod classes;
mod error;
mod prepare;
mod quotes;
mod read;

pub(crate) use error::{Problem, TableError};
pub(crate) use prepare::{Dataset, Prepared};
pub(crate) use read::Table;
