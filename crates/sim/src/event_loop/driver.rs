//! The event loop: its selector, its tasks and its timers.

use super::call::{Call, TaskState};
use crate::app::{CallEnd, Job, Records, SuspendedCall};
use crate::check::Checker;
use crate::clock::{Event, Micros, micros};
use crate::frames::Simulated;
use crate::plan::tasks::Handling;
use crate::world::World;
use engine::Work;
use scheduler::WorkSource;
use std::time::Duration;

/// The driver of a world with an event loop, which runs its calls.
pub(crate) struct LoopDriver<'a, P: Simulated> {
    pub(crate) world: &'a mut World<P>,
}

impl<P: Simulated> LoopDriver<'_, P> {
    // ---------------------------------------------------------------------------------------------------- the loop

    fn schedule_loop(&mut self, at: Micros) {
        self.world.event_loop.round += 1;
        if at != Micros::MAX {
            self.world.shared.schedule(at, Event::Loop(self.world.event_loop.round));
        }
    }

    /// Runs an iteration, if `round` is the current number.
    pub(crate) fn resume(&mut self, round: u64) {
        if self.world.event_loop.round == round {
            self.go_round();
        }
    }

    /// Ends the loop's wait if an event is ready.
    pub(crate) fn wake(&mut self) {
        if self.world.event_loop.waits_until.is_some()
            && self.world.network.borrow().is_ready()
            && !std::mem::replace(&mut self.world.event_loop.is_wake_scheduled, true)
        {
            let at = self.world.shared.now() + self.world.shared.below(self.world.plan.wake_time) + 1;
            self.schedule_loop(at.min(self.world.event_loop.waits_until.unwrap_or(at)));
        }
    }

    /// Runs one iteration of the loop: the selector's events, tasks and timers; then begins the next wait.
    fn go_round(&mut self) {
        self.world.event_loop.waits_until = None;
        self.world.event_loop.is_wake_scheduled = false;
        let core = self.world.rules.source();
        let is_due = core.due().is_some_and(|due| due <= core.now());
        if is_due || self.world.network.borrow().is_ready() {
            self.run_once();
        }
        self.run_timers();
        let mut ready = std::mem::take(&mut self.world.event_loop.ready);
        while !ready.is_empty() && !self.world.shared.has_failed() {
            let (id, task) = ready.swap_remove(self.world.shared.index(ready.len()));
            self.run_task(id, task);
        }
        let now = self.world.shared.now();
        if !self.world.event_loop.ready.is_empty() {
            let at = now + self.world.shared.below(20);
            return self.schedule_loop(at);
        }
        if self.world.rules.source().engine.is_stopped()
            && self.world.event_loop.calls.iter().flatten().all(|call| call.is_over)
        {
            return;
        }
        let due = self.world.rules.before_hosted_wait();
        let clock = self.world.rules.source().now();
        let due = due.map_or(Micros::MAX, |due| now + micros(due.saturating_sub(clock)));
        let until = due.min(self.next_timer());
        Checker { world: self.world }.check_step();
        if until > now && !self.world.network.borrow().is_ready() {
            self.check_waiting();
        }
        self.world.event_loop.waits_until = Some(until);
        self.schedule_loop(until.max(now + 1));
    }

    /// Makes the engine handle everything that is ready or due, runs the calls that can begin, and wakes those that
    /// waited.
    fn run_once(&mut self) {
        self.world.rules.begin_hosted_poll();
        let core = self.world.rules.source_mut();
        let mut jobs = Vec::new();
        loop {
            while let Some(work) = core.next((), true) {
                jobs.push(work);
            }
            if core.shared.has_failed() || !core.poll(&mut ()) && core.engine.due() != Some(Duration::ZERO) {
                break;
            }
        }
        let wakes = std::mem::take(&mut core.records.woken);
        for id in wakes {
            self.wake_call(id);
        }
        for work in jobs {
            self.begin(work);
        }
    }

    fn begin(&mut self, work: Work<Records<P>>) {
        match work {
            Work::Call(ticket, asked) => {
                let id = asked.id;
                self.world.shared.trace(|| format!("call {id} is called"));
                let connection = self.world.records().requests[id].connection.unwrap_or_default();
                let left_at = self.world.network.borrow().left_at(connection);
                self.world.records_mut().call(asked, left_at);
                let handling = &self.world.plan.requests[id].handling;
                self.world.event_loop.calls[id] = Some(Call::new(ticket, handling));
                if let Some(cancelled) = self.world.plan.requests[id].cancelled {
                    let at = self.world.shared.now() + cancelled.after;
                    self.world.event_loop.cancels.push((at, id, cancelled.task, cancelled.is_swallowed));
                }
                match handling {
                    // The first task starts at once; the other tasks start in the next iteration.
                    Handling::Tasks(tasks) => {
                        self.world.event_loop.ready.extend((1..tasks.len()).map(|task| (id, task)));
                        self.run_task(id, 0);
                    }
                    Handling::Handler { .. } => self.run_handler(id, None),
                }
            }
            Work::Resume(ticket, SuspendedCall { job: Job { id, .. }, returnable }) => {
                returnable.give_back();
                self.world.event_loop.resumed += 1;
                self.world.shared.trace(|| format!("call {id} is resumed"));
                let Some(call) = self.world.event_loop.calls[id].as_mut() else { return };
                let Some(until) = call.until.take().filter(|_| call.ticket.is_none() && !call.is_over) else {
                    return self.world.shared.fail(|| format!("call {id} is resumed, which was not given back"));
                };
                call.ticket = Some(ticket);
                self.run_handler(id, Some(until));
            }
            Work::Abandon(SuspendedCall { job: Job { id, .. }, returnable }) => {
                returnable.give_back();
                self.world.shared.trace(|| format!("call {id} is abandoned"));
                let Some(call) = self.world.event_loop.calls[id].as_mut() else { return };
                if call.until.take().is_none() || call.is_over {
                    self.world.shared.fail(|| format!("call {id} is abandoned, which was not given back"));
                }
                let call = self.world.event_loop.calls[id].as_mut().expect("it was called");
                call.is_over = true;
                self.world.records_mut().end(id, CallEnd::Abandoned);
            }
        }
    }

    /// Returns the time by which the loop has to run, for tasks that sleep and for cancellations.
    fn next_timer(&self) -> Micros {
        let sleeps = self.world.event_loop.calls.iter().flatten().flat_map(|call| &call.tasks).filter_map(|task| {
            match task.state {
                TaskState::Sleeping(until) => Some(until),
                _ => None,
            }
        });
        sleeps.chain(self.world.event_loop.cancels.iter().map(|(at, ..)| *at)).min().unwrap_or(Micros::MAX)
    }

    fn run_timers(&mut self) {
        let now = self.world.shared.now();
        for (id, call) in self.world.event_loop.calls.iter_mut().enumerate() {
            for (index, task) in call.iter_mut().flat_map(|call| &mut call.tasks).enumerate() {
                if matches!(task.state, TaskState::Sleeping(until) if until <= now) {
                    task.state = TaskState::Ready;
                    self.world.event_loop.ready.push((id, index));
                }
            }
        }
        let (due, later) =
            std::mem::take(&mut self.world.event_loop.cancels).into_iter().partition(|(at, ..)| *at <= now);
        self.world.event_loop.cancels = later;
        let due: Vec<(Micros, usize, usize, bool)> = due;
        for (_, id, task, is_swallowed) in due {
            self.cancel(id, task, is_swallowed);
        }
    }
}
