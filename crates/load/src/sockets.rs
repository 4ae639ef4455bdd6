//! The implementation of [`Net`] by the operating system.

use crate::net::{Moved, Nanos, Net};
use crate::plan::{Plan, PlanError, Target};
use crate::tls_client::{TlsClient, TlsTerms};
use engine::{Os, Poller, Readiness, Socket as _};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The token of the timer in the poller. No connection has this slot.
const TIMER: usize = usize::MAX >> 1;

/// Client sockets, watched by an engine's poller.
#[derive(Debug)]
pub(crate) struct Sockets {
    os: Os,
    targets: Vec<SocketAddrAny>,
    tls: Option<TlsTerms>,
}

/// A client connection.
#[derive(Debug)]
pub(crate) struct ClientSocket {
    descriptor: OwnedFd,
    tls: Option<Box<TlsClient>>,
}

impl Sockets {
    pub(crate) fn new(os: Os, targets: Vec<SocketAddrAny>, plan: &Plan) -> Result<Self, PlanError> {
        let tls = plan.tls.as_ref().map(|tls| TlsTerms::new(tls, plan.version)).transpose()?;
        Ok(Self { os, targets, tls })
    }
}

/// Returns the socket addresses of a target.
pub(crate) fn addresses(target: &Target) -> Result<Vec<SocketAddrAny>, PlanError> {
    let Some(path) = &target.unix else {
        return Ok(target.addresses.iter().map(|&address| address.into()).collect());
    };
    let address = match path.strip_prefix('@') {
        #[cfg(target_os = "linux")]
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        _ => SocketAddrUnix::new(path.as_str()),
    };
    let address = address.map_err(|error| PlanError::at("target.unix".to_owned(), format!("{path:?}: {error}")))?;
    Ok(vec![address.into()])
}

impl Net for Sockets {
    type Socket = ClientSocket;

    fn connect(&mut self, address: usize, slot: usize) -> io::Result<Option<ClientSocket>> {
        let address = &self.targets[address];
        let family = address.address_family();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let descriptor = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        if family != AddressFamily::UNIX {
            // Disables Nagle's algorithm: a request is sent in one piece, so it would only add a delay.
            sockopt::set_tcp_nodelay(&descriptor, true)?;
        }
        match rustix::net::connect(&descriptor, address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            // connect(2) returns this error if the backlog of a Unix socket is full.
            Err(Errno::AGAIN) if family == AddressFamily::UNIX => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let tls = self.tls.as_ref().map(TlsTerms::connect).transpose()?.map(Box::new);
        // TLS may have bytes to send when the generator has none, so output is watched.
        self.os.watch_descriptor(&descriptor, slot, tls.is_some(), false)?;
        Ok(Some(ClientSocket { descriptor, tls }))
    }

    fn is_open(&mut self, socket: &mut ClientSocket) -> io::Result<bool> {
        sockopt::socket_error(&socket.descriptor)??;
        if !rustix::net::getpeername(&socket.descriptor).is_ok_and(|address| address.is_some()) {
            return Ok(false);
        }
        socket.tls.as_mut().map_or(Ok(true), |tls| tls.shake_hands(&socket.descriptor))
    }

    fn send(&mut self, socket: &mut ClientSocket, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        match &mut socket.tls {
            None => socket.descriptor.send(slices, false),
            // While the connection is opening, a receive would fail with ENOTCONN.
            Some(tls) if rustix::net::getpeername(&socket.descriptor).is_ok_and(|address| address.is_some()) => {
                tls.send(&socket.descriptor, slices)
            }
            Some(_) => {
                sockopt::socket_error(&socket.descriptor)??;
                Ok(Moved::WouldBlock)
            }
        }
    }

    fn receive(&mut self, socket: &mut ClientSocket, buffer: &mut [u8]) -> io::Result<Moved> {
        match &mut socket.tls {
            None => socket.descriptor.receive(buffer),
            Some(tls) => tls.receive(&socket.descriptor, buffer),
        }
    }

    fn want_output(&mut self, socket: &mut ClientSocket, slot: usize) -> io::Result<()> {
        if socket.tls.is_some() { Ok(()) } else { self.os.watch_descriptor(&socket.descriptor, slot, true, true) }
    }
}

/// Waits for sockets and for a time, with microsecond precision. A poller alone has millisecond precision, and the
/// resulting delay of a request would be measured as latency of the server.
#[derive(Debug)]
pub(crate) struct Waiter {
    poller: Poller,
    #[cfg(target_os = "linux")]
    timer: linux::Timer,
}

impl Waiter {
    #[cfg(target_os = "linux")]
    pub(crate) fn new(os: &mut Os, poller: Poller) -> io::Result<Self> {
        Ok(Self { poller, timer: linux::Timer::new(os)? })
    }

    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    pub(crate) fn new(_: &mut Os, poller: Poller) -> io::Result<Self> {
        Ok(Self { poller })
    }

    /// Waits until a socket is ready, at most for `left` nanoseconds.
    pub(crate) fn wait(&mut self, left: Option<Nanos>, ready: &mut Vec<Readiness>) -> io::Result<()> {
        let left = left.map(Duration::from_nanos);
        #[cfg(target_os = "linux")]
        let left = self.timer.set(left)?;
        self.poller.wait(left, ready)?;
        ready.retain(|ready| !matches!(ready, Readiness::Connection { slot: TIMER, .. }));
        Ok(())
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{Os, OwnedFd, TIMER};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use std::io;
    use std::time::Duration;

    /// A timer descriptor that the poller watches.
    #[derive(Debug)]
    pub(super) struct Timer {
        descriptor: OwnedFd,
    }

    impl Timer {
        pub(super) fn new(os: &mut Os) -> io::Result<Self> {
            let descriptor = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            os.watch_descriptor(&descriptor, TIMER, false, false)?;
            Ok(Self { descriptor })
        }

        /// Returns the poller's timeout for a wait of `left`. For more than 2 ms the timeout is too short, and the
        /// caller waits again for the rest. For less there is no timeout, and this sets the timer, which ends the wait.
        pub(super) fn set(&self, left: Option<Duration>) -> io::Result<Option<Duration>> {
            const COARSE: Duration = Duration::from_millis(2);
            let left = match left {
                None | Some(Duration::ZERO) => return Ok(left),
                // The poller would round the timeout up and be late. So it ends early, and the timer waits for the
                // rest.
                Some(long) if long > COARSE => return Ok(Some(long.saturating_sub(COARSE))),
                Some(short) => short,
            };
            let value = Timespec { tv_sec: 0, tv_nsec: left.as_nanos().try_into().unwrap_or(0) };
            let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            timerfd_settime(
                &self.descriptor,
                TimerfdTimerFlags::empty(),
                &Itimerspec { it_interval: interval, it_value: value },
            )?;
            Ok(None)
        }
    }
}
