//! The arguments: what is accepted, what is the default, and what is bad usage.

use std::ffi::OsString;
use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use aether::{DType, DeviceId, DeviceKind, ReduceOp};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::bench::Selection;
use crate::size::parse_size;

/// More members than this on one machine is a slip of the finger.
const MOST_MEMBERS: usize = 1024;

/// Memory that lives on several devices, and the collectives between them.
#[derive(Debug, Parser)]
#[command(
    name = "aether",
    version,
    after_help = "Without a command it trains on the data set that is built in."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Bench(BenchArgs),
    Devices(DevicesArgs),
    /// Ends the ranks of a launcher that was killed; launchers start it.
    #[command(name = crate::launch::KEEPER, hide = true)]
    Keep,
    Launch(LaunchArgs),
    Train(TrainArgs),
}

/// Lists the devices of every backend, and why a backend is absent.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Starts a program as several ranks on this machine.
///
/// Each rank finds its number in AETHER_RANK, how many there are in AETHER_RANKS, and where they meet in
/// AETHER_RENDEZVOUS and AETHER_TOKEN, which aether's World reads. What ranks print comes out line by line
/// with the rank in front; they read nothing. If one fails, the others are ended, and its exit code is
/// that of the launcher (128 and the signal's number if a signal killed it).
#[derive(Debug, Args)]
pub(crate) struct LaunchArgs {
    /// How many ranks to start.
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = parse_ranks)]
    pub(crate) ranks: usize,
    /// How many seconds ranks have to end when they are asked to, before they are killed.
    #[arg(long, value_name = "SECONDS", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(..=3600))]
    pub(crate) grace: u32,
    /// The program, and its arguments.
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}

/// Trains a small network on a table, over several devices at once.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// The table, in CSV: numbers, and a class in the last column [default: handwritten digits].
    ///
    /// The first row is a header if no cell of it but the class is a number, or if --target is
    /// given.
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) data: Option<PathBuf>,
    /// The column that holds the class, by its name in the header.
    #[arg(long, value_name = "NAME")]
    pub(crate) target: Option<String>,
    /// The devices: a kind and how many of it, such as cpu:4 or cuda:all, or a list of names, such
    /// as cpu:0,cpu:2.
    #[arg(long, value_name = "DEVICES", default_value_t, value_parser = parse_devices)]
    pub(crate) devices: DeviceChoice,
    /// How often every training row is used.
    #[arg(long, value_name = "N", default_value_t = TrainArgs::EPOCHS,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) epochs: u32,
    /// How many rows all devices together use at a time.
    #[arg(long, value_name = "N", default_value_t = TrainArgs::BATCH)]
    pub(crate) batch: NonZeroUsize,
    /// What the split, the order and the first weights are drawn from.
    #[arg(long, value_name = "N", default_value_t = TrainArgs::SEED)]
    pub(crate) seed: u64,
}

impl TrainArgs {
    const BATCH: NonZeroUsize = NonZeroUsize::MIN.saturating_add(127);
    const EPOCHS: u32 = 60;
    const SEED: u64 = 1;
}

impl Default for TrainArgs {
    fn default() -> Self {
        Self {
            data: None,
            target: None,
            devices: DeviceChoice::default(),
            epochs: Self::EPOCHS,
            batch: Self::BATCH,
            seed: Self::SEED,
        }
    }
}

/// Which devices to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// All that there are of a kind; of the CPU, as many as it runs threads.
    All(DeviceKind),
    /// The first of a kind.
    First(DeviceKind, NonZeroU32),
    /// The devices of a list.
    These(Vec<DeviceId>),
}

impl DeviceChoice {
    /// The kinds of the devices.
    pub(crate) fn kinds(&self) -> Vec<DeviceKind> {
        match self {
            Self::All(kind) | Self::First(kind, _) => vec![*kind],
            Self::These(ids) => ids.iter().map(|it| it.kind).collect(),
        }
    }
}

