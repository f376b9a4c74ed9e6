//! The table of types.

use super::pages::{MADE, setting};
use super::table::{line, size, time};
use crate::dtypes::{Dtypes, RANKS, aim};
use crate::statistics::median;

/// The page.
pub(super) fn page(dtypes: &Dtypes) -> String {
    let mut text = format!(
        "{MADE}\n# Types\n\n{}\nall_reduce of {} between {RANKS} ranks: bytes a second in terms of f32's by the \
         same reduction, in the same turns.\n\n",
        setting(&dtypes.setting),
        size(dtypes.bytes),
    );
    text += &table(dtypes);
    text
}

/// A line for each type and reduction.
pub(super) fn table(dtypes: &Dtypes) -> String {
    let mut text = line(&["type", "reduction", "µs", "share of f32", "aim", ""]);
    text += &line(&["---", "---", "---:", "---:", "---:", "---"]);
    for row in &dtypes.rows {
        let Some(share) = dtypes.share(row) else { continue };
        // F32 is what the others are compared with.
        let (aim, verdict) = match aim(&row.dtype) {
            _ if row.dtype == "f32" => ("-".to_owned(), ""),
            aim if share >= aim => (format!("{aim:.2}"), "held"),
            aim => (format!("{aim:.2}"), "**missed**"),
        };
        let micros = median(&row.micros).map_or_else(|| "-".to_owned(), time);
        text += &line(
            &[&row.dtype, &row.op, &micros, &format!("{share:.2}"), &aim, verdict]
                .map(|it| it.to_owned()),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtypes::Reduction;

    #[test]
    fn each_type_has_its_share_and_whether_that_is_enough() {
        let row = |dtype: &str, micros| Reduction {
            dtype: dtype.into(),
            op: "sum".into(),
            micros: vec![micros],
        };
        let rows = vec![row("f32", 1000.0), row("f16", 1200.0), row("bf16", 1300.0)];
        let text = page(&Dtypes { rows, ..Dtypes::default() });
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        assert_eq!(
            lines,
            [
                "| bf16 | sum | 1300 | 0.77 | 0.80 | **missed** |",
                "| f16 | sum | 1200 | 0.83 | 0.80 | held |",
                "| f32 | sum | 1000 | 1.00 | - |  |",
            ]
        );
    }
}
