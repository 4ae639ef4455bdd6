//! Drives a generator with the sockets and the clock of the operating system.

use crate::generator::Generator;
use crate::net::Nanos;
use crate::plan::{Plan, PlanError, nanos};
use crate::result::{Ended, Measured, Phase, Processor, Progress};
use crate::sockets::{Sockets, Waiter, addresses};
use engine::{Os, Readiness};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fmt;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest sleep before the start in nanoseconds, so that signals are noticed.
const NAP: Nanos = 50_000_000;

/// The maximum number of consecutive ticks before the sockets are polled again.
const BURST: usize = 64;

/// An observer's decision after a report of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Continue the run.
    GoOn,
    /// Stop the run, and keep the values measured so far.
    Stop,
    /// Stop the run because of a signal, and keep the values measured so far.
    Interrupt,
}

/// The reason why a run could not start.
#[derive(Debug)]
pub enum RunError {
    /// The plan is invalid.
    Plan(PlanError),
    /// The system could not create a poller or a timer.
    System(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(out),
            Self::System(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for RunError {}

impl From<PlanError> for RunError {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Executes a plan in this thread. Calls `observe` with the progress at the plan's intervals; its result decides
/// whether the run continues.
///
/// # Errors
/// If the plan is invalid, or if the system cannot create a poller or a timer. A server that is unreachable or sends
/// wrong responses is not an error, but a result.
pub fn run(plan: &Plan, mut observe: impl FnMut(&Progress) -> Answer) -> Result<Measured, RunError> {
    let targets = addresses(&plan.target)?;
    let count = targets.len();
    let (mut os, poller, _waker) = Os::new()?;
    let mut waiter = Waiter::new(&mut os, poller)?;
    let mut generator = Generator::new(plan, Sockets::new(os, targets, plan)?, count)?;

    let origin = match plan.start_at {
        None => Instant::now(),
        Some(start) => match wait_for(start, &mut generator, &mut observe) {
            Ok(origin) => origin,
            Err(ended) => {
                generator.end(0, ended);
                Instant::now()
            }
        },
    };
    let clock = || whole(origin.elapsed());
    let started = wall();
    let mut usage = Usages::new();
    let mut ready: Vec<Readiness> = Vec::new();
    let every = nanos(plan.progress);
    let mut report_due = every;

    generator.start();
    while !generator.is_over() {
        let mut now = clock();
        usage.note(generator.phase(now));
        if now >= report_due {
            // A report that is late does not make the next one early.
            report_due = now + every;
            match observe(&generator.progress(now)) {
                Answer::GoOn => {}
                Answer::Stop => generator.end(now, Ended::Stopped),
                Answer::Interrupt => generator.end(now, Ended::Interrupted),
            }
            continue;
        }
        let due = generator.due(now).map_or(report_due, |due| due.min(report_due));
        let left = due.saturating_sub(now);
        waiter.wait(Some(left), &mut ready)?;
        let woken = clock();
        if left > 0 {
            usage.idle += woken - now;
        }
        now = woken;
        for (index, readiness) in ready.drain(..).enumerate() {
            if let Readiness::Connection { slot, read_closed, .. } = readiness {
                // Each socket gets the time at which it is handled, not the time of the poll.
                if index > 0 {
                    now = clock();
                }
                generator.ready(now, slot, read_closed);
            }
        }
        for _ in 0..BURST {
            now = clock();
            generator.tick(now);
            if generator.due(now) != Some(now) {
                break;
            }
        }
    }
    let now = clock();
    usage.note(generator.phase(now));
    // Reports the last interval.
    observe(&generator.progress(now));
    Ok(generator.measured(now, started, wall(), usage.measured()))
}

/// Waits until `start` (seconds since 1970), when several processes begin together. Returns that time as an `Instant`.
fn wait_for(
    start: f64,
    generator: &mut Generator<Sockets>,
    observe: &mut impl FnMut(&Progress) -> Answer,
) -> Result<Instant, Ended> {
    loop {
        let left = nanos(start - wall());
        if left == 0 {
            return Ok(Instant::now());
        }
        std::thread::sleep(Duration::from_nanos(left.min(NAP)));
        if left > NAP {
            let progress = Progress { elapsed: wall() - start, ..generator.progress(0) };
            match observe(&progress) {
                Answer::GoOn => {}
                Answer::Stop => return Err(Ended::Stopped),
                Answer::Interrupt => return Err(Ended::Interrupted),
            }
        }
    }
}

fn whole(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Returns the wall-clock time in seconds since 1970.
fn wall() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The processor time of this thread between the beginning and the end of the measurement.
struct Usages {
    phase: Option<Phase>,
    idle: Nanos,
    from: Option<Reading>,
    until: Option<Reading>,
}

#[derive(Clone, Copy)]
struct Reading {
    used: Nanos,
    starved: Option<Nanos>,
    idle: Nanos,
}

impl Reading {
    fn take(idle: Nanos) -> Self {
        if let Some((used, starved)) = scheduled() {
            return Self { used, starved: Some(starved), idle };
        }
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
        let used = Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0));
        Self { used: whole(used), starved: None, idle }
    }
}

/// Returns how long this thread ran, and how long it was runnable but waited for a processor (Linux only).
fn scheduled() -> Option<(Nanos, Nanos)> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut numbers = text.split(' ').map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

impl Usages {
    fn new() -> Self {
        Self { phase: None, idle: 0, from: None, until: None }
    }

    #[inline]
    fn note(&mut self, phase: Phase) {
        if self.phase == Some(phase) {
            return;
        }
        self.phase = Some(phase);
        let reading = Reading::take(self.idle);
        match phase {
            Phase::Warmup => {}
            Phase::Measuring => self.from = Some(reading),
            Phase::Draining => self.until = Some(reading),
        }
    }

    fn measured(&self) -> Processor {
        let (Some(from), Some(until)) = (self.from, self.until) else { return Processor::default() };
        let seconds = |nanos: Nanos| Duration::from_nanos(nanos).as_secs_f64();
        Processor {
            used: seconds(until.used.saturating_sub(from.used)),
            starved: from.starved.zip(until.starved).map(|(from, until)| seconds(until.saturating_sub(from))),
            idle: seconds(until.idle.saturating_sub(from.idle)),
        }
    }
}
