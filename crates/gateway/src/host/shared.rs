//! The data that the engines of one server share, and the requests that control these engines.

use engine::{EngineSocket, Socket as _};
use pyo3::exceptions::{PyBaseException, PyRuntimeError};
use pyo3::prelude::*;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// The data that the engines of one server share. `H` is the host of one engine.
pub(crate) struct ServerShared<H> {
    hosts: OnceLock<Box<[Weak<H>]>>,
    /// The exception that ended the server, to be raised in the program.
    failure: Mutex<Option<Py<PyBaseException>>>,
    /// True once the server has ended. The thread that watches deadlines waits for it.
    ended: Mutex<bool>,
    end: Condvar,
}

impl<H> Default for ServerShared<H> {
    fn default() -> Self {
        Self { hosts: OnceLock::new(), failure: Mutex::default(), ended: Mutex::default(), end: Condvar::new() }
    }
}

impl<H: Send + Sync> ServerShared<H> {
    /// Sets the hosts of all engines. Called once.
    pub(super) fn connect(&self, hosts: &[Arc<H>]) {
        self.hosts.set(hosts.iter().map(Arc::downgrade).collect()).ok();
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = Arc<H>> {
        self.hosts.get().into_iter().flatten().filter_map(Weak::upgrade)
    }

    /// Marks the server as ended.
    pub(super) fn end(&self) {
        *lock(&self.ended) = true;
        self.end.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        *lock(&self.ended)
    }

    /// Detaches from the interpreter and blocks until the server has ended, at most for `timeout`. Returns true if it
    /// has ended.
    pub(super) fn wait_for_end(&self, py: Python<'_>, timeout: Option<Duration>) -> bool {
        py.detach(|| {
            let ended = lock(&self.ended);
            match timeout {
                None => *self.end.wait_while(ended, |ended| !*ended).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let waited = self.end.wait_timeout_while(ended, timeout, |ended| !*ended);
                    *waited.unwrap_or_else(PoisonError::into_inner).0
                }
            }
        })
    }

    /// Returns the exception that ended the server; `None` if there is none.
    pub(super) fn failure(&self, py: Python<'_>) -> Option<PyErr> {
        let failure = lock(&self.failure).as_ref().map(|failure| failure.clone_ref(py));
        failure.map(|failure| PyErr::from_value(failure.into_bound(py).into_any()))
    }

    pub(super) fn take_failure(&self, py: Python<'_>) -> Option<PyErr> {
        let failure = lock(&self.failure).take();
        failure.map(|failure| PyErr::from_value(failure.into_bound(py).into_any()))
    }

    /// Stores `error` as the exception that ends the server, unless there is one already.
    pub(super) fn fail(&self, py: Python<'_>, error: PyErr) {
        // The value is made before the lock is taken and dropped after it is released, because both may run code of the
        // application.
        let mut failure = Some(error.into_value(py));
        {
            let mut first = lock(&self.failure);
            if first.is_none() {
                *first = failure.take();
            }
        }
        drop(failure);
    }
}

/// The Python functions and classes that a server calls.
pub(crate) struct Hooks {
    /// A function `spawn(index)` that starts a thread, in which it calls `work(index)`.
    pub(crate) spawn: Option<Py<PyAny>>,
    /// A function that creates an object on which a greenlet can wait, and a function that waits on such an object.
    pub(crate) waiter: Option<Py<PyAny>>,
    pub(crate) wait: Option<Py<PyAny>>,
    /// The exception that is raised in a call that has missed its deadline.
    pub(crate) timeout_exception: Option<Py<PyAny>>,
}

impl Hooks {
    /// Returns true if `error` is the exception that is raised in a call that has missed its deadline.
    pub(super) fn is_timeout(&self, py: Python<'_>, error: &PyErr) -> bool {
        self.timeout_exception.as_ref().is_some_and(|exception| error.is_instance(py, exception.bind(py)))
    }

    /// Creates the exception for a call that has missed its deadline.
    pub(super) fn timeout_error(&self, py: Python<'_>) -> Option<PyErr> {
        let exception = self.timeout_exception.as_ref()?;
        exception.bind(py).call0().ok().map(PyErr::from_value)
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        let again = |hook: &Option<Py<PyAny>>| hook.as_ref().map(|hook| hook.clone_ref(py));
        Self {
            spawn: again(&self.spawn),
            waiter: again(&self.waiter),
            wait: again(&self.wait),
            timeout_exception: again(&self.timeout_exception),
        }
    }
}

/// The requests of other threads and of signal handlers.
#[derive(Clone, Copy, Default)]
pub(crate) struct ControlRequest {
    pub(super) stop: Option<Stop>,
    pub(super) drain: bool,
    pub(super) reopen_logs: bool,
}

impl ControlRequest {
    pub(super) fn stop(stop: Stop) -> Self {
        Self { stop: Some(stop), ..Self::default() }
    }

    /// Adds the requests of `other` to these.
    pub(super) fn add(&mut self, other: Self) {
        self.stop = other.stop.map(|stop| stop.and(self.stop)).or(self.stop);
        self.drain |= other.drain;
        self.reopen_logs |= other.reopen_logs;
    }
}

/// The requests that no thread has handled yet. Adding one does not take the engine's lock, so a signal handler may do
/// it.
#[derive(Default)]
pub(super) struct PendingControl {
    control: Mutex<ControlRequest>,
    is_any: AtomicBool,
}

impl PendingControl {
    /// Adds a request.
    pub(super) fn put_down(&self, control: ControlRequest) {
        lock(&self.control).add(control);
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Removes and returns all requests; `None` if there are none.
    #[inline]
    pub(super) fn take(&self) -> Option<ControlRequest> {
        self.is_any.swap(false, Ordering::Relaxed).then(|| std::mem::take(&mut *lock(&self.control)))
    }
}

/// A request to stop. Connections that are still open after `limit` are cut (`None`: never). Idle connections may send
/// one more request within `grace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) limit: Option<Duration>,
    pub(crate) grace: Duration,
}

