//! A world to test the engine in: real sockets, a scripted application, and a clock that only the test advances.
//!
//! A [`World`] holds an engine, its [`Script`] (the application) and the time. [`World::until`] polls the engine and
//! moves the given [`Client`]s' bytes until a condition holds. It waits for events on descriptors, never for an amount
//! of time, and it does not advance the clock, so no time limit can expire in it. [`World::advance`] advances the clock
//! and polls once.
//!
//! The application handles a request by the [`Plan`] whose number is the path: `GET /3` follows plan 3. [`Script::log`]
//! records, in order, the calls of the application and the outcome of each response.
//!
//! A world drives its engine like a single thread: it runs each call as soon as a poll returns it. A call that waits
//! for its peer stays in [`World::calls`] until it is woken. With [`World::keeps`] every call stays there, and the test
//! runs its operations when it wants to. [`World::callers`] is the number of calls that may run at a time.

// One of the test binaries uses only a part of this module.
#![allow(dead_code, unused_imports)]

pub(crate) mod client;
pub(crate) mod kind;
pub(crate) mod script;

pub(crate) use client::{Client, End};
pub(crate) use kind::{Choice, ChosenBy, Kind, OverSockets, Plain};
pub(crate) use script::{Course, Event, How, Manner, Next, Op, Pause, Plan, ReceivedBody, Script};
pub(crate) use sim::response::pattern;
pub(crate) use sim::sockets::{Address, listen};

use engine::{Config, Engine, Local, Now, Os, Poller, Progress, Readiness, Statistics, Ticket, Waker, Work};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

/// The maximum real time for steps that take no virtual time. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// The maximum delay with which the engine notices a deadline, because it reads the clock only at intervals.
pub(crate) const GRAIN: Duration = Duration::from_millis(100);

pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Returns a configuration without time limits; each test sets those that it tests.
pub(crate) fn timeless() -> Config {
    Config {
        keep_alive: None,
        header_timeout: None,
        body_timeout: None,
        write_timeout: None,
        min_rate: 0,
        queue_timeout: None,
        ..Config::default()
    }
}

/// Suppresses the reports of the panics that a test plans, so that unexpected ones are seen. `is_planned` gets the
/// message of each panic of the process, because tests share the process.
pub(crate) fn quiet(is_planned: fn(&str) -> bool) {
    type IsPlanned = fn(&str) -> bool;
    static PLANNED: Mutex<Vec<IsPlanned>> = Mutex::new(Vec::new());
    static ONCE: Once = Once::new();
    PLANNED.lock().expect("no predicate panics").push(is_planned);
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let payload = info.payload();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            let planned = PLANNED.lock().expect("no predicate panics");
            if !text.is_some_and(|text| planned.iter().any(|is_planned| is_planned(text))) {
                drop(planned);
                usual(info);
            }
        }));
    });
}

/// An engine with its application and its time.
pub(crate) struct World<K: Kind = Plain> {
    pub(crate) engine: Engine<Script<K>>,
    pub(crate) poller: Poller,
    pub(crate) waker: Waker,
    ready: Vec<Readiness>,
    pub(crate) app: Script<K>,
    pub(crate) addresses: Vec<Address>,
    /// Running calls, in the order in which they began.
    pub(crate) calls: Vec<Call>,
    /// The number of calls that may run at a time.
    pub(crate) callers: usize,
    /// True if the test runs the operations of calls.
    pub(crate) keeps: bool,
    /// True if a call has completed while the number of calls is limited, and the engine was not polled since.
    has_become_free: bool,
    began: Now,
    elapsed: Duration,
    /// The directory of Unix sockets, removed with the world.
    directory: Option<tempfile::TempDir>,
}

/// A running call.
pub(crate) struct Call {
    pub(crate) ticket: Ticket,
    pub(crate) course: Course,
    /// True if the call waits to be woken.
    pub(crate) waits: bool,
}

