//! Calls that have a deadline: when each is due, what the ticking thread does with those that miss theirs, and what has
//! to hold for their clients.
//!
//! [`Deadlines`] counts time as the gateway's `calls.rs` does: a call's time stands still while its response is
//! suspended or waits for a slow client to read.

use crate::check::SLACK;
use crate::clock::{MILLI, Micros, SECOND};
use crate::driver::micros;
use crate::engine_core::EngineCore;
use crate::peer::{Answer, Ending, Peer};
use crate::plan::{Act, pattern};
use crate::world::World;
use engine::{CallId, Expired, Now};
use std::time::Duration;

/// If no thread has turned the engine for so long after a call missed its deadline, waiting requests are refused.
const BLOCKED_AFTER: Duration = Duration::from_secs(2);
/// A missed deadline is noticed after at most this: a slow tick that comes too soon after the one before does not look.
const NOTICED_AFTER: Micros = SLACK + 100 * MILLI;
/// So long after its deadline a call is not expected to come back.
const WRITE_OFF_AFTER: Micros = 10 * SECOND;

/// A call that has missed its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) at: Micros,
    pub(crate) outcome: Expired,
}

/// A call that is out.
#[derive(Debug)]
struct Timed {
    id: usize,
    call: CallId,
    limit: Micros,
    /// For how long it had run when its time stood still last, and since when it runs again.
    spent: Micros,
    since: Option<Micros>,
    late_at: Option<Micros>,
    is_written_off: bool,
}

impl Timed {
    fn due(&self) -> Option<Micros> {
        let since = self.since.filter(|_| self.late_at.is_none())?;
        Some(since + self.limit.saturating_sub(self.spent))
    }
}

/// The calls that are out and have a deadline.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    calls: Vec<Timed>,
    /// When a call missed its deadline last, and how many turns of the engine there had been.
    expired_at: Option<(Duration, u64)>,
    /// Calls that have missed their deadlines since somebody asked.
    fresh: Vec<usize>,
    /// When waiting requests were refused, and how many were in all.
    pub(crate) refused_at: Vec<Micros>,
    pub(crate) refused_waiting: u64,
}

impl Deadlines {
    fn call(&mut self, id: usize) -> Option<&mut Timed> {
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
            let timed = Timed { id, call, limit, spent: 0, since, late_at: None, is_written_off: false };
            self.deadlines.calls.push(timed);
        }
    }

    /// From now on the time of a call does not count.
    pub(crate) fn pause_deadline(&mut self, id: usize) {
        let now = micros(self.clock().monotonic);
        if let Some(call) = self.deadlines.call(id)
            && let Some(since) = call.since.take()
        {
            call.spent += now - since;
        }
    }

    /// From now on it counts again.
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
            let outcome = self.beside(|engine_core| engine_core.engine.expire(call, now));
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
            self.shared.fail(|| format!("the client of request {id} is taken to have left"));
        }
        if self.records.requests[id].late.replace(Late { at, outcome }).is_some() {
            self.shared.fail(|| format!("request {id} misses its deadline twice"));
        }
        if let Some(call) = self.deadlines.call(id) {
            call.late_at = Some(at);
        }
        self.deadlines.fresh.push(id);
    }

    /// The server's end does not wait for calls that are stuck.
    fn write_off_calls(&mut self, now: Micros) {
        for call in &mut self.deadlines.calls {
            let is_stuck = call.late_at.is_some_and(|at| now >= at + WRITE_OFF_AFTER);
            if is_stuck && !std::mem::replace(&mut call.is_written_off, true) {
                self.engine.write_off(call.call);
            }
        }
    }

    /// Where a late call keeps all threads from turning the engine, requests that wait are refused.
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
        self.beside(|engine_core| engine_core.engine.refuse_waiting(now));
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

    /// Only requests behind an answer that was not sent as a whole still wait.
    fn check_left_waiting(&self) {
        let network = self.network.borrow();
        let waits =
            |record: &crate::app::Record| record.was_queued && record.called.is_none() && record.dismissed.is_none();
        let waiting = self.records.requests.iter().filter(|record| waits(record)).count();
        let unsent =
            (0..self.records.guests.len()).filter(|&number| network.story(number).full_since.is_some()).count();
        let queued = self.engine.statistics().queued;
        if queued > unsent as u64 {
            self.shared.fail(|| format!("{queued} of {waiting} requests wait although nobody polls the engine"));
        }
    }

    /// Whether waiting requests were refused between two moments because nobody turned the engine.
    pub(crate) fn has_refused_waiting(&self, from: Micros, to: Micros) -> bool {
        self.deadlines.refused_at.iter().any(|&at| from <= at && at <= to)
    }
}

