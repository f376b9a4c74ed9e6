//! Where results are kept and where they are told.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::pages;
use crate::failure::{Failure, Result};
use crate::results::Results;

const JSON: &str = "results.json";
const CSV: &str = "results.csv";
const PUBLISHED: &str = "performance";

/// What an earlier run kept in `directory`; nothing if there was none.
///
/// # Errors
/// A file that can't be read, or that holds something else.
pub fn load(directory: &Path) -> Result<Results> {
    let path = directory.join(JSON);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Results::default()),
        Err(error) => return Err(Failure::new(format!("read {}: {error}", path.display()))),
    };
    serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("{} holds no results: {error}", path.display())))
}

/// Keeps the results in `directory`: every turn as JSON, and a line for each as CSV.
///
/// # Errors
/// A file that can't be written.
pub fn save(results: &Results, directory: &Path) -> Result<()> {
    let json = serde_json::to_string(results)
        .map_err(|error| Failure::new(format!("write results as JSON: {error}")))?;
    write(directory, JSON, &json)?;
    write(directory, CSV, &csv(results)?)
}

/// Writes the pages and plots below `docs`, with the results that they are made of.
///
/// # Errors
/// A file that can't be written, or a plot that can't be drawn.
pub fn publish(results: &Results, docs: &Path) -> Result<()> {
    for (name, text) in pages::all(results)? {
        write(docs, &name, &text)?;
    }
    let json = serde_json::to_string(results)
        .map_err(|error| Failure::new(format!("write results as JSON: {error}")))?;
    write(&docs.join(PUBLISHED), JSON, &json)
}

/// What was published below `docs`.
///
/// # Errors
/// Those of [`load`].
pub fn published(docs: &Path) -> Result<Results> {
    load(&docs.join(PUBLISHED))
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap_or(directory))
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| Failure::new(format!("write {}: {error}", path.display())))
}

fn csv(results: &Results) -> Result<String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| Failure::new(format!("write results as CSV: {error}"));
    out.write_record(["contender", "op", "ranks", "bytes", "turn", "usec"]).map_err(failed)?;
    for row in results.collectives.iter().flat_map(|it| &it.rows) {
        for series in &row.series {
            for (turn, micros) in series.micros.iter().enumerate() {
                let cell = &row.cell;
                let numbers = [cell.ranks, cell.bytes, turn + 1].map(|it| it.to_string());
                let fields = [series.name.as_str(), cell.op.name()].into_iter();
                let micros = micros.to_string();
                let fields =
                    fields.chain(numbers.iter().map(String::as_str)).chain([micros.as_str()]);
                out.write_record(fields).map_err(failed)?;
            }
        }
    }
    let bytes =
        out.into_inner().map_err(|error| Failure::new(format!("write results as CSV: {error}")))?;
    String::from_utf8(bytes).map_err(|error| Failure::new(format!("write results as CSV: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Cell, Op};
    use crate::limit::Stores;
    use crate::results::{Collectives, Row, Series};

    fn results() -> Results {
        let series = Series { name: Stores::Ordinary.name().into(), micros: vec![0.25, 1.5] };
        let cell = Cell { op: Op::AllGather, ranks: 2, bytes: 16 };
        let rows = vec![Row { cell, series: vec![series] }];
        Results {
            collectives: Some(Collectives { rows, ..Collectives::default() }),
            ..Results::default()
        }
    }

    #[test]
    fn what_was_saved_is_loaded_and_published_again_without_measuring() {
        let directory = tempfile::tempdir().unwrap();
        save(&results(), directory.path()).unwrap();
        assert_eq!(load(directory.path()).unwrap(), results());
        let docs = directory.path().join("docs");
        publish(&load(directory.path()).unwrap(), &docs).unwrap();
        assert_eq!(published(&docs).unwrap(), results());
        let pages = ["README.md", "2-ranks.md", "all_gather-2.svg"];
        assert!(pages.iter().all(|it| docs.join(PUBLISHED).join(it).exists()));
    }

    #[test]
    fn without_a_file_there_are_no_results_and_a_broken_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(load(directory.path()).unwrap(), Results::default());
        fs::write(directory.path().join(JSON), "{").unwrap();
        let why = load(directory.path()).unwrap_err().to_string();
        assert!(why.contains("results.json holds no results"), "{why}");
    }

    #[test]
    fn the_csv_has_a_line_for_each_turn() {
        let expected = "contender,op,ranks,bytes,turn,usec\n\"limit, ordinary stores\",all_gather,2,16,1,0.25\n\"limit, ordinary stores\",all_gather,2,16,2,1.5\n";
        assert_eq!(csv(&results()).unwrap(), expected);
    }
}
