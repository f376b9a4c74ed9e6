//! The list of devices, by running the program.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

mod common;

use common::aether;

#[test]
fn the_list_has_the_cpu_and_says_why_a_backend_is_absent() {
    let run = aether(["devices"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("cpu:0"), "{}", run.stdout);
    assert!(run.stdout.contains("route cpu:0 to cpu:1: host"), "{}", run.stdout);
    assert!(run.stdout.contains(" GiB"), "{}", run.stdout);
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
    let device = &backends[0]["devices"][0];
    let (memory, free) = (device["memory"].as_u64().unwrap(), device["free"].as_u64().unwrap());
    assert!(free > 0 && memory > free, "{device}");
    assert!(device["description"].as_str().unwrap().contains("core"), "{device}");
    assert!(backends[0]["version"].is_string());
    let routes = value["routes"].as_array().unwrap();
    let route = |from: &str, to: &str| {
        let found = routes.iter().find(|it| it["from"] == from && it["to"] == to).unwrap();
        found["route"].as_str().unwrap()
    };
    assert_eq!(route("cpu:0", "cpu:0"), "same");
    assert_eq!(route("cpu:0", "cpu:1"), "host");
}
