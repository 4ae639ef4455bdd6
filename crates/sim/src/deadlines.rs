//! Calls with a deadline: when each is due, what the ticker does with those that miss theirs, and what has to hold for
//! their clients.
//!
//! [`Deadlines`] counts time as the gateway's `calls.rs` does: a call's time pauses while its response is suspended or
//! waits for a slow client to read.

use crate::check::SLACK;
use crate::clock::{MILLI, Micros, SECOND};
use crate::driver::micros;
use crate::engine_core::EngineCore;
use crate::peer::{Answer, Ending, Peer};
use crate::plan::{Act, pattern};
use crate::world::World;
use engine::{CallId, Expired, Now};
use std::time::Duration;

/// If no thread polls the engine for this long after a missed deadline, queued requests are refused.
const BLOCKED_AFTER: Duration = Duration::from_secs(2);
/// How late a missed deadline may be noticed: a slow tick that comes too soon after the one before checks nothing.
const NOTICED_AFTER: Micros = SLACK + 100 * MILLI;
/// A call that is this late is not expected to return.
const WRITE_OFF_AFTER: Micros = 10 * SECOND;

/// A call that has missed its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) at: Micros,
    pub(crate) outcome: Expired,
}

/// A running call with a deadline.
#[derive(Debug)]
struct RunningCall {
    id: usize,
    call: CallId,
    limit: Micros,
    /// For how long it had run when its time paused last, and since when it runs again.
    spent: Micros,
    since: Option<Micros>,
    late_at: Option<Micros>,
    is_written_off: bool,
}

impl RunningCall {
    fn due(&self) -> Option<Micros> {
        let since = self.since.filter(|_| self.late_at.is_none())?;
        Some(since + self.limit.saturating_sub(self.spent))
    }
}

/// The running calls that have a deadline.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    calls: Vec<RunningCall>,
    /// When a call missed its deadline last, and the number of polls by then.
    expired_at: Option<(Duration, u64)>,
    /// Calls that missed their deadlines since this was taken last.
    fresh: Vec<usize>,
    /// When queued requests were refused, and how many in total.
    pub(crate) refused_at: Vec<Micros>,
    pub(crate) refused_waiting: u64,
}

impl Deadlines {
    fn call(&mut self, id: usize) -> Option<&mut RunningCall> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    pub(crate) fn end(&mut self, id: usize) {
        self.calls.retain(|call| call.id != id);
    }

    pub(crate) fn take_fresh(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.fresh)
    }
}

impl EngineCore {
    /// The application is called for a request.
    pub(crate) fn begin_deadline(&mut self, id: usize, call: CallId, limit: Option<Micros>) {
        let since = Some(micros(self.clock().monotonic));
        if let Some(limit) = limit {
            let timed = RunningCall { id, call, limit, spent: 0, since, late_at: None, is_written_off: false };
            self.deadlines.calls.push(timed);
        }
    }

    /// Pauses the time of a call.
    pub(crate) fn pause_deadline(&mut self, id: usize) {
        let now = micros(self.clock().monotonic);
        if let Some(call) = self.deadlines.call(id)
            && let Some(since) = call.since.take()
        {
            call.spent += now - since;
        }
    }

    /// Resumes the time of a call.
    pub(crate) fn resume_deadline(&mut self, id: usize) {
        let now = micros(self.clock().monotonic);
        if let Some(call) = self.deadlines.call(id) {
            call.since.get_or_insert(now);
        }
    }

    /// Answers the clients of calls that have missed their deadlines; whether there were any.
    pub(crate) fn expire_calls(&mut self, now: Now) -> bool {
        let at = micros(now.monotonic);
        let due: Vec<_> =
            self.deadlines.calls.iter().filter_map(|call| Some((call.id, call.call, call.due()?))).collect();
        let mut has_expired = false;
        for (id, call, due) in due.into_iter().filter(|(_, _, due)| *due <= at) {
            if at > due + NOTICED_AFTER {
                self.shared.fail(|| format!("the deadline of request {id} is noticed {} us late", at - due));
            }
            let outcome = self.in_tick(|engine_core| engine_core.engine.expire(call, now));
            self.note_late(id, outcome);
            has_expired = true;
        }
        if has_expired {
            self.deadlines.expired_at = Some((now.monotonic, self.engine.polls()));
        }
        self.write_off_calls(at);
        has_expired
    }

    fn note_late(&mut self, id: usize, outcome: Expired) {
        let at = self.shared.now();
        self.shared.trace(|| format!("request {id} has missed its deadline: {outcome:?}"));
        let connection = self.records.requests[id].connection.unwrap_or_default();
        let has_left = self.network.borrow().has_left_or_was_cut(connection);
        if outcome == Expired::Left && !has_left {
            self.shared.fail(|| format!("the client of request {id} is reported as gone"));
        }
        if self.records.requests[id].late.replace(Late { at, outcome }).is_some() {
            self.shared.fail(|| format!("request {id} misses its deadline twice"));
        }
        if let Some(call) = self.deadlines.call(id) {
            call.late_at = Some(at);
        }
        self.deadlines.fresh.push(id);
    }

    /// Lets the server stop without waiting for calls that hang.
    fn write_off_calls(&mut self, now: Micros) {
        for call in &mut self.deadlines.calls {
            let is_stuck = call.late_at.is_some_and(|at| now >= at + WRITE_OFF_AFTER);
            if is_stuck && !std::mem::replace(&mut call.is_written_off, true) {
                self.engine.write_off(call.call);
            }
        }
    }

