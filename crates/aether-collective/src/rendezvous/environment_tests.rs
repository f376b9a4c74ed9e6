#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::HashMap;

use super::*;

/// `NAME=value` words, and whether Hydra is above.
struct Words(HashMap<String, String>, bool);

impl Variables for Words {
    fn get(&self, name: &'static str) -> Option<OsString> {
        self.0.get(name).map(OsString::from)
    }

    fn hydra(&self) -> Option<String> {
        self.1.then(|| "17.4711".to_owned())
    }
}

fn words(text: &str, hydra: bool) -> Words {
    let pairs = text.split_whitespace().map(|it| it.split_once('=').unwrap());
    Words(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(), hydra)
}

fn found(text: &str) -> Launch {
    read(&words(text, text.contains("PMI_"))).unwrap().unwrap()
}

fn seat(text: &str) -> (Launcher, usize, usize, usize) {
    let it = found(text);
    (it.launcher, it.rank, it.ranks, it.local_rank)
}

fn refused(text: &str) -> Error {
    read(&words(text, false)).unwrap_err()
}

const OURS: &str = "AETHER_RANK=1 AETHER_RANKS=3 AETHER_TOKEN=secret AETHER_RENDEZVOUS=";
const TORCH: &str = "RANK=2 WORLD_SIZE=4 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500";
const OMPI: &str = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 \
                    OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=199";
const PMI: &str = "PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=4";
const SRUN: &str = "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=2 SLURM_STEP_ID=0 \
                    SLURM_JOB_ID=77 SLURM_STEP_NUM_NODES=1";

fn tcp(address: &str, token: &str) -> Place {
    Place::Served(Spot::Tcp(address.into()), token.into())
}

#[test]
fn without_a_launcher_there_is_no_world() {
    for text in ["", "RANK=3", "WORLD_SIZE=2", "SLURM_PROCID=0 SLURM_NTASKS=4", "LOCAL_RANK=1"] {
        assert_eq!(read(&words(text, false)).unwrap(), None, "{text}");
    }
}

#[test]
fn every_launcher_s_variables_are_read() {
    let ours = format!("{OURS}dir:/tmp/run");
    assert_eq!(seat(&ours), (Launcher::Aether, 1, 3, 1));
    assert_eq!(seat(&format!("{ours} AETHER_LOCAL_RANK=0")), (Launcher::Aether, 1, 3, 0));
    assert_eq!(seat(&format!("{TORCH} LOCAL_RANK=0")), (Launcher::Torchrun, 2, 4, 0));
    assert_eq!(seat(OMPI), (Launcher::OpenMpi, 2, 4, 2));
    assert_eq!(seat(PMI), (Launcher::Mpich, 2, 4, 2));
    assert_eq!(seat(SRUN), (Launcher::Slurm, 2, 4, 2));
}

#[test]
fn the_innermost_launcher_counts() {
    let ours = format!("{OURS}dir:/tmp/run");
    for (inner, outer, expected) in [
        (ours.as_str(), TORCH, Launcher::Aether),
        (&ours, OMPI, Launcher::Aether),
        (TORCH, SRUN, Launcher::Torchrun),
        (OMPI, SRUN, Launcher::OpenMpi),
        (PMI, SRUN, Launcher::Mpich),
    ] {
        assert_eq!(seat(&format!("{inner} {outer}")).0, expected);
    }
    // srun sets Hydra's variables for MPICH's library.
    let both = words(&format!("{PMI} {SRUN}"), false);
    assert_eq!(read(&both).unwrap().unwrap().launcher, Launcher::Slurm);
}

#[test]
fn ranks_meet_where_they_are_told_whoever_started_them() {
    assert_eq!(found(&format!("{OURS}dir:/tmp/run")).place, Place::Directory("/tmp/run".into()));
    assert_eq!(found(&format!("{OURS}tcp://[::1]:80")).place, tcp("[::1]:80", "secret"));
    for launcher in [TORCH, OMPI, PMI, SRUN] {
        let text = format!("{launcher} AETHER_RENDEZVOUS=tcp://host:80 AETHER_TOKEN=t");
        assert_eq!(found(&text).place, tcp("host:80", "t"), "{launcher}");
    }
}

#[test]
fn ranks_that_nobody_told_meet_under_the_name_of_their_job() {
    let name = |text: &str| match found(text).place {
        Place::Served(Spot::Local(name), token) if token.is_empty() => name,
        other => format!("{other:?}"),
    };
    assert_eq!(name(PMI), "aether/MPICH/17.4711");
    assert_eq!(name(SRUN), "aether/Slurm/77.0");
    assert_eq!(name(OMPI), "aether/Open MPI/199/");
    let elastic = format!("{TORCH} LOCAL_WORLD_SIZE=4 TORCHELASTIC_RUN_ID=none");
    assert_eq!(name(&elastic), "aether/torchrun/29500//none");
    // However long a name is, it fits, and stays another's.
    let long = |end| name(&format!("{OMPI}{}{end}", "7".repeat(300)));
    assert!(long(1).len() <= 100 && long(1) != long(2), "{}", long(1));
}