impl Stop {
    /// A request to stop at once.
    pub(super) const NOW: Self = Self { limit: Some(Duration::ZERO), grace: Duration::ZERO };

    /// Combines two requests to stop. Each of the two times becomes the shorter one.
    pub(super) fn and(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        Self { limit: self.limit.into_iter().chain(other.limit).min(), grace: self.grace.min(other.grace) }
    }
}

/// The reason why a worker is to be replaced.
#[derive(Clone, Copy)]
pub(super) enum Reason {
    /// A call is still running long after its deadline.
    Stuck,
    /// The listening socket no longer works.
    Broken,
}

/// A channel on which this worker asks the supervisor for a successor, without Python.
pub(crate) struct Replacement {
    channel: EngineSocket,
    messages: [Box<[u8]>; 2],
    is_requested: AtomicBool,
}

impl Replacement {
    /// Makes a [`Replacement`] that sends the message `stuck` or `broken` on `channel`, a non-blocking socket.
    pub(crate) fn new(channel: OwnedFd, stuck: &[u8], broken: &[u8]) -> Self {
        Self { channel: channel.into(), messages: [stuck.into(), broken.into()], is_requested: AtomicBool::new(false) }
    }

    pub(super) fn request(&self, reason: Reason) {
        if !self.is_requested.swap(true, Ordering::Relaxed) {
            // An error is ignored: if the supervisor has ended, this worker learns that from the end of the channel.
            self.channel.send(&[IoSlice::new(&self.messages[reason as usize])], false).ok();
        }
    }
}

/// A thread or an object that waits inside a call.
pub(crate) enum Waiter {
    /// A thread of the engine.
    Worker(usize),
    /// An object on which a Task or greenlet of the hosting loop waits.
    Hosted(Py<PyAny>),
    /// A thread that the application has started.
    Thread(Arc<Bell>),
    /// All sleepers of the WebSocket with this serial number.
    WebSocket(u64),
}

/// A signal for which a thread waits that is not one of the engine's threads.
#[derive(Default)]
pub(crate) struct Bell {
    has_rung: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        *lock(&self.has_rung) = true;
        self.rung.notify_all();
    }

    /// Blocks until the bell rings, at most for `timeout` (`None`: without limit). Called without the GIL.
    pub(super) fn wait(&self, timeout: Option<Duration>) {
        let mut has_rung = lock(&self.has_rung);
        match timeout {
            None => {
                while !*has_rung {
                    has_rung = self.rung.wait(has_rung).unwrap_or_else(PoisonError::into_inner);
                }
            }
            Some(timeout) => {
                drop(self.rung.wait_timeout_while(has_rung, timeout, |has_rung| !*has_rung));
            }
        }
    }
}

/// The error that this thread cannot use the engine, for one of two reasons. Either the thread already holds the lock,
/// and the interpreter ran other code in between, such as a finalizer, which called the server. Or this process is a
/// child that the application has forked.
#[derive(Debug)]
pub(crate) struct Reentered;

impl From<Reentered> for PyErr {
    fn from(_: Reentered) -> Self {
        PyRuntimeError::new_err(
            "the server was called from within itself, or by a process that the application has forked",
        )
    }
}

/// Locks `mutex`, even if it is poisoned. That is sound because no thread panics while it holds one of these locks, so
/// the data are always consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    fn stop(limit: Option<u64>, grace: u64) -> Stop {
        Stop { limit: limit.map(Duration::from_secs), grace: Duration::from_secs(grace) }
    }

    #[test]
    fn test_second_stop_can_only_shorten_the_first() {
        assert_eq!(stop(Some(30), 5).and(Some(stop(None, 9))), stop(Some(30), 5));
        assert_eq!(stop(None, 5).and(Some(stop(Some(3), 9))), stop(Some(3), 5));
        assert_eq!(stop(Some(30), 5).and(Some(Stop::NOW)), Stop::NOW);
        assert_eq!(stop(None, 5).and(None), stop(None, 5));
    }

    #[test]
    fn test_requests_that_could_not_be_carried_out_are_kept() {
        let mut control = ControlRequest { stop: Some(stop(Some(3), 9)), ..ControlRequest::default() };
        control.add(ControlRequest { stop: Some(stop(None, 5)), drain: true, reopen_logs: false });
        assert_eq!((control.stop, control.drain, control.reopen_logs), (Some(stop(Some(3), 5)), true, false));
        control.add(ControlRequest { reopen_logs: true, ..ControlRequest::default() });
        assert_eq!((control.stop, control.drain, control.reopen_logs), (Some(stop(Some(3), 5)), true, true));
    }

    #[test]
    fn test_pending_requests_are_taken_together_and_once() {
        let pending = PendingControl::default();
        assert!(pending.take().is_none());
        pending.put_down(ControlRequest::stop(stop(None, 5)));
        pending.put_down(ControlRequest { drain: true, ..ControlRequest::default() });
        let taken = pending.take().unwrap();
        assert_eq!((taken.stop, taken.drain, taken.reopen_logs), (Some(stop(None, 5)), true, false));
        assert!(pending.take().is_none());
    }

    #[test]
    fn test_replacement_is_requested_once() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let replacement = Replacement::new(ours.into(), b"stuck", b"broken");
        replacement.request(Reason::Broken);
        replacement.request(Reason::Stuck);
        let mut message = [0; 32];
        assert_eq!(theirs.recv(&mut message).unwrap(), b"broken".len());
        assert!(theirs.recv(&mut message).is_err());
    }
}
