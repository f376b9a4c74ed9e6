#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use super::*;

fn row(wrong: Option<u64>) -> Row {
    Row {
        op: "all_reduce",
        ranks: 4,
        bytes: 4096,
        usec: 2.0,
        algbw: 2.048,
        busbw: 3.072,
        wrong,
        dtype: "f32",
        redop: Some("sum"),
        in_place: false,
        mode: "threads",
        memory: "chunks",
        p50_usec: 2.5,
        p99_usec: 9.0,
    }
}

fn printed(format: Format, rows: &[Row]) -> String {
    let mut out = Vec::new();
    let mut writer = Writer::new(format);
    rows.iter().for_each(|it| writer.row(&mut out, it.clone()).unwrap());
    writer.finish(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn csv_has_one_header_and_starts_with_the_columns_that_scripts_rely_on() {
    let other = Row { op: "memcpy", redop: None, in_place: true, ..row(None) };
    assert_eq!(
        printed(Format::Csv, &[row(Some(0)), other]),
        "op,ranks,bytes,usec,algbw,busbw,wrong,dtype,redop,in_place,p50_usec,p99_usec,mode,memory\n\
         all_reduce,4,4096,2.000,2.0480,3.0720,0,f32,sum,false,2.500,9.000,threads,chunks\n\
         memcpy,4,4096,2.000,2.0480,3.0720,N/A,f32,none,true,2.500,9.000,threads,chunks\n"
    );
}

#[test]
fn json_is_one_list_of_objects_with_the_percentiles() {
    let text = printed(Format::Json, &[row(Some(3)), row(None)]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value[0]["op"], "all_reduce");
    assert_eq!(value[0]["wrong"], 3);
    assert_eq!(value[0]["p50_usec"], 2.5);
    assert_eq!(value[0]["p99_usec"], 9.0);
    assert!(value[1]["wrong"].is_null());
    assert_eq!(printed(Format::Json, &[]), "[]\n");
}

#[test]
fn a_table_has_its_columns_below_their_names() {
    let text = printed(Format::Table, &[row(Some(0)), row(Some(12))]);
    let lines: Vec<&str> = text.lines().collect();
    let end = |line: &str, word: &str| line.find(word).map(|it| it + word.len());
    assert_eq!(end(lines[0], "bytes"), end(lines[2], "4096"));
    assert_eq!(end(lines[0], "busbw"), end(lines[2], "3.07"));
    assert_eq!(end(lines[0], "wrong"), end(lines[3], "12"));
}
