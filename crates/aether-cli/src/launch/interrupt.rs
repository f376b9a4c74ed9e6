//! Signals that ask the launcher to end.

use std::sync::mpsc::Sender;

use rustix::process::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Result};

/// Sends an event for each SIGINT and SIGTERM from now on, which don't end this process any more.
pub(super) fn watch<E: Send + 'static>(
    events: Sender<E>,
    interrupted: impl Fn(Signal) -> E + Send + 'static,
) -> Result<()> {
    let failed = |error: std::io::Error| Failure::new(format!("launch: watch signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let watch = move || {
        for signal in signals.forever() {
            let signal = if signal == SIGINT { Signal::INT } else { Signal::TERM };
            if events.send(interrupted(signal)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch).map_err(failed)?;
    Ok(())
}
