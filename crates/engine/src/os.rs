//! The operating system as the engine's [`Net`]. Nothing else in the crate makes a system call on a socket.

use crate::descriptors::EngineSocket;
use crate::net::{Accepted, Local, Net, Readiness};
use crate::transport::{Moved, Socket, Tcp};
use mio::unix::{SourceFd, pipe};
use mio::{Events, Interest, Poll, Registry, Token};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketFlags, sockopt};
use rustix::process::Resource;
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of readiness events taken in one poll.
const EVENTS: usize = 256;
const WAKE: Token = Token(usize::MAX);
/// Listener `i` has token `LISTENERS - i`; connections have their slot as token, from 0.
const LISTENERS: usize = usize::MAX - 1;
/// An upper bound for the number of listeners, which no process reaches.
const LISTENERS_AT_MOST: usize = 1 << 16;
/// The token of the additional descriptor ([`Poller::watch_beside`]).
const BESIDE: Token = Token(LISTENERS - LISTENERS_AT_MOST);

/// The operating system's sockets, watched by a [`Poller`].
#[derive(Debug)]
pub struct Os {
    registry: Registry,
    wakes: pipe::Receiver,
    /// False if the kernel has refused `EPOLLEXCLUSIVE`.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    has_exclusive: bool,
    /// The number of bells that this process has open. They are descriptors in addition to those that [`Net::room`]
    /// reserves.
    bells: usize,
}

/// The poller, which waits for the events that an engine watches. Its descriptor is pollable itself, so that any event
/// loop can host the engine.
#[derive(Debug)]
pub struct Poller {
    poll: Poll,
    events: Events,
    /// The events or the error of the last wait, if the caller has not taken them yet.
    found: io::Result<Vec<Readiness>>,
    /// The additional descriptor of [`watch_beside`](Self::watch_beside), and true if a wait has found it ready since
    /// the last call of [`take_beside`](Self::take_beside).
    beside: Option<(OwnedFd, bool)>,
}

/// A bell that wakes the engines of another process: an eventfd(2) that both processes have open.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// Creates a bell. `eventfd` must be non-blocking.
    #[must_use]
    pub fn new(eventfd: OwnedFd) -> Self {
        Self(eventfd)
    }

    pub(crate) fn ring(&self) {
        // The counter is never read and may be at its maximum. Every write still reports an event to the pollers that
        // watch it.
        rustix::io::write(&self.0, &1u64.to_ne_bytes()).ok();
    }
}

/// A waker, which ends the wait of a [`Poller`] from another thread or from a signal handler.
#[derive(Clone, Debug)]
pub struct Waker {
    pipe: Arc<pipe::Sender>,
}

impl Os {
    /// Creates a network, its poller, and the poller's waker.
    ///
    /// # Errors
    /// If the operating system cannot create a poller or a pipe.
    pub fn new() -> io::Result<(Self, Poller, Waker)> {
        let poll = Poll::new()?;
        let (sender, mut wakes) = pipe::new()?;
        poll.registry().register(&mut wakes, WAKE, Interest::READABLE)?;
        let registry = poll.registry().try_clone()?;
        let poller = Poller { poll, events: Events::with_capacity(EVENTS), found: Ok(Vec::new()), beside: None };
        let net = Self {
            registry,
            wakes,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            has_exclusive: true,
            bells: 0,
        };
        Ok((net, poller, Waker { pipe: Arc::new(sender) }))
    }

    /// Makes `bell` wake the poller, too. `bells` is the number of bells that this process has open.
    ///
    /// # Errors
    /// If the operating system cannot watch the bell.
    pub fn watch_bell(&mut self, bell: &Bell, bells: usize) -> io::Result<()> {
        self.bells = bells;
        // Edge-triggered: each write is reported once, so the counter need not be read.
        self.registry.register(&mut SourceFd(&bell.0.as_raw_fd()), WAKE, Interest::READABLE)
    }

