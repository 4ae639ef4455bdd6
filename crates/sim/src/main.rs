//! `sim SEED` traces one world; `sim FIRST..LAST` runs many, with each driver, and prints those that failed. With
//! `--sockets` the engine's sockets are real ones; with `--loop` the driver is an event loop.
#![forbid(unsafe_code)]

use sim::Host;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let mut take = |flag: &str| {
        let count = arguments.len();
        arguments.retain(|argument| argument != flag);
        arguments.len() < count
    };
    let (on_sockets, has_loop) = (take("--sockets"), take("--loop"));
    let host = if has_loop { Host::EventLoop } else { Host::Threads };
    let argument = arguments.pop().unwrap_or_default();
    if let Ok(seed) = argument.parse() {
        return match sim::run(seed, host, on_sockets, true) {
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
        eprintln!("usage: sim [--sockets | --loop] SEED | sim [--sockets | --loop] FIRST..LAST");
        return ExitCode::from(2);
    };
    let hosts = if has_loop { &[Host::EventLoop][..] } else { &[Host::Threads, Host::EventLoop] };
    let failed: u64 = hosts.iter().map(|&host| sim::run_all(first, last, host, on_sockets).0).sum();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
