//! What is said beside the results.

use std::fmt;
use std::io::Write;

/// Prints a line on standard error. Nothing there is a result, so if nobody can read it the program
/// runs on; `eprintln!` would panic.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    drop(writeln!(std::io::stderr(), "{text}"));
}
