//! A seeded, virtual-time world for the engine. Development only.
//!
//! ```text
//!   seed ──▶ plan ──▶ world: clock, calendar
//!                       ├── peers ◀──▶ net ◀──▶ engine ◀──▶ book (engine::App)     heart: engine and book
//!                       └── driver: threads that go by the engine's own rules of the baton, and run scripts
//!                     check: at every step, and when all is over
//! ```
//!
//! Everything that happens is an event in one calendar, and everything that is left to chance comes from the seed: a
//! seed always tells the same story, and a failure is replayed by its number. No time passes but in the calendar, so a
//! day of slow peers takes as long as its events.
//!
//! What holds whatever happens (see `check`): every request gets exactly one whole answer and the right one, or a
//! visible cut or refusal for which there was a reason; none runs twice, and none whose peer had left while it was
//! queued; answers come in the order of their requests; everything that can grow is bounded; a time limit ends what it
//! limits, neither early nor late by more than the engine's grain; the client of a call that misses its deadline gets
//! one whole 504 or a visible cut, and nothing of what the call writes later; an engine with nothing to do is not
//! turned; when nothing moves any more, nothing is left but calls that never come back; what was counted adds up; and
//! what the engine was given has been handed back.
//!
//! Not here: the lock of the baton, of which loom tries every interleaving, the operating system, and Python.
#![forbid(unsafe_code)]

mod app;
mod check;
mod clock;
mod deadlines;
mod driver;
mod engine_core;
mod net;
mod peer;
mod plan;
mod script;
mod world;

pub use world::Summary;

/// Lets the world of `seed` happen; `traces` prints each event with its virtual time.
///
/// # Errors
/// What did not hold, and when.
pub fn run(seed: u64, traces: bool) -> Result<Summary, String> {
    world::World::new(seed, traces).run()
}

/// Lets the worlds of all `seeds` happen, one after the other, and reports those that failed, with the command that
/// replays each. Returns how many failed.
pub fn run_all(seeds: impl Iterator<Item = u64>) -> u64 {
    let mut total = Summary::default();
    let (mut worlds, mut failed) = (0, 0);
    for seed in seeds {
        match run(seed, false) {
            Ok(summary) => total.add(summary),
            Err(failure) => {
                println!("seed {seed} failed {failure}\n  replay it: make sim SEED={seed}");
                failed += 1;
            }
        }
        worlds += 1;
    }
    println!("{worlds} worlds, {failed} failed; {total:?}");
    failed
}
