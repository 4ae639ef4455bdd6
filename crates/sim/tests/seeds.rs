//! Runs many worlds, with a simulated network and with real sockets. `KIRSCH_SEED` replays one with a trace;
//! `KIRSCH_SEEDS` sets their number.

/// Number of worlds of one run, with a simulated network and with real sockets.
const SEEDS: u64 = 200;
const SEEDS_ON_SOCKETS: u64 = 100;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

fn run_worlds(on_sockets: bool, count: u64) {
    if let Some(seed) = number("KIRSCH_SEED") {
        let outcome = sim::run(seed, on_sockets, true);
        assert!(outcome.is_ok(), "seed {seed} failed {}", outcome.unwrap_err());
        return;
    }
    let last = number("KIRSCH_SEEDS").unwrap_or(count);
    println!("seeds 1 to {last}");
    let (failed, total) = sim::run_all(1, last, on_sockets);
    assert_eq!(failed, 0, "the seeds that failed are named above");
    // Both protocols are among them.
    assert!(total.multiplexed > 0 && total.called > 0 && total.resets > 0, "{total:?}");
}

#[test]
fn every_promise_holds_in_every_world() {
    run_worlds(false, SEEDS);
}

#[test]
fn every_promise_holds_over_real_sockets() {
    run_worlds(true, SEEDS_ON_SOCKETS);
}

#[test]
fn every_promise_holds_in_an_event_loop() {
    if let Some(seed) = number("KIRSCH_SEED") {
        let outcome = sim::run_loop(seed, true);
        assert!(outcome.is_ok(), "seed {seed} failed {}", outcome.unwrap_err());
        return;
    }
    let last = number("KIRSCH_SEEDS").unwrap_or(SEEDS);
    println!("seeds 1 to {last}");
    let (failed, total) = sim::run_all_loops(1, last);
    assert_eq!(failed, 0, "the seeds that failed are named above");
    let shares = [total.answers, total.websockets, total.messages.0, total.messages.1, total.resumed, total.cancelled];
    assert!(shares.iter().all(|&share| share > 0), "{total:?}");
}

#[test]
fn seed_always_gives_the_same_run() {
    for seed in 1..=20 {
        assert_eq!(sim::run_loop(seed, false), sim::run_loop(seed, false), "seed {seed} with an event loop");
        assert_eq!(sim::run(seed, false, false), sim::run(seed, false, false), "seed {seed}");
    }
}
