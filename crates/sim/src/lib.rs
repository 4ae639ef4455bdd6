//! A seeded world in virtual time that tests the engine. Development only.
//!
//! ```text
//!   seed ──▶ plan ──▶ world: clock, calendar of events
//!                       ├── peers ◀──▶ net ◀──▶ engine ◀──▶ records (engine::App)    engine_core: engine and records
//!                       └── driver: threads that follow the scheduler's rules and run scripts
//!                     check: after every step, and at the end
//! ```
//!
//! Everything that happens is an event in one calendar, and every random choice comes from the seed. So a seed always
//! gives the same run, and its number is enough to replay a failure. Only the calendar advances time: a day of slow peers
//! takes as long as its events.
//!
//! The invariants of every world (see `check`):
//!
//! * Every request gets exactly one whole and right answer, or a visible cut or refusal for which there was a reason. No
//!   request runs twice, and none runs whose peer left while it was queued. Answers come in the order of their requests.
//! * Everything that can grow is bounded.
//! * A time limit takes effect neither early nor late by more than the engine's clock allows. The client of a call that
//!   misses its deadline gets one whole 504 or a visible cut, and no output that the call writes later.
//! * An engine with nothing to do is not polled. When nothing moves any more, nothing is left except calls that never
//!   return. The counters add up, and the engine has given back every object that it was given.
//!
//! The same plans also run over real sockets (`on_sockets`): time, clients and application are those of the simulation,
//! and Linux moves the bytes.
//!
//! The engine's own tests direct a scripted application instead of drawing one. This crate holds the code that both
//! kinds of worlds share: the protocol of [`frames`], the parts of a [`response`], and real [`sockets`]. Their `App`s
//! are two on purpose: the scripted one records the order in which the engine calls it, and the test compares that
//! order; the one here judges each call by the plan at once, because there are too many to record. One type with both
//! would do one or the other in every method.
//!
//! Not simulated: the scheduler's lock, of which loom tries every interleaving, the operating system, and Python.
#![forbid(unsafe_code)]

mod app;
mod check;
mod clock;
mod deadlines;
mod engine_core;
mod event_loop;
mod exchanges;
pub mod frames;
mod net;
mod peer;
mod plan;
pub mod response;
mod runner;
pub mod sockets;
mod threads;
mod world;
pub mod worst_case;

pub use event_loop::LoopSummary;
pub use runner::Summary;

/// Runs the world of `seed`; `traces` prints each event with its virtual time. `on_sockets`: the engine's sockets are
/// real ones.
///
/// # Errors
/// Which condition did not hold, and when.
pub fn run(seed: u64, on_sockets: bool, traces: bool) -> Result<Summary, String> {
    let (shared, plan) = runner::draw(seed, on_sockets, traces);
    if plan.is_multiplexed {
        world::World::<engine::OnlyMultiplexed<frames::Frames>>::new(shared, plan, seed).run()
    } else {
        world::World::<engine::OnlySerial<engine::Http1>>::new(shared, plan, seed).run()
    }
}

/// Threads that run worlds with real sockets, because these wait for the timers of the kernel.
const THREADS: u64 = 8;

/// Runs the worlds from seed `first` to seed `last`. Prints those that failed, with the command that replays each.
/// Returns how many failed, and the sums of the others.
///
/// # Panics
/// If a world panics.
#[must_use]
pub fn run_all(first: u64, last: u64, on_sockets: bool) -> (u64, Summary) {
    let sockets = if on_sockets { " SOCKETS=1" } else { "" };
    let threads = if on_sockets { THREADS } else { 1 };
    let run_some = |thread: u64| {
        let (mut failed, mut total) = (0, Summary::default());
        for seed in (first..=last).filter(|seed| seed % threads == thread) {
            match run(seed, on_sockets, false) {
                Ok(summary) => total.add(summary),
                Err(failure) => {
                    println!("seed {seed} failed {failure}\n  replay it: make sim SEED={seed}{sockets}");
                    failed += 1;
                }
            }
        }
        (failed, total)
    };
    let (mut failed, mut total) = (0, Summary::default());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run_some(thread))).collect();
        for thread in running {
            let (more, sum) = thread.join().expect("a world fails without a panic");
            failed += more;
            total.add(sum);
        }
    });
    println!("{} worlds{}, {failed} failed; {total:?}", last + 1 - first, if on_sockets { " on sockets" } else { "" });
    (failed, total)
}

/// Runs the world of `seed` whose driver is an event loop; `traces` prints each event with its virtual time.
///
/// # Errors
/// Which condition did not hold, and when.
pub fn run_loop(seed: u64, traces: bool) -> Result<LoopSummary, String> {
    event_loop::run(seed, traces)
}

/// Runs the worlds with an event loop from seed `first` to seed `last`, as [`run_all`] does.
#[must_use]
pub fn run_all_loops(first: u64, last: u64) -> (u64, LoopSummary) {
    let (mut failed, mut total) = (0, LoopSummary::default());
    for seed in first..=last {
        match run_loop(seed, false) {
            Ok(summary) => total.add(summary),
            Err(failure) => {
                println!("seed {seed} failed {failure}\n  replay it: make sim SEED={seed} LOOP=1");
                failed += 1;
            }
        }
    }
    println!("{} worlds with an event loop, {failed} failed; {total:?}", last + 1 - first);
    (failed, total)
}
