//! Progress of long work: a bar where somebody watches, plain lines elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::stderr;

/// How many plain lines a whole run prints, about.
const LINES: u64 = 10;

/// Progress on standard error, so that standard output holds results only.
pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines {
        label: &'static str,
        unit: &'static str,
        done: u64,
        total: u64,
    },
    /// Somebody else tells.
    Nothing,
}

impl Progress {
    /// Progress through `total` units of work.
    pub(crate) fn start(label: &'static str, unit: &'static str, total: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines { label, unit, done: 0, total };
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let template = format!("{label} {{wide_bar}} {unit} {{pos}}/{{len}}  {{msg}}  {{eta}}");
        // The template is ours and right; a bar in the default style is no reason to stop work.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }

    /// One unit more is done; `message` says how it went.
    pub(crate) fn advance(&mut self, message: &str) {
        match self {
            Self::Bar(bar) => {
                bar.set_message(message.to_owned());
                bar.inc(1);
            }
            Self::Nothing => {}
            Self::Lines { label, unit, done, total } => {
                *done += 1;
                if prints(*done, *total) {
                    stderr::line(format_args!("{label}: {unit} {done} of {total}, {message}"));
                }
            }
        }
    }

    /// Runs `print` with the bar out of the way.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match self {
            Self::Bar(bar) => bar.suspend(print),
            Self::Lines { .. } | Self::Nothing => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// The first and the last unit have a line, and those at even distances between.
fn prints(done: u64, total: u64) -> bool {
    done == 1 || done == total || done.is_multiple_of(total.div_ceil(LINES).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_prints_a_line_every_few_units_and_for_the_first_and_the_last() {
        let lines = |total| (1..=total).filter(|it| prints(*it, total)).collect::<Vec<_>>();
        assert_eq!(lines(1), [1]);
        assert_eq!(lines(3), [1, 2, 3]);
        assert_eq!(lines(30), [1, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30]);
        assert_eq!(lines(1_000_001).len(), 11);
    }
}
