//! A model of an event loop that hosts the engine, under loom (`make loom`): the real scheduler, a work source with one
//! WebSocket whose task waits, and other threads that send and close at any time.
//!
//! A task of the loop either sends until its client reads no more, and then waits for room; or it waits for a message.
//! The loop waits for the poller as asyncio's selector does: it asks the scheduler how long, waits without the GIL and
//! without the scheduler's lock, and polls. The task's wait may be ended by the poller, or by another thread that uses
//! the engine: that thread may send the unsent output, and so consume the readiness that the poller would have
//! reported. If a wake-up is lost, the loop waits forever, and loom reports a deadlock: there are no timeouts.

use crate::{Pace, Scheduler, Threads, WorkSource};
use loom::model::Builder;
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;
use std::cell::RefCell;
use std::time::Duration;

/// The events for which the poller waits: room for output, and a wake-up.
#[derive(Default)]
struct LoopPoll {
    state: Mutex<LoopPollState>,
    changed: Condvar,
}

#[derive(Default)]
struct LoopPollState {
    has_room: bool,
    is_woken: bool,
}

impl LoopPoll {
    fn change(&self, change: impl FnOnce(&mut LoopPollState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Uses up the room, like a send that fills the socket again: the poller then reports nothing. Returns true if
    /// there was room.
    fn take_room(&self) -> bool {
        std::mem::take(&mut self.state.lock().unwrap().has_room)
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        while !state.has_room && !state.is_woken {
            state = self.changed.wait(state).unwrap();
        }
    }
}

/// An engine with one WebSocket, for which a task waits.
struct Source {
    poll: Arc<LoopPoll>,
    has_backlog: bool,
    is_closed: bool,
    is_waiting: bool,
    /// The number of wake-ups of the task that the loop has not handled.
    wakes: usize,
    deadline: Option<Duration>,
}

impl Source {
    /// Sends the unsent output, if there is room, and wakes the task.
    fn flush(&mut self) {
        if self.has_backlog && self.poll.take_room() {
            self.has_backlog = false;
            self.wake();
        }
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.wake();
    }

    fn wake(&mut self) {
        self.wakes += usize::from(std::mem::take(&mut self.is_waiting));
    }

    /// Makes the task wait, unless the awaited condition already holds.
    fn begin_wait(&mut self, is_over: impl FnOnce(&Self) -> bool) {
        self.is_waiting = true;
        if is_over(self) {
            self.wake();
        }
    }
}

impl WorkSource for Source {
    type Work = ();
    type Poller = ();
    type Token<'a> = ();

    fn next(&mut self, (): (), _: bool) -> Option<()> {
        None
    }

    fn owner((): &()) -> Option<usize> {
        None
    }

    fn has_queued(&self) -> bool {
        false
    }

    fn bound(&self, _: usize) -> usize {
        0
    }

    fn poll(&mut self, (): &mut ()) -> bool {
        let is_woken = std::mem::take(&mut self.poll.state.lock().unwrap().is_woken);
        self.flush();
        is_woken
    }

    fn due(&self) -> Option<Duration> {
        if self.wakes > 0 { Some(Duration::ZERO) } else { self.deadline }
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wake_poller(&self) {
        self.poll.change(|state| state.is_woken = true);
    }

    fn woken(&mut self) -> Option<usize> {
        None
    }

    fn has_deferred_output(&self) -> bool {
        false
    }

    fn tick(&mut self) {}

    fn is_over(&self) -> bool {
        false
    }
}

/// The scheduler, and a lock that represents the GIL.
struct Server {
    scheduler: Scheduler<Source>,
    poll: Arc<LoopPoll>,
    gil: Option<Mutex<()>>,
}

impl Server {
    fn new(has_gil: bool) -> Arc<Self> {
        let poll = Arc::new(LoopPoll::default());
        let source = Source {
            poll: Arc::clone(&poll),
            has_backlog: false,
            is_closed: false,
            is_waiting: false,
            wakes: 0,
            deadline: None,
        };
        Arc::new(Self { scheduler: Scheduler::new(source, (), 1), poll, gil: has_gil.then(|| Mutex::new(())) })
    }

    /// Runs `act` with the engine, as another thread's work.
    fn with<R>(&self, act: impl FnOnce(&mut Source) -> R) -> R {
        self.scheduler.with(&LoopThread::new(self), act).unwrap()
    }

    /// Runs the loop: waits and polls until `is_over` returns true. Returns the number of times that a task was woken.
    fn run(&self, is_over: impl Fn(&Source, usize) -> bool) -> usize {
        let attached = LoopThread::new(self);
        let mut woken = 0;
        loop {
            if self.scheduler.with(&attached, |source| is_over(source, woken)).unwrap() {
                return woken;
            }
            // A wait with a timeout ends by itself.
            if self.scheduler.before_hosted_wait(&attached).unwrap().is_none() {
                attached.detached(|| self.poll.wait());
            }
            woken += self
                .scheduler
                .poll(&attached, |source, poller| {
                    source.poll(poller);
                    std::mem::take(&mut source.wakes)
                })
                .unwrap();
        }
    }
}

/// A thread that holds the GIL.
struct LoopThread<'a> {
    server: &'a Server,
    gil: RefCell<Option<MutexGuard<'a, ()>>>,
}

impl<'a> LoopThread<'a> {
    fn new(server: &'a Server) -> Self {
        Self { server, gil: RefCell::new(server.gil.as_ref().map(|gil| gil.lock().unwrap())) }
    }
}

impl Threads for LoopThread<'_> {
    type Source = Source;

    fn token(&self) {}

    fn detached<R: Send>(&self, wait: impl FnOnce() -> R + Send) -> R {
        drop(self.gil.take());
        let result = wait();
        *self.gil.borrow_mut() = self.server.gil.as_ref().map(|gil| gil.lock().unwrap());
        result
    }

    fn wait_for_events((): &mut (), _: Option<Duration>) {
        unreachable!("no thread leads");
    }

    fn run(&self, _: usize, (): ()) {}

    fn run_measured(&self, _: usize, (): ()) -> Duration {
        Duration::ZERO
    }

    fn complete(&self, _: &mut Source) {}

    fn start(&self, _: usize) -> bool {
        false
    }

    fn clean_up(&self, _: bool) {}

    fn want_ticks(&self, _: Pace) {}
}

/// Tries all executions with at most `preemptions` preemptions, with a GIL and without.
fn check(preemptions: usize, model: impl Fn(Arc<Server>) + Send + Sync + Clone + 'static) {
    for has_gil in [true, false] {
        let mut builder = Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
        let model = model.clone();
        builder.check(move || model(Server::new(has_gil)));
    }
}

fn spawn(server: &Arc<Server>, act: impl FnOnce(&Server) + 'static) -> thread::JoinHandle<()> {
    let server = Arc::clone(server);
    thread::spawn(move || act(&server))
}

fn send_until_full(server: &Server) {
    server.with(|source| {
        source.has_backlog = true;
        source.begin_wait(|source| !source.has_backlog || source.is_closed);
    });
}

#[test]
fn wait_for_output_ends_when_the_client_takes_it() {
    check(4, |server| {
        send_until_full(&server);
        let client = spawn(&server, |server| server.poll.change(|state| state.has_room = true));
        assert_eq!(server.run(|_, woken| woken > 0), 1);
        client.join().unwrap();
    });
}

#[test]
fn wait_for_output_ends_when_another_thread_sends_what_waited() {
    check(3, |server| {
        let client = spawn(&server, |server| server.poll.change(|state| state.has_room = true));
        let sender = spawn(&server, |server| server.with(Source::flush));
        send_until_full(&server);
        assert_eq!(server.run(|_, woken| woken > 0), 1);
        client.join().unwrap();
        sender.join().unwrap();
    });
}

#[test]
fn wait_for_a_message_ends_when_another_thread_closes() {
    check(4, |server| {
        let closer = spawn(&server, |server| server.with(Source::close));
        server.with(|source| source.begin_wait(|source| source.is_closed));
        assert_eq!(server.run(|_, woken| woken > 0), 1);
        closer.join().unwrap();
    });
}

#[test]
fn wait_ends_once_when_two_threads_end_it() {
    check(2, |server| {
        server.with(|source| source.begin_wait(|source| source.is_closed));
        let closers =
            [spawn(&server, |server| server.with(Source::close)), spawn(&server, |server| server.with(Source::close))];
        assert_eq!(server.run(|_, woken| woken > 0), 1);
        for closer in closers {
            closer.join().unwrap();
        }
    });
}

#[test]
fn loop_waits_no_longer_than_a_deadline_that_another_thread_sets() {
    check(4, |server| {
        let sender = spawn(&server, |server| server.with(|source| source.deadline = Some(Duration::from_secs(30))));
        server.run(|source, _| source.deadline.is_some());
        sender.join().unwrap();
    });
}
