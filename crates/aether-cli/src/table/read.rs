//! Reading: from bytes to numbers and classes, or to the first thing that is wrong.

use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};

use super::classes::classify;
use super::quotes::unclosed_quote;
use super::{Problem, TableError};

/// A table whose every cell has been checked.
#[derive(Debug)]
pub(crate) struct Table {
    /// How many columns hold numbers: all but that of the class.
    pub(crate) features: usize,
    /// The numbers, row by row, finite and within the range of f32.
    pub(crate) values: Vec<f64>,
    /// For every row, the place of its class in `classes`.
    pub(crate) labels: Vec<u32>,
    /// The classes as they are written, in order.
    pub(crate) classes: Vec<String>,
}

impl Table {
    /// Reads a file. The class is in the last column, or in the one that the header calls `target`.
    ///
    /// The first row is a header if `target` is given, or if no cell of it except the class is a
    /// number and at least one is text. Where it holds both numbers and text it is refused, so that
    /// a slip in the first row never passes for a header. Empty lines are skipped. Below the header
    /// no cell has more than one line, so that a forgotten quote never swallows rows.
    pub(crate) fn read(path: &Path, target: Option<&str>) -> Result<Self, Box<TableError>> {
        let name = path.display().to_string();
        match std::fs::read(path) {
            Ok(bytes) => Self::parse(&name, &bytes, target),
            Err(error) => {
                Err(Place::of(&name).error(Problem::Io { reason: format!("can't read: {error}") }))
            }
        }
    }

    /// Reads what [`Table::read`] reads, from memory; errors call it `name`.
    pub(crate) fn parse(
        name: &str,
        bytes: &[u8],
        target: Option<&str>,
    ) -> Result<Self, Box<TableError>> {
        if let Err(error) = std::str::from_utf8(bytes) {
            let line = 1 + newlines(&bytes[..error.valid_up_to()]);
            return Err(Place::of(name).line(line).error(Problem::NotUtf8));
        }
        let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        let mut rows = Rows::new(bytes);
        let Some(first) = rows.next(name)? else {
            return Err(Place::of(name).error(Problem::NoRows));
        };
        let width = first.cells.len();
        let place = Place::of(name).line(first.line);
        first.closed(width).map_err(|(line, it)| place.clone().line(line).error(it))?;
        if width < 2 {
            return Err(place.error(Problem::NoFeatures));
        }
        let class = match target {
            Some(target) => find(&first, target, &place)?,
            None => width - 1,
        };
        let is_header = target.is_some() || looks_like_header(&first, class, &place)?;
        let names = is_header.then(|| first.cells.iter().map(text).collect::<Vec<_>>());
        let first_line = first.line;

        let mut values = Vec::new();
        let mut labels = Vec::new();
        let mut row = if is_header { rows.next(name)? } else { Some(first) };
        while let Some(it) = row {
            let place = |column: usize| {
                let known = names.as_ref().and_then(|it| it.get(column));
                Place::of(name).line(it.line).column(column, known)
            };
            let cells = it.cells.len();
            it.closed(width).map_err(|(line, problem)| {
                place(cells.saturating_sub(1)).line(line).error(problem)
            })?;
            for (column, cell) in it.cells.iter().enumerate() {
                let lines = 1 + newlines(text(cell).as_bytes());
                if lines > 1 {
                    let problem = Problem::LineBreak { lines, cells, expected: width };
                    return Err(place(column).error(problem));
                }
            }
            if cells != width {
                let problem = Problem::Ragged { cells, expected: width, first_line };
                return Err(place(cells.min(width)).error(problem));
            }
            for (column, cell) in it.cells.iter().enumerate() {
                let cell = text(cell);
                if cell.is_empty() {
                    return Err(place(column).error(Problem::MissingCell));
                }
                if column == class {
                    labels.push(cell);
                } else {
                    values.push(number(cell).map_err(|it| place(column).error(it))?);
                }
            }
            row = rows.next(name)?;
        }
        let (classes, labels) = classify(&labels);
        let place = || {
            let known = names.as_ref().and_then(|it| it.get(class));
            Place::of(name).column(class, known)
        };
        match classes.as_slice() {
            [] => Err(Place::of(name).error(Problem::NoRows)),
            [only] => Err(place().error(Problem::OneClass { class: only.clone() })),
            all if too_many(all.len(), labels.len()) => {
                let problem = Problem::TooManyClasses { classes: all.len(), rows: labels.len() };
                Err(place().error(problem))
            }
            _ => Ok(Self { features: width - 1, values, labels, classes }),
        }
    }
}

/// What some programs write at the start of text that is UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether a column of so many rows is measured and not a class: training would go on for long, and
/// learn nothing.
fn too_many(classes: usize, rows: usize) -> bool {
    classes > 1000 || (classes > 20 && classes >= rows.div_ceil(2))
}

struct Row {
    line: u64,
    cells: ByteRecord,
    /// The line of the quote that opens the last cell and is never closed.
    unclosed: Option<u64>,
}

