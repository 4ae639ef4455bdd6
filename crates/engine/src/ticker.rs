//! A thread that ticks while somebody wants it to.

use crate::hold::TICK;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// After so long that nobody needed a tick the thread goes to sleep: waking it costs more than a few of them.
const IDLE: Duration = Duration::from_millis(50);

/// Calls a function every now and then while it is wanted: every [`TICK`], or sooner if the function says so. The thread never touches what belongs to the application.
#[derive(Debug)]
pub struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    handle: Thread,
}

#[derive(Debug, Default)]
struct Shared {
    asleep: AtomicBool,
    quit: AtomicBool,
}

impl Ticker {
    /// Starts the thread. `tick` says after what time the next tick is needed, if it is.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(tick: impl FnMut() -> Option<Duration> + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("kirsch-ticker".to_owned()).spawn(move || own.run(tick))?;
        let handle = thread.thread().clone();
        Ok(Self { shared, thread: Some(thread), handle })
    }

    /// Ticks are wanted from now on. What they are wanted for has to be in place already.
    pub fn want(&self) {
        // The thread says that it sleeps before it looks for the last time: whichever comes second sees the other.
        if self.shared.asleep.load(Ordering::SeqCst) && self.shared.asleep.swap(false, Ordering::SeqCst) {
            self.handle.unpark();
        }
    }
}

impl Shared {
    fn run(&self, mut tick: impl FnMut() -> Option<Duration>) {
        let mut idle = Duration::ZERO;
        let mut period = TICK;
        while !self.quit.load(Ordering::Relaxed) {
            if let Some(wanted) = tick() {
                idle = Duration::ZERO;
                period = wanted;
                self.asleep.store(false, Ordering::SeqCst);
            } else {
                idle += period;
            }
            if idle > IDLE && self.asleep.swap(true, Ordering::SeqCst) {
                while self.asleep.load(Ordering::SeqCst) && !self.quit.load(Ordering::Relaxed) {
                    std::thread::park();
                }
                idle = Duration::ZERO;
            } else {
                std::thread::park_timeout(period);
            }
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Relaxed);
        self.handle.unpark();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // It ends within a tick; if it has panicked there is nothing left to do about it.
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;

    #[test]
    fn it_ticks_when_wanted_and_sleeps_when_not() {
        let wanted = Arc::new(AtomicU32::new(0));
        let (told, ticks) = mpsc::channel();
        let own = Arc::clone(&wanted);
        let ticker = Ticker::new(move || {
            let left = own.load(Ordering::SeqCst);
            if left > 0 {
                own.store(left - 1, Ordering::SeqCst);
                told.send(left).unwrap();
            }
            (left > 1).then_some(TICK)
        })
        .unwrap();
        for _ in 0..3 {
            while !ticker.shared.asleep.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            wanted.store(3, Ordering::SeqCst);
            ticker.want();
            // Each of these waits for a tick, and hangs if none comes.
            assert_eq!([ticks.recv(), ticks.recv(), ticks.recv()], [Ok(3), Ok(2), Ok(1)]);
        }
    }
}
