//! What is wrong with a table, and where.

use std::fmt;

/// A table that can't be used: which, where in it, and why.
#[derive(Debug)]
pub(crate) struct TableError {
    pub(crate) path: String,
    /// The line in the file, counted from 1.
    pub(crate) line: Option<u64>,
    /// The column, counted from 1.
    pub(crate) column: Option<usize>,
    /// The name of the column, where there is a header.
    pub(crate) name: Option<String>,
    pub(crate) problem: Problem,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// A first row that is neither all names nor all numbers.
    AmbiguousHeader { number: String, text: String },
    /// Two columns bear the name of the target.
    AmbiguousTarget { name: String },
    /// The file can't be read.
    Io { reason: String },
    /// A cell runs over several lines, as one does whose closing quote was forgotten.
    LineBreak { lines: u64, cells: usize, expected: usize },
    /// A cell is empty.
    MissingCell,
    /// There is nothing to tell the classes by.
    NoFeatures,
    /// There are no rows, or none below the header.
    NoRows,
    /// A cell is NaN, infinite, or beyond what 32 bits hold.
    NotFinite { cell: String },
    /// A cell holds text.
    NotANumber { cell: String },
    /// The file is not UTF-8.
    NotUtf8,
    /// All rows are of one class.
    OneClass { class: String },
    /// A row has more or fewer cells than the first.
    Ragged { cells: usize, expected: usize, first_line: u64 },
    /// As many classes as only measurements have.
    TooManyClasses { classes: usize, rows: usize },
    /// A quote opens a cell that goes on to the end of the file.
    UnclosedQuote { cells: usize, expected: usize },
    /// No column has the name.
    UnknownTarget { name: String, names: Vec<String> },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ", column {column}")?;
        }
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for TableError {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AmbiguousHeader { number, text } => write!(
                f,
                "the first row has both the number `{number}` and the text `{text}`, so it is \
                 neither a header nor numbers; with --target it is read as a header"
            ),
            Self::AmbiguousTarget { name } => {
                write!(f, "a second column with the name `{name}` that --target asks for")
            }
            Self::Io { reason } => f.write_str(reason),
            Self::LineBreak { lines, cells, expected } => {
                write!(f, "the quoted cell runs over {lines} lines; is a quote missing?")?;
                mismatch(f, *cells, *expected)
            }
            Self::MissingCell => f.write_str("the cell is empty"),
            Self::NoFeatures => f.write_str(
                "there is one column only, and a class needs numbers beside it (separated by \
                 commas)",
            ),
            Self::NoRows => f.write_str("there are no rows"),
            Self::NotANumber { cell } => write!(f, "`{}` is not a number", shortened(cell)),
            Self::NotFinite { cell } => {
                write!(f, "`{}` is not a finite number of 32 bits", shortened(cell))
            }
            Self::NotUtf8 => f.write_str("the text is not UTF-8"),
            Self::OneClass { class } => {
                write!(f, "all rows are of the class `{class}`, so there is nothing to tell apart")
            }
            Self::Ragged { cells, expected, first_line } => {
                write!(f, "the row has {cells} cells, and line {first_line} has {expected}")
            }
            Self::TooManyClasses { classes, rows } => write!(
                f,
                "{classes} classes in {rows} rows: the column looks like numbers that are measured \
                 and not like a class; --target NAME says which column of the header holds the class"
            ),
            Self::UnclosedQuote { cells, expected } => {
                f.write_str("the quote is never closed")?;
                mismatch(f, *cells, *expected)
            }
            Self::UnknownTarget { name, names } => {
                let all = names.join(", ");
                write!(f, "no column has the name `{name}`; the first row has: {}", shortened(&all))
            }
        }
    }
}

/// What a quote that was forgotten did to the row.
fn mismatch(f: &mut fmt::Formatter<'_>, cells: usize, expected: usize) -> fmt::Result {
    if cells == expected {
        return Ok(());
    }
    write!(f, " (so the row has {cells} cells, and the first has {expected})")
}

/// What fits on the line of an error.
fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
