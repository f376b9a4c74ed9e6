//! What is said when a call can't end: who is gone, who did not come, who waits in a circle.

use aether_core::{Error, ErrorKind};

use super::circles;
use super::table::Table;

/// Breaks the group because ranks that the call waits for are gone, and how each went.
pub(crate) fn report_gone(table: &Table, call: &str, gone: &[&(usize, String)]) {
    let ranks: Vec<usize> = gone.iter().map(|it| it.0).collect();
    let how = gone.iter().map(|it| it.1.as_str()).find(|it| !it.starts_with("it left"));
    let how = how.or(gone.first().map(|it| it.1.as_str())).unwrap_or_default();
    let reason = format!("{} will never make this call: {how}", table.names_of(&ranks));
    table.fail(Error::new(ErrorKind::RankDied, call.to_owned(), reason).about_ranks(ranks));
}

/// Breaks the group because the deadline passed, and says so if ranks wait for each other in a circle.
pub(crate) fn report_late(table: &Table, call: &str, absent: &[usize]) {
    let deadline = table.config.deadline;
    if let Some(circle) = circles::find(table, call, absent) {
        let steps: Vec<&str> = circle.iter().map(|it| it.words.as_str()).collect();
        let reason = format!(
            "the deadline of {deadline:?} passed and the calls wait for each other: {}",
            steps.join("; ")
        );
        let mut ranks: Vec<usize> = circle.iter().map(|it| it.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        table.fail(Error::new(ErrorKind::Cycle, call.to_owned(), reason).about_ranks(ranks));
        return;
    }
    if let Some(circle) = circles::told(table, call, absent) {
        table.fail(circle);
        return;
    }
    let reason = match absent.is_empty() {
        true => format!("the deadline of {deadline:?} passed before the work was done"),
        false => {
            let names = table.names_of(absent);
            format!("the deadline of {deadline:?} passed and {names} did not come")
        }
    };
    let error = Error::new(ErrorKind::DeadlineExceeded, call.to_owned(), reason);
    table.fail(error.on(table.name_of(table.rank)).about_ranks(absent));
}
