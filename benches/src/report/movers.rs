//! The table of residency.

use super::pages::{MADE, setting};
use super::table::{line, size, time};
use crate::movers::Movers;
use crate::statistics::median;

/// The page.
pub(super) fn page(movers: &Movers) -> String {
    format!(
        "{MADE}\n# Residency\n\n{}\nEach takes turns with a plain copy of the same bytes to as many destinations, by \
         all cores, or by one thread\nbelow 1 MiB and for staging, of which each leg is one. The better of ordinary and non-temporal \
         stores counts, and a ratio is the median of those of\nthe same turns.\n\n{}",
        setting(&movers.setting),
        table(movers),
    )
}

/// A line for each way and size.
pub(super) fn table(movers: &Movers) -> String {
    let mut text =
        line(&["what", "bytes", "copy by", "copy, µs", "aether, µs", "of the copy", "aim", ""]);
    text += &line(&["---", "---:", "---:", "---:", "---:", "---:", "---:", "---"]);
    for row in &movers.rows {
        let (Some(plain), Some(aether), Some(ratio)) =
            (row.plain(), median(&row.aether), row.ratio())
        else {
            continue;
        };
        text += &line(&[
            row.what.clone(),
            size(row.bytes),
            if row.threads == 1 {
                "1 thread".to_owned()
            } else {
                format!("{} threads", row.threads)
            },
            time(plain.median()),
            time(aether),
            format!("{ratio:.2}"),
            row.aim.to_string(),
            if ratio <= row.aim { "held" } else { "**missed**" }.to_owned(),
        ]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Stores;
    use crate::movers::Mover;
    use crate::results::Series;

    #[test]
    fn a_way_that_takes_longer_than_its_aim_is_missed() {
        let row = |aether| Mover {
            what: "scatter to 2".into(),
            bytes: 1 << 20,
            threads: 2,
            aim: 1.2,
            aether: vec![aether],
            plain: vec![Series { name: Stores::Ordinary.name().into(), micros: vec![100.0] }],
        };
        let text = table(&Movers { rows: vec![row(119.0), row(121.0)], ..Movers::default() });
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| scatter to 2 | 1 MiB | 2 threads | 100 | 119 | 1.19 | 1.2 | held |",
                "| scatter to 2 | 1 MiB | 2 threads | 100 | 121 | 1.21 | 1.2 | **missed** |",
            ]
        );
    }
}