    /// Refuses queued requests if a late call keeps all threads from polling the engine.
    pub(crate) fn refuse_if_blocked(&mut self, now: Now) {
        let Some((at, polls)) = self.deadlines.expired_at else { return };
        if self.engine.polls() != polls {
            self.deadlines.expired_at = None;
            return;
        }
        if now.monotonic < at + BLOCKED_AFTER || self.engine.is_stopped() {
            return;
        }
        if self.plan.most_calls > 1 {
            self.shared.fail(|| "no thread polls the engine after a call has missed its deadline".to_owned());
        }
        let before = self.engine.statistics().refused;
        self.in_tick(|engine_core| engine_core.engine.refuse_waiting(now));
        let count = self.engine.statistics().refused - before;
        if count > 0 {
            self.shared.trace(|| format!("{count} waiting requests are refused"));
            self.deadlines.refused_at.push(self.shared.now());
            self.deadlines.refused_waiting += count;
        }
        if self.engine.statistics().queued > 0 {
            self.check_left_waiting();
        }
    }

    /// Checks that the requests still waiting are behind a response that was not sent completely.
    fn check_left_waiting(&self) {
        let network = self.network.borrow();
        let waits =
            |record: &crate::app::Record| record.was_queued && record.called.is_none() && record.dismissed.is_none();
        let waiting = self.records.requests.iter().filter(|record| waits(record)).count();
        let unsent =
            (0..self.records.connections.len()).filter(|&number| network.history(number).full_since.is_some()).count();
        let queued = self.engine.statistics().queued;
        if queued > unsent as u64 {
            self.shared.fail(|| format!("{queued} of {waiting} requests wait although no thread polls the engine"));
        }
    }

    /// Whether queued requests were refused in this time because no thread polled the engine.
    pub(crate) fn has_refused_waiting(&self, from: Micros, to: Micros) -> bool {
        self.deadlines.refused_at.iter().any(|&at| from <= at && at <= to)
    }
}

impl World {
    /// Checks the response to a request whose call was late.
    pub(crate) fn check_late_answer(&self, id: usize, late: Late, answer: &Answer) -> Result<(), String> {
        let request = &self.plan.requests[id];
        let script = &request.script;
        let wrong = |what: &str| Err(what.to_owned());
        let shown = |length: usize| if request.is_bodiless() { Vec::new() } else { pattern(id, 0, length) };
        match late.outcome {
            Expired::Answered { body_bytes } => {
                if answer.id.is_some() || answer.status != 504 {
                    return wrong("its call was late, and this is not the 504 page");
                }
                if answer.keep_alive {
                    return wrong("the connection is kept alive after 504");
                }
                let length = if request.is_head { 0 } else { body_bytes };
                if answer.body.len() as u64 != length || (length == 0) != request.is_head {
                    return wrong("the 504 page is cut");
                }
                Ok(())
            }
            _ if answer.id != Some(id) || answer.status != script.status => {
                wrong("its call was late after the response had begun")
            }
            Expired::Whole => {
                let length = script.declared.map_or(script.length() as u64, |declared| declared);
                let is_whole = answer.body == shown(usize::try_from(length).unwrap_or(usize::MAX));
                if is_whole { Ok(()) } else { wrong("it was written in time, and its body is wrong") }
            }
            // A response cut behind its last byte is whole for the client.
            Expired::Cut { .. } | Expired::Left if request.is_bodiless() => Ok(()),
            Expired::Cut { .. } | Expired::Left => {
                let is_whole = script.declared == Some(answer.body.len() as u64);
                if is_whole && answer.body == shown(answer.body.len()) {
                    Ok(())
                } else {
                    wrong("its deadline cut it, and the cut is not visible")
                }
            }
        }
    }

    /// Checks that nothing of what a late call writes is stored or sent.
    pub(crate) fn check_late_write(&self, id: usize, deferred_before: i64) {
        let record = &self.records().requests[id];
        if record.late.is_none() {
            return;
        }
        let deferred = self.records().ledger.deferred[id].load(std::sync::atomic::Ordering::Relaxed);
        if deferred > deferred_before {
            self.shared
                .fail(|| format!("{} bytes written by the late call of {id} are stored", deferred - deferred_before));
        }
    }
}

/// Checks that a client that always reads, and had received everything before, gets its 504 without delay.
pub(crate) fn check_late_time(peer: &Peer, index: usize, late: Late) -> Result<(), String> {
    let answer = &peer.answers[index];
    let is_answered = matches!(late.outcome, Expired::Answered { .. });
    let had_all = index == 0 || peer.answers[index - 1].at < late.at;
    let is_reader = peer.plan.reads.pause == 0 && peer.plan.packet == usize::MAX && peer.plan.capacity >= 8000;
    if is_answered && had_all && is_reader && answer.at > late.at + 2 * peer.plan.latency + SLACK {
        return Err(format!("its 504 was written at {} and arrived at {}", late.at, answer.at));
    }
    Ok(())
}

/// Whether a late call's request may lack a whole answer; `None` if lateness is no reason.
pub(crate) fn excuse_late(peer: &Peer, late: Late) -> Option<Result<(), String>> {
    let is_reset = peer.ending == Some(Ending::Reset);
    match late.outcome {
        // Other checks make sure that the cut is visible.
        Expired::Cut { .. } => Some(Ok(())),
        // A response that is delimited by the close is whole if the connection ends without a reset.
        Expired::Whole if is_reset => None,
        Expired::Answered { .. } | Expired::Whole => {
            let stalls = peer.acted.is_some_and(|(_, act)| act == Act::StallReading);
            (!is_reset && !stalls).then(|| Err(format!("it was late and has no answer: {late:?}")))
        }
        Expired::Left => None,
    }
}
