//! Runs many worlds, with a simulated network and with real sockets. `KIRSCH_SEED` replays one with a trace;
//! `KIRSCH_SEEDS` sets their number.

use sim::{Host, Summary, Worlds};

/// Number of worlds of one run, with a simulated network and with real sockets.
const SEEDS: u64 = 80;
const SEEDS_ON_SOCKETS: u64 = 40;
const LOOP_SEEDS_ON_SOCKETS: u64 = 20;
const HTTP2_SEEDS: u64 = 30;
const HTTP2_SEEDS_ON_SOCKETS: u64 = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

fn run_worlds(worlds: Worlds, count: u64) -> Option<Summary> {
    if let Some(seed) = number("KIRSCH_SEED") {
        let outcome = sim::run(seed, worlds, true);
        assert!(outcome.is_ok(), "seed {seed} failed {}", outcome.unwrap_err());
        return None;
    }
    let last = number("KIRSCH_SEEDS").unwrap_or(count);
    println!("seeds 1 to {last}");
    let (failed, total) = sim::run_all(1, last, worlds);
    assert_eq!(failed, 0, "the seeds that failed are named above");
    Some(total)
}

fn run_threads(on_sockets: bool, count: u64) {
    let Some(total) = run_worlds(Worlds { on_sockets, ..Worlds::of(Host::Threads) }, count) else { return };
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

fn run_http2(on_sockets: bool, count: u64) {
    let Some(total) = run_worlds(Worlds { on_sockets, ..Worlds::of_http2() }, count) else { return };
    assert!(total.exchanges > 10 * count && total.resets > count && total.called > count, "{total:?}");
}

#[test]
fn every_promise_holds_over_http2() {
    run_http2(false, HTTP2_SEEDS);
}

#[test]
fn every_promise_holds_over_http2_and_real_sockets() {
    run_http2(true, HTTP2_SEEDS_ON_SOCKETS);
}

fn run_event_loop(on_sockets: bool, count: u64) {
    let Some(total) = run_worlds(Worlds { on_sockets, ..Worlds::of(Host::EventLoop) }, count) else { return };
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
    let kinds = [(Worlds::of(Host::Threads), 10), (Worlds::of(Host::EventLoop), 10), (Worlds::of_http2(), 3)];
    for (worlds, last) in kinds {
        for seed in 1..=last {
            assert_eq!(sim::run(seed, worlds, false), sim::run(seed, worlds, false), "seed {seed}, {worlds:?}");
        }
    }
}
