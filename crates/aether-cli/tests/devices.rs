//! The list of devices, by running the program.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

mod common;

use common::aether;

#[test]
fn the_list_has_the_cpu_and_says_why_a_backend_is_absent() {
    let run = aether(["devices"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("cpu:0"), "{}", run.stdout);
    for line in run.stdout.lines().filter(|it| it.contains("absent")) {
        let reason = line.split_once("absent: ").unwrap().1;
        assert!(!reason.is_empty(), "{line}");
    }
}

#[test]
fn json_says_the_same_for_programs() {
    let run = aether(["devices", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    let backends = value["backends"].as_array().unwrap();
    let names: Vec<&str> = backends.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["host", "cuda", "nccl", "mpi"]);
    for backend in backends {
        let devices = backend["devices"].as_array().unwrap().len();
        assert!(devices > 0 || backend["absent"].is_string(), "{backend}");
    }
    assert_eq!(backends[0]["devices"][0]["id"], "cpu:0");
    assert!(value["routes"].is_array());
}
