//! `sim SEED` traces one world; `sim FIRST..LAST` runs many, with each driver, and prints those that failed. With
//! `--sockets` the engine's sockets are real ones; with `--loop` the driver is an event loop; with `--http2` all clients
//! speak HTTP/2.
#![forbid(unsafe_code)]

use sim::{Host, Worlds};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let mut take = |flag: &str| {
        let count = arguments.len();
        arguments.retain(|argument| argument != flag);
        arguments.len() < count
    };
    let (on_sockets, has_loop, is_http2) = (take("--sockets"), take("--loop"), take("--http2"));
    let host = if has_loop { Host::EventLoop } else { Host::Threads };
    let argument = arguments.pop().unwrap_or_default();
    if let Ok(seed) = argument.parse() {
        return match sim::run(seed, Worlds { host, on_sockets, is_http2 }, true) {
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
        eprintln!("usage: sim [--sockets | --loop | --http2] SEED | sim [--sockets | --loop | --http2] FIRST..LAST");
        return ExitCode::from(2);
    };
    let with_socket = |host| Worlds { on_sockets, ..Worlds::of(host) };
    let worlds = match (is_http2, has_loop) {
        (true, _) => vec![Worlds { on_sockets, ..Worlds::of_http2() }],
        (_, true) => vec![with_socket(Host::EventLoop)],
        _ => {
            vec![with_socket(Host::Threads), with_socket(Host::EventLoop), Worlds { on_sockets, ..Worlds::of_http2() }]
        }
    };
    let failed: u64 = worlds.into_iter().map(|worlds| sim::run_all(first, last, worlds).0).sum();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
