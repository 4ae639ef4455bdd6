//! The calls of the application that are out: who works on what, since when, and until when it may.

use crate::object::Object;
use pyo3::prelude::*;
use slab::Slab;
use std::time::Duration;

/// How long a request may take, by its path.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// For paths that no prefix below fits; `None`: as long as it takes.
    default: Option<Duration>,
    /// Prefixes of whole segments, the longest first.
    prefixes: Vec<(Box<[u8]>, Option<Duration>)>,
    /// The shortest of all.
    shortest: Option<Duration>,
}

impl Limits {
    pub(crate) fn new(default: Option<Duration>, prefixes: Vec<(String, Option<Duration>)>) -> Self {
        let shortest = prefixes.iter().filter_map(|(_, limit)| *limit).chain(default).min();
        let mut prefixes: Vec<_> = prefixes
            .into_iter()
            .map(|(prefix, limit)| (prefix.trim_end_matches('/').as_bytes().into(), limit))
            .collect();
        prefixes.sort_by_key(|(prefix, _): &(Box<[u8]>, _)| std::cmp::Reverse(prefix.len()));
        Self { default, prefixes, shortest }
    }

    /// The limit of a request for `path`, as it stands in the request line.
    pub(crate) fn of(&self, path: &[u8]) -> Option<Duration> {
        let fits = |prefix: &[u8]| path.strip_prefix(prefix).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        self.prefixes.iter().find(|(prefix, _)| fits(prefix)).map_or(self.default, |(_, limit)| *limit)
    }

    /// The shortest limit that any request has; `None` if none has one.
    pub(crate) fn shortest(&self) -> Option<Duration> {
        self.shortest
    }
}

/// A call that is out.
pub(crate) struct Current {
    pub(crate) number: u64,
    pub(crate) environ: Object,
    /// When the application was called.
    began: Duration,
    limit: Option<Duration>,
    /// For how long it had run when it was last suspended, and since when it runs again; `None` while it is suspended.
    spent: Duration,
    since: Option<Duration>,
    /// The thread in which it runs, and its number in the crew.
    thread: libc::pthread_t,
    worker: Option<usize>,
    /// What the loop that hosts the engine waits with.
    waiter: Option<Py<PyAny>>,
    /// It waits in the middle, for its body or for its peer.
    waiting: bool,
    told: bool,
    pub(crate) interrupted: bool,
}

impl Current {
    /// The time from now on does not count.
    fn pause(&mut self, now: Duration) {
        if let Some(since) = self.since.take() {
            self.spent += now.saturating_sub(since);
        }
    }