impl World {
    /// Whether the response to a request whose call was late is the one that its client has to get.
    pub(crate) fn check_late_answer(&self, id: usize, late: Late, answer: &Answer) -> Result<(), String> {
        let request = &self.plan.requests[id];
        let script = &request.script;
        let says = |what: &str| Err(what.to_owned());
        let shown = |length: usize| if request.is_bodiless() { Vec::new() } else { pattern(id, 0, length) };
        match late.outcome {
            Expired::Answered { body_bytes } => {
                if answer.id.is_some() || answer.status != 504 {
                    return says("its call was late, and it is not the page of 504");
                }
                if answer.keep_alive {
                    return says("the connection goes on behind 504");
                }
                let length = if request.is_head { 0 } else { body_bytes };
                if answer.body.len() as u64 != length || (length == 0) != request.is_head {
                    return says("the page of 504 is not whole");
                }
                Ok(())
            }
            _ if answer.id != Some(id) || answer.status != script.status => {
                says("its call was late after it had started_call")
            }
            Expired::Whole => {
                let length = script.declared.map_or(script.length() as u64, |declared| declared);
                let is_whole = answer.body == shown(usize::try_from(length).unwrap_or(usize::MAX));
                if is_whole { Ok(()) } else { says("it was written in time, and its body is another one") }
            }
            // One that breaks off behind the last byte is whole for the client.
            Expired::Cut { .. } | Expired::Left if request.is_bodiless() => Ok(()),
            Expired::Cut { .. } | Expired::Left => {
                let is_whole = script.declared == Some(answer.body.len() as u64);
                if is_whole && answer.body == shown(answer.body.len()) {
                    Ok(())
                } else {
                    says("its deadline cut it, and it passes for the whole")
                }
            }
        }
    }

    /// Nothing of what a late call writes is kept or sent.
    pub(crate) fn check_late_write(&self, id: usize, held_before: i64) {
        let record = &self.records().requests[id];
        if record.late.is_none() {
            return;
        }
        let deferred = self.records().ledger.deferred[id].load(std::sync::atomic::Ordering::Relaxed);
        if deferred > held_before {
            self.shared.fail(|| format!("{} bytes that the late call of {id} wrote are kept", deferred - held_before));
        }
    }
}

/// A client that reads all the time, and had got all before, has its 504 as soon as the network carries it.
pub(crate) fn check_late_time(peer: &Peer, index: usize, late: Late) -> Result<(), String> {
    let answer = &peer.answers[index];
    let is_answered = matches!(late.outcome, Expired::Answered { .. });
    let had_all = index == 0 || peer.answers[index - 1].at < late.at;
    let is_reader = peer.plan.reads.pause == 0 && peer.plan.packet == usize::MAX && peer.plan.capacity >= 8000;
    if is_answered && had_all && is_reader && answer.at > late.at + 2 * peer.plan.latency + SLACK {
        return Err(format!("its 504 was written at {} and came at {}", late.at, answer.at));
    }
    Ok(())
}

/// Whether it is right that a request whose call was late has no whole answer; `None` says nothing of it.
pub(crate) fn excuse_late(peer: &Peer, late: Late) -> Option<Result<(), String>> {
    let is_reset = peer.ending == Some(Ending::Reset);
    match late.outcome {
        // The cut has to show, which was looked at.
        Expired::Cut { .. } => Some(Ok(())),
        // A response that ends with the connection is whole when that ends in order.
        Expired::Whole if is_reset => None,
        Expired::Answered { .. } | Expired::Whole => {
            let stalls = peer.acted.is_some_and(|(_, act)| act == Act::StallReading);
            (!is_reset && !stalls).then(|| Err(format!("it was late and has no answer: {late:?}")))
        }
        Expired::Left => None,
    }
}
