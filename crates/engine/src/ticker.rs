//! A thread that ticks while somebody wants it to.

use crate::hold::TICK;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};

/// Ticks that nobody needed before the thread goes to sleep: waking it costs more than a few of them.
const IDLE_TICKS: u32 = 50;

/// Calls a function every [`TICK`] while it is wanted. The thread never touches what belongs to the application.
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
    /// Starts the thread. `tick` says whether the next tick is needed.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(tick: impl FnMut() -> bool + Send + 'static) -> io::Result<Self> {
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
    fn run(&self, mut tick: impl FnMut() -> bool) {
        let mut idle = 0;
        while !self.quit.load(Ordering::Relaxed) {
            if tick() {
                idle = 0;
                self.asleep.store(false, Ordering::SeqCst);
            } else {
                idle += 1;
            }
            if idle > IDLE_TICKS && self.asleep.swap(true, Ordering::SeqCst) {
                while self.asleep.load(Ordering::SeqCst) && !self.quit.load(Ordering::Relaxed) {
                    std::thread::park();
                }
                idle = 0;
            } else {
                std::thread::park_timeout(TICK);
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
            left > 1
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
