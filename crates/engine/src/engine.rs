//! The loop's body: one turn of an engine.

use crate::app::{AcceptPause, App, Local, Peer, Report};
use crate::compose::Composer;
use crate::config::{ACCEPT_PAUSE, ACCEPTS_AT_STOP, ACCEPTS_PER_TURN, Config, READ_BUFFER, STOP_GRACE};
use crate::connection::{Connection, Fate, Hub, panic_message};
use crate::courier::Courier;
use crate::deadline::{Millis, Now, Sweep, millis};
use crate::net::{self, Accepted};
use crate::statistics::Statistics;
use mio::unix::{SourceFd, pipe};
use mio::{Events, Interest, Poll, Registry, Token};
use slab::Slab;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};
use wire::http1::Stamp;

/// Readiness events looked at in a turn.
const EVENTS: usize = 256;
const WAKE: Token = Token(usize::MAX);
/// Listener `i` has token `LISTENERS - i`; connections have their slots, from 0.
const LISTENERS: usize = usize::MAX - 1;

/// Sockets, connections and time limits of one application. See the crate's documentation for how it is turned.
pub struct Engine<A: App> {
    poll: Poll,
    events: Events,
    listeners: Vec<Listener>,
    locals: Vec<Local>,
    connections: Slab<Connection<A>>,
    hub: Hub<A::Chunk>,
    buffer: Box<[u8]>,
    /// Slots to be driven in the next turn without readiness.
    again: Vec<usize>,
    began: Instant,
    /// The second that the stamp shows.
    stamped: u64,
    /// Accepting pauses until then; 0 if it does not.
    paused_until: Millis,
    /// The pause has been reported and nothing was accepted since.
    pause_reported: bool,
    /// When what is left is cut, once the engine is stopping.
    stop_at: Option<Millis>,
    /// The bound on connections, or what the limit on descriptors leaves to them.
    most_connections: usize,
    has_stopped_accepting: bool,
    wake_receiver: pipe::Receiver,
    waker: Waker,
}

struct Listener {
    socket: OwnedFd,
    /// Somebody may be waiting to be accepted.
    ready: bool,
}

/// Ends an engine's wait from another thread or from a signal handler.
#[derive(Clone, Debug)]
pub struct Waker {
    pipe: Arc<pipe::Sender>,
    stopping: Arc<AtomicBool>,
}

impl Waker {
    /// Makes the engine's current or next [`Engine::poll`] return at once.
    pub fn wake(&self) {
        // A full pipe wakes as well as another byte would.
        rustix::io::write(&*self.pipe, &[0]).ok();
    }

    /// [`Engine::stop`] will be called soon: responses that begin from now on say that their connection ends. An
    /// application that is at work may not come back to the engine before its response has begun.
    pub fn announce_stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.wake();
    }
}

impl AsFd for Waker {
    /// Any byte written to it wakes: a descriptor for `signal.set_wakeup_fd`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl<A: App> Engine<A> {
    /// An engine that accepts from `listeners`, which are listening stream sockets.
    ///
    /// # Errors
    /// If one of them is no listening socket, or the poller cannot be made.
    pub fn new(listeners: Vec<OwnedFd>, config: Config, now: Now) -> io::Result<Self> {
        let poll = Poll::new()?;
        let (wake_sender, mut wake_receiver) = pipe::new()?;
        poll.registry().register(&mut wake_receiver, WAKE, Interest::READABLE)?;
        let mut locals = Vec::new();
        for (index, socket) in listeners.iter().enumerate() {
            locals.push(net::listener(socket)?);
            let token = Token(LISTENERS - index);
            poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
        }
        let most_connections = config.connections.min(net::descriptors_for_connections());
        let stopping = Arc::new(AtomicBool::new(false));
        let stamp = Stamp::new(&config.server, 0)
            .map_err(|misuse| io::Error::new(io::ErrorKind::InvalidInput, format!("Server: {misuse}")))?;
        let mut engine = Self {
            poll,
            events: Events::with_capacity(EVENTS),
            listeners: listeners.into_iter().map(|socket| Listener { socket, ready: true }).collect(),
            locals,
            connections: Slab::new(),
            hub: Hub {
                config,
                now: 0,
                stamp,
                statistics: Statistics::default(),
                sweep: Sweep::new(),
                out: Composer::new(),
                courier: Courier::new(),
                parts_come_fast: false,
                fields: Vec::new(),
                stopping: Arc::clone(&stopping),
            },
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            again: Vec::new(),
            began: now.monotonic,
            stamped: u64::MAX,
            paused_until: 0,
            pause_reported: false,
            stop_at: None,
            wake_receiver,
            waker: Waker { pipe: Arc::new(wake_sender), stopping },
            most_connections,
            has_stopped_accepting: false,
        };
        engine.set_time(now);
        Ok(engine)
    }

    /// Where the listeners listen, in their order.
    #[must_use]
    pub fn locals(&self) -> &[Local] {
        &self.locals
    }