    fn due(&self) -> Option<Duration> {
        Some(self.since? + self.limit?.saturating_sub(self.spent))
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Calls {
    out: Slab<Current>,
    last: u64,
    /// How many have passed their deadlines.
    overdue: u64,
    /// How many of each thread are suspended.
    suspended: Vec<usize>,
}

impl Calls {
    /// A call begins, in this thread. Returns its key.
    pub(crate) fn begin(
        &mut self,
        environ: Object,
        limit: Option<Duration>,
        worker: Option<usize>,
        now: Duration,
    ) -> usize {
        self.last += 1;
        // SAFETY: the call takes nothing and cannot fail.
        let thread = unsafe { libc::pthread_self() };
        self.out.insert(Current {
            number: self.last,
            environ,
            began: now,
            limit,
            spent: Duration::ZERO,
            since: Some(now),
            thread,
            worker,
            waiter: None,
            waiting: false,
            told: false,
            interrupted: false,
        })
    }

    pub(crate) fn end(&mut self, key: usize) -> Current {
        self.out.remove(key)
    }

    pub(crate) fn number(&self, key: usize) -> u64 {
        self.out[key].number
    }

    pub(crate) fn set_waiter(&mut self, key: usize, waiter: Py<PyAny>) {
        self.out[key].waiter = Some(waiter);
    }

    pub(crate) fn waiter(&self, py: Python<'_>, key: usize) -> Option<Py<PyAny>> {
        self.out[key].waiter.as_ref().map(|waiter| waiter.clone_ref(py))
    }

    /// Its peer has to catch up, and nobody waits with it.
    pub(crate) fn suspend(&mut self, key: usize, now: Duration) {
        let call = &mut self.out[key];
        call.pause(now);
        if let Some(worker) = call.worker {
            if self.suspended.len() <= worker {
                self.suspended.resize(worker + 1, 0);
            }
            self.suspended[worker] += 1;
        }
    }

    /// It goes on, or will not.
    pub(crate) fn resume(&mut self, key: usize, now: Duration) {
        let call = &mut self.out[key];
        call.since = Some(now);
        if let Some(worker) = call.worker {
            self.suspended[worker] -= 1;
        }
    }

    /// How many calls of this thread are suspended.
    pub(crate) fn suspended(&self, worker: usize) -> usize {
        self.suspended.get(worker).copied().unwrap_or(0)
    }

    /// It begins, or ends, to wait in the middle. Waiting for a slow peer to read does not count.
    pub(crate) fn set_waiting(&mut self, key: usize, waiting: bool, counts: bool, now: Duration) {
        let call = &mut self.out[key];
        call.waiting = waiting;
        if !counts {
            if waiting {
                call.pause(now);
            } else {
                call.since = Some(now);
            }
        }
    }

    pub(crate) fn is_interrupted(&self, key: usize) -> bool {
        self.out[key].interrupted
    }

    /// Calls whose time is up and of which this was not told yet.
    pub(crate) fn overdue(&mut self, py: Python<'_>, now: Duration) -> Vec<Call> {
        let mut overdue = Vec::new();
        for (_, call) in &mut self.out {
            if !call.told && call.due().is_some_and(|due| due <= now) {
                call.told = true;
                self.overdue += 1;
                overdue.push(Call::of(py, call, now));
            }
        }
        overdue
    }

    /// When the next one's will be.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.out.iter().filter(|(_, call)| !call.told).filter_map(|(_, call)| call.due()).min()
    }

    /// How many calls have passed their deadlines.
    pub(crate) fn overdue_ever(&self) -> u64 {
        self.overdue
    }

    pub(crate) fn all(&self, py: Python<'_>, now: Duration) -> Vec<Call> {
        self.out.iter().map(|(_, call)| Call::of(py, call, now)).collect()
    }

    /// The call with this number, if it runs in a thread now: its key and the thread.
    pub(crate) fn running(&self, number: u64) -> Option<(usize, libc::pthread_t)> {
        let (key, call) = self.out.iter().find(|(_, call)| call.number == number)?;
        call.since.map(|_| (key, call.thread))
    }

    /// Marks a call as interrupted; the worker that waits in the middle of it, if it does.
    pub(crate) fn interrupt(&mut self, key: usize) -> Option<usize> {
        let call = &mut self.out[key];
        call.interrupted = true;
        if call.waiting { call.worker } else { None }
    }
}

/// A call that is out, as Python sees it.
#[pyclass(frozen, get_all, module = "kirsch._native")]
pub(crate) struct Call {
    number: u64,
    environ: Py<PyAny>,
    age: f64,
    limit: Option<f64>,
    thread: Option<u64>,
    waiter: Option<Py<PyAny>>,
    state: &'static str,
    worker: Option<usize>,
}

impl Call {
    fn of(py: Python<'_>, call: &Current, now: Duration) -> Self {
        let is_running = call.since.is_some();
        Self {
            number: call.number,
            environ: call.environ.bind(py).clone().unbind(),
            age: now.saturating_sub(call.began).as_secs_f64(),
            limit: call.limit.map(|limit| limit.as_secs_f64()),
            thread: (is_running || call.waiting).then_some(call.thread),
            waiter: call.waiter.as_ref().map(|waiter| waiter.clone_ref(py)),
            state: match (is_running, call.waiting) {
                (true, true) => "waiting",
                (true, false) => "running",
                (false, _) => "suspended",
            },
            worker: call.worker,
        }
    }
}