impl Row {
    /// Refuses a row with a quote that is never closed, with the line of the quote.
    fn closed(&self, expected: usize) -> Result<(), (u64, Problem)> {
        match self.unclosed {
            None => Ok(()),
            Some(line) => Err((line, Problem::UnclosedQuote { cells: self.cells.len(), expected })),
        }
    }
}

/// The rows with their lines, which the reader of the csv crate counts at the end of the row
/// before, so that empty lines between would shift them.
struct Rows<'a> {
    bytes: &'a [u8],
    reader: csv::Reader<&'a [u8]>,
    counted: usize,
    line: u64,
    /// The place of a quote that is never closed.
    unclosed: Option<usize>,
}

impl<'a> Rows<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
        Self { bytes, reader, counted: 0, line: 1, unclosed: unclosed_quote(bytes) }
    }

    fn next(&mut self, name: &str) -> Result<Option<Row>, Box<TableError>> {
        loop {
            let before = self.reader.position().byte() as usize;
            let mut cells = ByteRecord::new();
            let more = self.reader.read_byte_record(&mut cells).map_err(|error| {
                Place::of(name).line(self.line).error(Problem::Io { reason: error.to_string() })
            })?;
            if !more {
                return Ok(None);
            }
            let rest = self.bytes.get(before..).unwrap_or_default();
            let start = before + rest.iter().take_while(|it| matches!(**it, b'\r' | b'\n')).count();
            self.line += newlines(&self.bytes[self.counted..start]);
            self.counted = start;
            // A line of blanks is an empty line to whoever looks at the file.
            let blank = cells.len() == 1 && cells.iter().all(|it| text(it).is_empty());
            let after = self.reader.position().byte() as usize;
            let unclosed = self.unclosed.filter(|it| *it < after);
            let unclosed = unclosed.map(|it| 1 + newlines(&self.bytes[..it]));
            if !blank || unclosed.is_some() {
                return Ok(Some(Row { line: self.line, cells, unclosed }));
            }
        }
    }
}

/// Lines end in `\n`, `\r\n` or, in old files, `\r`.
fn newlines(bytes: &[u8]) -> u64 {
    let ends = bytes.iter().enumerate().filter(|&(at, &it)| {
        it == b'\n' || (it == b'\r' && bytes.get(at + 1).is_none_or(|next| *next != b'\n'))
    });
    ends.count() as u64
}

/// The cell without the blanks around it; the whole table was found to be UTF-8.
fn text(cell: &[u8]) -> String {
    String::from_utf8_lossy(cell).trim().to_owned()
}

fn number(cell: String) -> Result<f64, Problem> {
    match cell.parse::<f64>() {
        Ok(value) if value.abs() <= f64::from(f32::MAX) => Ok(value),
        Ok(_) => Err(Problem::NotFinite { cell }),
        Err(_) => Err(Problem::NotANumber { cell }),
    }
}

fn looks_like_header(row: &Row, class: usize, place: &Place<'_>) -> Result<bool, Box<TableError>> {
    let mut numbers = None;
    let mut words = None;
    for (column, cell) in row.cells.iter().enumerate() {
        let cell = text(cell);
        if column == class || cell.is_empty() {
            continue;
        }
        let kind = if cell.parse::<f64>().is_ok() { &mut numbers } else { &mut words };
        kind.get_or_insert((column, cell));
    }
    match (numbers, words) {
        (Some((_, number)), Some((column, text))) => {
            let problem = Problem::AmbiguousHeader { number, text };
            Err(place.clone().column(column, None).error(problem))
        }
        (_, words) => Ok(words.is_some()),
    }
}

fn find(header: &Row, target: &str, place: &Place<'_>) -> Result<usize, Box<TableError>> {
    let names: Vec<String> = header.cells.iter().map(text).collect();
    let mut found = (0..names.len()).filter(|&it| names[it] == target.trim());
    match (found.next(), found.next()) {
        (Some(column), None) => Ok(column),
        (Some(_), Some(second)) => {
            let problem = Problem::AmbiguousTarget { name: target.to_owned() };
            Err(place.clone().column(second, None).error(problem))
        }
        (None, _) => {
            Err(place.clone().error(Problem::UnknownTarget { name: target.to_owned(), names }))
        }
    }
}

/// Where a problem is.
#[derive(Clone)]
struct Place<'a> {
    path: &'a str,
    line: Option<u64>,
    column: Option<usize>,
    name: Option<&'a String>,
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Self {
        Self { path, line: None, column: None, name: None }
    }

    fn line(self, line: u64) -> Self {
        Self { line: Some(line), ..self }
    }

    fn column(self, index: usize, name: Option<&'a String>) -> Self {
        Self { column: Some(index + 1), name, ..self }
    }

    fn error(self, problem: Problem) -> Box<TableError> {
        Box::new(TableError {
            path: self.path.to_owned(),
            line: self.line,
            column: self.column,
            name: self.name.filter(|it| !it.is_empty()).cloned(),
            problem,
        })
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
