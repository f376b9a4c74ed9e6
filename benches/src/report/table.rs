//! Tables in markdown.

use crate::aether::{Set, Threads};
use crate::cell::{Cell, Op};
use crate::peers::{Buffers, Library};
use crate::results::{Collectives, Row, Series};
use crate::targets::{TARGETS, Target, Verdict, verdicts};

/// One operation between so many ranks: a line for each size. Empty if nothing of it was measured.
pub(super) fn of_op(results: &Collectives, op: Op, ranks: usize) -> String {
    let of_it = |row: &&Row| row.cell.op == op && row.cell.ranks == ranks;
    let rows: Vec<&Row> = results.rows.iter().filter(of_it).collect();
    if rows.is_empty() {
        return String::new();
    }
    // Who took none of them has no column.
    let libraries = Library::ALL.into_iter();
    let others: Vec<&str> = libraries
        .map(Library::name)
        .filter(|name| rows.iter().any(|row| row.of(name).is_some()))
        .collect();
    let mut head = vec!["bytes".into(), "limit".into(), "aether".into(), "of the limit".into()];
    head.extend(others.iter().map(|name| format!("of {name}")));
    head.push("GroupSet, of threads".into());
    let processes: Vec<&str> = Buffers::ALL
        .map(Buffers::name)
        .into_iter()
        .filter(|name| rows.iter().any(|row| row.of(name).is_some()))
        .collect();
    head.extend(processes.iter().map(|name| format!("{}, of threads", short(name))));
    head.push("targets".into());
    let mut text = line(&head) + &line(&head.iter().map(|_| "---:".to_owned()).collect::<Vec<_>>());
    for row in rows {
        let aether = row.of(Threads::NAME);
        let mut cells = vec![
            size(row.cell.bytes),
            micros(row.limit()),
            micros(aether),
            ratio(aether, row.limit()),
        ];
        cells.extend(others.iter().map(|name| ratio(aether, row.of(name))));
        cells.push(ratio(row.of(Set::NAME), aether));
        cells.extend(processes.iter().map(|name| ratio(row.of(name), aether)));
        cells.push(judged(row));
        text += &line(&cells);
    }
    text
}

/// The targets, with how many cells hold to each and the one that is furthest off.
pub(super) fn of_targets(results: &Collectives) -> String {
    let head = ["who", "ranks", "operation", "bytes", "target", "held", "furthest off"];
    let mut text = line(&head) + &line(&["---"; 7]);
    for target in TARGETS {
        let judged: Vec<(Cell, Verdict)> = results
            .rows
            .iter()
            .flat_map(|row| verdicts(row).into_iter().map(|verdict| (row.cell, verdict)))
            .filter(|(_, verdict)| std::ptr::eq(verdict.target, target))
            .collect();
        let held = judged.iter().filter(|(_, it)| it.holds()).count();
        let worst = judged.iter().max_by(|(_, a), (_, b)| a.used.total_cmp(&b.used));
        let worst = worst.map_or_else(
            || "not measured".to_owned(),
            |(cell, it)| {
                let (op, bytes) = (cell.op, size(cell.bytes));
                format!("{op} of {bytes}: {}", share(it))
            },
        );
        text += &line(&[
            target.who.to_owned(),
            list(target.ranks),
            target.op.map_or_else(|| "any".to_owned(), |op| op.to_string()),
            range(target),
            format!("at most {}", target.bound.in_words(target.bound.against.in_words())),
            format!("{held} of {}", judged.len()),
            worst,
        ]);
    }
    text
}

/// One row as a line of the terminal.
pub(super) fn row_in_words(row: &Row) -> String {
    let aether = row.of(Threads::NAME);
    let mut text = format!(
        "{:<15}{:>2} ranks {:>8}: limit {:>9}, aether {:>9} = {} of it",
        row.cell.op,
        row.cell.ranks,
        size(row.cell.bytes),
        micros(row.limit()),
        micros(aether),
        ratio(aether, row.limit()),
    );
    text += &format!("; GroupSet {} of that", ratio(row.of(Set::NAME), aether));
    for name in Library::ALL.map(Library::name) {
        if let Some(other) = row.of(name) {
            text +=
                &format!("; {} of {name}'s {}", ratio(aether, Some(other)), micros(Some(other)));
        }
    }
    text + "; " + &judged(row)
}

/// The targets of one row that are missed, if any.
fn judged(row: &Row) -> String {
    let all = verdicts(row);
    let missed: Vec<String> = all.iter().filter(|it| !it.holds()).map(missed).collect();
    match (all.is_empty(), missed.is_empty()) {
        (true, _) => "none".to_owned(),
        (_, true) => "held".to_owned(),
        _ => format!("**missed**: {}", missed.join("; ")),
    }
}

