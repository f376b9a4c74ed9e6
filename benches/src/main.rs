//! The program behind `cargo xtask bench`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use aether_benches::collectives::{self, Choice};
use aether_benches::dtypes;
use aether_benches::failure::{Failure, Result};
use aether_benches::movers;
use aether_benches::peers::Library;
use aether_benches::report;
use aether_benches::results::{Collectives, Results};
use aether_benches::scaling;
use aether_benches::turns::Plan;
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

/// Measures aether, the limit of this machine's memory and other libraries in turns.
///
/// What is measured whole is published in docs/performance/ and docs/scaling.md. What is not, for one of the
/// options below, is printed and kept in the output directory.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Cli {
    /// What to measure; everything if nothing is named.
    #[arg(value_name = "PART")]
    parts: Vec<Part>,
    /// Take a minute: fewer turns, and every second size.
    #[arg(long)]
    quick: bool,
    /// Of the collectives, measure only cells whose name holds one of these, such as `all_reduce` or
    /// `ranks 2 bytes 16`.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Measure the collectives between so many ranks.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,4,8")]
    ranks: Vec<usize>,
    /// Measure the collectives of arrays of at most so many bytes.
    #[arg(long, value_name = "BYTES", default_value_t = MOST)]
    max: usize,
    /// Give each contender so many turns.
    #[arg(long, value_name = "N")]
    turns: Option<usize>,
    /// Leave other libraries and aether's processes out.
    #[arg(long)]
    no_peers: bool,
    /// Have burn-collective take turns too, which builds for minutes the first time.
    #[arg(long, conflicts_with = "no_peers")]
    burn: bool,
    /// Measure nothing: write tables and plots again, from the results that lie beside them.
    #[arg(long)]
    render: bool,
    /// Where programs are built and results are kept.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/bench")]
    output: PathBuf,
    /// Where tables and plots are published.
    #[arg(long, value_name = "DIRECTORY", default_value = "docs")]
    docs: PathBuf,
}

/// The largest array of the collectives.
const MOST: usize = 64 << 20;

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Every collective, by everybody, against the limit and the targets.
    Collectives,
    /// Other types than f32.
    Dtypes,
    /// Residency: replicate, scatter, gather, copy and staging, against plain copies.
    Movers,
    /// What it costs to grow, from 1 to 64 ranks.
    Scaling,
}

impl Cli {
    fn measures(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    /// Whether the collectives are measured as they are published.
    fn is_whole(&self) -> bool {
        self.only.is_empty() && self.ranks == [2, 4, 8] && self.max == MOST && !self.no_peers
    }

    fn plan(&self) -> Plan {
        let plan = if self.quick { Plan::QUICK } else { Plan::FULL };
        Plan { turns: self.turns.unwrap_or(plan.turns), ..plan }
    }

    fn choice(&self) -> Choice {
        let wanted = |it: &Library| !self.no_peers && (self.burn || *it != Library::Burn);
        Choice {
            ranks: self.ranks.clone(),
            most: self.max,
            every: if self.quick { 2 } else { 1 },
            only: self.only.clone(),
            peers: Library::ALL.into_iter().filter(wanted).collect(),
            processes: !self.no_peers,
            directory: self.output.clone(),
            plan: self.plan(),
        }
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    if cli.render {
        return report::publish(&report::published(&cli.docs)?, &cli.docs);
    }
    std::fs::create_dir_all(&cli.output)
        .map_err(|error| Failure::new(format!("create {}: {error}", cli.output.display())))?;
    let mut measured = Results::default();
    if cli.measures(Part::Collectives) {
        measured.collectives = Some(collectives(cli)?);
    }
    if cli.measures(Part::Dtypes) {
        let bar = progress("types", cli.plan().turns * 3)?;
        measured.dtypes = Some(dtypes::run(cli.plan(), dtypes::BYTES, || bar.inc(1))?);
        bar.finish_and_clear();
    }
    if cli.measures(Part::Movers) {
        let bar = progress("movers", movers::BYTES.len())?;
        measured.movers = Some(movers::run(cli.plan(), &movers::BYTES, || bar.inc(1))?);
        bar.finish_and_clear();
    }
    if cli.measures(Part::Scaling) {
        let cells =
            scaling::RANKS.iter().map(|ranks| scaling::cells(*ranks, cli.quick).len()).sum();
        let bar = progress("scaling", cells)?;
        // No ratio is taken, so that a third of the turns tells as much.
        let plan = Plan { turns: cli.plan().turns.div_ceil(3), ..cli.plan() };
        measured.scaling = Some(scaling::run(plan, cli.quick, |cell| {
            bar.set_message(cell.to_string());
            bar.inc(1);
        })?);
        bar.finish_and_clear();
    }
    let mut kept = report::load(&cli.output)?;
    kept.replace(&measured);
    report::save(&kept, &cli.output)?;
    let mut told = format!("{}\nkept in {}\n", report::in_words(&measured), cli.output.display());
    if !cli.is_whole() {
        measured.collectives = None;
    }
    if !cli.quick && measured != Results::default() {
        let mut published = report::published(&cli.docs)?;
        published.replace(&measured);
        report::publish(&published, &cli.docs)?;
        told += &format!("published in {}\n", cli.docs.display());
    }
    // Who closed the output wants no more of it, and everything is kept.
    let _ = std::io::stdout().write_all(told.as_bytes());
    Ok(())
}

fn collectives(cli: &Cli) -> Result<Collectives> {
    let choice = cli.choice();
    let cells = choice.ranks.iter().map(|ranks| choice.cells(*ranks).len()).sum::<usize>();
    if cells == 0 {
        return Err(Failure::new("no cell is of this choice"));
    }
    let bar = progress("collectives", cells)?;
    let measured = collectives::run(&choice, |cell| {
        bar.set_message(cell.to_string());
        bar.inc(1);
    });
    bar.finish_and_clear();
    measured
}

/// A bar that says what is being measured and how long the rest may take.
fn progress(part: &'static str, steps: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg} ({eta} left)")
        .map_err(|error| Failure::new(format!("show progress: {error}")))?;
    Ok(ProgressBar::new(steps as u64).with_style(style).with_prefix(part))
}
