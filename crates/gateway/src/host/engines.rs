//! The engines of one server. With a GIL there is one engine, which its threads share as leader and followers. On a
//! free-threaded interpreter each processor has its own engine with its own threads, so that threads do not contend for
//! one lock.
//!
//! All engines accept from the same listeners, and a connection stays with the engine that has accepted it. A request
//! to the server is sent to each engine. The reports of the engines are combined here: counters are summed, and the
//! engines share one limit on the number of requests.

use super::calls::Call;
use super::index::EngineIndex;
use super::job::Job;
use super::shared::{ControlRequest, Reentered, ServerShared, Stop};
use super::threads::{Host, Iteration, Polled};
use crate::clock;
use crate::compat::check_signals;
use crate::interface::Interface;
use crate::scoreboard::Snapshot;
use engine::Times;
use pyo3::prelude::*;
use scheduler::WorkSource as _;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) struct Engines<I: Interface> {
    hosts: Box<[Arc<Host<I>>]>,
    shared: Arc<ServerShared<Host<I>>>,
    /// The number of engines whose first thread has been started.
    started: AtomicUsize,
}

/// Returns the part of `whole` for engine `index` of `engines`. Each engine gets at least 1 if `whole >= engines`.
pub(crate) fn share(whole: usize, index: usize, engines: usize) -> usize {
    whole / engines + usize::from(index < whole % engines)
}

