//! The operating system as the generator's [`Net`].

use crate::net::{Moved, Nanos, Net};
use crate::plan::{PlanError, Target};
use engine::{Os, Poller, Readiness, Socket as _};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Token of the timer; no connection has it.
const TIMER: usize = usize::MAX >> 1;

/// Client sockets, watched by an engine's poller.
#[derive(Debug)]
pub(crate) struct Sockets {
    os: Os,
    targets: Vec<SocketAddrAny>,
}

impl Sockets {
    pub(crate) fn new(os: Os, targets: Vec<SocketAddrAny>) -> Self {
        Self { os, targets }
    }
}

/// Returns the addresses of a target.
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
    type Socket = OwnedFd;

    fn connect(&mut self, address: usize, slot: usize) -> io::Result<Option<OwnedFd>> {
        let address = &self.targets[address];
        let family = address.address_family();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        if family != AddressFamily::UNIX {
            // A request is sent in one piece; waiting for more would only delay it.
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        match rustix::net::connect(&socket, address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            // connect(2): the error of a Unix socket whose listener's queue is full.
            Err(Errno::AGAIN) if family == AddressFamily::UNIX => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        self.os.watch_descriptor(&socket, slot, false, false)?;
        Ok(Some(socket))
    }

    fn is_open(&self, socket: &OwnedFd) -> io::Result<bool> {
        sockopt::socket_error(socket)??;
        Ok(rustix::net::getpeername(socket).is_ok_and(|address| address.is_some()))
    }

    fn send(&mut self, socket: &OwnedFd, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        socket.send(slices, false)
    }

    fn receive(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Moved> {
        socket.receive(buffer)
    }

    fn want_output(&mut self, socket: &OwnedFd, slot: usize) -> io::Result<()> {
        self.os.watch_descriptor(socket, slot, true, true)
    }
}

/// Waits for sockets and for a time, with a precision of microseconds. A poller alone waits for whole milliseconds, and
/// that delay of a request would be measured as latency of the server.
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

    /// Waits until something is ready, at most this long.
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

    /// A timer that the poller watches.
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

        /// Returns the poller's timeout for a wait of `left`. A wait of more than 2 ms gets a timeout that is too
        /// short, and the caller waits again for the rest. A shorter wait gets no timeout: this sets the timer, which
        /// ends it.
        pub(super) fn set(&self, left: Option<Duration>) -> io::Result<Option<Duration>> {
            const COARSE: Duration = Duration::from_millis(2);
            let left = match left {
                None | Some(Duration::ZERO) => return Ok(left),
                // Rounded up it would be late. It ends up to a millisecond early, and the timer waits for the rest.
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
