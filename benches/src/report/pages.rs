//! Every page, and what stands on those of the collectives.

use super::plot::{Curve, curves};
use super::{dtypes, movers, scaling, table};
use crate::aether::{Set, Threads};
use crate::cell::Op;
use crate::failure::Result;
use crate::peers::{Buffers, Library};
use crate::results::{Collectives, Results, Row, Series};
use crate::setting::Setting;

/// One file: its path below docs/ and its text.
pub(super) type Page = (String, String);

/// How to make them again, which each says first.
pub(super) const MADE: &str = "<!-- Made by `cargo xtask bench` from results.json; `cargo xtask bench --render` makes it again. -->\n";

/// Every page and plot that the results have something for.
pub(super) fn all(results: &Results) -> Result<Vec<Page>> {
    let mut pages = Vec::new();
    let mut front = format!("{MADE}\n# Performance\n\n");
    if let Some(collectives) = &results.collectives {
        front += &introduction(collectives);
        for ranks in ranks(collectives) {
            let file = format!("{ranks}-ranks.md");
            front += &format!("- [{ranks} ranks]({file})\n");
            pages.push((below(&file), of_ranks(collectives, ranks)));
            for op in ops(collectives, ranks) {
                pages.push((below(&plot_name(op, ranks)), plot(collectives, op, ranks)?));
            }
        }
    }
    if let Some(dtypes) = &results.dtypes {
        front += "- [Types](types.md)\n";
        pages.push((below("types.md"), dtypes::page(dtypes)));
    }
    if let Some(movers) = &results.movers {
        front += "- [Residency](residency.md)\n";
        pages.push((below("residency.md"), movers::page(movers)));
    }
    if let Some(scaling) = &results.scaling {
        front += "- [What it costs to grow](../scaling.md)\n";
        pages.extend(scaling::all(scaling)?);
    }
    if let Some(collectives) = &results.collectives {
        front += &format!("\n## Targets\n\n{}", table::of_targets(collectives));
    }
    pages.push((below("README.md"), front));
    Ok(pages)
}

fn below(name: &str) -> String {
    format!("performance/{name}")
}

/// Where and when, one fact a line.
pub(super) fn setting(setting: &Setting) -> String {
    let Setting { processor, cores, cache, system, date, aether, compiler, peers, turns } = setting;
    let mut text = format!(
        "- {processor}, {cores} cores, {cache} of last-level cache, {system}\n\
         - {date}; aether {aether}, {compiler}\n"
    );
    if !peers.is_empty() {
        text += &format!("- {}\n", peers.join("; "));
    }
    text + &format!("- {turns} turns a contender; every figure is a median\n")
}

fn introduction(results: &Collectives) -> String {
    let mut text = setting(&results.setting);
    text += "\nEvery contender takes its turn at a cell before the first has its second, and a ratio is the \
             median of the ratios\nof the same turns: what slows the machine for a while slows both sides. The \
             limit is what the memory allows: every\ninput read once, every output written once, by as many \
             threads as there are cores for, which never wait for each\nother; the better of ordinary and \
             non-temporal stores counts. Aether is called through its public interface, by a\nblocking call a \
             thread, with hazards, checks and deadlines on; `GroupSet` is the same by one caller. Broadcast has\n\
             the root in place on all sides. Elements are f32, times are microseconds, and bytes are the size of \
             the whole array,\nas nccl-tests counts it.\n";
    if !results.skipped.is_empty() {
        text += "\nNot measured:\n";
        for why in &results.skipped {
            text += &format!("- {why}\n");
        }
    }
    text + "\n## Tables and plots\n\n"
}

fn of_ranks(results: &Collectives, ranks: usize) -> String {
    let mut text = format!(
        "{MADE}\n# {ranks} ranks on {} cores\n\nTimes are microseconds; see [how they are taken](README.md).\n",
        results.setting.cores,
    );
    for op in ops(results, ranks) {
        let (table, plot) = (table::of_op(results, op, ranks), plot_name(op, ranks));
        text += &format!("\n## {op}\n\n![{op} between {ranks} ranks]({plot})\n\n{table}");
    }
    text
}

fn plot_name(op: Op, ranks: usize) -> String {
    format!("{op}-{ranks}.svg")
}

fn plot(results: &Collectives, op: Op, ranks: usize) -> Result<String> {
    let rows =
        || results.rows.iter().filter(move |row| row.cell.op == op && row.cell.ranks == ranks);
    let curve = |name: &str, of: &dyn Fn(&Row) -> Option<Series>| Curve {
        name: name.to_owned(),
        points: rows().filter_map(|row| Some((row.cell.bytes as f64, of(row)?.median()))).collect(),
        fit: Vec::new(),
    };
    let named = |name: &str| curve(name, &|row| row.of(name).cloned());
    let mut all = vec![curve("limit", &|row| row.limit().cloned())];
    all.extend([Threads::NAME, Set::NAME].map(named));
    all.extend(Library::ALL.map(Library::name).map(named));
    all.extend(Buffers::ALL.map(Buffers::name).map(named));
    curves(&format!("{op} between {ranks} ranks on {} cores", results.setting.cores), &all)
}

fn ranks(results: &Collectives) -> Vec<usize> {
    let mut all: Vec<usize> = results.rows.iter().map(|row| row.cell.ranks).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn ops(results: &Collectives, ranks: usize) -> Vec<Op> {
    let measured =
        |op: &Op| results.rows.iter().any(|row| row.cell.op == *op && row.cell.ranks == ranks);
    Op::ALL.into_iter().filter(measured).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;

    fn results() -> Results {
        let row = |op, ranks, bytes| Row {
            cell: Cell { op, ranks, bytes },
            series: vec![Series { name: Threads::NAME.into(), micros: vec![1.5] }],
        };
        let setting = Setting { processor: "A processor".into(), cores: 2, ..Setting::default() };
        let skipped = vec!["MPICH: there is no mpicc.mpich".into()];
        let rows =
            vec![row(Op::Broadcast, 2, 16), row(Op::Broadcast, 2, 128), row(Op::AllReduce, 4, 32)];
        Results { collectives: Some(Collectives { setting, skipped, rows }), ..Results::default() }
    }

    #[test]
    fn there_is_a_page_for_each_number_of_ranks_and_a_plot_for_each_operation() {
        let pages = all(&results()).unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        let expected =
            ["2-ranks.md", "broadcast-2.svg", "4-ranks.md", "all_reduce-4.svg", "README.md"];
        assert_eq!(names, expected.map(below));
        let front = &pages[4].1;
        for text in
            ["A processor, 2 cores", "- MPICH: there is no mpicc.mpich", "[4 ranks](4-ranks.md)"]
        {
            assert!(front.contains(text), "{text}");
        }
        assert!(pages[0].1.contains("![broadcast between 2 ranks](broadcast-2.svg)"));
        assert!(pages[0].1.contains("| 128 B | - | 1.50 |"));
        assert!(!pages[0].1.contains("all_reduce"));
    }

    #[test]
    fn without_results_there_is_only_an_empty_front_page() {
        let pages = all(&Results::default()).unwrap();
        assert_eq!(pages.len(), 1);
        assert!(pages[0].1.ends_with("# Performance\n\n"));
    }
}
