//! A thread that ticks while somebody wants it to.

use crate::coalescing::TICK;
use crate::sync::{Arc, AtomicBool, AtomicU8, Builder, JoinHandle, Ordering, Thread, current, park, park_timeout};
use std::io;
use std::time::Duration;

#[cfg(all(test, loom))]
mod model;

/// After so long that nobody needed a tick soon the thread goes slow, or to sleep: waking it costs more than a few of
/// them.
const IDLE: Duration = if cfg!(loom) { Duration::ZERO } else { Duration::from_millis(4) };
/// Between two ticks that are not needed soon.
pub const STEADY_TICK: Duration = Duration::from_millis(10);
/// The same, where they hardly are.
pub const SLOW_TICK: Duration = Duration::from_millis(100);

/// Calls a function every now and then while it is wanted. The thread never touches what belongs to the application.
#[derive(Debug)]
pub struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    handle: Thread,
}

/// When the next tick is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// After this time, which is no longer than [`TICK`].
    Soon(Duration),
    /// After [`STEADY_TICK`], if nobody wants it sooner meanwhile.
    Steadily,
    /// The same after [`SLOW_TICK`].
    Slowly,
    /// When somebody says so.
    No,
}

/// How soon ticks follow each other; the quickest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Pace {
    /// As soon as the last tick said.
    Quick,
    /// Every [`STEADY_TICK`].
    Steady,
    /// Every [`SLOW_TICK`].
    Slow,
    /// Not at all.
    Asleep,
}

#[derive(Debug)]
struct Shared {
    /// A [`Pace`]. The thread says that it goes slower before it looks for the last time whether a tick is needed:
    /// whichever comes second, that look or somebody's wish, sees the other.
    pace: AtomicU8,
    quit: AtomicBool,
}

impl Ticker {
    /// Starts the thread. `tick` says when the next one is wanted.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(tick: impl FnMut() -> Wanted + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared { pace: AtomicU8::new(Pace::Quick as u8), quit: AtomicBool::new(false) });
        let own = Arc::clone(&shared);
        let thread = Builder::new().name("kirsch-ticker".to_owned()).spawn(move || own.run(tick))?;
        let handle = thread.thread().clone();
        Ok(Self { shared, thread: Some(thread), handle })
    }

    /// Ticks are wanted at this pace, or faster, from now on. What they are wanted for has to be in place already.
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
            // It ends within a tick; if it has panicked there is nothing left to do about it.
            thread.join().ok();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::{self, Receiver};

    /// A ticker that is wanted soon for so many ticks as the number says, and tells of each of these what is left. In
    /// between it is wanted as `otherwise` says, and tells 0 of each tick then.
    fn ticker(otherwise: Wanted) -> (Ticker, Arc<AtomicU32>, Receiver<u32>) {
        let wanted = Arc::new(AtomicU32::new(0));
        let (told, ticks) = mpsc::channel();
        let own = Arc::clone(&wanted);
        let ticker = Ticker::new(move || {
            let left = own.load(Ordering::SeqCst);
            if left > 0 {
                own.store(left - 1, Ordering::SeqCst);
            }
            told.send(left).ok();
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
    fn it_ticks_when_wanted_and_sleeps_when_not() {
        let (ticker, wanted, ticks) = ticker(Wanted::No);
        for _ in 0..3 {
            wait_until(&ticker, Pace::Asleep);
            wanted.store(3, Ordering::SeqCst);
            ticker.want(Pace::Quick);
            // Each of these waits for a tick, and hangs if none comes.
            assert_eq!([3, 2, 1].map(|_| ticks.iter().find(|&left| left > 0)), [Some(3), Some(2), Some(1)]);
        }
    }

    #[test]
    fn it_ticks_slowly_and_quickly_as_soon_as_wanted() {
        let (ticker, wanted, ticks) = ticker(Wanted::Slowly);
        for _ in 0..3 {
            wait_until(&ticker, Pace::Slow);
            wanted.store(3, Ordering::SeqCst);
            ticker.want(Pace::Quick);
            assert_eq!([3, 2, 1].map(|_| ticks.iter().find(|&left| left > 0)), [Some(3), Some(2), Some(1)]);
        }
        // It goes on although nobody asks.
        wait_until(&ticker, Pace::Slow);
        while ticks.try_recv().is_ok() {}
        assert_eq!([0, 0].map(|_| ticks.recv()), [Ok(0), Ok(0)]);
    }

    #[test]
    fn it_can_be_woken_to_tick_slowly() {
        let (ticker, _, ticks) = ticker(Wanted::No);
        wait_until(&ticker, Pace::Asleep);
        // The last look has still to come, or has come.
        std::thread::sleep(TICK * 10);
        while ticks.try_recv().is_ok() {}
        ticker.want(Pace::Slow);
        assert_eq!(ticks.recv(), Ok(0));
    }
}
