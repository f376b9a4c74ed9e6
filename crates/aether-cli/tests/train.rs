//! Training, by running the program.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

mod common;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use common::{Run, aether};
use tempfile::TempDir;

fn file(directory: &TempDir, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join("table.csv");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn train(data: &Path, more: &[&str]) -> Run {
    aether(["train", "--data", data.to_str().unwrap()].into_iter().chain(more.iter().copied()))
}

fn percent(run: &Run) -> f64 {
    let line = run.stdout.lines().find_map(|it| it.strip_prefix("accuracy: ")).unwrap();
    line.split(' ').next().unwrap().parse().unwrap()
}

/// Two classes that a line separates, with the class in the middle.
fn separable() -> String {
    let mut text = "x,kind,y\n".to_owned();
    for row in 0..200 {
        let (x, y) = (row * 37 % 101, row * 53 % 97);
        writeln!(text, "{x},{},{}", if x > y { "above" } else { "below" }, y as f64 / 1e6).unwrap();
    }
    text
}

#[test]
fn without_arguments_it_learns_the_digits_on_four_devices() {
    let run = aether([]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(percent(&run) >= 95.0, "{}", run.stdout);
    assert!(run.stdout.contains("cpu:0 cpu:1 cpu:2 cpu:3"), "{}", run.stdout);
    let speed = run.stdout.lines().find(|it| it.ends_with(" samples per second")).unwrap();
    assert!(speed.starts_with("speed: "));
    assert_eq!(run.stdout.lines().last(), Some("replicas identical"));
}

#[test]
fn progress_is_plain_lines_with_the_loss_where_nobody_watches() {
    let run = aether(["train", "--epochs", "20"]);
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 11, "{}", run.stderr);
    assert!(lines[0].starts_with("train: epoch 1 of 20, loss "));
    assert!(lines[10].starts_with("train: epoch 20 of 20, loss "));
    assert!(!run.stderr.contains('\u{1b}') && !run.stderr.contains('\r'));
}

#[test]
fn the_same_seed_gives_the_same_result_and_another_one_another() {
    let loss = |seed| {
        let run = aether(["train", "--epochs", "2", "--seed", seed]);
        run.stderr.lines().last().unwrap().to_owned()
    };
    assert_eq!(loss("5"), loss("5"));
    assert_ne!(loss("5"), loss("6"));
}

#[test]
fn anybodys_table_is_learned_with_the_class_in_any_column() {
    let directory = TempDir::new().unwrap();
    let data = file(&directory, separable());
    let run = train(&data, &["--target", "kind", "--devices", "cpu:3", "--batch", "50"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("200 rows of 2 features in 2 classes, 40 of them held out"));
    assert!(percent(&run) >= 90.0, "{}", run.stdout);
}

#[test]
fn more_devices_than_samples_are_fine() {
    let directory = TempDir::new().unwrap();
    let data = file(&directory, "1,a\n2,b\n3,a\n");
    let run = train(&data, &["--devices", "cpu:8"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout.lines().last(), Some("replicas identical"));
}

#[test]
fn devices_are_the_first_so_many_or_those_of_a_list() {
    for (devices, names) in
        [("cpu:1", "cpu:0"), ("cpu:7,cpu:0,cpu:2", "cpu:0 cpu:2 cpu:7"), ("cpu:2", "cpu:0 cpu:1")]
    {
        let run = aether(["train", "--epochs", "1", "--devices", devices]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let expected = format!("devices: {names}");
        assert!(run.stdout.lines().any(|it| it == expected), "{}", run.stdout);
        assert_eq!(run.stdout.lines().last(), Some("replicas identical"));
    }
    let run = aether(["train", "--epochs", "1", "--devices", "cpu:all"]);
    assert!(run.stdout.contains("devices: cpu:0"), "{}", run.stdout);
}

#[test]
fn one_device_and_four_come_to_the_same() {
    let of = |devices| {
        let run = aether(["train", "--epochs", "3", "--devices", devices]);
        let line = |start: &str| run.stdout.lines().find(|it| it.starts_with(start)).unwrap();
        [line("loss: "), line("accuracy: ")].map(str::to_owned)
    };
    assert_eq!(of("cpu:1"), of("cpu:4"));
}

#[test]
fn devices_that_this_build_has_not_got_are_one_clear_line() {
    for devices in ["cuda:all", "cuda:2", "cpu:0,cuda:1"] {
        let run = aether(["train", "--devices", devices]);
        let expected = format!("train on {devices}: this build has no CUDA devices");
        assert_eq!(run.failure(), expected);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn a_device_that_stands_twice_is_one_clear_line() {
    let run = aether(["train", "--devices", "cpu:3,cpu:3"]);
    assert!(run.failure().contains("cpu:3"), "{}", run.stderr);
}

#[test]
fn tables_that_are_wrong_end_with_one_line_that_names_the_place() {
    let directory = TempDir::new().unwrap();
    for (text, place) in [
        ("1,2,a\n3,,b\n", ", line 2, column 2: the cell is empty"),
        ("1,2,a\n3,4,\n", ", line 2, column 3: the cell is empty"),
        ("x,y,c\n1,2,a\n\n3,four,b\n", ", line 4, column 2 (y): `four` is not a number"),
        ("1,2,a\n3,nan,b\n", ", line 2, column 2: `nan` is not a finite number of 32 bits"),
        ("1,2,a\n-inf,4,b\n", ", line 2, column 1: `-inf` is not a finite number of 32 bits"),
        ("1,2,a\n3,4,b\n5,a\n", ", line 3, column 3: the row has 2 cells, and line 1 has 3"),
        ("1,2,a\n3,4,5,b\n", ", line 2, column 4: the row has 4 cells, and line 1 has 3"),
        ("", ": there are no rows"),
        ("x,y,c\n", ": there are no rows"),
        (
            "1,2,a\n3,4,a\n",
            ", column 3: all rows are of the class `a`, so there is nothing to tell apart",
        ),
    ] {
        let path = file(&directory, text);
        let run = train(&path, &[]);
        assert_eq!(run.failure(), format!("{}{place}", path.display()), "{text:?}");
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn a_target_that_is_not_there_is_named_with_the_columns_that_are() {
    let directory = TempDir::new().unwrap();
    let path = file(&directory, "x,y\n1,a\n2,b\n");
    let expected = ", line 1: no column has the name `z`; the first row has: x, y";
    let run = train(&path, &["--target", "z"]);
    assert_eq!(run.failure(), format!("{}{expected}", path.display()));
}

#[test]
fn a_file_that_is_not_there_or_not_text_is_an_error_with_its_path() {
    let directory = TempDir::new().unwrap();
    let missing = directory.path().join("none.csv");
    let run = train(&missing, &[]);
    assert!(run.failure().starts_with(&format!("{}: can't read: ", missing.display())));
    let binary = file(&directory, b"1,a\n2,\xff\n");
    let run = train(&binary, &[]);
    assert_eq!(run.failure(), format!("{}, line 2: the text is not UTF-8", binary.display()));
}