    /// Watches a descriptor, as [`Net::watch`] watches a transport.
    ///
    /// # Errors
    /// If the system cannot watch it.
    pub fn watch_descriptor(
        &mut self,
        descriptor: &impl AsRawFd,
        slot: usize,
        output: bool,
        again: bool,
    ) -> io::Result<()> {
        let interest = if output { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let descriptor = descriptor.as_raw_fd();
        let mut source = SourceFd(&descriptor);
        if again {
            self.registry.reregister(&mut source, Token(slot), interest)
        } else {
            self.registry.register(&mut source, Token(slot), interest)
        }
    }
}

impl Poller {
    /// Waits until something is ready, at most for `timeout` (`None`: without limit), and appends it to `ready`.
    /// Reports each event once.
    ///
    /// # Errors
    /// If the poller fails. An interruption by a signal is no failure.
    pub fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Readiness>) -> io::Result<()> {
        self.wait_until_ready(timeout);
        self.take(ready)
    }

    /// Appends the events that [`wait_until_ready`](Self::wait_until_ready) found to `ready`.
    ///
    /// # Errors
    /// If the poller has failed.
    pub fn take(&mut self, ready: &mut Vec<Readiness>) -> io::Result<()> {
        match &mut self.found {
            Ok(found) => {
                ready.append(found);
                Ok(())
            }
            Err(_) => std::mem::replace(&mut self.found, Ok(Vec::new())).map(drop),
        }
    }

    /// Waits like [`wait`](Self::wait), but keeps the events or the error for the next `wait`, which then returns at
    /// once.
    pub fn wait_until_ready(&mut self, timeout: Option<Duration>) {
        let Ok(found) = &mut self.found else { return };
        if !found.is_empty() {
            return;
        }
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(error) => {
                self.found = Err(error);
                return;
            }
        }
        let beside = &mut self.beside;
        found.extend(self.events.iter().filter_map(|event| match event.token() {
            WAKE => Some(Readiness::Woken),
            BESIDE => {
                if let Some((_, is_ready)) = beside {
                    *is_ready = true;
                }
                None
            }
            Token(token) if token > BESIDE.0 => Some(Readiness::Listener(LISTENERS - token)),
            Token(slot) => Some(Readiness::Connection {
                slot,
                readable: event.is_readable() || event.is_read_closed() || event.is_error(),
                read_closed: event.is_read_closed() || event.is_error(),
            }),
        }));
    }

    /// Makes waits also end while `descriptor` is readable; [`take_beside`](Self::take_beside) reports it. The event
    /// loop that hosts the engine uses this for its other events.
    ///
    /// # Errors
    /// If the system cannot watch the descriptor, or already watches it.
    pub fn watch_beside(&mut self, descriptor: OwnedFd) -> io::Result<()> {
        watch_beside(self.poll.registry(), &descriptor, false)?;
        self.beside = Some((descriptor, false));
        Ok(())
    }

    /// Returns true if a wait has found the descriptor of [`watch_beside`](Self::watch_beside) ready since the last
    /// call of this method.
    pub fn take_beside(&mut self) -> bool {
        let Some((descriptor, is_ready)) = &mut self.beside else { return false };
        let was_ready = std::mem::take(is_ready);
        if was_ready {
            // The descriptor is already watched, so this cannot fail for lack of memory.
            watch_beside(self.poll.registry(), descriptor, true).ok();
        }
        was_ready
    }
}

/// Watches the descriptor level-triggered: each wait reports it while it is readable. mio has no method for this.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn watch_beside(registry: &Registry, descriptor: &OwnedFd, again: bool) -> io::Result<()> {
    use rustix::event::epoll;

    if again {
        return Ok(());
    }
    let data = epoll::EventData::new_u64(BESIDE.0 as u64);
    Ok(epoll::add(registry, descriptor, data, epoll::EventFlags::IN)?)
}

