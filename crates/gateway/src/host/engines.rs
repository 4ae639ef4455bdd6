//! The engines of one server. Where there is a GIL there is one: threads that take turns share it as leader and followers.
//! On a free-threaded interpreter each processor has its own, with threads of its own, so that they do not meet at one
//! lock.
//!
//! All accept from the same listeners, and a connection stays with the engine that has accepted it. What is requested of
//! the server goes to each of them, and what they report is put together here: numbers are added up, a limit is shared.

use super::calls::Call;
use super::index::EngineIndex;
use super::job::Job;
use super::shared::{Reentered, ServerShared, Stop};
use super::threads::{Host, Polled};
use crate::interface::Interface;
use crate::scoreboard::Snapshot;
use engine::Times;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) struct Engines<I: Interface> {
    hosts: Box<[Arc<Host<I>>]>,
    shared: Arc<ServerShared<Host<I>>>,
    /// So many of them have threads.
    started: AtomicUsize,
}

/// The share of engine `index` of `engines` in `whole`. Each gets some of it if there is enough.
pub(crate) fn share(whole: usize, index: usize, engines: usize) -> usize {
    whole / engines + usize::from(index < whole % engines)
}

impl<I: Interface> Engines<I> {
    /// At least one.
    pub(crate) fn new(hosts: Vec<Arc<Host<I>>>, shared: Arc<ServerShared<Host<I>>>) -> Self {
        shared.connect(&hosts);
        Self { hosts: hosts.into(), shared, started: AtomicUsize::new(0) }
    }

    /// Serves in this thread alone.
    pub(crate) fn work_alone(&self, py: Python<'_>) {
        self.hosts[0].work(py, 0);
    }

    /// Starts the first thread of each engine. Where one cannot be started, the others end.
    ///
    /// # Errors
    /// If not even one could be started. Otherwise the failure is that of the server.
    pub(crate) fn start_first(&self, py: Python<'_>) -> PyResult<()> {
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

    /// Is the thread `index` of the server.
    pub(crate) fn work(&self, py: Python<'_>, index: usize) {
        let is_before = |host: &&Arc<Host<I>>| host.engine_index().first_worker <= index;
        let host = self.hosts.iter().rev().find(is_before).expect("the first begins with 0");
        host.work(py, index - host.engine_index().first_worker);
    }

    /// For a loop that hosts the engine: see [`Host::poll`].
    pub(crate) fn poll(&self, py: Python<'_>) -> PyResult<Polled<I>> {
        self.hosts[0].poll(py)
    }

    pub(crate) fn timeout(&self, py: Python<'_>) -> Result<Option<Duration>, Reentered> {
        self.hosts[0].timeout(py)
    }

    pub(crate) fn run_whole(&self, py: Python<'_>, job: Job<I>) {
        self.hosts[0].run_whole(py, job);
    }

    pub(crate) fn is_stopped(&self, py: Python<'_>) -> Result<bool, Reentered> {
        for host in &self.hosts {
            if !host.is_stopped(py)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Once all is over and only threads in calls are left: how many.
    pub(crate) fn threads_left(&self, py: Python<'_>) -> Option<usize> {
        let started = &self.hosts[..self.started.load(Ordering::Relaxed)];
        started.iter().map(|host| host.threads_left(py)).sum()
    }

    /// Everything is over, or has to be: what is open is cut.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        for host in &self.hosts {
            host.finish(py)?;
        }
        self.shared.end();
        Ok(())
    }

    pub(crate) fn stop(&self, py: Python<'_>, stop: Stop) {
        self.hosts.iter().for_each(|host| host.stop(py, stop));
    }

    pub(crate) fn drain(&self, py: Python<'_>) {
        self.hosts.iter().for_each(|host| host.drain(py));
    }

    pub(crate) fn wake(&self, py: Python<'_>) {
        self.hosts.iter().for_each(|host| host.wake(py));
    }

    /// Each has the log open for itself, and appends whole lines. All are tried.
    pub(crate) fn reopen_logs(&self, py: Python<'_>) -> PyResult<()> {
        self.hosts.iter().map(|host| host.reopen_logs(py)).fold(Ok(()), Result::and)
    }

    pub(crate) fn log_counts(&self, py: Python<'_>) {
        self.hosts.iter().for_each(|host| host.log_counts(py));
    }

    pub(crate) fn fail_with(&self, py: Python<'_>, error: PyErr) {
        self.hosts[0].fail_with(py, error);
    }

    pub(crate) fn fail_if_failed(&self, py: Python<'_>) -> PyResult<()> {
        self.hosts.iter().try_for_each(|host| host.fail_if_failed(py))
    }

    /// Waits until calls have missed their deadlines, and returns each once; `None`: the server has ended.
    pub(crate) fn await_overdue(&self, py: Python<'_>) -> PyResult<Option<Vec<Call>>> {
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
            py.check_signals()?;
        }
    }

    pub(crate) fn calls(&self, py: Python<'_>) -> Result<Vec<Call>, Reentered> {
        let mut calls = Vec::new();
        for host in &self.hosts {
            calls.extend(host.calls(py)?);
        }
        Ok(calls)
    }

    pub(crate) fn interrupt(&self, py: Python<'_>, call: u64) -> Result<bool, Reentered> {
        self.hosts[EngineIndex::engine_of(call, self.hosts.len())].interrupt(py, call)
    }

    pub(crate) fn write_off(&self, py: Python<'_>, call: u64) -> Result<(), Reentered> {
        self.hosts[EngineIndex::engine_of(call, self.hosts.len())].write_off(py, call)
    }

    /// The times of requests that are over, and how many there was no room for.
    pub(crate) fn times(&self, py: Python<'_>) -> Result<(Vec<Times>, u64), Reentered> {
        let mut all = (Vec::new(), 0);
        for host in &self.hosts {
            let (times, dropped) = host.times(py)?;
            all.0.extend(times);
            all.1 += dropped;
        }
        Ok(all)
    }

    pub(crate) fn statistics(&self, py: Python<'_>) -> Result<BTreeMap<&'static str, u64>, Reentered> {
        let snapshots: Vec<_> = self.hosts.iter().map(|host| host.snapshot(py)).collect::<Result<_, _>>()?;
        Ok(Snapshot::entries(&snapshots).collect())
    }
}
