//! Models of the scheduler under loom (`make loom`): the real scheduler, a small work source, and threads with a lock
//! as the GIL.
//!
//! Each model has a few calls and the order in which the poller reports their events. Loom executes a model repeatedly,
//! with a different interleaving of the threads each time. It fails if no thread can continue, if a thread runs
//! forever, or if one of these conditions does not hold:
//!
//! * Each call begins once. If it is suspended, it resumes once, in the thread in which it began.
//! * No more calls run at a time than allowed.
//! * A call that blocks, waits or is suspended delays no other call ([`Act::RunUntil`] ends only after another call has
//!   run, so a delay appears as a deadlock). A call that waits continues once its answer has arrived.
//! * At the end every thread has exited, no inbox holds work, and every notified thread has arrived.
//!
//! A thread holds the GIL except in [`Threads::detached`]. A thread that waits for something else while it holds the
//! GIL, or for the GIL while it holds the scheduler's lock, deadlocks in some execution. The poller is a flag with a
//! condition variable. There are no timeouts that could hide a lost wake-up. The ticker sleeps as soon as no tick is
//! needed.
//!
//! # Executions
//!
//! Loom tries every execution of models with one thread. Of models with three threads, of which two may run calls, it
//! tries every execution with at most as many preemptions as the argument of [`Plan::check`] says. A preemption is a
//! switch from a thread that could have continued. `LOOM_MAX_PREEMPTIONS=3` tries more and takes much longer, above all
//! for models with ticks. Loom has two limits: its condition variables have no spurious wake-ups, and a `try_lock` that
//! is pending while another thread takes the lock waits instead of failing. The `try_lock` fails in executions in which
//! it happens later.

mod plan;
mod pool;

use plan::{Act, Belief, Event, Fact, Job, Plan, job};

const RETURN: Job = job(Act::Return);
const WAIT: Job = job(Act::Wait);
const SUSPEND: Job = job(Act::Suspend);

#[test]
fn one_thread_polls_while_its_call_waits() {
    let later = [Event::Answer(0), Event::Request(2), Event::Answer(1)];
    Plan::new(1, &[WAIT, SUSPEND, RETURN]).later(&later).check(None);
}

#[test]
fn all_fast_calls_run() {
    Plan::new(2, &[RETURN, RETURN, RETURN]).later(&[Event::Request(2)]).check(2);
}

#[test]
fn all_fast_calls_run_without_gil() {
    Plan::new(2, &[RETURN, RETURN]).free_threaded().check(2);
}

#[test]
fn all_fast_calls_run_with_ticks() {
    Plan::new(2, &[RETURN, RETURN]).ticking().check(2);
}

#[test]
fn all_calls_run_when_predicted_to_block() {
    for belief in [Belief::Blocking, Belief::AllBlocking, Belief::AllRunning] {
        Plan::new(2, &[RETURN, RETURN, RETURN]).later(&[Event::Request(2)]).belief(belief).check(2);
    }
}

#[test]
fn all_calls_run_without_gil_when_predicted_to_block() {
    for belief in [Belief::Blocking, Belief::AllBlocking, Belief::AllRunning] {
        Plan::new(2, &[RETURN, RETURN]).belief(belief).free_threaded().check(2);
    }
}

#[test]
fn long_call_delays_no_queued_call() {
    for belief in [Belief::Fast, Belief::AllRunning] {
        Plan::new(2, &[RETURN, job(Act::RunUntil(Fact::Returned(2))), RETURN]).belief(belief).ticking().check(1);
    }
}

#[test]
fn long_call_delays_no_queued_call_without_gil() {
    Plan::new(2, &[job(Act::RunUntil(Fact::Returned(1))), RETURN]).ticking().free_threaded().check(1);
}

#[test]
fn long_call_delays_no_later_request() {
    Plan::new(2, &[job(Act::RunUntil(Fact::Returned(1))), RETURN]).later(&[Event::Request(1)]).ticking().check(1);
}

#[test]
fn predicted_long_call_needs_no_tick() {
    let jobs = [job(Act::RunUntil(Fact::Returned(1))), RETURN];
    Plan::new(2, &jobs).belief(Belief::AllBlocking).check(2);
    Plan::new(2, &jobs).later(&[Event::Request(1)]).belief(Belief::AllBlocking).check(2);
}

#[test]
fn another_thread_leads_when_a_call_waits() {
    for belief in [Belief::Fast, Belief::Blocking, Belief::AllBlocking, Belief::AllRunning] {
        Plan::new(2, &[WAIT, RETURN.begins_with(Event::Answer(0))]).belief(belief).check(2);
    }
}

