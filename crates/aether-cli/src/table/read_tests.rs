#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use super::*;

fn parse(text: &str) -> Table {
    Table::parse("t.csv", text.as_bytes(), None).unwrap()
}

/// Line, column and problem of what is wrong.
fn wrong(text: &str, target: Option<&str>) -> (Option<u64>, Option<usize>, Problem) {
    let error = Table::parse("t.csv", text.as_bytes(), target).unwrap_err();
    assert_eq!(error.path, "t.csv");
    (error.line, error.column, error.problem)
}

fn cell(text: &str) -> String {
    text.to_owned()
}

#[test]
fn the_last_column_is_the_class_and_the_others_are_numbers() {
    let table = parse("1,2.5,b\n-3,4e2,a\n");
    assert_eq!(table.features, 2);
    assert_eq!(table.values, [1.0, 2.5, -3.0, 400.0]);
    assert_eq!(table.classes, ["a", "b"]);
    assert_eq!(table.labels, [1, 0]);
}

#[test]
fn a_first_row_of_names_is_a_header_even_where_a_name_is_empty() {
    for header in ["x,y,class", "\"x, in m\",y,7", ",y,class"] {
        let table = parse(&format!("{header}\n1,2,b\n3,4,a\n"));
        assert_eq!(table.values, [1.0, 2.0, 3.0, 4.0], "{header}");
    }
}

#[test]
fn a_first_row_of_numbers_is_data_whatever_its_class() {
    assert_eq!(parse("1,2,b\n3,4,a\n").labels.len(), 2);
    assert_eq!(parse("1,2,0\n3,4,1\n").labels.len(), 2);
}

#[test]
fn a_first_row_of_numbers_and_text_is_refused_at_the_text() {
    let problem = Problem::AmbiguousHeader { number: cell("1"), text: cell("2x") };
    assert_eq!(wrong("1,2x,b\n3,4,a\n", None), (Some(1), Some(2), problem));
}

