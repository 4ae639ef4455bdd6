//! A world to test the engine in: real sockets, a scripted application, and a clock that only the test moves.
//!
//! A [`World`] holds an engine, its [`Script`] (the application) and the time. [`World::until`] turns the engine and
//! moves the given [`Client`]s' bytes until something is the case; it waits on descriptors, never for a time to pass,
//! and it does not move the clock, so no time limit can strike in it. [`World::advance`] moves the clock and turns once.
//!
//! What the application does with a request is the [`Plan`] whose number the target names: `GET /3` follows plan 3.
//! All that it is asked, and what became of each response, stands in [`Script::log`] in its order.

// Each test binary uses a part of it.
#![allow(dead_code, unused_imports)]

pub(crate) mod client;
pub(crate) mod script;

pub(crate) use client::{Client, End};
pub(crate) use script::{Event, How, Op, Pause, Plan, Script, Told, pattern};

use engine::{Config, Engine, Local, Now, Statistics};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Once;
use std::time::{Duration, Instant, SystemTime};

/// How long the machine may take for what needs no time in the engine's eyes. Nothing waits this long but a test that
/// fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the engine may add to a deadline, because it looks at the clock now and then only.
pub(crate) const GRAIN: Duration = Duration::from_millis(100);

pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A configuration without any time limit, so that a test sets those that it is about.
pub(crate) fn timeless() -> Config {
    Config {
        keep_alive: None,
        header_timeout: None,
        body_timeout: None,
        write_timeout: None,
        min_rate: 0,
        ..Config::default()
    }
}

/// Where a listener is reached.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Keeps quiet about the panics that the test plans, so that an unexpected one is seen.
pub(crate) fn quiet(is_planned: fn(&str) -> bool) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let payload = info.payload();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            if !text.or_else(|| payload.downcast_ref::<&str>().copied()).is_some_and(is_planned) {
                usual(info);
            }
        }));
    });
}

/// An engine with its application and its time.
pub(crate) struct World {
    pub(crate) engine: Engine<Script>,
    pub(crate) app: Script,
    pub(crate) addresses: Vec<Address>,
    began: Now,
    elapsed: Duration,
    /// Its sockets' files go with it.
    directory: Option<tempfile::TempDir>,
}

/// A listening TCP socket on the loopback interface; `send_buffer` is what its connections inherit.
pub(crate) fn tcp_listener(send_buffer: Option<usize>) -> (OwnedFd, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
    let address = listener.local_addr().expect("it is bound");
    if let Some(bytes) = send_buffer {
        sockopt::set_socket_send_buffer_size(&listener, bytes).expect("a size that the kernel bounds itself");
    }
    (listener.into(), Address::Tcp(address))
}

impl World {
    /// One TCP listener, and `plans` to follow.
    pub(crate) fn new(config: Config, plans: Vec<Plan>) -> Self {
        Self::with_send_buffer(config, plans, None)
    }

    /// As [`new`](Self::new), where the kernel takes about twice `send_buffer` bytes that the peer has not.
    pub(crate) fn with_send_buffer(config: Config, plans: Vec<Plan>, send_buffer: Option<usize>) -> Self {
        let (listener, address) = tcp_listener(send_buffer);
        Self::on(vec![listener], vec![address], config, plans)
    }

    /// One Unix socket. Bytes, connections and ends pass at once from one end to the other there.
    pub(crate) fn unix(config: Config, plans: Vec<Plan>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("engine.sock");
        let listener = UnixListener::bind(&path).expect("a new path");
        let mut world = Self::on(vec![listener.into()], vec![Address::Unix(path)], config, plans);
        world.directory = Some(directory);
        world
    }