/// Watches the descriptor on systems without a level-triggered mode in mio: the caller watches it again after each
/// event.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn watch_beside(registry: &Registry, descriptor: &OwnedFd, again: bool) -> io::Result<()> {
    let number = descriptor.as_raw_fd();
    let mut source = SourceFd(&number);
    if again {
        registry.reregister(&mut source, BESIDE, Interest::READABLE)
    } else {
        registry.register(&mut source, BESIDE, Interest::READABLE)
    }
}

impl Poller {
    /// Returns true if a wait would return at once. Consumes no event.
    pub fn is_ready(&self) -> bool {
        let has_found = self.found.as_ref().map_or(true, |found| !found.is_empty());
        has_found || poll_now(self.poll.registry(), PollFlags::IN).is_some_and(|flags| !flags.is_empty())
    }
}

impl AsRawFd for Poller {
    /// Returns the poller's descriptor, which is readable when a wait would return at once.
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

impl Waker {
    /// Makes the current or next wait of the poller return at once.
    pub fn wake(&self) {
        // If the pipe is full, the bytes in it wake the poller as well.
        rustix::io::write(&*self.pipe, &[0]).ok();
    }
}

impl AsFd for Waker {
    /// Returns a descriptor for `signal.set_wakeup_fd`: any byte written to it wakes the poller.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Net for Os {
    type Listener = EngineSocket;
    type Transport = Tcp<EngineSocket>;

    fn listen(&mut self, listener: &EngineSocket, index: usize) -> io::Result<Local> {
        rustix::io::ioctl_fionbio(listener, true)?;
        let address: SocketAddrAny = rustix::net::getsockname(listener)?;
        let token = Token(LISTENERS - index);
        self.registry.register(&mut SourceFd(&listener.as_raw_fd()), token, Interest::READABLE)?;
        match SocketAddr::try_from(address) {
            Ok(address) => {
                // On Linux accepted sockets inherit TCP_NODELAY. The engine sends a response in one piece, so Nagle's
                // algorithm would only delay it.
                sockopt::set_tcp_nodelay(listener, true)?;
                Ok(Local::Tcp(address))
            }
            Err(_) => Ok(Local::Unix),
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn relisten(&mut self, listener: &EngineSocket, index: usize, takes_turns: bool) -> io::Result<()> {
        use rustix::event::epoll;

        if !self.has_exclusive {
            return Ok(());
        }
        let token = Token(LISTENERS - index);
        let descriptor = listener.as_raw_fd();
        let mut source = SourceFd(&descriptor);
        // epoll_ctl(2) cannot modify an entry with EPOLLEXCLUSIVE, so it is removed and added. This also makes it the
        // last in the order.
        self.registry.deregister(&mut source).ok();
        if takes_turns {
            // mio has no method for this. Its registry is an epoll descriptor, though, and mio reports this token with
            // its events.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET | epoll::EventFlags::EXCLUSIVE;
            let data = epoll::EventData::new_u64(token.0 as u64);
            match epoll::add(&self.registry, listener, data, flags) {
                // Linux before 4.5 does not know EPOLLEXCLUSIVE.
                Err(Errno::INVAL) => self.has_exclusive = false,
                result => return result.map_err(io::Error::from),
            }
        }
        self.registry.register(&mut source, token, Interest::READABLE)
    }

    fn unlisten(&mut self, listener: &EngineSocket) {
        // The caller drops the listener, which removes it from the poller as well.
        self.registry.deregister(&mut SourceFd(&listener.as_raw_fd())).ok();
    }

    fn accept(&mut self, listener: &EngineSocket) -> io::Result<Accepted<Tcp<EngineSocket>>> {
        match rustix::net::acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok((socket, address)) => Ok(Accepted::Connection(
                Tcp::new(socket.into()),
                address.and_then(|address| SocketAddr::try_from(address).ok()),
            )),
            Err(Errno::WOULDBLOCK) => Ok(Accepted::None),
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                Ok(Accepted::Exhausted(error.into()))
            }
            Err(error @ (Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP)) => Err(error.into()),
            // accept(2) also reports errors of the new connection, which have to be treated like EAGAIN.
            Err(error) => Ok(Accepted::Failed(error.into())),
        }
    }

