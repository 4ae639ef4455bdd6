//! Models of the ticker under loom (`make loom`): its thread, and threads that want ticks.
//!
//! The models show that a wanted tick happens. A thread that wants a tick waits for it; if the ticker sleeps meanwhile,
//! no thread can continue, and loom reports a deadlock. A timeout elapses when all other threads have run. In models
//! that check the wake-up of a slow ticker, its pause is endless.

use super::Ticker;
use crate::sync::LONG_PAUSES_ARE_ENDLESS;
use crate::tick::{Pace, TICK, Wanted};
use loom::model::Builder;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// The number of ticks that threads still need.
#[derive(Default)]
struct Needs {
    left: Mutex<usize>,
    done: Condvar,
}

impl Needs {
    fn add(&self) {
        *self.left.lock().unwrap() += 1;
    }

    /// Performs a tick, which satisfies one need.
    fn tick(&self, otherwise: Wanted) -> Wanted {
        let mut left = self.left.lock().unwrap();
        if *left == 0 {
            return otherwise;
        }
        *left -= 1;
        if *left == 0 {
            self.done.notify_all();
            otherwise
        } else {
            Wanted::Soon(TICK)
        }
    }

    fn wait(&self) {
        let mut left = self.left.lock().unwrap();
        while *left > 0 {
            left = self.done.wait(left).unwrap();
        }
    }
}

fn ticker(needs: &Arc<Needs>, otherwise: Wanted) -> Ticker {
    let own = Arc::clone(needs);
    Ticker::new(move || own.tick(otherwise)).unwrap()
}

/// Tries all executions with at most `preemptions` preemptions, or `LOOM_MAX_PREEMPTIONS` if that is set.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

/// Makes a thread want a tick and wait for it, twice.
fn wants_twice(otherwise: Wanted) {
    let needs = Arc::new(Needs::default());
    let ticker = ticker(&needs, otherwise);
    for _ in 0..2 {
        needs.add();
        ticker.want(Pace::Quick);
        needs.wait();
    }
    // Dropping the ticker waits until its thread has ended.
    drop(ticker);
}

#[test]
fn wanted_tick_comes_when_the_ticker_sleeps() {
    check(4, || wants_twice(Wanted::No));
}

#[test]
fn wanted_tick_comes_at_once_when_the_ticker_is_slow() {
    LONG_PAUSES_ARE_ENDLESS.set(true);
    check(4, || wants_twice(Wanted::Slowly));
}

#[test]
fn wanted_slow_tick_comes_when_the_ticker_sleeps() {
    check(4, || {
        let needs = Arc::new(Needs::default());
        let ticker = ticker(&needs, Wanted::No);
        for _ in 0..2 {
            needs.add();
            ticker.want(Pace::Slow);
            needs.wait();
        }
    });
}

#[test]
fn two_threads_that_want_ticks_at_once_get_them() {
    check(3, || {
        let needs = Arc::new(Needs::default());
        let ticker = Arc::new(ticker(&needs, Wanted::No));
        let other = {
            let (needs, ticker) = (Arc::clone(&needs), Arc::clone(&ticker));
            thread::spawn(move || {
                needs.add();
                ticker.want(Pace::Quick);
                needs.wait();
            })
        };
        needs.add();
        ticker.want(Pace::Quick);
        needs.wait();
        other.join().unwrap();
    });
}

#[test]
fn quick_ticks_come_when_another_thread_wants_slow_ones() {
    LONG_PAUSES_ARE_ENDLESS.set(true);
    check(3, || {
        let needs = Arc::new(Needs::default());
        let ticker = Arc::new(ticker(&needs, Wanted::No));
        let other = {
            let ticker = Arc::clone(&ticker);
            thread::spawn(move || ticker.want(Pace::Slow))
        };
        needs.add();
        ticker.want(Pace::Quick);
        needs.wait();
        other.join().unwrap();
    });
}