impl World {
    /// Returns a world with one TCP listener and these plans.
    pub(crate) fn new(config: Config, plans: Vec<Plan>) -> Self {
        Self::with_send_buffer(config, plans, None)
    }

    /// As [`new`](Self::new). For each connection the kernel buffers about twice `send_buffer` unread bytes.
    pub(crate) fn with_send_buffer(config: Config, plans: Vec<Plan>, send_buffer: Option<usize>) -> Self {
        let (listener, address) = listen(send_buffer);
        Self::on(vec![listener], vec![address], config, plans)
    }

    /// Returns a world with one Unix socket, on which bytes, connections and ends arrive at once.
    pub(crate) fn unix(config: Config, plans: Vec<Plan>) -> Self {
        Self::of_kind(config, plans)
    }

    /// Listens at the given sockets.
    pub(crate) fn on(listeners: Vec<OwnedFd>, addresses: Vec<Address>, config: Config, plans: Vec<Plan>) -> Self {
        Self::made_of(listeners, addresses, config, plans)
    }
}

impl<K: Kind> World<K> {
    /// Returns a world with one Unix socket, for connections of this kind.
    pub(crate) fn of_kind(config: Config, plans: Vec<Plan>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (listener, address) = sim::sockets::listen_at(&directory.path().join("engine.sock"));
        let mut world = Self::made_of(vec![listener], vec![address], config, plans);
        world.directory = Some(directory);
        world
    }

    fn made_of(listeners: Vec<OwnedFd>, addresses: Vec<Address>, config: Config, plans: Vec<Plan>) -> Self {
        // A wall clock time for comparison with Date fields: Sun, 06 Nov 1994 08:49:37 GMT.
        let began = Now { monotonic: seconds(1000), wall: seconds(784_111_777) };
        let (net, poller, waker) = K::net().expect("descriptors are left");
        let listeners = listeners.into_iter().map(Into::into).collect();
        let engine = Engine::new(net, listeners, config, began).expect("the listeners listen");
        Self {
            engine,
            poller,
            waker,
            ready: Vec::new(),
            app: Script::new(plans),
            addresses,
            calls: Vec::new(),
            callers: usize::MAX,
            keeps: false,
            has_become_free: false,
            began,
            elapsed: Duration::ZERO,
            directory: None,
        }
    }

    /// Returns the time of this world.
    pub(crate) fn now(&self) -> Now {
        Now { monotonic: self.began.monotonic + self.elapsed, wall: self.began.wall + self.elapsed }
    }

    /// Returns the time that the engine would wait; zero if a call may begin since the last poll.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        if self.has_become_free { Some(Duration::ZERO) } else { self.engine.timeout(self.now()) }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }

