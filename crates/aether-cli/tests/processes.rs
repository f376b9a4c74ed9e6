//! Benchmarks and training whose ranks are processes, by running the program.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, dead_code)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Run, aether};
use rustix::process::{Pid, Signal, kill_process};

const LONG: Duration = Duration::from_secs(60);

fn bench(arguments: &str) -> Run {
    let mode = ["--mode", "processes", "--format", "csv"];
    aether(["bench"].into_iter().chain(arguments.split(' ')).chain(mode))
}

/// The cells below the header.
fn rows(csv: &str) -> Vec<Vec<&str>> {
    csv.lines().skip(1).map(|it| it.split(',').collect()).collect()
}

#[test]
fn every_operation_is_timed_and_right_between_processes() {
    for memory in ["chunks", "ordinary"] {
        let run = bench(&format!("all --ranks 3 -b 32 -e 256K -f 64 -n 2 -w 1 --memory {memory}"));
        assert_eq!(run.code, 0, "{}", run.stderr);
        let rows = rows(&run.stdout);
        assert_eq!(rows.len(), 9 * 3);
        assert!(rows.iter().all(|it| it[1] == "3" && it[6] == "0"), "{}", run.stdout);
        assert!(rows.iter().all(|it| it[12..] == ["processes", memory]), "{}", run.stdout);
    }
}

#[test]
fn one_process_is_timed_and_right() {
    for memory in ["chunks", "ordinary"] {
        let run = bench(&format!("all --ranks 1 -b 32 -e 256K -f 64 -n 2 -w 1 --memory {memory}"));
        assert_eq!(run.code, 0, "{}", run.stderr);
        let rows = rows(&run.stdout);
        assert_eq!(rows.len(), 9 * 3);
        assert!(rows.iter().all(|it| it[1] == "1" && it[6] == "0"), "{}", run.stdout);
        assert!(rows.iter().all(|it| it[12..] == ["processes", memory]), "{}", run.stdout);
    }
}

#[test]
fn types_reductions_roots_and_places_are_right_between_processes() {
    for rest in ["-d bf16 -o max -r 1 -c 2", "-d i64 -o mean --in-place", "-d u8 -o prod -c 2"] {
        let run = bench(&format!("all --ranks 2 -b 4K -e 4K -n 2 {rest}"));
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(rows(&run.stdout).iter().all(|it| it[6] == "0"), "{}", run.stdout);
    }
}

#[test]
fn a_worker_that_dies_ends_the_benchmark_with_its_rank() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_aether"))
        .args("bench all_reduce --ranks 3 --mode processes -b 32 -e 32 -n 1000000000".split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let worker = wait_for_rank(&program.id(), 2);
    let killed = Instant::now();
    kill_process(worker, Signal::KILL).unwrap();
    let until = killed + LONG;
    while program.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            program.kill().unwrap();
            panic!("the benchmark doesn't end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("the benchmark ended {:?} after the kill", killed.elapsed());
    let mut errors = String::new();
    program.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(1));
    let line = "aether: bench all_reduce: rank 2 was killed by SIGKILL";
    assert!(errors.lines().any(|it| it == line), "{errors}");
}

/// The worker of this rank, once it runs.
fn wait_for_rank(program: &u32, rank: usize) -> Pid {
    let until = Instant::now() + LONG;
    loop {
        let all = std::fs::read_to_string(format!("/proc/{program}/task/{program}/children"));
        for child in all.unwrap().split_whitespace() {
            let variables = std::fs::read(format!("/proc/{child}/environ")).unwrap_or_default();
            let wanted = format!("AETHER_RANK={rank}");
            if variables.split(|it| *it == 0).any(|it| it == wanted.as_bytes()) {
                return Pid::from_raw(child.parse().unwrap()).unwrap();
            }
        }
        assert!(Instant::now() < until, "no rank {rank}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn training_over_processes_says_what_training_over_threads_says() {
    let own = env!("CARGO_BIN_EXE_aether");
    let processes = aether(["launch", "-n", "3", "--", own, "train", "--epochs", "3"]);
    assert_eq!(processes.code, 0, "{}", processes.stderr);
    let threads = aether(["train", "--epochs", "3", "--devices", "cpu:3"]);
    // All but the speed, and by one rank.
    let lines = |text: &str, prefix: &str| -> Vec<String> {
        let lines = text.lines().map(|it| it.strip_prefix(prefix).unwrap().to_owned());
        lines.filter(|it| !it.starts_with("speed: ")).collect()
    };
    assert_eq!(lines(&processes.stdout, "[0] "), lines(&threads.stdout, ""));
    assert!(processes.stdout.contains("replicas identical"), "{}", processes.stdout);
}

#[test]
fn training_as_a_rank_takes_no_choice_of_devices() {
    let own = env!("CARGO_BIN_EXE_aether");
    let run = aether(["launch", "-n", "2", "--", own, "train", "--devices", "cpu:2"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("train on cpu:2: aether launch started this"), "{}", run.stderr);
}

/// A rank that tells itself something else than its launcher told it.
fn with(rank: usize, variable: &str) -> Run {
    let own = env!("CARGO_BIN_EXE_aether");
    let script =
        format!("[ $AETHER_RANK = {rank} ] && export {variable}; exec {own} train --epochs 1");
    aether(["launch", "-n", "3", "--", "sh", "-c", &script])
}

#[test]
fn a_wrong_token_a_rank_twice_and_another_size_are_errors_that_name_the_rank() {
    for (rank, variable, words) in [
        (2, "AETHER_TOKEN=guessed", "the token of rank 2 is not that of this rendezvous"),
        (1, "AETHER_RANK=0", "another process is rank 0 already"),
        (1, "AETHER_RANKS=4", "rank 1 says that there are 4 ranks, and there are 3"),
        (1, "AETHER_RANK=3", "AETHER_RANK is 3, and AETHER_RANKS is 3"),
        (1, "AETHER_RENDEZVOUS=tcp://127.0.0.1:0", "AETHER_RENDEZVOUS is `tcp://127.0.0.1:0`"),
    ] {
        let run = with(rank, variable);
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(run.stderr.contains(words), "{variable}: {}", run.stderr);
        assert!(run.stderr.contains(" ended with exit code 1 after "), "{}", run.stderr);
    }
}

#[test]
fn an_interrupted_benchmark_leaves_no_worker() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_aether"))
        .args("bench all_reduce --ranks 2 --mode processes -b 32 -e 32 -n 1000000000".split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let workers = [0, 1].map(|rank| wait_for_rank(&program.id(), rank));
    kill_process(Pid::from_raw(program.id() as i32).unwrap(), Signal::INT).unwrap();
    program.wait().unwrap();
    let mut rest = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut rest).unwrap();
    let until = Instant::now() + LONG;
    let runs = |it: &Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", it.as_raw_nonzero()));
        stat.is_ok_and(|it| !it.contains(") Z "))
    };
    while workers.iter().any(runs) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
}