    fn is_awaited(&self, listener: &EngineSocket) -> bool {
        // If poll(2) fails, assume that a connection waits.
        poll_now(listener, PollFlags::IN).is_none_or(|flags| !flags.is_empty())
    }

    /// Output events stay registered after the first request for them. They are edge-triggered, so they cost nothing
    /// until one occurs.
    fn watch(&mut self, transport: &Tcp<EngineSocket>, slot: usize, output: bool, again: bool) -> io::Result<()> {
        self.watch_descriptor(transport.socket(), slot, output, again)
    }

    fn unwatch(&mut self, transport: &Tcp<EngineSocket>) {
        // The kernel watches an open file until its last descriptor is closed, and the application has a duplicate.
        self.registry.deregister(&mut SourceFd(&transport.socket().as_raw_fd())).ok();
    }

    /// Returns the process's limit on descriptors minus a reserve. The reserve lets the application open files, and the
    /// server write logs, while the maximum number of connections is open.
    fn room(&self) -> usize {
        const FREE_AT_MOST: u64 = 64;
        let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        usize::try_from(limit - FREE_AT_MOST.min(limit / 2)).unwrap_or(usize::MAX).saturating_sub(self.bells).max(1)
    }

    fn drain_wakes(&mut self) {
        let mut bytes = [0; 64];
        while matches!(self.wakes.read(&mut bytes), Ok(count) if count > 0) {}
    }
}

/// A descriptor that is a stream socket.
pub trait SocketDescriptor: AsFd {}

impl SocketDescriptor for OwnedFd {}

impl SocketDescriptor for EngineSocket {}

impl<D: SocketDescriptor> Socket for D {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Moved> {
        moved(rustix::net::recv(self, buffer, RecvFlags::empty()).map(|(count, _)| count))
    }

    fn send(&self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved> {
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        moved(match slices {
            [only] => rustix::net::send(self, only, flags),
            _ => rustix::net::sendmsg(self, slices, &mut SendAncillaryBuffer::default(), flags),
        })
    }

    fn send_file(&self, file: &File, offset: u64, count: u64) -> io::Result<Moved> {
        // Linux moves at most 0x7ffff000 bytes in one call.
        let count = usize::try_from(count.min(0x7fff_f000)).unwrap_or(usize::MAX);
        let mut offset = offset;
        moved(rustix::fs::sendfile(self, file, Some(&mut offset), count))
    }

    fn end_output(&self) {
        rustix::net::shutdown(self, Shutdown::Write).ok();
    }

    fn reset_on_drop(&self) {
        sockopt::set_socket_linger(self, Some(Duration::ZERO)).ok();
    }

    fn cut(&self) {
        self.reset_on_drop();
        // A FIN would look like the end of a response that is delimited by the close. On Linux, connect(2) with
        // AF_UNSPEC resets a TCP connection. Elsewhere the peer notices the cut when the connection is dropped.
        if rustix::net::connect_unspec(self).is_err() {
            rustix::net::shutdown(self, Shutdown::Read).ok();
        }
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }

    fn shut_down(&self) {
        rustix::net::shutdown(self, Shutdown::Both).ok();
    }

    fn has_peer_left(&self) -> bool {
        poll_now(self, PollFlags::RDHUP).is_some_and(|flags| !flags.is_empty())
    }
}

fn moved(result: rustix::io::Result<usize>) -> io::Result<Moved> {
    match result {
        Ok(count) => Ok(Moved::Bytes(count)),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(Moved::WouldBlock),
        Err(error) => Err(error.into()),
    }
}

/// Returns which of `flags` and which errors a descriptor has now; `None` if poll(2) fails.
fn poll_now(descriptor: &impl AsFd, flags: PollFlags) -> Option<PollFlags> {
    let mut descriptors = [PollFd::new(descriptor, flags)];
    rustix::event::poll(&mut descriptors, Some(&Timespec::default())).ok()?;
    Some(descriptors[0].revents())
}
