//! `sim SEED` traces one world; `sim FIRST..LAST` runs many and prints those that failed.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    if let Ok(seed) = argument.parse() {
        return match sim::run(seed, true) {
            Ok(summary) => {
                println!("seed {seed}: {summary:#?}");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                println!("seed {seed} failed {failure}");
                ExitCode::FAILURE
            }
        };
    }
    let range = argument.split_once("..").and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let Some((first, last)) = range else {
        eprintln!("usage: sim SEED | sim FIRST..LAST");
        return ExitCode::from(2);
    };
    let (failed, _) = sim::run_all(first..=last);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
