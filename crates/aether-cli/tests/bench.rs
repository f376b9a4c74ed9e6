//! Benchmarks, by running the program.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

mod common;

use std::io::Read;
use std::process::{Command, Stdio};

use common::aether;

fn bench(arguments: &str) -> String {
    let run = aether(["bench"].into_iter().chain(arguments.split(' ')));
    assert_eq!(run.code, 0, "{arguments}: {}", run.stderr);
    run.stdout
}

/// The cells below the header.
fn rows(csv: &str) -> Vec<Vec<&str>> {
    csv.lines().skip(1).map(|it| it.split(',').collect()).collect()
}

#[test]
fn csv_has_a_row_for_every_operation_and_size_and_nothing_is_wrong() {
    let csv = bench("all --ranks 3 -b 32 -e 2K -f 8 -n 2 -w 1 --format csv");
    assert!(csv.starts_with("op,ranks,bytes,usec,algbw,busbw,wrong"));
    let rows = rows(&csv);
    assert_eq!(rows.len(), 9 * 3);
    assert!(rows.iter().all(|it| it[1] == "3" && it[6] == "0"), "{csv}");
    let sizes = |op| {
        let of_op = rows.iter().filter(|it| it[0] == op);
        of_op.map(|it| it[2].parse().unwrap()).collect::<Vec<u64>>()
    };
    // Three chunks of whole f32: a multiple of 12 bytes.
    for op in ["all_gather", "reduce_scatter", "all_to_all", "scatter"] {
        assert_eq!(sizes(op), [24, 252, 2040], "{op}");
    }
    for op in ["all_reduce", "broadcast", "send_recv", "replicate", "memcpy"] {
        assert_eq!(sizes(op), [32, 256, 2048], "{op}");
    }
}

#[test]
fn bandwidths_follow_from_bytes_and_time() {
    let csv = bench("all_reduce --ranks 4 -b 4K -e 4K -n 2 --format csv");
    let rows = rows(&csv);
    let [bytes, usec, algbw, busbw] = [2, 3, 4, 5].map(|it| rows[0][it].parse::<f64>().unwrap());
    assert!((algbw - bytes / usec / 1e3).abs() <= 1e-3 * algbw + 1e-4, "{csv}");
    assert!((busbw - 1.5 * algbw).abs() <= 2e-4, "{csv}");
}

#[test]
fn every_type_and_reduction_is_checked_and_right() {
    for dtype in ["bf16", "f16", "f32", "f64", "f8e4m3", "f8e5m2", "i8", "u16", "i64"] {
        for reduction in ["sum", "prod", "min", "max", "mean"] {
            for place in ["", " --in-place"] {
                let csv = bench(&format!(
                    "all --ranks 5 -b 1K -e 1K -n 1 -w 0 -c 2 -r 3 -d {dtype} -o {reduction} \
                     --format csv{place}"
                ));
                let rows = rows(&csv);
                assert!(rows.iter().all(|it| it[6] == "0" && it[7] == dtype), "{csv}");
                let in_place = rows.iter().filter(|it| it[9] == "true").count();
                assert_eq!(in_place, if place.is_empty() { 0 } else { 3 }, "{csv}");
            }
        }
    }
}

#[test]
fn one_rank_and_more_ranks_than_elements_are_fine() {
    let csv = bench("all --ranks 1 -b 64 -e 64 -n 1 --format csv");
    assert!(rows(&csv).iter().all(|it| it[2] == "64" && it[6] == "0"), "{csv}");
    let csv = bench("all_gather --ranks 20 -b 64 -e 64 -n 1 --format csv");
    assert!(rows(&csv).iter().all(|it| it[2] == "0" && it[6] == "0"), "{csv}");
}

#[test]
fn json_carries_the_percentiles() {
    let text = bench("memcpy -b 64 -e 128 -f 2 -n 5 --format json");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = value.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("p50_usec") > 0.0 && number("p99_usec") >= number("p50_usec"), "{text}");
        assert_eq!(row["wrong"], 0);
    }
}

#[test]
fn a_table_has_a_line_for_every_size() {
    let table = bench("all --ranks 2 -b 100 -e 1000 -f 10 -n 2");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2 + 9 * 2, "{table}");
    assert!(lines[0].starts_with("op ") && lines[1].contains("(GB/s)"), "{table}");
    for line in &lines[2..] {
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert!(cells[1] == "2" && cells[6] == "0", "{line}");
    }
}

#[test]
fn an_odd_size_is_rounded_down_and_the_row_says_the_size_used() {
    let csv = bench("all --ranks 5 -b 1003 -e 1003 -n 1 -d f16 --format csv");
    for row in rows(&csv) {
        let chunked = ["all_gather", "reduce_scatter", "all_to_all", "scatter"].contains(&row[0]);
        assert_eq!((row[2], row[6]), (if chunked { "1000" } else { "1002" }, "0"), "{csv}");
    }
}

#[test]
fn every_root_is_right() {
    for root in 0..3 {
        let arguments = format!("all --ranks 3 -b 4K -e 4K -n 1 -r {root} --format csv");
        assert!(rows(&bench(&arguments)).iter().all(|it| it[6] == "0"), "{root}");
    }
}

#[test]
fn many_more_ranks_than_processors_get_there() {
    let csv = bench("all --ranks 64 -b 4K -e 4K -n 2 --format csv");
    assert!(rows(&csv).iter().all(|it| it[1] == "64" && it[6] == "0"), "{csv}");
}

#[test]
fn large_sizes_are_right_too() {
    let csv = bench("all --ranks 3 -b 2M -e 2M -n 1 --format csv");
    assert!(rows(&csv).iter().all(|it| it[6] == "0"), "{csv}");
}

#[test]
fn memory_that_there_is_not_is_one_clear_line() {
    for op in ["all_reduce", "memcpy", "replicate", "scatter"] {
        let run = aether(["bench", op, "--ranks", "2", "-b", "4194304G"]);
        assert!(run.failure().starts_with("allocate on cpu:"), "{}", run.stderr);
        assert!(run.failure().contains("4503599627370496 bytes"), "{}", run.stderr);
    }
}

#[test]
fn what_is_not_checked_is_not_reported_as_right() {
    let csv = bench("memcpy -b 64 -e 64 -n 1 -c 0 --format csv");
    assert_eq!(rows(&csv)[0][6], "N/A");
}

#[test]
fn what_this_build_has_not_got_is_one_clear_line() {
    for arguments in ["--driver nccl", "--driver mpi"] {
        let run = aether(["bench", "all"].into_iter().chain(arguments.split(' ')));
        assert!(run.failure().contains("this build has no"), "{arguments}");
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure_to_speak_of() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_aether"))
        .args("bench all -b 32 -e 32K -f 2 -n 1 --format csv".split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before the first row is written, or while rows are.
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!stderr.contains("aether: ") && !stderr.contains("panicked"), "{stderr}");
}