impl Default for DeviceChoice {
    fn default() -> Self {
        Self::First(DeviceKind::CPU, NonZeroU32::MIN.saturating_add(3))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(kind) => write!(f, "{kind}:all"),
            Self::First(kind, count) => write!(f, "{kind}:{count}"),
            Self::These(ids) => {
                f.write_str(&ids.iter().map(DeviceId::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Times a collective over a sweep of sizes, and checks every one of them.
///
/// Options, bytes, algbw and busbw mean what they mean in nccl-tests. usec is the slowest rank's
/// time per operation, best of the rounds.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to time.
    #[arg(value_name = "OP", value_parser = PossibleValuesParser::new(Selection::names())
          .try_map(|it| it.parse::<Selection>()))]
    pub(crate) op: Selection,
    /// Who carries it out.
    #[arg(long, value_enum, default_value_t = DriverName::Host)]
    pub(crate) driver: DriverName,
    /// What a rank is.
    #[arg(long, value_enum, default_value_t = Mode::Threads)]
    pub(crate) mode: Mode,
    /// How many ranks take part.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parse_ranks)]
    pub(crate) ranks: usize,
    /// The smallest size in bytes; K, M and G are powers of 1024.
    #[arg(short = 'b', long = "minbytes", value_name = "MIN", default_value = "32",
          value_parser = parse_size)]
    pub(crate) min_bytes: u64,
    /// The largest size in bytes [default: 4M, or MIN where that is larger].
    #[arg(short = 'e', long = "maxbytes", value_name = "MAX", value_parser = parse_size)]
    pub(crate) max_bytes: Option<u64>,
    /// What a size is multiplied by to give the next.
    #[arg(short = 'f', long = "stepfactor", value_name = "FACTOR", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) factor: u64,
    /// How many operations are timed, in each round.
    #[arg(short = 'n', long = "iters", value_name = "ITERS", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// How many operations come first, and are not timed.
    #[arg(short = 'w', long = "warmup_iters", value_name = "WARMUP", default_value_t = 5)]
    pub(crate) warmup: u32,
    /// The type of the elements: f32, bf16, i64, ... (or float, bfloat16, int64, ...).
    #[arg(short = 'd', long = "datatype", value_name = "DTYPE", default_value = "f32",
          value_parser = parse_dtype)]
    pub(crate) dtype: DType,
    /// The reduction: sum, prod, min, max, mean (or avg).
    #[arg(short = 'o', long = "op", value_name = "REDOP", default_value = "sum",
          value_parser = parse_reduction)]
    pub(crate) reduction: ReduceOp,
    /// The rank that the data comes from, where there is one.
    #[arg(short = 'r', long = "root", value_name = "ROOT", default_value_t = 0)]
    pub(crate) root: usize,
    /// How often the result of every size is checked; 0 checks nothing.
    #[arg(short = 'c', long = "check", value_name = "CHECKS", default_value_t = 1)]
    pub(crate) checks: u32,
    /// Let source and destination be the same memory, where the operation allows it.
    #[arg(long)]
    pub(crate) in_place: bool,
    /// What the buffers are: chunks of the rank's device, or ordinary vectors of its process. Chunks of
    /// processes lie in memory that all of them share; vectors don't.
    #[arg(long, value_enum, default_value_t = MemoryName::Chunks)]
    pub(crate) memory: MemoryName,
    /// How the rows are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Be one of the processes of --mode processes, which takes orders from its standard input.
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DriverName {
    Host,
    Mpi,
    Nccl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Processes,
    Threads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MemoryName {
    Chunks,
    Ordinary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Csv,
    Json,
    Table,
}

impl Mode {
    /// The word for it, on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Threads => "threads",
        }
    }
}

impl MemoryName {
    /// The word for it, on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chunks => "chunks",
            Self::Ordinary => "ordinary",
        }
    }
}

impl Default for Command {
    fn default() -> Self {
        Self::Train(TrainArgs::default())
    }
}

impl Cli {
    /// Ends the program with exit code 2 if arguments that are fine by themselves contradict each
    /// other.
    pub(crate) fn validate(&self) {
        if let Some(Command::Bench(args)) = &self.command
            && let Err(message) = args.consistent()
        {
            let mut command = Self::command();
            command.build();
            // The usage that is shown is that of the subcommand, as for every other bad argument.
            let mut bench = command.find_subcommand_mut("bench").cloned().unwrap_or(command);
            bench.error(ErrorKind::ValueValidation, message).exit();
        }
    }
}

impl BenchArgs {
    /// The largest size of the sweep.
    pub(crate) fn largest(&self) -> u64 {
        self.max_bytes.unwrap_or(self.min_bytes.max(4 << 20))
    }

    fn consistent(&self) -> Result<(), String> {
        let Self { min_bytes, root, ranks, op, .. } = *self;
        let max_bytes = self.largest();
        if min_bytes == 0 {
            return Err("-b 0: no factor leads from zero bytes to the next size".to_owned());
        }
        if min_bytes > max_bytes {
            return Err(format!("-b {min_bytes} is larger than -e {max_bytes}"));
        }
        if root >= ranks {
            return Err(format!("-r {root}: the ranks are 0 to {}", ranks - 1));
        }
        if self.dtype == DType::Bool && op.parts().iter().any(|it| it.reduces()) {
            return Err(format!("-d bool: {op} reduces, and bool is moved but never reduced"));
        }
        if self.in_place && !op.parts().iter().any(|it| it.can_be_in_place()) {
            return Err(format!("--in-place: {op} has no form that is in place"));
        }
        Ok(())
    }
}

/// One word is a kind and a count; several are the names of devices.
fn parse_devices(text: &str) -> Result<DeviceChoice, String> {
    let expected = || {
        format!(
            "expected cpu:COUNT, cuda:COUNT, cpu:all or cuda:all, COUNT 1 to {MOST_MEMBERS}, or a \
             list of devices such as cpu:0,cpu:2"
        )
    };
    let known = |kind: &DeviceKind| [DeviceKind::CPU, DeviceKind::CUDA].contains(kind);
    if text.contains(',') {
        let names =
            text.split(',').map(|it| it.parse().ok().filter(|it: &DeviceId| known(&it.kind)));
        return names.collect::<Option<_>>().map(DeviceChoice::These).ok_or_else(expected);
    }
    let (kind, count) = text.split_once(':').ok_or_else(expected)?;
    let kind = kind.parse().ok().filter(known).ok_or_else(expected)?;
    if count == "all" {
        return Ok(DeviceChoice::All(kind));
    }
    let count = count.parse().ok().filter(|it: &NonZeroU32| it.get() as usize <= MOST_MEMBERS);
    count.map(|it| DeviceChoice::First(kind, it)).ok_or_else(expected)
}

