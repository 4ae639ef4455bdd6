//! Runs many worlds. `KIRSCH_SEED` replays one with a trace; `KIRSCH_SEEDS` sets their number.

/// Number of worlds of one run.
const SEEDS: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

#[test]
fn every_promise_holds_in_every_world() {
    if let Some(seed) = number("KIRSCH_SEED") {
        let outcome = sim::run(seed, true);
        assert!(outcome.is_ok(), "seed {seed} failed {}", outcome.unwrap_err());
        return;
    }
    let seeds = 1..=number("KIRSCH_SEEDS").unwrap_or(SEEDS);
    println!("seeds {seeds:?}");
    let (failed, total) = sim::run_all(seeds);
    assert_eq!(failed, 0, "the seeds that failed are named above");
    // Both protocols are among them.
    assert!(total.multiplexed > 0 && total.called > 0 && total.resets > 0, "{total:?}");
}

#[test]
fn seed_always_gives_the_same_run() {
    for seed in 1..=20 {
        assert_eq!(sim::run(seed, false), sim::run(seed, false), "seed {seed}");
    }
}
