//! Runs many worlds, with a simulated network and with real sockets. `KIRSCH_SEED` replays one with a trace;
//! `KIRSCH_SEEDS` sets their number.

use sim::{Host, Summary};

/// Number of worlds of one run, with a simulated network and with real sockets.
const SEEDS: u64 = 200;
const SEEDS_ON_SOCKETS: u64 = 100;
const LOOP_SEEDS_ON_SOCKETS: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

fn run_worlds(host: Host, on_sockets: bool, count: u64) -> Option<Summary> {
    if let Some(seed) = number("KIRSCH_SEED") {
        let outcome = sim::run(seed, host, on_sockets, true);
        assert!(outcome.is_ok(), "seed {seed} failed {}", outcome.unwrap_err());
        return None;
    }
    let last = number("KIRSCH_SEEDS").unwrap_or(count);
    println!("seeds 1 to {last}");
    let (failed, total) = sim::run_all(1, last, host, on_sockets);
    assert_eq!(failed, 0, "the seeds that failed are named above");
    Some(total)
}

fn run_threads(on_sockets: bool, count: u64) {
    let Some(total) = run_worlds(Host::Threads, on_sockets, count) else { return };
    // Both protocols are among them.
    assert!(total.multiplexed > 0 && total.called > 0 && total.resets > 0, "{total:?}");
}

#[test]
fn every_promise_holds_in_every_world() {
    run_threads(false, SEEDS);
}

#[test]
fn every_promise_holds_over_real_sockets() {
    run_threads(true, SEEDS_ON_SOCKETS);
}

fn run_event_loop(on_sockets: bool, count: u64) {
    let Some(total) = run_worlds(Host::EventLoop, on_sockets, count) else { return };
    let shares = [total.answers, total.websockets, total.messages.0, total.messages.1, total.resumed, total.cancelled];
    assert!(shares.iter().all(|&share| share > 0), "{total:?}");
}

#[test]
fn every_promise_holds_in_an_event_loop() {
    run_event_loop(false, SEEDS);
}

#[test]
fn every_promise_holds_in_an_event_loop_over_real_sockets() {
    run_event_loop(true, LOOP_SEEDS_ON_SOCKETS);
}

#[test]
fn seed_always_gives_the_same_run() {
    for seed in 1..=20 {
        for host in [Host::Threads, Host::EventLoop] {
            assert_eq!(sim::run(seed, host, false, false), sim::run(seed, host, false, false), "seed {seed}, {host:?}");
        }
    }
}