#[test]
fn another_thread_leads_without_gil_when_a_call_waits() {
    Plan::new(2, &[WAIT, RETURN.begins_with(Event::Answer(0))]).free_threaded().check(2);
}

#[test]
fn all_waiting_calls_are_woken() {
    Plan::new(2, &[WAIT, WAIT]).later(&[Event::Answer(1), Event::Answer(0)]).check(2);
}

#[test]
fn all_waiting_calls_are_woken_with_a_request_queued() {
    let jobs = [WAIT.ends_with(Event::Answer(1)), WAIT, RETURN];
    Plan::new(2, &jobs).later(&[Event::Answer(0)]).check(2);
}

#[test]
fn suspended_call_resumes_in_its_thread() {
    for belief in [Belief::Fast, Belief::Blocking, Belief::AllBlocking, Belief::AllRunning] {
        Plan::new(2, &[SUSPEND, RETURN.begins_with(Event::Answer(0))]).belief(belief).check(3);
    }
}

#[test]
fn suspended_call_resumes_whenever_the_answer_comes() {
    Plan::new(2, &[SUSPEND, RETURN]).later(&[Event::Answer(0)]).check(3);
}

#[test]
fn suspended_call_resumes_while_a_long_call_runs() {
    let jobs = [SUSPEND, job(Act::RunUntil(Fact::Returned(0))).begins_with(Event::Answer(0))];
    Plan::new(2, &jobs).ticking().check(1);
}

#[test]
fn pinned_work_runs_when_a_call_returns_after_all_were_taken() {
    let jobs = [
        SUSPEND.ends_with(Event::Answer(1)),
        SUSPEND,
        job(Act::RunUntil(Fact::Returned(0))),
        job(Act::RunUntil(Fact::Answered(0))).begins_with(Event::Answer(0)),
    ];
    Plan::new(2, &jobs).ticking().check(1);
}

#[test]
fn pinned_work_runs_before_new_calls() {
    let jobs = [
        SUSPEND,
        job(Act::RunUntil(Fact::Returned(0))),
        job(Act::RunUntil(Fact::Answered(0))).begins_with(Event::Answer(0)),
        job(Act::RunUntil(Fact::Returned(0))),
    ];
    Plan::new(2, &jobs).ticking().check(1);
}

#[test]
fn suspended_calls_resume_when_threads_cannot_be_started() {
    let later = [Event::Answer(0), Event::Request(2), Event::Answer(1)];
    Plan::new(2, &[SUSPEND, SUSPEND, job(Act::RunUntil(Fact::Returned(0)))])
        .later(&later)
        .startable(1)
        .ticking()
        .check(1);
}

#[test]
fn suspended_waiting_and_fast_calls_run_together() {
    let jobs = [SUSPEND, WAIT, RETURN.begins_with(Event::Answer(1)).ends_with(Event::Answer(0))];
    Plan::new(2, &jobs).check(3);
}

#[test]
fn calls_run_when_threads_cannot_be_started() {
    let later = [Event::Answer(1), Event::Answer(0)];
    for startable in [0, 1] {
        for belief in [Belief::Fast, Belief::AllBlocking] {
            let plan = |jobs: &[Job]| Plan::new(2, jobs).later(&later).belief(belief).startable(startable);
            plan(&[WAIT, SUSPEND, RETURN]).check(1);
            plan(&[SUSPEND, WAIT, RETURN]).check(1);
            plan(&[SUSPEND, SUSPEND, RETURN]).check(1);
            plan(&[WAIT, WAIT]).check(1);
        }
    }
}

#[test]
fn waiting_call_returns_when_interrupted() {
    for (most, preemptions) in [(1, None), (2, Some(2))] {
        Plan::new(most, &[WAIT]).interrupting(0).check(preemptions);
        Plan::new(most, &[WAIT]).interrupting(0).free_threaded().check(preemptions);
    }
    Plan::new(2, &[WAIT, RETURN]).interrupting(0).startable(0).check(2);
}

#[test]
fn request_taken_in_by_the_ticker_is_served() {
    Plan::new(1, &[RETURN, RETURN]).serviced(1).check(None);
    Plan::new(1, &[RETURN]).serviced(0).free_threaded().check(None);
    for belief in [Belief::Fast, Belief::AllBlocking] {
        Plan::new(2, &[RETURN, RETURN]).belief(belief).serviced(1).check(2);
    }
    // No other thread is free when the request that the ticker takes in wakes the waiting call.
    Plan::new(2, &[WAIT, RETURN.begins_with(Event::Answer(0))]).serviced(1).check(2);
}