#[test]
fn the_target_is_found_by_name_wherever_it_stands() {
    let text = "class,7,x\nb,1,2\na,3,4\n";
    let table = Table::parse("t.csv", text.as_bytes(), Some("class")).unwrap();
    assert_eq!(table.values, [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(table.labels, [1, 0]);
}

#[test]
fn a_target_that_no_column_or_two_columns_bear_is_refused() {
    let names = vec![cell("x"), cell("y"), cell("y")];
    let problem = Problem::UnknownTarget { name: cell("z"), names };
    assert_eq!(wrong("x,y,y\n1,2,3\n", Some("z")), (Some(1), None, problem));
    let problem = Problem::AmbiguousTarget { name: cell("y") };
    assert_eq!(wrong("x,y,y\n1,2,3\n", Some("y")), (Some(1), Some(3), problem));
}

#[test]
fn a_missing_cell_is_named_in_any_row_and_any_column() {
    assert_eq!(wrong("1,,a\n3,4,b\n", None), (Some(1), Some(2), Problem::MissingCell));
    assert_eq!(wrong("1,2,a\n 	,4,b\n", None), (Some(2), Some(1), Problem::MissingCell));
    assert_eq!(wrong("x,y,c\n1,2,a\n3,4,\n", None), (Some(3), Some(3), Problem::MissingCell));
}

#[test]
fn text_in_a_column_of_numbers_is_named_with_its_column() {
    let text = "width,height,class\n1,2,a\n3,tall,b\n";
    let error = Table::parse("t.csv", text.as_bytes(), None).unwrap_err();
    assert_eq!(error.problem, Problem::NotANumber { cell: cell("tall") });
    assert_eq!(error.to_string(), "t.csv, line 3, column 2 (height): `tall` is not a number");
}

#[test]
fn numbers_that_are_not_finite_or_too_large_are_refused() {
    for bad in ["nan", "NaN", "inf", "-Infinity", "1e39", "1e999"] {
        let problem = Problem::NotFinite { cell: cell(bad) };
        assert_eq!(wrong(&format!("1,2,a\n3,{bad},b\n"), None), (Some(2), Some(2), problem));
    }
    assert_eq!(parse("3.4e38,a\n-3.4e38,b\n").values, [3.4e38, -3.4e38]);
}

#[test]
fn rows_that_are_too_long_or_too_short_are_named_where_they_differ() {
    let short = Problem::Ragged { cells: 2, expected: 3, first_line: 1 };
    assert_eq!(wrong("1,2,a\n3,4,b\n5,c\n", None), (Some(3), Some(3), short));
    let long = Problem::Ragged { cells: 4, expected: 3, first_line: 2 };
    assert_eq!(wrong("\n1,2,a\n3,4,5,b\n", None), (Some(3), Some(4), long));
}

#[test]
fn a_table_without_rows_is_refused() {
    for text in ["", "\n\n", "  \n", "x,y,class\n"] {
        assert_eq!(wrong(text, None), (None, None, Problem::NoRows), "{text:?}");
    }
}

#[test]
fn a_table_of_one_column_is_refused() {
    assert_eq!(wrong("1\n2\n", None), (Some(1), None, Problem::NoFeatures));
    assert_eq!(wrong("1;2;a\n", None), (Some(1), None, Problem::NoFeatures));
}

#[test]
fn a_table_of_one_class_is_refused() {
    let problem = || Problem::OneClass { class: cell("a") };
    assert_eq!(wrong("1,2,a\n3,4,a\n", None), (None, Some(3), problem()));
    assert_eq!(wrong("class,x\na,2\na,4\n", Some("class")), (None, Some(1), problem()));
}

#[test]
fn text_that_is_not_utf_8_is_refused_with_its_line() {
    let error = Table::parse("t.csv", b"1,2,a\n3,\xff,b\n", None).unwrap_err();
    assert_eq!((error.line, error.problem), (Some(2), Problem::NotUtf8));
}

#[test]
fn lines_are_counted_past_empty_lines_and_cells_of_several_lines() {
    for end in ["\n", "\r\n", "\r"] {
        let text = ["", "\"x", "in m\",y,c", "", " ", "1,2,a", "", "5,x,d", ""].join(end);
        let problem = Problem::NotANumber { cell: cell("x") };
        assert_eq!(wrong(&text, None), (Some(8), Some(2), problem), "{end:?}");
    }
}

#[test]
fn a_byte_order_mark_blanks_and_quotes_are_no_part_of_a_cell() {
    let table = parse("\u{feff}\"1\", 2 , b \n3,\" 4\",\"a\"\n");
    assert_eq!(table.values, [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(table.classes, ["a", "b"]);
}

#[test]
fn a_file_that_is_not_there_is_an_error_with_its_path() {
    let error = Table::read(Path::new("/nowhere/at all.csv"), None).unwrap_err();
    assert!(matches!(error.problem, Problem::Io { .. }));
    assert!(error.to_string().starts_with("/nowhere/at all.csv: can't read: "), "{error}");
}

#[test]
fn a_quote_that_is_never_closed_is_refused_at_its_line() {
    let unclosed = |cells| Problem::UnclosedQuote { cells, expected: 3 };
    let good = "1,2,a\n3,4,b\n".repeat(50);
    let text = format!("{good}1,2,\"a\n{good}");
    assert_eq!(wrong(&text, None), (Some(101), Some(3), unclosed(3)));
    let text = format!("\u{feff}{good}1,\"2,a\n{good}");
    assert_eq!(wrong(&text, None), (Some(101), Some(2), unclosed(2)));
    let error = Table::parse("t.csv", text.as_bytes(), None).unwrap_err().to_string();
    let line = "t.csv, line 101, column 2: the quote is never closed (so the row has 2 cells, and \
                the first has 3)";
    assert_eq!(error, line);
    // In the header, on a line by itself, and as the last byte.
    assert_eq!(wrong("x,\"a\nb\",\"c\n1,2,a\n", None), (Some(2), None, unclosed(3)));
    assert_eq!(wrong(&format!("{good}\"\n"), None), (Some(101), Some(1), unclosed(1)));
    assert_eq!(wrong("\u{feff}1,2,a\n3,4,\"", None), (Some(2), Some(3), unclosed(3)));
}

#[test]
fn a_cell_of_several_lines_is_refused_below_the_header() {
    let broken = |lines, cells| Problem::LineBreak { lines, cells, expected: 3 };
    // The quote that was forgotten is closed by the next that opens.
    let text = "1,2,\"a\"\n3,4,\"b\n5,6,\"c\"\n7,8,\"d\"\n";
    assert_eq!(wrong(text, None), (Some(2), Some(3), broken(2, 3)));
    assert_eq!(wrong("1,2,a\n3,\"4,b\n5,6,c\n\"\n", None), (Some(2), Some(2), broken(2, 2)));
    assert_eq!(parse("1,2,\"a, b\"\n3,4,\"c \"\"d\"\"\"\n").classes, ["a, b", "c \"d\""]);
}

#[test]
fn a_column_of_measurements_is_no_class() {
    let table = |rows: usize, classes: usize| {
        (0..rows).fold("x,y\n".to_owned(), |text, it| format!("{text}{it},{}\n", it % classes))
    };
    for (rows, classes) in [(21, 21), (60, 30), (4000, 1001)] {
        let problem = Problem::TooManyClasses { classes, rows };
        assert_eq!(wrong(&table(rows, classes), None), (None, Some(2), problem));
    }
    for (rows, classes) in [(20, 20), (61, 30), (4000, 1000)] {
        assert_eq!(parse(&table(rows, classes)).classes.len(), classes);
    }
    let error = Table::parse("t.csv", table(60, 30).as_bytes(), None).unwrap_err().to_string();
    assert!(error.starts_with("t.csv, column 2 (y): 30 classes in 60 rows"), "{error}");
    assert!(error.contains("--target"), "{error}");
}
