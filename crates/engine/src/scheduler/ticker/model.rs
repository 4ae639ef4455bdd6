//! The ticker under loom: its thread, and those who want ticks.
//!
//! `make loom` runs these models. A tick that is wanted comes: whoever has put down what it is wanted for and has said so
//! waits for it here, and where the thread sleeps meanwhile nobody can go on, which loom finds. Time passes when all
//! others have had their turn, and what is not needed for long is over at once; in the models where a thread that ticks
//! slowly has to be woken, its pause lasts for ever.

use super::{Pace, Ticker, Wanted};
use crate::coalescing::TICK;
use crate::sync::LONG_IS_FOR_EVER;
use loom::model::Builder;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What ticks are wanted for.
#[derive(Default)]
struct Needs {
    left: Mutex<usize>,
    done: Condvar,
}

impl Needs {
    fn add(&self) {
        *self.left.lock().unwrap() += 1;
    }

    /// A tick: one need less.
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

/// Tries the executions with so many preemptions at most; `LOOM_MAX_PREEMPTIONS` says otherwise.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

/// Somebody wants ticks, waits for them, and wants some again.
fn wants_twice(otherwise: Wanted) {
    let needs = Arc::new(Needs::default());
    let ticker = ticker(&needs, otherwise);
    for _ in 0..2 {
        needs.add();
        ticker.want(Pace::Quick);
        needs.wait();
    }
    // Its thread ends: dropping it waits for that.
    drop(ticker);
}

#[test]
fn a_tick_that_is_wanted_comes_to_a_thread_that_sleeps() {
    check(4, || wants_twice(Wanted::No));
}

#[test]
fn a_tick_that_is_wanted_comes_at_once_to_a_thread_that_ticks_slowly() {
    LONG_IS_FOR_EVER.set(true);
    check(4, || wants_twice(Wanted::Slowly));
}

#[test]
fn a_tick_that_is_wanted_slowly_comes() {
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
fn two_who_want_ticks_at_the_same_time_get_them() {
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
fn who_wants_ticks_soon_gets_them_though_another_wants_them_slowly() {
    LONG_IS_FOR_EVER.set(true);
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
