//! Worlds by the hundred. `KIRSCH_SEED` replays one, with a trace of what happens; `KIRSCH_SEEDS` says how many there
//! are to be.

/// Worlds of one run.
const SEEDS: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

#[test]
fn what_has_to_hold_holds_in_every_world() {
    if let Some(seed) = number("KIRSCH_SEED") {
        let outcome = sim::run(seed, true);
        assert!(outcome.is_ok(), "seed {seed} failed {}", outcome.unwrap_err());
        return;
    }
    let seeds = 1..=number("KIRSCH_SEEDS").unwrap_or(SEEDS);
    println!("seeds {seeds:?}");
    assert_eq!(sim::run_all(seeds), 0, "the seeds that failed are named above");
}

#[test]
fn a_seed_always_tells_the_same_story() {
    for seed in 1..=20 {
        assert_eq!(sim::run(seed, false), sim::run(seed, false), "seed {seed}");
    }
}
