//! The ticker: a thread that ticks as long as ticks are needed.

use crate::sync::{Arc, AtomicBool, AtomicU8, Builder, JoinHandle, Ordering, Thread, current, park, park_timeout};
use crate::tick::{Pace, SLOW_TICK, STEADY_TICK, TICK, Wanted};
use std::io;
use std::time::Duration;

#[cfg(all(test, loom))]
mod model;

/// The time without a need for soon ticks after which the thread becomes slow or sleeps. It is more than zero because
/// waking the thread costs more than a few ticks.
const IDLE: Duration = if cfg!(loom) { Duration::ZERO } else { Duration::from_millis(4) };
/// A thread that calls a function repeatedly while ticks are wanted. It never uses objects of the application.
#[derive(Debug)]
pub struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    handle: Thread,
}

#[derive(Debug)]
struct Shared {
    /// A [`Pace`]. The thread stores a slower pace before it checks for the last time whether a tick is needed. If
    /// [`Ticker::want`] is called at the same time, the later of the two sees the effect of the other.
    pace: AtomicU8,
    quit: AtomicBool,
}

impl Ticker {
    /// Starts the thread. `tick` returns the time at which the next tick is wanted.
    ///
    /// # Errors
    /// If the operating system cannot create a thread.
    pub fn new(tick: impl FnMut() -> Wanted + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared { pace: AtomicU8::new(Pace::Quick as u8), quit: AtomicBool::new(false) });
        let own = Arc::clone(&shared);
        let thread = Builder::new().name("kirsch-ticker".to_owned()).spawn(move || own.run(tick))?;
        let handle = thread.thread().clone();
        Ok(Self { shared, thread: Some(thread), handle })
    }

    /// Requests ticks at this pace or a faster one. The caller must first store the work for which the ticks are
    /// needed.
    pub fn want(&self, pace: Pace) {
        let pace = pace as u8;
        if self.shared.pace.load(Ordering::SeqCst) > pace && self.shared.pace.fetch_min(pace, Ordering::SeqCst) > pace {
            self.handle.unpark();
        }
    }
}

impl Shared {
    fn run(&self, mut tick: impl FnMut() -> Wanted) {
        let mut idle = Duration::ZERO;
        let mut period = TICK;
        while !self.quit.load(Ordering::Relaxed) {
            let pace = match tick() {
                Wanted::Soon(wanted) => {
                    idle = Duration::ZERO;
                    period = wanted;
                    Pace::Quick
                }
                _ if idle <= IDLE => {
                    idle += period;
                    Pace::Quick
                }
                Wanted::Steadily => Pace::Steady,
                Wanted::Slowly => Pace::Slow,
                Wanted::No => Pace::Asleep,
            } as u8;
            if self.pace.swap(pace, Ordering::SeqCst) != pace || pace == Pace::Quick as u8 {
                park_timeout(period);
                continue;
            }
            while self.is_at(Pace::Asleep) && !self.quit.load(Ordering::Relaxed) {
                park();
            }
            if self.is_at(Pace::Slow) {
                park_timeout(SLOW_TICK);
            }
            if self.is_at(Pace::Steady) {
                park_timeout(STEADY_TICK);
            }
            if self.is_at(Pace::Quick) {
                idle = Duration::ZERO;
            }
        }
    }

    fn is_at(&self, pace: Pace) -> bool {
        self.pace.load(Ordering::SeqCst) == pace as u8
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Relaxed);
        self.handle.unpark();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != current().id()
        {
            // The thread ends within a tick. If it panicked, that has been reported.
            thread.join().ok();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::{self, Receiver};

    /// Returns a ticker, a counter, and a receiver. While the counter is above zero, each tick sends and decrements it,
    /// and wants the next tick soon. Otherwise a tick sends 0, and returns `otherwise`.
    fn ticker(otherwise: Wanted) -> (Ticker, Arc<AtomicU32>, Receiver<u32>) {
        let wanted = Arc::new(AtomicU32::new(0));
        let (sent, ticks) = mpsc::channel();
        let own = Arc::clone(&wanted);
        let ticker = Ticker::new(move || {
            let left = own.load(Ordering::SeqCst);
            if left > 0 {
                own.store(left - 1, Ordering::SeqCst);
            }
            sent.send(left).ok();
            if left > 1 { Wanted::Soon(TICK) } else { otherwise }
        });
        (ticker.unwrap(), wanted, ticks)
    }

    fn wait_until(ticker: &Ticker, pace: Pace) {
        while !ticker.shared.is_at(pace) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn ticker_ticks_when_wanted_and_sleeps_otherwise() {
        let (ticker, wanted, ticks) = ticker(Wanted::No);
        for _ in 0..3 {
            wait_until(&ticker, Pace::Asleep);
            wanted.store(3, Ordering::SeqCst);
            ticker.want(Pace::Quick);
            // Each of these waits for a tick, and hangs if there is none.
            assert_eq!([3, 2, 1].map(|_| ticks.iter().find(|&left| left > 0)), [Some(3), Some(2), Some(1)]);
        }
    }

    #[test]
    fn slow_ticker_ticks_quickly_as_soon_as_wanted() {
        let (ticker, wanted, ticks) = ticker(Wanted::Slowly);
        for _ in 0..3 {
            wait_until(&ticker, Pace::Slow);
            wanted.store(3, Ordering::SeqCst);
            ticker.want(Pace::Quick);
            assert_eq!([3, 2, 1].map(|_| ticks.iter().find(|&left| left > 0)), [Some(3), Some(2), Some(1)]);
        }
        // Slow ticks continue without a request.
        wait_until(&ticker, Pace::Slow);
        while ticks.try_recv().is_ok() {}
        assert_eq!([0, 0].map(|_| ticks.recv()), [Ok(0), Ok(0)]);
    }

    #[test]
    fn sleeping_ticker_ticks_once_when_slow_ticks_are_wanted() {
        let (ticker, _, ticks) = ticker(Wanted::No);
        wait_until(&ticker, Pace::Asleep);
        // Wait until the ticker's last check has passed.
        std::thread::sleep(TICK * 10);
        while ticks.try_recv().is_ok() {}
        ticker.want(Pace::Slow);
        assert_eq!(ticks.recv(), Ok(0));
    }
}