fn missed(verdict: &Verdict) -> String {
    match verdict.target.who {
        Threads::NAME => share(verdict),
        who => format!("{} {}", short(who), share(verdict)),
    }
}

/// A contender's name without aether's.
fn short(name: &str) -> &str {
    name.strip_prefix(Threads::NAME).map_or(name, str::trim_start)
}

/// How far the row is from the target, and what that is.
fn share(verdict: &Verdict) -> String {
    let Verdict { target: Target { bound, .. }, against, used, ratio } = verdict;
    if bound.plus == 0.0 && bound.floor == 0.0 {
        format!("{ratio:.2} of {against}, aim {}", bound.factor)
    } else {
        format!("{used:.2} of the aim, {}", bound.in_words(against))
    }
}

pub(super) fn line(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Bytes as people say them.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Microseconds, to three digits that count.
pub(super) fn time(micros: f64) -> String {
    match micros {
        _ if micros < 10.0 => format!("{micros:.2}"),
        _ if micros < 100.0 => format!("{micros:.1}"),
        _ => format!("{micros:.0}"),
    }
}

fn micros(series: Option<&Series>) -> String {
    series.map_or_else(|| "-".to_owned(), |it| time(it.median()))
}

fn ratio(of: Option<&Series>, to: Option<&Series>) -> String {
    let ratio = of.zip(to).and_then(|(of, to)| of.ratio_to(to));
    ratio.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"))
}

fn list(ranks: &[usize]) -> String {
    let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
    if ranks.is_empty() { "any".to_owned() } else { ranks.join(", ") }
}

fn range(target: &Target) -> String {
    match target.bytes {
        (0, usize::MAX) => "any".to_owned(),
        (from, usize::MAX) => format!("{} and more", size(from)),
        (0, to) => format!("up to {}", size(to)),
        // Bounds that another target has for its own are left out of this one.
        (from, to) if to % 2 == 1 => format!("over {}, under {}", size(from - 1), size(to + 1)),
        (from, to) => format!("{} to {}", size(from), size(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Stores;

    fn row(bytes: usize, series: &[(&str, f64)]) -> Row {
        let cell = Cell { op: Op::AllReduce, ranks: 2, bytes };
        let one =
            |(name, micros): &(&str, f64)| Series { name: (*name).into(), micros: vec![*micros] };
        Row { cell, series: series.iter().map(one).collect() }
    }

    fn results() -> Collectives {
        let limit = Stores::NonTemporal.name();
        Collectives {
            rows: vec![
                row(16, &[("aether", 0.2), ("aether GroupSet", 0.1), ("Open MPI", 0.4)]),
                row(32 << 20, &[(limit, 1000.0), ("aether", 1500.0), ("Open MPI", 3000.0)]),
            ],
            ..Collectives::default()
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_size_and_a_column_for_each_peer_that_was_there() {
        let expected = "\
| bytes | limit | aether | of the limit | of Open MPI | GroupSet, of threads | targets |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 16 B | - | 0.20 | - | 0.50 | 0.50 | held |
| 32 MiB | 1000 | 1500 | 1.50 | 0.50 | - | **missed**: 1.50 of the limit, aim 1.15 |
";
        assert_eq!(of_op(&results(), Op::AllReduce, 2), expected);
        assert_eq!(of_op(&results(), Op::AllReduce, 4), "");
        assert_eq!(of_op(&results(), Op::Broadcast, 2), "");
    }

    #[test]
    fn the_targets_are_told_with_the_cell_that_is_furthest_off() {
        let text = of_targets(&results());
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines.len(), TARGETS.len());
        assert_eq!(
            lines[0],
            "| aether | 2 | any | 16 MiB and more | at most 1.15 of the limit | 0 of 1 | \
             all_reduce of 32 MiB: 1.50 of the limit, aim 1.15 |"
        );
        assert!(text.contains("| any | up to 1 KiB | at most Open MPI's time, or 0.25 µs where that is more | 1 of 1 |"));
        assert!(text.contains("| over 1 KiB, under 512 KiB |"), "{text}");
        assert!(text.contains("| 0 of 0 | not measured |"));
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let times = [0.234, 2.345, 23.45, 234.5, 2345.6].map(time);
        assert_eq!(times, ["0.23", "2.35", "23.4", "234", "2346"].map(str::to_owned));
        assert_eq!([16, 1024, 1536, 2 << 20].map(size), ["16 B", "1 KiB", "1536 B", "2 MiB"]);
    }
}
