//! The two traits through which the scheduler uses its work source and its threads.

use crate::actions::PoolStatistics;
use crate::predictor::RouteKey;
use crate::tick::Pace;
use std::time::Duration;

/// A source of calls and other work, which the threads share. It gets events from a poller.
pub trait WorkSource {
    /// A call to begin, or a call to resume.
    type Work;
    /// The poller for which the leader waits.
    type Poller;
    /// A proof that the thread has the resource that [`next`](Self::next) needs, such as the GIL; `()` if none is
    /// needed.
    type Token<'a>: Copy;

    /// Returns the next work; `None` if there is none. If `may_call` is false, it returns no new call.
    fn next(&mut self, token: Self::Token<'_>, may_call: bool) -> Option<Self::Work>;
    /// Returns the thread that has to run this work; `None` for any thread.
    fn owner(work: &Self::Work) -> Option<usize>;
    /// Returns the key under which the predictor records this work; `None` if nothing can be predicted.
    fn route_key(work: &Self::Work) -> Option<RouteKey> {
        let _ = work;
        None
    }
    /// Returns true if a request is queued that [`next`](Self::next) would return if `may_call` is true.
    fn has_queued(&self) -> bool;
    /// Returns the number of open connections, without those that wait to be accepted.
    fn connections(&self) -> usize {
        usize::MAX
    }
    /// Returns the number of suspended calls that only this thread can resume.
    fn bound(&self, worker: usize) -> usize;
    /// Takes the poller's events without waiting. Returns true if there were any.
    fn poll(&mut self, poller: &mut Self::Poller) -> bool;
    /// Takes the events that the poller reported in its last wait.
    fn take_events(&mut self, poller: &mut Self::Poller) {
        self.poll(poller);
    }
    /// Returns the time at which there will be work at the latest, on the clock of [`now`](Self::now); zero if there is
    /// work now, `None` for no limit.
    fn due(&self) -> Option<Duration>;
    /// Returns true if there is work now, so that [`due`](Self::due) is zero.
    fn has_work(&self) -> bool {
        self.due() == Some(Duration::ZERO)
    }
    /// Returns the time since an arbitrary start.
    fn now(&self) -> Duration;
    /// Ends the wait for the poller, in whichever thread.
    fn wake_poller(&self);
    /// Called before a thread waits for the poller. `is_free`: no call runs, so the thread continues at once when an
    /// event arrives.
    fn before_wait(&mut self, is_free: bool) {
        let _ = is_free;
    }
    /// Removes and returns a thread whose wait within a call has ended; `None` if there is none.
    fn woken(&mut self) -> Option<usize>;
    /// Returns true if coalesced output waits for a tick that sends it.
    fn has_deferred_output(&self) -> bool;
    /// Sends coalesced output that is due. Called at each tick.
    fn tick(&mut self);
    /// Returns true if the work source has ended, so that the threads exit.
    fn is_over(&self) -> bool;

    /// Services pending connections while no thread calls [`next`](Self::next). `poller` is `None` if a thread waits
    /// for it. Returns true if there is now work for which the leader has to be woken.
    fn service_pending(&mut self, poller: Option<&mut Self::Poller>) -> bool {
        let _ = poller;
        false
    }

    /// Returns true if the published state is older than the last poll.
    fn is_stale(&self) -> bool {
        false
    }

    /// Publishes the state to other processes.
    fn publish(&mut self, pool_statistics: &PoolStatistics) {
        let _ = pool_statistics;
    }
}

/// The operations on threads and the GIL that a [`Scheduler`](crate::Scheduler) needs.
pub trait Threads {
    /// The type of the scheduler's work source.
    type Source: WorkSource;

    /// Returns a proof that the calling thread has the GIL.
    fn token(&self) -> <Self::Source as WorkSource>::Token<'_>;
    /// Runs `wait` without the GIL. Objects that need the GIL are not [`Send`], so `wait` cannot use them.
    fn detached<R: Send>(&self, wait: impl FnOnce() -> R + Send) -> R;
    /// Waits for the poller. The caller must not hold the GIL.
    fn wait_for_events(poller: &mut <Self::Source as WorkSource>::Poller, timeout: Option<Duration>);
    /// Runs `work`. Completes it before this returns, or at the next [`complete`](Self::complete).
    fn run(&self, worker: usize, work: <Self::Source as WorkSource>::Work);
    /// Runs `work` like [`run`](Self::run). Returns the time for which the thread was blocked.
    fn run_measured(&self, worker: usize, work: <Self::Source as WorkSource>::Work) -> Duration;
    /// Completes the work that the last run left incomplete, under the lock. Called soon after each run.
    fn complete(&self, source: &mut Self::Source);
    /// Starts thread `worker`, which calls [`Scheduler::work`](crate::Scheduler::work). Returns false if that failed.
    fn start(&self, worker: usize) -> bool;
    /// Does occasional work without the lock, such as dropping Python objects. `is_idle`: the thread is about to wait.
    fn clean_up(&self, is_idle: bool);
    /// Makes sure that [`Scheduler::tick`](crate::Scheduler::tick) is called at this pace or a faster one.
    fn want_ticks(&self, pace: Pace);
}
