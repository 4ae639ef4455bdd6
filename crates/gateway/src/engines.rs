//! The engines of one server. There is one where the interpreter has a lock: threads that take turns share it by the
//! baton. Where there is none each processor has its own, with threads of its own, so that they do not meet at one lock.
//!
//! All accept from the same listeners, and a connection stays with the engine that has accepted it. What is asked of the
//! server is asked of each of them, and what they answer is put together here: numbers are added up, a limit is shared.

use crate::calls::{Call, Place};
use crate::scoreboard::Snapshot;
use crate::site::{Common, Reentered, Site, Stop, Turned};
use crate::wsgi::Job;
use engine::Times;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) struct Engines {
    sites: Box<[Arc<Site>]>,
    common: Arc<Common>,
    /// So many of them have threads.
    started: AtomicUsize,
}

/// The share of engine `index` of `engines` in `whole`. Each gets some of it if there is enough.
pub(crate) fn share(whole: usize, index: usize, engines: usize) -> usize {
    whole / engines + usize::from(index < whole % engines)
}

impl Engines {
    /// At least one.
    pub(crate) fn new(sites: Vec<Arc<Site>>, common: Arc<Common>) -> Self {
        common.connect(&sites);
        Self { sites: sites.into(), common, started: AtomicUsize::new(0) }
    }

    /// Serves in this thread alone.
    pub(crate) fn work_alone(&self, py: Python<'_>) {
        self.sites[0].work(py, 0);
    }

    /// Starts the first thread of each engine. Where one cannot be had, those that could serve no longer.
    ///
    /// # Errors
    /// If not even one could be started. Otherwise the failure is that of the server.
    pub(crate) fn start_first(&self, py: Python<'_>) -> PyResult<()> {
        for site in &self.sites {
            match site.start_first(py) {
                Ok(()) => self.started.fetch_add(1, Ordering::Relaxed),
                Err(error) if self.started.load(Ordering::Relaxed) == 0 => return Err(error),
                Err(error) => {
                    site.fail_with(py, error);
                    break;
                }
            };
        }
        Ok(())
    }

    /// Is the thread `index` of the server.
    pub(crate) fn work(&self, py: Python<'_>, index: usize) {
        let is_before = |site: &&Arc<Site>| site.place().first_worker <= index;
        let site = self.sites.iter().rev().find(is_before).expect("the first begins with 0");
        site.work(py, index - site.place().first_worker);
    }

    /// For a loop that hosts the engine: see [`Site::turn`].
    pub(crate) fn turn(&self, py: Python<'_>) -> PyResult<Turned> {
        self.sites[0].turn(py)
    }

    pub(crate) fn timeout(&self, py: Python<'_>) -> Result<Option<Duration>, Reentered> {
        self.sites[0].timeout(py)
    }

    pub(crate) fn run_whole(&self, py: Python<'_>, job: Job) {
        self.sites[0].run_whole(py, job);
    }

    pub(crate) fn is_stopped(&self, py: Python<'_>) -> Result<bool, Reentered> {
        for site in &self.sites {
            if !site.is_stopped(py)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Once all is over and only threads in calls are left: how many.
    pub(crate) fn threads_left(&self, py: Python<'_>) -> Option<usize> {
        let started = &self.sites[..self.started.load(Ordering::Relaxed)];
        started.iter().map(|site| site.threads_left(py)).sum()
    }

    /// Everything is over, or has to be: what is open is cut.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        for site in &self.sites {
            site.finish(py)?;
        }
        self.common.end();
        Ok(())
    }

    pub(crate) fn stop(&self, py: Python<'_>, stop: Stop) {
        self.sites.iter().for_each(|site| site.stop(py, stop));
    }

    pub(crate) fn drain(&self, py: Python<'_>) {
        self.sites.iter().for_each(|site| site.drain(py));
    }

    pub(crate) fn wake(&self, py: Python<'_>) {
        self.sites.iter().for_each(|site| site.wake(py));
    }

    /// Each has the log open for itself, and appends whole lines. All are tried.
    pub(crate) fn reopen_logs(&self, py: Python<'_>) -> PyResult<()> {
        self.sites.iter().map(|site| site.reopen_logs(py)).fold(Ok(()), Result::and)
    }

    pub(crate) fn tell_last(&self, py: Python<'_>) {
        self.sites.iter().for_each(|site| site.tell_last(py));
    }

    pub(crate) fn fail_with(&self, py: Python<'_>, error: PyErr) {
        self.sites[0].fail_with(py, error);
    }

    pub(crate) fn fail_if_failed(&self, py: Python<'_>) -> PyResult<()> {
        self.sites.iter().try_for_each(|site| site.fail_if_failed(py))
    }

    /// Waits until calls have passed their deadlines, and tells each once; `None`: the server has ended.
    pub(crate) fn await_overdue(&self, py: Python<'_>) -> PyResult<Option<Vec<Call>>> {
        loop {
            let mut overdue = Vec::new();
            let mut wait: Option<Duration> = None;
            for site in &self.sites {
                let (calls, next) = site.overdue(py)?;
                overdue.extend(calls);
                wait = wait.into_iter().chain(next).min();
            }
            if !overdue.is_empty() {
                return Ok(Some(overdue));
            }
            if self.common.wait_for_end(py, wait) {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    pub(crate) fn calls(&self, py: Python<'_>) -> Result<Vec<Call>, Reentered> {
        let mut calls = Vec::new();
        for site in &self.sites {
            calls.extend(site.calls(py)?);
        }
        Ok(calls)
    }

    pub(crate) fn interrupt(&self, py: Python<'_>, call: u64) -> Result<bool, Reentered> {
        self.sites[Place::engine_of(call, self.sites.len())].interrupt(py, call)
    }

    pub(crate) fn write_off(&self, py: Python<'_>, call: u64) -> Result<(), Reentered> {
        self.sites[Place::engine_of(call, self.sites.len())].write_off(py, call)
    }

    /// The times of requests that are over, and how many there was no room for.
    pub(crate) fn times(&self, py: Python<'_>) -> Result<(Vec<Times>, u64), Reentered> {
        let mut all = (Vec::new(), 0);
        for site in &self.sites {
            let (times, dropped) = site.with(py, |core| core.engine.times())?;
            all.0.extend(times);
            all.1 += dropped;
        }
        Ok(all)
    }

    pub(crate) fn statistics(&self, py: Python<'_>) -> Result<BTreeMap<&'static str, u64>, Reentered> {
        let snapshots: Vec<_> = self.sites.iter().map(|site| site.snapshot(py)).collect::<Result<_, _>>()?;
        Ok(Snapshot::entries(&snapshots).collect())
    }
}