    pub(crate) fn on(listeners: Vec<OwnedFd>, addresses: Vec<Address>, config: Config, plans: Vec<Plan>) -> Self {
        // A wall clock that Date fields can be compared with: Sun, 06 Nov 1994 08:49:37 GMT.
        let began = Now { monotonic: Instant::now(), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777) };
        let engine = Engine::new(listeners, config, began).expect("the listeners listen");
        Self { engine, app: Script::new(plans), addresses, began, elapsed: Duration::ZERO, directory: None }
    }

    /// The time in this world.
    pub(crate) fn now(&self) -> Now {
        Now { monotonic: self.began.monotonic + self.elapsed, wall: self.began.wall + self.elapsed }
    }

    /// What the engine says how long to wait.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.engine.timeout(self.now())
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }

    /// A client of the first listener.
    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.addresses[0], None)
    }

    /// Does what is ready and due now.
    pub(crate) fn turn(&mut self) {
        self.engine.poll(Some(Duration::ZERO)).expect("the poller works");
        let now = self.now();
        self.engine.turn(now, &mut self.app);
    }

    /// Lets time pass, and turns.
    pub(crate) fn advance(&mut self, time: Duration) {
        self.elapsed += time;
        self.turn();
    }

    /// Turns, and moves the bytes of `clients`, until `done` says so.
    ///
    /// # Panics
    /// If nothing more happens, naming what was waited for.
    pub(crate) fn until(
        &mut self,
        what: &str,
        clients: &mut [&mut Client],
        mut done: impl FnMut(&World, &[&mut Client]) -> bool,
    ) {
        let patience = Instant::now() + PATIENCE;
        loop {
            let mut moved = false;
            for client in clients.iter_mut() {
                moved |= client.pump();
            }
            self.turn();
            for client in clients.iter_mut() {
                moved |= client.pump();
            }
            if done(self, clients) {
                return;
            }
            let in_time = Instant::now() < patience;
            if !in_time || (!moved && self.timeout() != Some(Duration::ZERO) && !self.wait(clients)) {
                let ends: Vec<_> = clients.iter().map(|client| (client.received.len(), client.end)).collect();
                let log = &self.app.log[self.app.log.len().saturating_sub(20)..];
                panic!("waited in vain until {what}\nclients: {ends:?}\n{:?}\nlog: {log:?}", self.statistics());
            }
        }
    }

    /// Waits until the engine or one of the clients has something to do; false if none ever has.
    pub(crate) fn wait(&self, clients: &[&mut Client]) -> bool {
        let descriptor = self.engine.as_raw_fd();
        // SAFETY: it is the engine's poller, which lives as long as the engine that is borrowed here.
        let engine = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let mut descriptors = vec![PollFd::new(&engine, PollFlags::IN)];
        let interests: Vec<_> = clients.iter().map(|client| (client.interest(), client.as_fd())).collect();
        descriptors.extend(
            interests
                .iter()
                .filter_map(|(interest, descriptor)| interest.map(|interest| PollFd::new(descriptor, interest))),
        );
        let patience = Timespec::try_from(PATIENCE).expect("it fits");
        rustix::event::poll(&mut descriptors, Some(&patience)).expect("poll works") > 0
    }

    /// Turns until nothing is left to do without another event, and demands that it comes to that.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            let ready = self.engine.poll(Some(Duration::ZERO)).expect("the poller works");
            let now = self.now();
            self.engine.turn(now, &mut self.app);
            if !ready && self.engine.timeout(now) != Some(Duration::ZERO) {
                return;
            }
        }
        panic!("the engine spins: {:?}", self.statistics());
    }

    /// Waits until the engine has received so many bytes in all.
    pub(crate) fn until_received(&mut self, bytes: usize, client: &mut Client) {
        self.until(&format!("the engine has received {bytes} bytes"), &mut [client], |world, _| {
            world.statistics().bytes_in >= bytes as u64
        });
    }

    /// Sends `bytes` and waits until `client` has `answers` whole answers in all.
    pub(crate) fn ask(&mut self, client: &mut Client, bytes: &[u8], answers: usize) {
        client.send(bytes);
        self.until(&format!("there are {answers} answers"), &mut [client], |_, clients| {
            clients[0].answers.len() >= answers
        });
    }

    /// Waits until the client's connection has ended, and says how.
    pub(crate) fn end(&mut self, client: &mut Client) -> End {
        self.until("the connection ends", &mut [client], |_, clients| clients[0].end.is_some());
        client.end.expect("waited for just now")
    }

    /// Waits until no connection is left.
    pub(crate) fn until_empty(&mut self, clients: &mut [&mut Client]) {
        self.until("no connection is left", clients, |world, _| world.statistics().connections == 0);
        assert_eq!(self.app.alive(), 0, "a request or a response outlived its connection");
    }

    /// Turns at one time after the other at which the engine says that something is due, up to `end` from now, and
    /// stops when `done` is the case. Returns how much time has passed.
    ///
    /// # Panics
    /// If it is not the case in time, or if the engine asks for turns that do nothing.
    pub(crate) fn sleep_until(&mut self, end: Duration, done: impl Fn(&World) -> bool) -> Duration {
        let start = self.elapsed;
        let mut idle_turns = 0;
        while !done(self) {
            let passed = self.elapsed.saturating_sub(start);
            let wait = self.timeout().unwrap_or_else(|| panic!("nothing is due after {passed:?}"));
            assert!(passed + wait <= end, "nothing is due before {:?}", passed + wait);
            idle_turns = if wait.is_zero() { idle_turns + 1 } else { 0 };
            assert!(idle_turns < 10, "the engine spins after {passed:?}");
            self.advance(wait);
        }
        self.elapsed.saturating_sub(start)
    }
}

/// Where the engine says that it listens.
pub(crate) fn local_of(address: &Address) -> Local {
    match address {
        Address::Tcp(address) => Local::Tcp(*address),
        Address::Unix(_) => Local::Unix,
    }
}
