//! The long run, by options instead of the arguments of a test.

use std::process::ExitCode;

use crate::round::{self, Times};
use crate::small;
use crate::usage::Held;

/// What is run.
struct Options {
    rounds: u64,
    seed: u64,
    /// One round alone, by its own seed.
    round: Option<u64>,
    calls: u64,
}

/// Runs for long, if the arguments begin with an option of it.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_none_or(|it| it != "soak") {
        return None;
    }
    let outcome = Options::of(arguments.get(1..).unwrap_or_default()).and_then(|it| it.run());
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    })
}

impl Options {
    fn of(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { rounds: 200, seed: 1, round: None, calls: 10_000_000 };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return Err(format!("{pair:?} has no value")) };
            let number = value.parse().map_err(|_| format!("`{value}` of {name} is no number"))?;
            match name.as_str() {
                "--rounds" => options.rounds = number,
                "--seed" => options.seed = number,
                "--round" => options.round = Some(number),
                "--calls" => options.calls = number,
                other => return Err(format!("`{other}` is no option")),
            }
        }
        Ok(options)
    }

    fn run(&self) -> Result<(), String> {
        let mut times = Times::default();
        if let Some(seed) = self.round {
            round::one(seed, &mut times)?;
            println!("{}", times.words());
            return Ok(());
        }
        let before = Held::now()?;
        round::many(self.rounds, self.seed, &mut times)?;
        println!("{} rounds from seed {}\n{}", self.rounds, self.seed, times.words());
        println!("the controlling process: {before:?} before, {:?} after", Held::now()?);
        if self.calls > 0 {
            println!("{}", small::in_threads(self.calls)?);
            println!("{}", small::in_processes(self.calls)?);
        }
        Ok(())
    }
}
