//! The program behind `cargo xtask bench`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use aether_benches::collectives::{self, Choice};
use aether_benches::failure::{Failure, Result};
use aether_benches::peers::Library;
use aether_benches::report;
use aether_benches::results::Results;
use aether_benches::turns::Plan;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

/// Measures aether, the limit of this machine's memory and other libraries in turns.
///
/// A whole run writes its tables and plots to docs/performance/. A part of one prints what it measured.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Cli {
    /// Take a minute: fewer turns, and every second size.
    #[arg(long)]
    quick: bool,
    /// Measure only cells whose name holds one of these, such as `all_reduce` or `ranks 2 bytes 16`.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Measure between so many ranks.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,4,8")]
    ranks: Vec<usize>,
    /// Measure arrays of at most so many bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    max: usize,
    /// Give each contender so many turns.
    #[arg(long, value_name = "N")]
    turns: Option<usize>,
    /// Leave other libraries out.
    #[arg(long)]
    no_peers: bool,
    /// Have burn-collective take turns too, which builds for minutes the first time.
    #[arg(long, conflicts_with = "no_peers")]
    burn: bool,
    /// Measure nothing: write docs/performance/ again, from the results that lie there.
    #[arg(long)]
    render: bool,
    /// Where programs are built and results are kept.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/bench")]
    output: PathBuf,
}

impl Cli {
    /// Whether this is all there is to measure, as it is published.
    fn is_whole(&self) -> bool {
        !self.quick && self.only.is_empty() && self.ranks == [2, 4, 8] && self.max == 64 << 20
    }

    fn choice(&self) -> Choice {
        let plan = if self.quick { Plan::QUICK } else { Plan::FULL };
        let wanted = |it: &Library| !self.no_peers && (self.burn || *it != Library::Burn);
        Choice {
            ranks: self.ranks.clone(),
            most: self.max,
            every: if self.quick { 2 } else { 1 },
            only: self.only.clone(),
            peers: Library::ALL.into_iter().filter(wanted).collect(),
            directory: self.output.clone(),
            plan: Plan { turns: self.turns.unwrap_or(plan.turns), ..plan },
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
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance");
    if cli.render {
        return report::publish(&report::load(&docs)?, &docs);
    }
    std::fs::create_dir_all(&cli.output)
        .map_err(|error| Failure::new(format!("create {}: {error}", cli.output.display())))?;
    let choice = cli.choice();
    let cells = choice.ranks.iter().map(|ranks| choice.cells(*ranks).len()).sum::<usize>();
    if cells == 0 {
        return Err(Failure::new("no cell is of this choice"));
    }
    let bar = progress(cells)?;
    let collectives = collectives::run(&choice, |cell| {
        bar.inc(1);
        bar.set_message(cell.to_string());
    })?;
    bar.finish_and_clear();
    for row in &collectives.rows {
        println!("{}", report::row_in_words(row));
    }
    for why in &collectives.skipped {
        println!("skipped: {why}");
    }
    let results = Results { collectives: Some(collectives) };
    report::save(&results, &cli.output)?;
    println!("kept in {}", cli.output.display());
    if cli.is_whole() {
        report::publish(&results, &docs)?;
        println!("published in docs/performance/");
    }
    Ok(())
}

/// A bar that says which cell is being measured and how long the rest may take.
fn progress(cells: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({eta} left)")
        .map_err(|error| Failure::new(format!("show progress: {error}")))?;
    Ok(ProgressBar::new(cells as u64).with_style(style))
}
