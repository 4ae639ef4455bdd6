//! The application: the operations of a call, and the checks during them.

use crate::app::{CallEnd, Chunk, Job, Returnable, SuspendedCall};
use crate::check::late::check_late_write;
use crate::clock::{MILLI, Micros};
use crate::frames::Simulated;
use crate::plan::{Op, Script};
use crate::response::{self, pattern};
use crate::threads::driver::ThreadDriver;
use crate::threads::{Activity, Step};
use engine::{Input, Progress, Refusal, Ticket};
use std::fs::File;
use std::rc::Rc;
use wire::message::Draft;

impl<P: Simulated> ThreadDriver<'_, P> {
    /// Checks the engine's report on whether the peer has left.
    fn check_peer_left(&self, job: &Job, ticket: &Ticket) {
        let reported = self.world.engine().has_peer_left(ticket);
        let network = self.world.network.borrow();
        let has_left = network.has_left_or_was_cut(job.connection) || network.seen_resets.contains(&job.id);
        let must = has_left || self.world.records().requests[job.id].late.is_some();
        // On a multiplexed connection, each side can end an exchange; when the engine learns of that is not known here.
        let may = must || (P::MULTIPLEXED && self.may_be_reset(job.id));
        let is_right = if reported { may } else { !must };
        if !is_right {
            self.world
                .shared
                .fail(|| format!("request {}: the engine wrongly reports has_peer_left() = {reported}", job.id));
        }
    }

    /// Performs one operation of a call.
    pub(crate) fn step(&mut self, worker: usize, mut job: Job) -> Step {
        let id = job.id;
        let script = &Rc::clone(&self.world.plan).requests[id].script;
        let op = script.ops.get(job.at).copied();
        let Some(ticket) = job.ticket.take() else { return Step::Returned };
        let now = self.world.shared.now();
        if let Some(op) = op {
            self.world.shared.trace(|| format!("request {id}: {op:?}"));
        }
        match op {
            Some(Op::Work(time) | Op::Block(time)) => {
                if matches!(op, Some(Op::Block(_))) {
                    self.world.threads.workers[worker].blocked += time;
                }
                return self.spend(worker, job, ticket, now + time);
            }
            Some(Op::Hang) => {
                self.world.engine_mut().reply(&ticket, |reply| {
                    if reply.is_begun() {
                        reply.flush();
                    }
                });
                self.after_step();
                self.world.records_mut().requests[id].hangs = true;
                job.ticket = Some(ticket);
                return Step::Blocks(job, Activity::Hangs);
            }
            Some(Op::Read(count, most)) => {
                job.ticket = Some(ticket);
                return self.read(worker, job, count, most);
            }
            Some(Op::Raise(status)) => {
                job.ticket = Some(ticket);
                self.raise(job, status);
                return Step::Returned;
            }
            Some(Op::Done) => {
                let is_gone = self.world.engine_mut().reply(&ticket, |reply| reply.is_gone());
                let end = if is_gone { CallEnd::Cut } else { CallEnd::Refused(500) };
                self.complete(id, ticket, end, Progress::Done);
                return Step::Returned;
            }
            Some(Op::Look) => self.check_peer_left(&job, &ticket),
            Some(Op::Yield) => {
                job.at += 1;
                self.suspend(job, ticket, true);
                return Step::Returned;
            }
            Some(Op::Flush | Op::SendSoon) => {
                self.world.engine_mut().reply(&ticket, |reply| {
                    if reply.is_begun() {
                        if op == Some(Op::Flush) { reply.flush() } else { reply.send_soon() }
                    }
                });
            }
            Some(Op::Begin | Op::Write(_) | Op::File { .. }) => {
                let chunk = match op {
                    Some(Op::Write(length)) => Some(Part::Chunk(pattern(id, job.written, length))),
                    Some(Op::File { length, missing }) => {
                        Some(Part::File(response::file(id, job.written, length, missing), length))
                    }
                    _ => None,
                };
                job.written += chunk.as_ref().map_or(0, |part| match part {
                    Part::Chunk(bytes) => bytes.len(),
                    Part::File(_, length) => *length,
                });
                return self.write(worker, job, ticket, chunk, script);
            }
            None => {
                self.conclude(id, ticket, script);
                return Step::Returned;
            }
        }
        self.after_step();
        job.at += 1;
        job.ticket = Some(ticket);
        Step::Next(job)
    }

    /// Makes the application compute until `until`. PEP 3333: the server must send a part before the application works
    /// on the next one.
    fn spend(&mut self, worker: usize, mut job: Job, ticket: Ticket, until: Micros) -> Step {
        self.world.engine_mut().reply(&ticket, |reply| {
            if reply.is_begun() {
                reply.send_soon();
            }
        });
        self.after_step();
        job.at += 1;
        job.ticket = Some(ticket);
        self.schedule_worker(worker, until);
        Step::Blocks(job, Activity::Busy)
    }

    /// Ends the response of a call whose script has ended.
    fn conclude(&mut self, id: usize, ticket: Ticket, script: &Script) {
        let verdict = self.world.engine_mut().reply(&ticket, |reply| {
            if !reply.is_begun() {
                reply.begin(&draft(id, script), None);
            }
            reply.finish()
        });
        let (how, progress) = match verdict {
            Ok(()) => (CallEnd::Whole, Progress::Done),
            Err(_) => (CallEnd::Cut, Progress::Cut),
        };
        self.complete(id, ticket, how, progress);
    }

    fn write(&mut self, worker: usize, mut job: Job, ticket: Ticket, part: Option<Part>, script: &Script) -> Step {
        let id = job.id;
        let ledger = std::sync::Arc::clone(&self.world.records().ledger);
        let writes = script.writes;
        let is_late = self.world.records().requests[id].late.is_some();
        let deferred = ledger.deferred[id].load(std::sync::atomic::Ordering::Relaxed);
        let (verdict, is_full, is_gone, is_due) = self.world.engine_mut().reply(&ticket, |reply| {
            if !reply.is_begun() {
                reply.begin(&draft(id, script), None);
            }
            let verdict = match part {
                Some(Part::Chunk(bytes)) => reply.write(Chunk::new(id, bytes, &ledger)),
                Some(Part::File((file, offset), length)) => reply.write_file(file, offset, length as u64),
                None => Ok(()),
            };
            if writes {
                reply.flush();
            }
            (verdict, reply.is_full(), reply.is_gone(), reply.is_due())
        });
        self.after_step();
        check_late_write(self.world, id, deferred);
        if is_late && !is_gone {
            self.world.shared.fail(|| format!("the late call of request {id} is not notified that its client is gone"));
        }
        job.at += 1;
        if verdict.is_err() {
            // The response is longer than declared.
            job.ticket = Some(ticket);
            self.raise(job, 500);
            return Step::Returned;
        }
        // Some applications ignore the disconnect and continue to write.
        if is_gone && !(is_late && self.world.shared.one_in(2)) {
            // An application that learns of the disconnect may stop by itself, or let the engine end the response.
            if writes || self.world.shared.one_in(2) {
                self.complete(id, ticket, CallEnd::Abandoned, Progress::Cut);
            } else {
                self.suspend(job, ticket, false);
            }
            return Step::Returned;
        }
        if script.ignores_room {
            job.ticket = Some(ticket);
            return Step::Next(job);
        }
        if writes && is_full {
            if script.relieves {
                let kept = self.world.engine_mut().reply(&ticket, |reply| reply.relieve());
                if let Err(error) = kept {
                    self.world.shared.fail(|| format!("output of request {id} could not be stored: {error}"));
                }
                self.after_step();
            } else {
                let now = self.world.now();
                self.begin_wait(worker, script.patience, |engine_core| {
                    engine_core.pause_deadline(id);
                    engine_core.engine.wait_for_output(&ticket, worker, now, &mut engine_core.records);
                });
                job.ticket = Some(ticket);
                return Step::Blocks(job, Activity::WaitsForOutput);
            }
        } else if is_full {
            self.suspend(job, ticket, false);
            return Step::Returned;
        } else if is_due && !writes {
            self.suspend(job, ticket, true);
            return Step::Returned;
        }
        job.ticket = Some(ticket);
        Step::Next(job)
    }

    /// Reads at most `count` bytes of the body, in parts of at most `most` bytes.
    fn read(&mut self, worker: usize, mut job: Job, count: usize, most: usize) -> Step {
        let id = job.id;
        let mut buffer = vec![0; most];
        let Some(ticket) = job.ticket.take() else { return Step::Returned };
        let script = &Rc::clone(&self.world.plan).requests[id].script;
        while job.read < count {
            let now = self.world.now();
            let wanted = most.min(count - job.read);
            let (engine, records) = self.world.engine_and_records();
            let input = engine.read(&ticket, &mut buffer[..wanted], now, records);
            if let Input::Bytes(length) = input {
                self.world.records_mut().take_body(id, &buffer[..length.min(wanted)]);
            }
            self.after_step();
            match input {
                Input::Bytes(length) => {
                    self.world.shared.trace(|| format!("request {id} reads {length}"));
                    if length == 0 || length > wanted {
                        self.world.shared.fail(|| format!("request {id} reads {length} bytes of at most {wanted}"));
                    }
                    job.read += length;
                }
                Input::Pending => {
                    let now = self.world.now();
                    self.begin_wait(worker, script.patience, |engine_core| {
                        engine_core.engine.wait_for_input(&ticket, worker, now, &mut engine_core.records);
                    });
                    job.ticket = Some(ticket);
                    return Step::Blocks(job, Activity::WaitsForInput);
                }
                Input::End => {
                    self.world.records().end_body(id);
                    break;
                }
                Input::Broken(Refusal { status, .. }) => {
                    self.world.shared.trace(|| format!("request {id} lost the rest of its body: {status}"));
                    let begun = self.world.records().requests[id].begun.unwrap_or_default();
                    let last_arrival = self.world.network.borrow().history(job.connection).last_arrival;
                    let since = self.world.threads.workers[worker].waits_since;
                    if status == 504 && self.world.records().requests[id].late.is_none() {
                        self.world.shared.fail(|| format!("the body of request {id} ends with {status}"));
                    }
                    if status == 408
                        && !self.check().is_stalled(id, begun, last_arrival, since, self.world.shared.now())
                    {
                        self.world.shared.fail(|| {
                            format!("the body of request {id} is refused as stalled; last arrival at {last_arrival}")
                        });
                    }
                    job.ticket = Some(ticket);
                    self.raise(job, status);
                    return Step::Returned;
                }
            }
        }
        job.read = 0;
        job.at += 1;
        job.ticket = Some(ticket);
        Step::Next(job)
    }

    /// Makes the application fail: the client receives an error page if nothing has been sent yet, otherwise a cut.
    pub(crate) fn raise(&mut self, mut job: Job, status: u16) {
        let Some(ticket) = job.ticket.take() else { return };
        let is_refused = self.world.engine_mut().reply(&ticket, |reply| reply.refuse(status, "It has failed."));
        self.after_step();
        if is_refused {
            self.complete(job.id, ticket, CallEnd::Refused(status), Progress::Done);
        } else {
            self.complete(job.id, ticket, CallEnd::Cut, Progress::Cut);
        }
    }

    fn suspend(&mut self, job: Job, ticket: Ticket, yields: bool) {
        self.world.rules.source_mut().bind(job.worker);
        self.world.rules.source_mut().pause_deadline(job.id);
        self.world.records_mut().requests[job.id].is_suspended = true;
        let suspended = SuspendedCall { job, returnable: Returnable::new(&self.world.records().ledger) };
        self.world.shared.trace(|| format!("request {} is suspended", suspended.job.id));
        let progress = if yields { Progress::Yield(suspended) } else { Progress::Blocked(suspended) };
        self.give_back(ticket, progress);
    }

    fn complete(&mut self, id: usize, ticket: Ticket, how: CallEnd, progress: Progress<SuspendedCall>) {
        self.end(id, how);
        self.give_back(ticket, progress);
    }

    fn give_back(&mut self, ticket: Ticket, progress: Progress<SuspendedCall>) {
        let now = self.world.now();
        let (engine, records) = self.world.engine_and_records();
        engine.complete(ticket, progress, now, records);
        self.after_step();
    }

    pub(crate) fn end(&mut self, id: usize, how: CallEnd) {
        self.world.rules.source_mut().deadlines.end(id);
        self.world.records_mut().end(id, how);
    }

    /// Returns true if a call's exchange may have ended without the application: its client reset it, a time limit
    /// ended a connection, or its file was missing.
    pub(crate) fn may_be_reset(&self, id: usize) -> bool {
        self.world.network.borrow().resets.contains_key(&id)
            || self.world.engine().statistics().timeouts > 0
            || self.check().has_missing_file(id)
    }

    /// Checks that a call that waited for room for output has room when it is woken.
    pub(crate) fn check_wake(&mut self, job: &Job, for_input: bool) {
        let Some(ticket) = &job.ticket else { return };
        let is_full = self.world.engine_mut().reply(ticket, |reply| reply.is_full() && !reply.is_gone());
        // On a multiplexed connection, another call may have written since.
        if !for_input && is_full && !P::MULTIPLEXED {
            self.world.shared.fail(|| format!("request {} is woken although its peer reads nothing", job.id));
        }
    }

    /// Checks that no output stayed in the coalescing buffer for more than two ticks while the application worked (PEP
    /// 3333).
    pub(crate) fn check_work(&mut self, job: &Job) {
        let Some(ticket) = &job.ticket else { return };
        let Some(Op::Work(time) | Op::Block(time)) =
            job.at.checked_sub(1).and_then(|at| self.world.plan.requests[job.id].script.ops.get(at))
        else {
            return;
        };
        // The ticker thread may have to be woken first.
        if *time < 3 * MILLI + self.world.plan.wake_time {
            return;
        }
        let (sent, was_full) = {
            let network = self.world.network.borrow();
            (network.sent_on(job.connection), network.history(job.connection).full_since.is_some())
        };
        self.world.engine_mut().reply(ticket, |reply| reply.flush());
        // On a multiplexed connection, output that another call has just written is sent, too.
        if !P::MULTIPLEXED && !was_full && self.world.network.borrow().sent_on(job.connection) > sent {
            self.world
                .shared
                .fail(|| format!("a part of the answer to {} is deferred while the application works", job.id));
        }
    }
}

enum Part {
    Chunk(Vec<u8>),
    /// A file, the offset in the file, and the number of bytes.
    File((File, u64), usize),
}

fn draft(id: usize, script: &Script) -> Draft {
    let (status, id) = (format!("{} As Planned", script.status), id.to_string());
    let fields = [("X-Id", id.as_str()), ("Connection", "close")];
    response::head(&status, &fields[..=usize::from(script.closes)], script.declared)
}
