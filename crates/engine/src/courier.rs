//! A thread that sends while the application is busy.
//!
//! An application that produces its response in small parts, one soon after the other, would cost a system call for
//! each. They are collected instead. But no part may be held back while the application works on the next, unless
//! somebody else goes on sending meanwhile (PEP 3333, "Buffering and Streaming"). So before the application goes on,
//! what is collected is *lent* to this thread, and *recalled* when it comes back. If it does not come back within a
//! [`TICK`], the courier sends what it was lent.
//!
//! The thread starts with the first loan, sleeps for ticks while loans are frequent and without end when they are
//! not. It never touches a chunk but to read its bytes, and drops none.

use crate::compose::Composer;
use crate::net::Moved;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the application may keep a part waiting.
pub(crate) const TICK: Duration = Duration::from_millis(1);
/// Ticks without a loan before the thread goes to sleep.
const IDLE_TICKS: u32 = 50;

/// Lends composed output to the sending thread.
#[derive(Debug)]
pub(crate) struct Courier<C> {
    shared: Arc<Shared<C>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<C> {
    desk: Mutex<Desk<C>>,
    wake: Condvar,
}

#[derive(Debug)]
struct Desk<C> {
    parcel: Composer<C>,
    /// Where the parcel goes; `None` while nothing is lent.
    socket: Option<RawFd>,
    /// Counts the loans, so that the thread sees whether this one is the last tick's.
    loan: u64,
    sent: usize,
    failed: bool,
    asleep: bool,
    quit: bool,
}

/// What happened to a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loan {
    /// It came back as it was lent.
    Untouched,
    /// The application took longer than a tick, and so many bytes have been sent.
    Sent(usize),
    /// The peer is gone.
    Failed,
}

impl<C: AsRef<[u8]> + Send + 'static> Courier<C> {
    pub(crate) fn new() -> Self {
        let desk =
            Desk { parcel: Composer::new(), socket: None, loan: 0, sent: 0, failed: false, asleep: false, quit: false };
        Self { shared: Arc::new(Shared { desk: Mutex::new(desk), wake: Condvar::new() }), thread: None }
    }

    /// Lends what is composed for `socket`. It has to be recalled before the socket is used or closed.
    pub(crate) fn lend(&mut self, composer: &mut Composer<C>, socket: BorrowedFd<'_>) -> io::Result<()> {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("kirsch-courier".to_owned());
            self.thread = Some(thread.spawn(move || shared.run())?);
        }
        let mut desk = self.shared.lock();
        std::mem::swap(&mut desk.parcel, composer);
        desk.socket = Some(socket.as_raw_fd());
        desk.loan += 1;
        desk.sent = 0;
        desk.failed = false;
        if desk.asleep {
            self.shared.wake.notify_one();
        }
        Ok(())
    }

    /// Takes back what was lent.
    pub(crate) fn recall(&mut self, composer: &mut Composer<C>) -> Loan {
        let mut desk = self.shared.lock();
        std::mem::swap(&mut desk.parcel, composer);
        desk.socket = None;
        match desk.sent {
            _ if desk.failed => Loan::Failed,
            0 => Loan::Untouched,
            sent => Loan::Sent(sent),
        }
    }
}

impl<C> Drop for Courier<C> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.lock().quit = true;
            self.shared.wake.notify_one();
            // It ends within a tick; if it has panicked there is nothing left to do about it.
            thread.join().ok();
        }
    }
}

impl<C> Shared<C> {
    fn lock(&self) -> MutexGuard<'_, Desk<C>> {
        // Nothing panics while it is held.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: AsRef<[u8]>> Shared<C> {
    /// The thread: look at the desk once a tick.
    fn run(&self) {
        let mut seen = 0;
        let mut idle = 0;
        let mut desk = self.lock();
        while !desk.quit {
            if idle >= IDLE_TICKS {
                desk.asleep = true;
                desk = self.wake.wait(desk).unwrap_or_else(PoisonError::into_inner);
                desk.asleep = false;
                idle = 0;
                continue;
            }
            if desk.loan != seen {
                idle = 0;
                seen = desk.loan;
            } else if let Some(socket) = desk.socket {
                idle = 0;
                desk.send(socket);
            } else {
                idle += 1;
            }
            desk = self.wake.wait_timeout(desk, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<C: AsRef<[u8]>> Desk<C> {
    fn send(&mut self, socket: RawFd) {
        if self.failed || self.sent == self.parcel.length() {
            return;
        }
        // SAFETY: the descriptor is open: whoever lent the parcel recalls it before closing the socket, and recalling
        // needs the lock that is held here.
        #[allow(unsafe_code)]
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        match self.parcel.send(self.sent, socket) {
            Ok(Moved::Bytes(count)) => self.sent += count,
            Ok(Moved::WouldBlock) => {}
            Err(_) => self.failed = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_loan_that_is_not_recalled_is_sent() {
        let mut courier: Courier<Vec<u8>> = Courier::new();
        for round in 0..3 {
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut composer = Composer::new();
            composer.bytes.extend_from_slice(b"hello ");
            composer.push(vec![b'x'; 10_000], 10_000);
            courier.lend(&mut composer, near.as_fd()).unwrap();
            let mut received = [0; 10_006];
            // The read ends only because the courier sends.
            far.read_exact(&mut received).unwrap();
            assert!(received.starts_with(b"hello xxx"), "round {round}");
            assert_eq!(courier.recall(&mut composer), Loan::Sent(10_006));
        }
    }

    #[test]
    fn a_loan_that_is_recalled_at_once_comes_back_whole() {
        let mut courier: Courier<Vec<u8>> = Courier::new();
        let (near, far) = UnixStream::pair().unwrap();
        let mut composer = Composer::new();
        composer.bytes.extend_from_slice(b"hello");
        for _ in 0..1000 {
            courier.lend(&mut composer, near.as_fd()).unwrap();
            match courier.recall(&mut composer) {
                Loan::Untouched => {}
                // A loaded machine may have slept between the two.
                Loan::Sent(5) => break,
                other => panic!("{other:?}"),
            }
            assert_eq!(composer.bytes, b"hello");
        }
        drop(far);
    }

    #[test]
    fn a_peer_that_is_gone_is_noticed() {
        let mut courier: Courier<Vec<u8>> = Courier::new();
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let mut composer = Composer::new();
        composer.bytes.extend_from_slice(b"hello");
        courier.lend(&mut composer, near.as_fd()).unwrap();
        while !courier.shared.lock().failed {
            std::thread::yield_now();
        }
        assert_eq!(courier.recall(&mut composer), Loan::Failed);
    }
}
