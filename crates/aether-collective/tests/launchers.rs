//! Real processes that meet as their launcher says. This program is both: the tests, and the ranks that
//! they start. What is not installed is skipped by name.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use aether_collective::{Directory, Rendezvous, World};
use aether_core::ErrorKind;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Says that this process is a rank.
const RANK: &str = "AETHER_TEST_IS_RANK";
const LONG: Duration = Duration::from_secs(60);
const RANKS: usize = 3;

fn main() -> ExitCode {
    if std::env::var_os(RANK).is_some() {
        return be_a_rank();
    }
    let trials = vec![
        Trial::ignorable_test("ranks_of_open_mpi_meet", || mpirun("mpirun.openmpi", "Open MPI")),
        Trial::ignorable_test("ranks_of_mpich_meet", || mpirun("mpirun.mpich", "MPICH")),
        Trial::ignorable_test("ranks_of_slurm_meet", srun),
        Trial::test("ranks_of_a_slurm_step_meet_by_its_variables", by_slurm_s_variables),
        Trial::test("ranks_meet_at_torch_s_master", at_torch_s_master),
        Trial::test("ranks_of_an_elastic_torchrun_meet_by_its_run", by_torchrun_s_run),
        Trial::test("ranks_meet_in_the_directory_they_are_told", in_a_directory),
        Trial::ignorable_test("a_directory_that_is_full_is_an_error_with_its_path", full),
        Trial::ignorable_test("a_directory_that_is_read_only_is_an_error_with_its_path", read_only),
        Trial::test("a_rank_that_comes_twice_is_told_and_the_others_are_not", a_rank_twice),
        Trial::test("a_world_of_another_size_is_told", another_size),
        Trial::test("variables_that_make_no_sense_are_named", nonsense),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Meets the others twice, and says what it heard.
fn be_a_rank() -> ExitCode {
    match meet_all() {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn meet_all() -> aether_core::Result<String> {
    let world = World::from_environment()?;
    let mut heard = Vec::new();
    for _ in 0..2 {
        let at = world.rendezvous("group")?;
        let others = |at: &dyn Rendezvous, key: &str| -> aether_core::Result<Vec<String>> {
            at.post(&format!("{key}-{}", at.rank()), at.rank().to_string().as_bytes())?;
            let all = (0..at.ranks()).map(|rank| wait_for(at, &format!("{key}-{rank}")));
            all.collect()
        };
        heard = others(&*at, "here")?;
        // Nobody goes before all have heard all: rank 0 may be who serves.
        others(&*at, "heard")?;
        if world.rank() == 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let (rank, ranks, local) = (world.rank(), world.ranks(), world.local_rank());
    Ok(format!("rank {rank} ({local}) of {ranks} by {} heard {}", world.launcher(), heard.concat()))
}

fn wait_for(at: &dyn Rendezvous, key: &str) -> aether_core::Result<String> {
    let until = Instant::now() + LONG;
    loop {
        if let Some(value) = at.look_up(key)? {
            return Ok(String::from_utf8_lossy(&value).into_owned());
        }
        assert!(Instant::now() < until, "{key} does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A command that starts ranks, without the variables of whatever started the tests.
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    let own = ["AETHER_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_"];
    for (name, _) in std::env::vars_os() {
        if own.iter().any(|it| name.to_string_lossy().starts_with(it)) {
            command.env_remove(name);
        }
    }
    command.env(RANK, "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A rank that the test starts itself, with these variables.
fn rank(variables: &[(&str, &str)]) -> Child {
    let mut command = command(std::env::current_exe().unwrap());
    command.envs(variables.iter().copied()).spawn().unwrap()
}

/// What the process printed, whatever came of it. One that doesn't end is ended.
fn printed(mut child: Child) -> String {
    let until = Instant::now() + LONG;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("a process did not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr)
}

fn expect_all(printed: &str, launcher: &str, ranks: usize) -> Result<(), Failed> {
    let heard: String = (0..ranks).map(|it| it.to_string()).collect();
    for rank in 0..ranks {
        let expected = format!("rank {rank} ({rank}) of {ranks} by {launcher} heard {heard}");
        if !printed.lines().any(|it| it == expected) {
            return Err(format!("no `{expected}` in:\n{printed}").into());
        }
    }
    Ok(())
}

fn mpirun(program: &str, launcher: &str) -> Result<Completion, Failed> {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        return Ok(Completion::ignored_with(format!("{program} is not installed")));
    }
    // Its session's files go there; two that start at once dispute over those in /tmp.
    let place = tempfile::tempdir().unwrap();
    for ranks in [1, RANKS] {
        let mut command = command(program);
        if launcher == "Open MPI" {
            command.arg("--oversubscribe");
            let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
            command.envs(root.map(|it| (it, "1")));
        }
        command.args(["-n", &ranks.to_string()]).arg(std::env::current_exe().unwrap());
        let child = command.env("TMPDIR", place.path()).spawn().unwrap();
        expect_all(&printed(child), launcher, ranks)?;
    }
    Ok(Completion::Completed)
}

fn srun() -> Result<Completion, Failed> {
    let mut probe = Command::new("srun");
    let works = probe.args(["-n1", "true"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !works.is_ok_and(|it| it.success()) {
        return Ok(Completion::ignored_with("there is no Slurm that runs a step"));
    }
    let ranks = RANKS.to_string();
    let mut command = command("srun");
    let child =
        command.args(["-N1", "--overcommit", "-n", &ranks]).arg(std::env::current_exe().unwrap());
    expect_all(&printed(child.spawn().unwrap()), "Slurm", RANKS)?;
    Ok(Completion::Completed)
}

/// Starts all ranks with what `variables` gives each, and expects them to meet.
fn all_meet(
    launcher: &str,
    variables: impl Fn(&str) -> Vec<(&'static str, String)>,
) -> Result<(), Failed> {
    // The last comes first, and rank 0, who may have to serve, at the end.
    let ranks: Vec<Child> = (0..RANKS)
        .rev()
        .map(|it| {
            let variables = variables(&it.to_string());
            let variables: Vec<_> =
                variables.iter().map(|(name, it)| (*name, it.as_str())).collect();
            rank(&variables)
        })
        .collect();
    let all: String = ranks.into_iter().map(printed).collect();
    expect_all(&all, launcher, RANKS)
}

/// A job's name that no other run of the tests has.
fn job() -> String {
    format!("test-{}", std::process::id())
}

fn by_slurm_s_variables() -> Result<(), Failed> {
    all_meet("Slurm", |rank| {
        vec![
            ("SLURM_PROCID", rank.to_owned()),
            ("SLURM_LOCALID", rank.to_owned()),
            ("SLURM_STEP_NUM_TASKS", RANKS.to_string()),
            ("SLURM_JOB_ID", job()),
            ("SLURM_STEP_ID", "0".to_owned()),
            ("SLURM_STEP_NUM_NODES", "1".to_owned()),
        ]
    })
}

fn torch(rank: &str, port: &str) -> Vec<(&'static str, String)> {
    vec![
        ("RANK", rank.to_owned()),
        ("LOCAL_RANK", rank.to_owned()),
        ("WORLD_SIZE", RANKS.to_string()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_owned()),
    ]
}

/// A port that was free a moment ago.
fn free_port() -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port().to_string()
}

fn at_torch_s_master() -> Result<(), Failed> {
    let port = free_port();
    all_meet("torchrun", |rank| torch(rank, &port))
}

/// The port of the master is torchrun's own then.
fn by_torchrun_s_run() -> Result<(), Failed> {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    all_meet("torchrun", |rank| {
        let more = [("LOCAL_WORLD_SIZE", RANKS.to_string()), ("TORCHELASTIC_RUN_ID", job())];
        torch(rank, &port).into_iter().chain(more).collect()
    })
}

fn in_a_directory() -> Result<(), Failed> {
    let place = tempfile::tempdir().unwrap();
    let at = format!("dir:{}", place.path().display());
    all_meet("aether launch", |rank| {
        vec![
            ("AETHER_RANK", rank.to_owned()),
            ("AETHER_RANKS", RANKS.to_string()),
            ("AETHER_RENDEZVOUS", at.clone()),
        ]
    })
}

fn a_rank_twice() -> Result<(), Failed> {
    let port = free_port();
    let start = |number: &str| {
        let variables = torch(number, &port);
        let variables: Vec<_> = variables.iter().map(|(name, it)| (*name, it.as_str())).collect();
        rank(&variables)
    };
    // As many as there should be, and one of them twice; the last comes when all wait for it.
    let zero = start("0");
    let mut ones = [start("1"), start("1")];
    let refused = loop {
        let ended = |it: &mut Child| it.try_wait().unwrap().is_some();
        if let Some(at) = ones.iter_mut().position(ended) {
            break at;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let [first, second] = ones;
    let (refused, admitted) = if refused == 0 { (first, second) } else { (second, first) };
    let all: String = [start("2"), zero, admitted].into_iter().map(printed).collect();
    expect_all(&all, "torchrun", RANKS)?;
    let told = printed(refused);
    if told.contains("another process is rank 1 already") { Ok(()) } else { Err(told.into()) }
}

fn another_size() -> Result<(), Failed> {
    let port = free_port();
    let start = |number: &str, ranks: &str| {
        let mut variables = torch(number, &port);
        variables.push(("WORLD_SIZE", ranks.to_owned()));
        let variables: Vec<_> = variables.iter().map(|(name, it)| (*name, it.as_str())).collect();
        rank(&variables)
    };
    let two = [start("0", "2"), start("1", "3")];
    let [mut zero, one] = two;
    let told = printed(one);
    let _ = zero.kill();
    zero.wait().unwrap();
    let expected = "rank 1 says that there are 3 ranks, and there are 2";
    if told.contains(expected) { Ok(()) } else { Err(told.into()) }
}

fn nonsense() -> Result<(), Failed> {
    for (variables, name) in [
        (&[][..], "no launcher started this process"),
        (&[("AETHER_RANK", "one"), ("AETHER_RANKS", "2")], "AETHER_RANK is `one`"),
        (&[("AETHER_RANK", "0")], "AETHER_RANKS isn't"),
        (&[("RANK", "7"), ("WORLD_SIZE", "7")], "WORLD_SIZE is 7"),
        (&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], "no process above this one is Hydra's"),
    ] {
        let told = printed(rank(variables));
        if !told.contains(name) {
            return Err(format!("no `{name}` in: {told}").into());
        }
    }
    Ok(())
}

/// A file system of its own on a directory, until it is dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    /// None where this process may not mount.
    fn new(options: &str) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(place.path());
        let mounted = mount.stdout(Stdio::null()).stderr(Stdio::null()).status();
        mounted.is_ok_and(|it| it.success()).then(|| Self(place))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        if !unmounted.is_ok_and(|it| it.success()) {
            eprintln!("{:?} stays mounted", self.0);
        }
    }
}

fn full() -> Result<Completion, Failed> {
    let Some(place) = Mounted::new("size=64k") else {
        return Ok(Completion::ignored_with("this user may not mount a small file system"));
    };
    let at = Directory::new(place.0.path(), 0, 2)?;
    at.post("small", b"value")?;
    // What fits no more is written in part, and nobody takes a part for the whole.
    let error = at.post("large", &[7; 1 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let path = place.0.path().to_string_lossy().into_owned();
    assert!(error.place().unwrap().starts_with(&path), "{error}");
    assert!(error.reason().contains("No space"), "{error}");
    assert_eq!(error.ranks(), [0]);
    assert_eq!(at.look_up("large")?, None);
    let left = std::fs::read_dir(place.0.path()).unwrap().count();
    assert_eq!(left, 1, "nothing of it is left");
    assert_eq!(at.look_up("small")?.as_deref(), Some(&b"value"[..]));
    Ok(Completion::Completed)
}

fn read_only() -> Result<Completion, Failed> {
    let Some(place) = Mounted::new("ro") else {
        return Ok(Completion::ignored_with("this user may not mount a read-only file system"));
    };
    let error = Directory::new(place.0.path().join("run"), 1, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let at = Directory::new(place.0.path(), 1, 2)?;
    let error = at.post("key", b"value").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.reason().contains("rank 1: Read-only"), "{error}");
    Ok(Completion::Completed)
}