    /// Something that ends this engine's wait from elsewhere.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits until something is ready, at most for `timeout` (`None`: without limit); whether something is. What is
    /// ready is done by the next [`turn`](Self::turn), which has to come before the next poll: each is told once.
    ///
    /// # Errors
    /// If the poller fails; being interrupted by a signal is not a failure.
    pub fn poll(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => Ok(!self.events.is_empty()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How long to wait at most before the next turn, if nothing becomes ready.
    #[must_use]
    pub fn timeout(&self, now: Now) -> Option<Duration> {
        if !self.again.is_empty() || (self.paused_until == 0 && self.listeners.iter().any(|listener| listener.ready)) {
            return Some(Duration::ZERO);
        }
        let now = self.millis_at(now);
        let pause = (self.paused_until != 0).then_some(self.paused_until);
        let stop_at = self.stop_at.filter(|&at| at != Millis::MAX);
        let due = [self.hub.sweep.due(), stop_at, pause].into_iter().flatten().min()?;
        Some(Duration::from_millis(due.saturating_sub(now)))
    }

    /// Does what is ready, and what is due, and comes back.
    pub fn turn(&mut self, now: Now, app: &mut A) {
        self.set_time(now);
        // Whoever asks for it in this turn goes on in the next.
        let again = std::mem::take(&mut self.again);
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token() {
                WAKE => self.drain_wakes(),
                Token(token) if token > LISTENERS - self.listeners.len().max(self.locals.len()) => {
                    if let Some(listener) = self.listeners.get_mut(LISTENERS - token) {
                        listener.ready = true;
                    }
                }
                Token(slot) => {
                    if let Some(connection) = self.connections.get_mut(slot) {
                        connection.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
                        connection.read_closed |= event.is_read_closed() || event.is_error();
                        self.drive(slot, app);
                    }
                }
            }
        }
        self.events = events;
        self.events.clear();
        self.drive_again(again, app);
        // What is driven is guarded connection by connection; here the application hears of some besides.
        let guarded = catch_unwind(AssertUnwindSafe(|| {
            self.accept(app);
            if self.hub.sweep.begin(self.hub.now) {
                self.sweep(app);
            }
            self.go_on_stopping(app);
        }));
        if let Err(panic) = guarded {
            self.hub.statistics.panics += 1;
            self.hub.out.clear();
            // It may have been the sweep that did not come to its end.
            self.hub.sweep.note(self.hub.now);
            app.report(Report::Panicked(panic_message(&*panic)));
        }
    }

    /// Stops: accepts whom the kernel has already let in, then nobody; finishes what is under way; cuts what is left
    /// after `timeout` (`None`: whenever). Called again it can only become shorter.
    pub fn stop(&mut self, now: Now, timeout: Option<Duration>) {
        let at = timeout.map_or(Millis::MAX, |timeout| self.millis_at(now).saturating_add(millis(timeout)));
        self.hub.stopping.store(true, Ordering::Relaxed);
        for listener in &mut self.listeners {
            listener.ready = true;
        }
        self.stop_at = Some(self.stop_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Whether the engine has stopped and nothing is left.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.has_stopped_accepting && self.connections.is_empty()
    }

    /// What has been counted.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics { connections: self.connections.len() as u64, ..self.hub.statistics }
    }

    fn millis_at(&self, now: Now) -> Millis {
        millis(now.monotonic.saturating_duration_since(self.began))
    }

    fn set_time(&mut self, now: Now) {
        self.hub.now = self.millis_at(now);
        let second = now.wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.stamped {
            self.stamped = second;
            self.hub.stamp.set_time(second);
        }
    }

    fn drain_wakes(&mut self) {
        let mut bytes = [0; 64];
        while matches!(self.wake_receiver.read(&mut bytes), Ok(count) if count > 0) {}
    }

    /// Drives one connection and does what its fate asks for.
    fn drive(&mut self, slot: usize, app: &mut A) {
        let connection = &mut self.connections[slot];
        let (hub, buffer) = (&mut self.hub, &mut self.buffer);
        let driven = catch_unwind(AssertUnwindSafe(|| connection.drive(hub, buffer, app)));
        self.follow(slot, driven, app);
    }

    fn follow(&mut self, slot: usize, driven: std::thread::Result<Fate>, app: &mut A) {
        let connection = &mut self.connections[slot];
        match driven {
            Ok(Fate::Close) => self.remove(slot),
            // One that goes on is watched too: what its peer sends meanwhile decides how it is closed.
            Ok(fate) => {
                if watch(self.poll.registry(), connection, slot).is_err() {
                    connection.cut(&mut self.hub, app);
                    self.remove(slot);
                } else if fate == Fate::Again && !std::mem::replace(&mut connection.queued, true) {
                    self.again.push(slot);
                }
            }
            Err(panic) => {
                self.hub.statistics.panics += 1;
                self.hub.out.clear();
                net::reset_on_close(connection.socket());
                self.remove(slot);
                app.report(Report::Panicked(panic_message(&*panic)));
            }
        }
    }

    fn remove(&mut self, slot: usize) {
        // Closing the descriptor takes it out of the poller.
        drop(self.connections.remove(slot));
        self.paused_until = 0;
    }

    fn drive_again(&mut self, slots: Vec<usize>, app: &mut A) {
        for slot in slots {
            if let Some(connection) = self.connections.get_mut(slot)
                && std::mem::take(&mut connection.queued)
            {
                self.drive(slot, app);
            }
        }
    }

    fn accept(&mut self, app: &mut A) {
        if self.hub.now < self.paused_until {
            return;
        }
        self.paused_until = 0;
        for index in 0..self.listeners.len() {
            // A listener that is about to be closed is emptied, but not for as long as more keep coming.
            let most = if self.stop_at.is_some() { ACCEPTS_AT_STOP } else { ACCEPTS_PER_TURN };
            for attempt in 1..=most {
                if !self.listeners[index].ready {
                    break;
                }
                if self.connections.len() >= self.most_connections {
                    if !net::is_awaited(&self.listeners[index].socket) {
                        self.nobody_waits(index);
                        break;
                    }
                    let pause = if self.most_connections == self.hub.config.connections {
                        AcceptPause::Connections(self.most_connections)
                    } else {
                        AcceptPause::Descriptors(self.most_connections)
                    };
                    self.pause_accepting(pause, app);
                    return;
                }
                match net::accept(&self.listeners[index].socket) {
                    Ok(Accepted::Connection(socket, address)) => {
                        self.hub.statistics.accepted += 1;
                        let connection = app.connect(&Peer { address, listener: index });
                        let slot = self.connections.insert(Connection::new(socket, connection, self.hub.now));
                        // Often the first request is here already, and a short-lived connection never needs to be
                        // watched.
                        self.drive(slot, app);
                    }
                    Ok(Accepted::None) => self.nobody_waits(index),
                    // Now and then a peer leaves early; when it never ends, something else is wrong.
                    Ok(Accepted::Failed(error)) if attempt == most => {
                        self.pause_accepting(AcceptPause::Failed(error), app);
                        return;
                    }
                    Ok(Accepted::Failed(_)) => {}
                    // Linux wants a descriptor before it looks whether somebody waits.
                    Ok(Accepted::Exhausted(_)) if !net::is_awaited(&self.listeners[index].socket) => {
                        self.nobody_waits(index);
                    }
                    Ok(Accepted::Exhausted(error)) | Err(error) => {
                        self.pause_accepting(AcceptPause::Failed(error), app);
                        return;
                    }
                }
            }
        }
    }

    fn nobody_waits(&mut self, index: usize) {
        self.listeners[index].ready = false;
        self.pause_reported = false;
    }

    /// Accepting goes on when a connection has closed, or after a while.
    fn pause_accepting(&mut self, pause: AcceptPause, app: &mut A) {
        self.paused_until = self.hub.now + millis(ACCEPT_PAUSE);
        self.hub.statistics.accept_pauses += 1;
        if !std::mem::replace(&mut self.pause_reported, true) {
            app.report(Report::AcceptPaused(pause));
        }
    }

    /// Looks at every connection's clock.
    fn sweep(&mut self, app: &mut A) {
        let now = self.hub.now;
        let mut late = Vec::new();
        for (slot, connection) in &mut self.connections {
            if connection.is_late(now) {
                late.push(slot);
            } else {
                connection.note_deadline(&mut self.hub);
                connection.rest(&mut self.hub, app);
            }
        }
        for slot in late {
            let connection = &mut self.connections[slot];
            match connection.expire(&mut self.hub, app) {
                Fate::Close => self.remove(slot),
                _ => self.drive(slot, app),
            }
        }
    }

    fn go_on_stopping(&mut self, app: &mut A) {
        let Some(stop_at) = self.stop_at else { return };
        if !std::mem::replace(&mut self.has_stopped_accepting, true) {
            for listener in self.listeners.drain(..) {
                self.poll.registry().deregister(&mut SourceFd(&listener.socket.as_raw_fd())).ok();
            }
            let grace = self.hub.now + millis(STOP_GRACE);
            for (_, connection) in &mut self.connections {
                if connection.is_between_requests() {
                    connection.hurry(grace, &mut self.hub);
                }
            }
        }
        if self.hub.now >= stop_at {
            for (_, mut connection) in std::mem::take(&mut self.connections) {
                connection.cut(&mut self.hub, app);
            }
        }
    }
}

impl<A: App> AsRawFd for Engine<A> {
    /// The poller's descriptor: readable when a turn has something to do.
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

/// Makes sure that the poller knows the connection, and tells when it takes output again if it has some.
///
/// Once asked for, word about output keeps coming; edge-triggered it costs nothing while there is none.
fn watch<A: App>(registry: &Registry, connection: &mut Connection<A>, slot: usize) -> io::Result<()> {
    let wants_writable = connection.has_output() && !connection.awaits_writable;
    if connection.registered && !wants_writable {
        return Ok(());
    }
    connection.awaits_writable |= wants_writable;
    let interest =
        if connection.awaits_writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    let descriptor = connection.socket().as_raw_fd();
    let mut source = SourceFd(&descriptor);
    if std::mem::replace(&mut connection.registered, true) {
        registry.reregister(&mut source, Token(slot), interest)
    } else {
        registry.register(&mut source, Token(slot), interest)
    }
}