fn parse_ranks(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|it| (1..=MOST_MEMBERS).contains(it))
        .ok_or_else(|| format!("expected a number from 1 to {MOST_MEMBERS}"))
}

/// Reads a type by our name for it or by that of nccl-tests (`test_typenames` in its
/// src/common.cu).
fn parse_dtype(text: &str) -> Result<DType, String> {
    let name = match text {
        "bfloat16" => "bf16",
        "double" => "f64",
        "float" => "f32",
        "half" => "f16",
        "int32" => "i32",
        "int64" => "i64",
        "int8" => "i8",
        "uint32" => "u32",
        "uint64" => "u64",
        "uint8" => "u8",
        other => other,
    };
    name.parse().map_err(|it: aether::Error| it.reason().to_owned())
}

/// Reads a reduction by our name for it or by that of nccl-tests.
fn parse_reduction(text: &str) -> Result<ReduceOp, String> {
    let name = if text == "avg" { "mean" } else { text };
    name.parse().map_err(|it: aether::Error| it.reason().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn bench(words: &str) -> BenchArgs {
        match Cli::try_parse_from(["aether", "bench"].into_iter().chain(words.split(' '))) {
            Ok(Cli { command: Some(Command::Bench(args)) }) => args,
            other => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn the_definition_of_the_arguments_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn train_without_arguments_has_the_defaults_of_no_command() {
        let cli = Cli::try_parse_from(["aether", "train"]).unwrap();
        let parsed = format!("{:?}", cli.command.unwrap());
        assert_eq!(parsed, format!("{:?}", Command::default()));
    }

    #[test]
    fn devices_are_a_kind_and_a_count_or_a_list_of_names() {
        let first = |kind, count| DeviceChoice::First(kind, NonZeroU32::new(count).unwrap());
        let these = |ids: &[(DeviceKind, u32)]| {
            DeviceChoice::These(ids.iter().map(|it| DeviceId::new(it.0, it.1)).collect())
        };
        let (cpu, cuda) = (DeviceKind::CPU, DeviceKind::CUDA);
        for (text, expected) in [
            ("cpu:4", first(cpu, 4)),
            ("cpu:1024", first(cpu, 1024)),
            ("cpu:all", DeviceChoice::All(cpu)),
            ("cuda:2", first(cuda, 2)),
            ("cuda:all", DeviceChoice::All(cuda)),
            ("cpu:0,cpu:2", these(&[(cpu, 0), (cpu, 2)])),
            ("cuda:7,cpu:0", these(&[(cuda, 7), (cpu, 0)])),
        ] {
            assert_eq!(parse_devices(text).unwrap(), expected);
            assert_eq!(expected.to_string(), text);
        }
        for text in [
            "cpu",
            "cpu:",
            "cpu:0",
            "cpu:-1",
            "cpu:1025",
            "gpu:1",
            "cuda:some",
            "4",
            "",
            "cpu:0,",
            "cpu:0,cpu:all",
            "cpu:0,cuda_host:1",
            "cpu:0, cpu:1",
        ] {
            assert!(parse_devices(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_names_of_nccl_tests_are_understood_beside_ours() {
        assert_eq!(bench("all_reduce -d float -o avg").dtype, DType::F32);
        assert_eq!(bench("all_reduce -d float -o avg").reduction, ReduceOp::Mean);
        assert_eq!(bench("all_reduce -d bfloat16").dtype, DType::BF16);
        assert_eq!(bench("all_reduce -d i64 -o max").dtype, DType::I64);
        assert!(parse_dtype("f33").unwrap_err().contains("bf16"));
        assert!(parse_reduction("xor").unwrap_err().contains("prod"));
    }

    #[test]
    fn the_largest_size_follows_the_smallest_where_it_is_not_given() {
        assert_eq!(bench("memcpy").largest(), 4 << 20);
        assert_eq!(bench("memcpy -b 8M").largest(), 8 << 20);
        assert_eq!(bench("memcpy -b 8 -e 64").largest(), 64);
    }

    #[test]
    fn arguments_that_contradict_each_other_are_refused() {
        for (words, part) in [
            ("all -b 0", "zero bytes"),
            ("all -b 2K -e 1K", "larger than -e 1024"),
            ("broadcast --ranks 2 -r 2", "0 to 1"),
            ("all_reduce -d bool", "never reduced"),
            ("all -d bool", "never reduced"),
            ("all_to_all --in-place", "no form that is in place"),
        ] {
            assert!(bench(words).consistent().is_err_and(|it| it.contains(part)), "{words}");
        }
        for words in ["all", "all --in-place", "all_gather -d bool", "broadcast -r 3"] {
            assert_eq!(bench(words).consistent(), Ok(()), "{words}");
        }
    }
}