    /// Connects a client to the first listener.
    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.addresses[0], None)
    }

    /// Passes the poller's events to the engine. Returns true if there were any.
    pub(crate) fn take_events(&mut self) -> bool {
        self.engine.before_wait(self.calls.is_empty());
        self.poller.wait(Some(Duration::ZERO), &mut self.ready).expect("the poller works");
        let any = !self.ready.is_empty();
        self.engine.notice(&mut self.ready);
        any
    }

    /// Polls the engine: handles everything that is ready or due.
    pub(crate) fn poll(&mut self) {
        self.take_events();
        self.go_round();
    }

    fn go_round(&mut self) {
        let now = self.now();
        loop {
            self.has_become_free = false;
            let may_call = self.calls.len() < self.callers;
            let Some(work) = self.engine.poll(now, &mut self.app, may_call) else { break };
            self.take_up(work);
        }
        if !self.keeps {
            self.go_on_with_woken();
        }
    }

    pub(crate) fn take_up(&mut self, work: Work<Script<K>>) {
        let (ticket, course) = match work {
            Work::Call(ticket, request) => (ticket, self.app.call(request)),
            Work::Resume(ticket, mut course) => {
                self.app.resume(&mut self.engine, &ticket, &mut course);
                (ticket, course)
            }
            Work::Abandon(course) => return self.app.abandon(&course),
        };
        self.calls.push(Call { ticket, course, waits: false });
        if !self.keeps {
            self.go_on(self.calls.len() - 1);
        }
    }

    /// Runs the next operation of a call. Returns whether another one can run now; a call that is complete is no longer
    /// in [`calls`](Self::calls).
    pub(crate) fn step(&mut self, index: usize) -> bool {
        let now = self.now();
        let Call { ticket, course, waits } = &mut self.calls[index];
        let next = self.app.step(&mut self.engine, ticket, course, now);
        *waits = matches!(next, Next::AwaitInput | Next::AwaitOutput);
        match next {
            Next::GoOn => return true,
            Next::AwaitInput => self.engine.wait_for_input(ticket, course.number, now, &mut self.app),
            Next::AwaitOutput => self.engine.wait_for_output(ticket, course.number, now, &mut self.app),
            Next::Blocked => self.complete(index, Progress::Blocked),
            Next::Yield => self.complete(index, Progress::Yield),
            Next::Done => self.complete(index, |_| Progress::Done),
            Next::Cut => self.complete(index, |_| Progress::Cut),
        }
        false
    }

    /// Completes a call.
    pub(crate) fn complete(&mut self, index: usize, progress: impl FnOnce(Course) -> Progress<Course>) {
        let Call { ticket, course, .. } = self.calls.remove(index);
        let now = self.now();
        self.engine.complete(ticket, progress(course), now, &mut self.app);
        self.has_become_free = self.callers < usize::MAX;
    }

    /// Runs a call until it waits or is complete.
    pub(crate) fn go_on(&mut self, index: usize) {
        while self.step(index) {}
    }

    /// Runs the call of plan `id` until it waits or is complete.
    pub(crate) fn go_on_with(&mut self, id: usize) {
        self.go_on(self.index_of(id));
    }

    /// Returns the index of the call of plan `id`.
    pub(crate) fn index_of(&self, id: usize) -> usize {
        self.calls
            .iter()
            .position(|call| call.course.id == id)
            .unwrap_or_else(|| panic!("plan {id} has no running call"))
    }

    /// Returns true if a call of plan `id` runs.
    pub(crate) fn is_out(&self, id: usize) -> bool {
        self.calls.iter().any(|call| call.course.id == id)
    }

    /// Returns the ids of the running calls.
    pub(crate) fn ids_out(&self) -> Vec<usize> {
        self.calls.iter().map(|call| call.course.id).collect()
    }

    /// Marks the calls that were woken, so that they can continue.
    pub(crate) fn note_woken(&mut self) {
        for number in std::mem::take(&mut self.app.woken) {
            let call = self.calls.iter_mut().find(|call| call.course.number == number);
            let call = call.unwrap_or_else(|| panic!("call {number} is woken and does not run"));
            assert!(std::mem::take(&mut call.waits), "call {number} is woken and does not wait");
        }
    }

    /// Runs all calls that do not wait.
    pub(crate) fn go_on_with_woken(&mut self) {
        self.note_woken();
        while let Some(index) = self.calls.iter().position(|call| !call.waits) {
            self.go_on(index);
            self.note_woken();
        }
    }

    /// Advances the clock, and polls at its end and whenever the engine asks for it, as a free thread does.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.elapsed + time;
        while let Some(wait) = self.timeout().filter(|wait| !wait.is_zero() && self.elapsed + *wait < end) {
            self.elapsed += wait;
            self.poll();
        }
        self.elapsed = end;
        self.poll();
    }

    /// Advances the clock, and polls at its end alone, because all threads are busy until then.
    pub(crate) fn advance_while_busy(&mut self, time: Duration) {
        self.elapsed += time;
        self.poll();
    }

    /// Advances the clock, and services pending connections as the ticker does while no thread polls.
    pub(crate) fn service_pending(&mut self, time: Duration) {
        self.elapsed += time;
        let now = self.now();
        self.engine.service_pending(now, false);
    }

    /// Polls, and moves the bytes of `clients`, until `done` returns true.
    ///
    /// # Panics
    /// If nothing happens any more; the message contains `what`.
    pub(crate) fn until(
        &mut self,
        what: &str,
        clients: &mut [&mut Client],
        mut done: impl FnMut(&Self, &[&mut Client]) -> bool,
    ) {
        let patience = Instant::now() + PATIENCE;
        loop {
            let mut moved = false;
            for client in clients.iter_mut() {
                moved |= client.pump();
            }
            self.poll();
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
                panic!("waited in vain: {what}\nclients: {ends:?}\n{:?}\nlog: {log:?}", self.statistics());
            }
        }
    }

    /// Waits until the engine or one of the clients has something to do. Returns false if that does not happen.
    pub(crate) fn wait(&self, clients: &[&mut Client]) -> bool {
        let descriptor = self.poller.as_raw_fd();
        // SAFETY: the poller lives as long as the world that is borrowed here.
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

    /// Polls until nothing is left to do without another event. Panics if that takes too many polls.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            let ready = self.take_events();
            self.go_round();
            if !ready && self.timeout() != Some(Duration::ZERO) {
                return;
            }
        }
        panic!("the engine spins: {:?}", self.statistics());
    }

    /// Waits until the engine has received this many bytes in total.
    pub(crate) fn until_received(&mut self, bytes: usize, client: &mut Client) {
        self.until(&format!("the engine has received {bytes} bytes"), &mut [client], |world, _| {
            world.statistics().bytes_in >= bytes as u64
        });
    }

    /// Sends `bytes` and waits until `client` has `answers` whole answers in total.
    pub(crate) fn ask(&mut self, client: &mut Client, bytes: &[u8], answers: usize) {
        client.send(bytes);
        self.until(&format!("there are {answers} answers"), &mut [client], |_, clients| {
            clients[0].answers.len() >= answers
        });
    }

    /// Waits until the client's connection has ended, and returns the kind of end.
    pub(crate) fn end(&mut self, client: &mut Client) -> End {
        self.until("the connection ends", &mut [client], |_, clients| clients[0].end.is_some());
        client.end.expect("waited for just now")
    }

    /// Waits until no connection is left, and no request or response, which must not outlive it.
    pub(crate) fn until_empty(&mut self, clients: &mut [&mut Client]) {
        self.until("no connection is left", clients, |world, _| {
            world.statistics().connections == 0 && world.app.alive() == 0
        });
    }

    /// Polls whenever the engine says that something is due, up to `end` from now, until `done` returns true. Returns
    /// how much time has passed.
    ///
    /// # Panics
    /// If `done` stays false, or if the engine asks for polls that do nothing.
    pub(crate) fn sleep_until(&mut self, end: Duration, done: impl Fn(&Self) -> bool) -> Duration {
        let start = self.elapsed;
        let mut idle_polls = 0;
        while !done(self) {
            let passed = self.elapsed.saturating_sub(start);
            let wait = self.timeout().unwrap_or_else(|| panic!("nothing is due after {passed:?}"));
            assert!(passed + wait <= end, "nothing is due before {:?}", passed + wait);
            idle_polls = if wait.is_zero() { idle_polls + 1 } else { 0 };
            assert!(idle_polls < 10, "the engine spins after {passed:?}");
            self.advance(wait);
        }
        self.elapsed.saturating_sub(start)
    }
}

/// Returns the address that the engine reports for a listener.
pub(crate) fn local_of(address: &Address) -> Local {
    match address {
        Address::Tcp(address) => Local::Tcp(*address),
        Address::Unix(_) => Local::Unix,
    }
}
