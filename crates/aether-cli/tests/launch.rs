//! A program as several ranks: what comes out, what fails, and that nothing is left.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, dead_code)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Run, aether};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Longer than anything takes that works.
const LONG: Duration = Duration::from_secs(60);

fn launch(ranks: &str, script: &str) -> Run {
    aether(["launch", "-n", ranks, "--", "sh", "-c", script])
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A launcher that runs on.
struct Running {
    launcher: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(ranks: &str, script: &str) -> Self {
        let mut launcher = Command::new(env!("CARGO_BIN_EXE_aether"))
            .args(["launch", "-n", ranks, "--grace", "1", "--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(launcher.stdout.take().unwrap());
        Self { launcher, out }
    }

    /// Reads so many lines that each end with the number of a process.
    fn processes(&mut self, lines: usize) -> Vec<Pid> {
        let mut line = || {
            let mut line = String::new();
            self.out.read_line(&mut line).unwrap();
            line
        };
        let number = |line: String| line.split_whitespace().next_back().unwrap().parse().unwrap();
        (0..lines).map(|_| Pid::from_raw(number(line())).unwrap()).collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(pid(&self.launcher), signal).unwrap();
    }

    /// The exit code, or the signal as a negative number, and what went to standard error.
    fn end(mut self) -> (i32, String) {
        use std::os::unix::process::ExitStatusExt;
        let until = Instant::now() + LONG;
        while self.launcher.try_wait().unwrap().is_none() {
            if Instant::now() > until {
                self.launcher.kill().unwrap();
                panic!("the launcher doesn't end");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut errors = String::new();
        self.launcher.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = self.launcher.wait().unwrap();
        (status.code().unwrap_or_else(|| -status.signal().unwrap()), errors)
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).unwrap()
}

/// Whether the process runs: one that has ended and waits for its parent doesn't.
fn runs(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    let state = stat.ok().and_then(|it| it.rsplit_once(") ").map(|(_, rest)| rest.chars().next()));
    !matches!(state, None | Some(Some('Z' | 'X'))) && test_kill_process(process).is_ok()
}

fn wait_until_gone(processes: &[Pid]) {
    let until = Instant::now() + LONG;
    while processes.iter().any(|it| runs(*it)) {
        assert!(Instant::now() < until, "{processes:?} are left");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_rank_is_told_who_it_is_and_where_all_meet() {
    let run = launch(
        "3",
        "echo $AETHER_RANK $AETHER_RANKS $AETHER_LOCAL_RANK $AETHER_LOCAL_RANKS; \
         echo at $AETHER_RENDEZVOUS $AETHER_TOKEN; echo process $$",
    );
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let lines = sorted(&run.stdout);
    for rank in 0..3 {
        let of_rank = &lines[3 * rank..][..3];
        assert_eq!(of_rank[0], format!("[{rank}] {rank} 3 {rank} 3"));
        let at = of_rank[1].strip_prefix(&format!("[{rank}] at tcp://127.0.0.1:")).unwrap();
        let token = at.split_once(' ').unwrap().1;
        assert!(token.len() == 64 && token.bytes().all(|it| it.is_ascii_hexdigit()), "{token}");
        assert_eq!(of_rank[1][3..], lines[1][3..], "the same for all");
        assert!(rank == 0 || of_rank[2][4..] != lines[2][4..], "a process of its own");
    }
    let other = launch("1", "echo $AETHER_TOKEN");
    assert!(!run.stdout.contains(&other.stdout[4..68]), "a token of its own: {}", other.stdout);
}

#[test]
fn both_streams_are_kept_apart_with_the_rank_before_every_line() {
    let script = r#"printf 'a\n\nb'; printf 'no end' >&2"#;
    let run = launch("2", script);
    assert_eq!(run.code, 0);
    assert_eq!(sorted(&run.stdout), ["[0] ", "[0] a", "[0] b", "[1] ", "[1] a", "[1] b"]);
    assert_eq!(sorted(&run.stderr), ["[0] no end", "[1] no end"]);
}

#[test]
fn lines_of_many_ranks_are_never_mixed() {
    let run = launch(
        "8",
        "i=0; while [ $i -lt 200 ]; do echo $AETHER_RANK-$i-xxxxxxxx; i=$((i+1)); done",
    );
    assert_eq!(run.code, 0);
    for rank in 0..8 {
        let prefix = format!("[{rank}] ");
        let of_rank: Vec<&str> =
            run.stdout.lines().filter_map(|it| it.strip_prefix(&prefix)).collect();
        let expected: Vec<String> = (0..200).map(|it| format!("{rank}-{it}-xxxxxxxx")).collect();
        assert_eq!(of_rank, expected, "in its order");
    }
}

#[test]
fn ranks_read_nothing_and_options_after_the_program_are_its_own() {
    let run = aether(["launch", "-n", "2", "cat", "-n"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""));
}

#[test]
fn the_first_failure_ends_the_others_and_is_the_exit_code() {
    for (end, words, code) in [
        ("exit 7", "ended with exit code 7", 7),
        ("exit 200", "ended with exit code 200", 200),
        ("kill -9 $$", "was killed by SIGKILL", 137),
        ("kill -SEGV $$", "was killed by SIGSEGV", 139),
        ("kill -USR2 $$", "was killed by signal 12", 140),
    ] {
        let began = Instant::now();
        let run = launch("4", &format!("[ $AETHER_RANK = 2 ] && {end}; sleep 1000"));
        assert_eq!(run.code, code, "{}", run.stderr);
        let first = run.stderr.lines().find(|it| it.starts_with("aether: ")).unwrap();
        assert!(first.starts_with(&format!("aether: launch: rank 2 {words} after ")), "{first}");
        assert!(first.ends_with("; the other 3 ranks are ended"), "{first}");
        assert!(began.elapsed() < LONG);
    }
}

#[test]
fn a_program_that_ends_at_once_ends_the_launcher_with_its_exit_code() {
    assert_eq!(aether(["launch", "-n", "3", "true"]).code, 0);
    let run = aether(["launch", "-n", "3", "false"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("ended with exit code 1"), "{}", run.stderr);
}

#[test]
fn a_program_that_cannot_be_started_is_one_line_with_the_rank_and_the_reason() {
    let run = aether(["launch", "-n", "2", "--", "/nowhere/at-all", "x"]);
    let line = run.failure();
    assert!(line.starts_with("launch rank 0: start `/nowhere/at-all`: No such file"), "{line}");
    let run = aether(["launch", "-n", "2", "--", "/etc/passwd"]);
    assert!(run.failure().contains("ermission denied"), "{}", run.stderr);
}

#[test]
fn ranks_that_ignore_the_signal_or_are_stopped_are_killed_after_the_grace_time() {
    for stubborn in ["trap '' TERM INT; echo $$; while :; do sleep 1; done", "kill -STOP $$"] {
        let script = format!("[ $AETHER_RANK = 0 ] && {{ sleep 0.1; exit 9; }}; {stubborn}");
        let run = aether(["launch", "-n", "3", "--grace", "0", "--", "sh", "-c", &script]);
        assert_eq!(run.code, 9, "{}", run.stderr);
    }
    // Nobody is killed who ends in time.
    let script = "[ $AETHER_RANK = 0 ] && { read x < $0; exit 9; }; \
                  trap 'echo bye; exit 0' TERM; echo > $0; while :; do sleep 0.01; done";
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let arguments =
        ["launch", "-n", "2", "--grace", "60", "--", "sh", "-c", script, fifo.to_str().unwrap()];
    let run = aether(arguments);
    assert_eq!((run.code, run.stdout.as_str()), (9, "[1] bye\n"), "{}", run.stderr);
    assert!(!run.stderr.contains("is killed"), "{}", run.stderr);
}

#[test]
fn a_signal_to_the_launcher_goes_to_all_ranks_and_is_the_exit_code() {
    for (signal, name, code) in [(Signal::TERM, "TERM", 143), (Signal::INT, "INT", 130)] {
        let script =
            format!("trap 'echo got {name}; exit 3' {name}; echo $$; while :; do sleep 0.01; done");
        let mut running = Running::start("3", &script);
        let ranks = running.processes(3);
        running.signal(signal);
        let mut rest = String::new();
        running.out.read_to_string(&mut rest).unwrap();
        let expected = [0, 1, 2].map(|rank| format!("[{rank}] got {name}"));
        assert_eq!(sorted(&rest), expected);
        assert_eq!(running.end().0, code);
        wait_until_gone(&ranks);
    }
}

#[test]
fn a_second_signal_does_not_wait_for_the_grace_time() {
    let script = "trap '' INT TERM; echo $$; while :; do sleep 1; done";
    let mut launcher = Command::new(env!("CARGO_BIN_EXE_aether"))
        .args(["launch", "-n", "2", "--grace", "3600", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(launcher.stdout.take().unwrap());
    let mut running = Running { launcher, out };
    let ranks = running.processes(2);
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    // Two signals at once may be told as one; a third comes later in any case.
    let until = Instant::now() + LONG;
    while running.launcher.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until);
        let _ = kill_process(pid(&running.launcher), Signal::INT);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.end().0, 130);
    wait_until_gone(&ranks);
}

#[test]
fn nothing_is_left_when_the_launcher_itself_is_killed() {
    // A rank, and what it started: the kernel knows of the first, the keeper of both.
    let script = "trap '' TERM INT HUP; sleep 1000 & echo $!; echo $$; wait";
    let mut running = Running::start("3", script);
    let mut processes = running.processes(6);
    processes.extend(children(pid(&running.launcher)));
    assert_eq!(processes.len(), 6 + 3 + 1, "three ranks and a keeper are its children");
    running.signal(Signal::KILL);
    let began = Instant::now();
    wait_until_gone(&processes);
    println!("all processes were gone {:?} after the launcher was killed", began.elapsed());
    assert_eq!(running.end().0, -9);
}

fn children(of: Pid) -> Vec<Pid> {
    let of = of.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
    children.split_whitespace().map(|it| Pid::from_raw(it.parse().unwrap()).unwrap()).collect()
}

#[test]
fn what_ranks_started_does_not_outlive_them() {
    let mut running = Running::start("2", "sleep 1000 >/dev/null 2>&1 & echo $!");
    let started = running.processes(2);
    assert_eq!(running.end(), (0, String::new()));
    wait_until_gone(&started);
}

#[test]
fn somebody_who_keeps_a_rank_s_output_open_holds_up_nobody() {
    // It left the rank's group, so that it is nobody's to end.
    let began = Instant::now();
    let run = launch("1", "setsid sleep 100 & echo $!");
    assert_eq!(run.code, 0);
    assert!(began.elapsed() < LONG);
    let left = run.stdout.trim().strip_prefix("[0] ").unwrap().parse().unwrap();
    let _ = kill_process(Pid::from_raw(left).unwrap(), Signal::KILL);
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_ranks() {
    let mut running = Running::start("2", "echo $$; while :; do echo more; done");
    let ranks = running.processes(1);
    let Running { launcher, out } = running;
    drop(out);
    let running = Running { launcher, out: BufReader::new(closed()) };
    let (code, errors) = running.end();
    assert_eq!(code, 1);
    assert!(!errors.contains("aether: "), "{errors}");
    wait_until_gone(&ranks);
}

/// A stream at which nothing comes.
fn closed() -> ChildStdout {
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    child.wait().unwrap();
    child.stdout.take().unwrap()
}

#[test]
fn a_rank_that_is_killed_is_told_at_once() {
    let mut running = Running::start("4", "echo $$; exec sleep 1000");
    let ranks = running.processes(4);
    let killed = Instant::now();
    kill_process(ranks[0], Signal::KILL).unwrap();
    let mut line = String::new();
    BufReader::new(running.launcher.stderr.take().unwrap()).read_line(&mut line).unwrap();
    println!("told {:?} after the kill: {line}", killed.elapsed());
    assert!(line.contains("was killed by SIGKILL"), "{line}");
    assert_eq!(running.launcher.wait().unwrap().code(), Some(137));
    wait_until_gone(&ranks);
}
