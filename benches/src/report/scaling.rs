//! The page docs/scaling.md.

use super::pages::{MADE, Page, setting};
use super::plot::{Curve, curves};
use super::table::{line as table_line, size, time};
use crate::aether::Threads;
use crate::cell::Op;
use crate::failure::Result;
use crate::results::Row;
use crate::scaling::{Growth, RANKS, SEEN, Scaling, growth, line};

/// The page and its plots.
pub(super) fn all(scaling: &Scaling) -> Result<Vec<Page>> {
    let mut text = format!(
        "{MADE}\n# What it costs to grow\n\n{}\n{}",
        setting(&scaling.setting),
        introduction(scaling.setting.cores)
    );
    let mut pages = Vec::new();
    for op in Op::ALL {
        if !scaling.rows.iter().any(|row| row.cell.op == op) {
            continue;
        }
        let name = format!("performance/scaling-{op}.svg");
        text +=
            &format!("\n## {op}\n\n![time by bytes and ranks]({name})\n\n{}", lines(scaling, op));
        if let Some(growth) = growth(&scaling.rows, op) {
            text += &format!("\n{}", prediction(scaling, op, &growth));
        }
        pages.push((name, plot(scaling, op)?));
    }
    pages.push(("scaling.md".to_owned(), text));
    Ok(pages)
}

/// The laws of each number of ranks, by operation.
pub(super) fn tables(scaling: &Scaling) -> String {
    Op::ALL.map(|op| format!("{op}\n{}", lines(scaling, op))).join("\n")
}

fn introduction(cores: usize) -> String {
    format!(
        "What a collective of aether costs by the number of ranks, each a thread, and by bytes, on the {cores} \
         cores named\nabove. Two laws are fitted to the measured medians:\n\n\
         - for each number of ranks, time = latency + bytes / bandwidth, bytes being the size of the whole \
         array;\n\
         - over all of them, time = constant + ranks × cost of a rank + bytes moved / memory bandwidth, bytes \
         moved being every\n  input once and every output once. It is fitted to 2 to {SEEN} ranks only: what it \
         says of more is a prediction, and\n  is compared with what was measured.\n\n\
         Both are least squares on the relative error, as ln(predicted / measured), so that half and double \
         are equally wrong\nat 1 µs and at 1 ms, with no negative terms. *Typical* and *worst* are the error that half of \
         the sizes stay within, and the largest.\nOne straight line can't follow an array from the nearest \
         cache out to memory.\n"
    )
}

/// The law of each number of ranks.
fn lines(scaling: &Scaling, op: Op) -> String {
    let head = ["ranks", "latency, µs", "bandwidth, GB/s", "typical", "worst", "worst at"];
    let mut text = table_line(&head) + &table_line(&["---:"; 6]);
    for ranks in RANKS {
        let Some(line) = line(&scaling.rows, op, ranks) else { continue };
        let errors = of(scaling, op, ranks).zip(&line.fit.errors);
        let worst = errors.max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()));
        let at = worst.map(|(row, error)| format!("{}: {}", size(row.cell.bytes), signed(*error)));
        text += &table_line(&[
            ranks.to_string(),
            time(line.latency()),
            gigabytes(line.bandwidth()),
            percent(line.fit.typical()),
            percent(line.fit.worst()),
            at.unwrap_or_default(),
        ]);
    }
    text
}

/// The law over all, and how it stands to what it was not fitted to.
fn prediction(scaling: &Scaling, op: Op, growth: &Growth) -> String {
    let [constant, each, _] = growth.fit.weights;
    let mut text = format!(
        "Over 2 to {SEEN} ranks: {} µs + ranks × {} µs + bytes moved / {} GB/s, typically {} off and at worst \
         {}.\nFor more ranks it predicts (error of the prediction in terms of what was measured):\n\n",
        time(constant),
        time(each),
        gigabytes(growth.bandwidth()),
        percent(growth.fit.typical()),
        percent(growth.fit.worst()),
    );
    let head = ["ranks", "bytes", "predicted, µs", "measured, µs", "error"];
    text += &(table_line(&head) + &table_line(&["---:"; 5]));
    let beyond = scaling.rows.iter().filter(|row| row.cell.op == op && row.cell.ranks > SEEN);
    for row in beyond {
        let Some(measured) = row.of(Threads::NAME).map(|it| it.median()) else { continue };
        let predicted = growth.predict(&row.cell);
        text += &table_line(&[
            row.cell.ranks.to_string(),
            size(row.cell.bytes),
            time(predicted),
            time(measured),
            signed(predicted / measured - 1.0),
        ]);
    }
    text
}

fn plot(scaling: &Scaling, op: Op) -> Result<String> {
    let curve = |ranks| {
        let points: Vec<(f64, f64)> = of(scaling, op, ranks)
            .filter_map(|row| Some((row.cell.bytes as f64, row.of(Threads::NAME)?.median())))
            .collect();
        let line = line(&scaling.rows, op, ranks);
        let fit = line.iter().flat_map(|line| {
            let first = points.first().map_or(0.0, |it| it.0);
            let last = points.last().map_or(0.0, |it| it.0);
            // Close enough for a curve where both axes are logarithmic.
            let steps = std::iter::successors(Some(first), |bytes| Some(bytes * 2.0));
            let steps = steps.take_while(move |bytes| first > 0.0 && *bytes <= last * 1.01);
            steps.map(|bytes| (bytes, line.predict(bytes as usize))).collect::<Vec<_>>()
        });
        Curve { name: format!("{ranks} ranks"), fit: fit.collect(), points }
    };
    let title =
        format!("{op} on {} cores: measured (dots) and fitted (lines)", scaling.setting.cores);
    curves(&title, &RANKS.map(curve))
}

fn of(scaling: &Scaling, op: Op, ranks: usize) -> impl Iterator<Item = &Row> {
    scaling.rows.iter().filter(move |row| row.cell.op == op && row.cell.ranks == ranks)
}

/// A bandwidth without end is that of an operation whose bytes cost nothing.
fn gigabytes(bandwidth: f64) -> String {
    if bandwidth.is_finite() { format!("{bandwidth:.2}") } else { "∞".to_owned() }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn signed(share: f64) -> String {
    format!("{:+.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;
    use crate::results::Series;

    #[test]
    fn the_page_tells_the_laws_and_what_they_say_beyond_what_they_saw() {
        // 1 µs a rank, and 1 GB/s of the whole array; no rank costs more than another.
        let cells = RANKS.into_iter().flat_map(|ranks| {
            [1024, 32768, 1 << 20].map(|bytes| Cell { op: Op::Broadcast, ranks, bytes })
        });
        let micros =
            |cell: &Cell| cell.ranks as f64 + cell.bytes as f64 * cell.ranks as f64 / 1000.0;
        let row = |cell: Cell| Row {
            series: vec![Series { name: Threads::NAME.into(), micros: vec![micros(&cell)] }],
            cell,
        };
        let scaling = Scaling { rows: cells.map(row).collect(), ..Scaling::default() };
        let pages = all(&scaling).unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["performance/scaling-broadcast.svg", "scaling.md"]);
        let text = &pages[1].1;
        assert!(text.contains("| 4 | 4.00 | 0.25 | 0 % | 0 % |"), "{text}");
        assert!(text.contains("0.00 µs + ranks × 1.00 µs + bytes moved / 1.00 GB/s"), "{text}");
        assert!(text.contains("| 64 | 1 MiB | 67173 | 67173 | +0 % |"), "{text}");
        assert!(!text.contains("all_reduce"));
    }
}