/// The engines of a server, independent of the interface that calls the application.
pub(crate) trait AnyEngines: Send + Sync {
    /// Runs the server in this thread alone.
    fn work_alone(&self, py: Python<'_>);

    /// Starts the first thread of each engine. If one cannot be started, the server ends.
    ///     ///
    /// # Errors
    /// The exception, if not even the first thread could be started. A later failure is not returned; it ends the
    /// server.
    fn start_first(&self, py: Python<'_>) -> PyResult<()>;

    /// Runs the thread with the number `index` in the server.
    fn work(&self, py: Python<'_>, index: usize);

    /// For a hosting loop: see [`Host::poll`].
    fn poll(&self, py: Python<'_>) -> PyResult<(Vec<HostedJob>, Vec<Py<PyAny>>)>;

    /// For a hosting loop, in its own thread: see [`Host::run_once`].
    fn run_once(&self, py: Python<'_>, patience: Option<Duration>) -> PyResult<(Iteration, Vec<HostedJob>)>;

    /// For a hosting loop, in its own thread: see [`Host::watch_beside`].
    fn watch_beside(&self, py: Python<'_>, descriptor: OwnedFd) -> PyResult<()>;

    /// For a hosting loop: see [`Host::timeout`].
    fn timeout(&self, py: Python<'_>) -> Result<Option<Duration>, Reentered>;

    fn is_stopped(&self, py: Python<'_>) -> Result<bool, Reentered>;

    /// Returns the number of remaining threads, if the server has stopped and all of them are running calls; otherwise
    /// `None`.
    fn threads_left(&self, py: Python<'_>) -> Option<usize>;

    /// Ends the server, and cuts the connections that are still open.
    fn finish(&self, py: Python<'_>) -> PyResult<()>;

    fn stop(&self, py: Python<'_>, stop: Stop);

    fn drain(&self, py: Python<'_>);

    fn wake(&self, py: Python<'_>);

    /// Reopens the access log of each engine, even if one of them fails. Each engine has opened the log for itself and
    /// appends whole lines.
    fn reopen_logs(&self, py: Python<'_>) -> PyResult<()>;

    fn log_counts(&self, py: Python<'_>);

    fn fail_with(&self, py: Python<'_>, error: PyErr);

    fn fail_if_failed(&self, py: Python<'_>) -> PyResult<()>;

    /// Blocks until calls have missed their deadlines. Returns each call once, and `None` when the server has ended.
    fn await_overdue(&self, py: Python<'_>) -> PyResult<Option<Vec<Call>>>;

    fn calls(&self, py: Python<'_>) -> Result<Vec<Call>, Reentered>;

    /// Returns how long the request of a call waited in the queue; `None` if this is not measured.
    fn queue_wait(&self, request: &Bound<'_, PyAny>) -> Result<Option<Duration>, Reentered>;

    fn interrupt(&self, py: Python<'_>, call: u64) -> Result<bool, Reentered>;

    fn write_off(&self, py: Python<'_>, call: u64) -> Result<(), Reentered>;

    /// Removes and returns the measured times of completed requests, and the number of requests for which there was no
    /// room.
    fn times(&self, py: Python<'_>) -> Result<(Vec<Times>, u64), Reentered>;

    fn statistics(&self, py: Python<'_>) -> Result<BTreeMap<&'static str, u64>, Reentered>;
}

/// A job that must be run once, by a loop that hosts the engine or by a thread beside it.
pub(crate) struct HostedJob {
    pub(crate) number: u64,
    /// The index of the thread beside the loop that must run the job (`None`: any may). A response body stays in the
    /// thread that made it.
    pub(crate) worker: Option<usize>,
    pub(crate) run: RunJob,
}

/// The place where a job runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunsIn {
    /// The thread of the hosting loop, or a greenlet in it.
    Loop,
    /// The thread with this index beside the loop.
    Thread(usize),
    /// No place: the job is refused, and the client may retry.
    Nothing,
}

/// The function that runs a job.
pub(crate) type RunJob = Box<dyn FnOnce(Python<'_>, RunsIn) + Send>;

impl<I: Interface> Engines<I> {
    /// Creates the engines of a server. There must be at least one host.
    pub(crate) fn new(hosts: Vec<Arc<Host<I>>>, shared: Arc<ServerShared<Host<I>>>) -> Self {
        shared.connect(&hosts);
        Self { hosts: hosts.into(), shared, started: AtomicUsize::new(0) }
    }

    /// Returns the host of the engine to which the call with this number belongs.
    fn host_of(&self, call: u64) -> &Host<I> {
        &self.hosts[EngineIndex::engine_of(call, self.hosts.len())]
    }
}

fn hosted<I: Interface>(host: &Arc<Host<I>>, number: u64, job: Job<I>) -> HostedJob {
    let host = Arc::clone(host);
    let worker = job.worker();
    let run = move |py: Python<'_>, place: RunsIn| match place {
        RunsIn::Loop => job.run_whole(&host, py, None),
        RunsIn::Thread(worker) => host.run_beside(py, job, worker),
        RunsIn::Nothing => job.refuse(&host, py),
    };
    HostedJob { number, worker, run: Box::new(run) }
}

impl<I: Interface> AnyEngines for Engines<I> {
    fn work_alone(&self, py: Python<'_>) {
        self.hosts[0].work(py, 0);
    }

    fn start_first(&self, py: Python<'_>) -> PyResult<()> {
        for host in &self.hosts {
            match host.start_first(py) {
                Ok(()) => self.started.fetch_add(1, Ordering::Relaxed),
                Err(error) if self.started.load(Ordering::Relaxed) == 0 => return Err(error),
                Err(error) => {
                    host.fail_with(py, error);
                    break;
                }
            };
        }
        Ok(())
    }

    fn work(&self, py: Python<'_>, index: usize) {
        let is_before = |host: &&Arc<Host<I>>| host.engine_index.first_worker <= index;
        let host = self.hosts.iter().rev().find(is_before).expect("the first begins with 0");
        host.work(py, index - host.engine_index.first_worker);
    }

    fn poll(&self, py: Python<'_>) -> PyResult<(Vec<HostedJob>, Vec<Py<PyAny>>)> {
        let host = &self.hosts[0];
        let Polled { jobs, woken } = host.poll(py)?;
        let jobs = jobs.into_iter().map(|(number, job)| hosted(host, number, job));
        Ok((jobs.collect(), woken))
    }

    fn run_once(&self, py: Python<'_>, patience: Option<Duration>) -> PyResult<(Iteration, Vec<HostedJob>)> {
        let host = &self.hosts[0];
        let (iteration, jobs) = host.run_once(py, patience)?;
        Ok((iteration, jobs.into_iter().map(|job| hosted(host, 0, job)).collect()))
    }

    fn watch_beside(&self, py: Python<'_>, descriptor: OwnedFd) -> PyResult<()> {
        self.hosts[0].watch_beside(py, descriptor)
    }

    fn timeout(&self, py: Python<'_>) -> Result<Option<Duration>, Reentered> {
        self.hosts[0].timeout(py)
    }

    fn is_stopped(&self, py: Python<'_>) -> Result<bool, Reentered> {
        for host in &self.hosts {
            if !host.with(py, |state| state.is_over())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn threads_left(&self, py: Python<'_>) -> Option<usize> {
        let started = &self.hosts[..self.started.load(Ordering::Relaxed)];
        started.iter().map(|host| host.threads_left(py)).sum()
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        for host in &self.hosts {
            host.finish(py)?;
        }
        self.shared.end();
        Ok(())
    }

    fn stop(&self, py: Python<'_>, stop: Stop) {
        self.hosts.iter().for_each(|host| host.request(py, ControlRequest::stop(stop)));
    }

    fn drain(&self, py: Python<'_>) {
        self.hosts
            .iter()
            .for_each(|host| host.request(py, ControlRequest { drain: true, ..ControlRequest::default() }));
    }

    fn wake(&self, py: Python<'_>) {
        self.hosts.iter().for_each(|host| host.wake(py));
    }

    fn reopen_logs(&self, py: Python<'_>) -> PyResult<()> {
        self.hosts.iter().map(|host| host.reopen_logs(py)).fold(Ok(()), Result::and)
    }

    fn log_counts(&self, py: Python<'_>) {
        self.hosts.iter().for_each(|host| host.log_counts(py));
    }

    fn fail_with(&self, py: Python<'_>, error: PyErr) {
        self.hosts[0].fail_with(py, error);
    }

    fn fail_if_failed(&self, py: Python<'_>) -> PyResult<()> {
        self.hosts.iter().try_for_each(|host| host.fail_if_failed(py))
    }

    fn await_overdue(&self, py: Python<'_>) -> PyResult<Option<Vec<Call>>> {
        loop {
            let mut overdue = Vec::new();
            let mut wait: Option<Duration> = None;
            for host in &self.hosts {
                let (calls, next) = host.overdue(py)?;
                overdue.extend(calls);
                wait = wait.into_iter().chain(next).min();
            }
            if !overdue.is_empty() {
                return Ok(Some(overdue));
            }
            if self.shared.wait_for_end(py, wait) {
                return Ok(None);
            }
            check_signals(py)?;
        }
    }

    fn calls(&self, py: Python<'_>) -> Result<Vec<Call>, Reentered> {
        let mut calls = Vec::new();
        for host in &self.hosts {
            calls
                .extend(host.with(py, |state| state.calls.all(py, host.hosting.first_step(), clock::now().monotonic))?);
        }
        Ok(calls)
    }

    fn queue_wait(&self, request: &Bound<'_, PyAny>) -> Result<Option<Duration>, Reentered> {
        for host in &self.hosts {
            let waited = host.with(request.py(), |state| {
                let key = state.calls.key_of(request)?;
                state.app.stopwatch.as_ref().map(|stopwatch| stopwatch.queue_wait(key))
            })?;
            if waited.is_some() {
                return Ok(waited);
            }
        }
        Ok(None)
    }

    fn interrupt(&self, py: Python<'_>, call: u64) -> Result<bool, Reentered> {
        self.host_of(call).interrupt(py, call)
    }

    fn write_off(&self, py: Python<'_>, call: u64) -> Result<(), Reentered> {
        self.host_of(call).with(py, |state| {
            if let Some(call) = state.calls.expired(call) {
                state.engine.write_off(call);
            }
        })
    }

    fn times(&self, py: Python<'_>) -> Result<(Vec<Times>, u64), Reentered> {
        let mut all = (Vec::new(), 0);
        for host in &self.hosts {
            let (times, dropped) = host.with(py, |state| state.engine.times())?;
            all.0.extend(times);
            all.1 += dropped;
        }
        Ok(all)
    }

    fn statistics(&self, py: Python<'_>) -> Result<BTreeMap<&'static str, u64>, Reentered> {
        let snapshots: Vec<_> = self.hosts.iter().map(|host| host.snapshot(py)).collect::<Result<_, _>>()?;
        Ok(Snapshot::entries(&snapshots).collect())
    }
}
