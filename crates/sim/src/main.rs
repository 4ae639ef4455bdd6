//! `sim SEED` traces one world; `sim FIRST..LAST` runs many and prints those that failed. With `--sockets` the engine's
//! sockets are real ones.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let count = arguments.len();
    arguments.retain(|argument| argument != "--sockets");
    let on_sockets = arguments.len() < count;
    let argument = arguments.pop().unwrap_or_default();
    if let Ok(seed) = argument.parse() {
        return match sim::run(seed, on_sockets, true) {
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
        eprintln!("usage: sim [--sockets] SEED | sim [--sockets] FIRST..LAST");
        return ExitCode::from(2);
    };
    let (failed, _) = sim::run_all(first, last, on_sockets);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