#[test]
fn torch_s_master_is_an_address_with_a_token_or_the_run_s_name() {
    assert_eq!(found(TORCH).place, tcp("10.0.0.1:29500", "run "));
    assert_eq!(found(&format!("{TORCH} AETHER_TOKEN=t")).place, tcp("10.0.0.1:29500", "t"));
    let several = format!("{TORCH} LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x");
    assert_eq!(found(&several).place, tcp("10.0.0.1:29500", "run x"));
    let six = TORCH.replace("10.0.0.1", "::1");
    assert_eq!(found(&six).place, tcp("[::1]:29500", "run "));
}

#[test]
fn one_rank_meets_nobody() {
    for text in ["AETHER_RANK=0 AETHER_RANKS=1", "PMI_RANK=0 PMI_SIZE=1", "RANK=0 WORLD_SIZE=1"] {
        assert_eq!(found(text).place, Place::Alone, "{text}");
    }
}

#[test]
fn what_is_missing_or_makes_no_sense_is_named() {
    use ErrorKind::{InvalidArgument, Parse, RankOutOfRange, Unsupported};
    for (text, kind, name) in [
        ("AETHER_RANK=1".to_owned(), InvalidArgument, "AETHER_RANKS isn't"),
        ("AETHER_RANKS=2".to_owned(), InvalidArgument, "AETHER_RANK isn't"),
        ("AETHER_RANK=0 AETHER_RANKS=2".to_owned(), InvalidArgument, "AETHER_RENDEZVOUS isn't"),
        ("AETHER_RENDEZVOUS=dir:/x".to_owned(), InvalidArgument, "AETHER_RANK"),
        (format!("{OURS}dir:/x AETHER_RANK=-1"), Parse, "AETHER_RANK is `-1`"),
        (format!("{OURS}dir:/x AETHER_RANKS=two"), Parse, "AETHER_RANKS is `two`"),
        (format!("{OURS}dir:/x AETHER_RANK=3"), RankOutOfRange, "AETHER_RANKS is 3"),
        (format!("{OURS}dir:/x AETHER_LOCAL_RANK=5"), RankOutOfRange, "AETHER_LOCAL_RANK is 5"),
        (format!("{OURS}dir:/x AETHER_LOCAL_RANKS=4"), InvalidArgument, "AETHER_LOCAL_RANKS is 4"),
        (format!("{OURS}carrier-pigeon"), Parse, "AETHER_RENDEZVOUS is `carrier-pigeon`"),
        (format!("{OURS}dir:"), Parse, "AETHER_RENDEZVOUS"),
        (format!("{OURS}tcp://nowhere"), Parse, "AETHER_RENDEZVOUS"),
        (format!("{OURS}tcp://h:0"), Parse, "AETHER_RENDEZVOUS"),
        (format!("{OURS}tcp://h:80 AETHER_TOKEN="), InvalidArgument, "AETHER_TOKEN isn't"),
        ("RANK=1 MASTER_ADDR=h".to_owned(), InvalidArgument, "WORLD_SIZE isn't"),
        ("RANK=1 WORLD_SIZE=2".to_owned(), InvalidArgument, "MASTER_ADDR isn't"),
        (format!("{TORCH} MASTER_PORT=x"), Parse, "MASTER_PORT is `x`"),
        (format!("{TORCH} MASTER_PORT=0"), Parse, "MASTER_PORT"),
        (format!("{OMPI} OMPI_COMM_WORLD_LOCAL_SIZE=3"), Unsupported, "LOCAL_SIZE is 3"),
        ("OMPI_COMM_WORLD_RANK=1".to_owned(), InvalidArgument, "OMPI_COMM_WORLD_SIZE isn't"),
        (PMI.to_owned(), Unsupported, "PMI_RANK"),
        (format!("{SRUN} SLURM_STEP_NUM_NODES=2"), Unsupported, "SLURM_STEP_NUM_NODES"),
        (SRUN.replace("SLURM_JOB_ID", "OTHER"), InvalidArgument, "SLURM_JOB_ID isn't"),
    ] {
        let error = refused(&text);
        assert_eq!(error.kind(), kind, "{text}: {error}");
        assert!(error.reason().contains(name), "{text}: {error}");
    }
}
