//! The invariants at the end for HTTP/1 connections.

use super::Checker;
use super::late::{check_late_answer, check_late_time, excuse_late};
use crate::app::{CallEnd, Record};
use crate::clock::{EARLY, LINGER, Micros, SLACK, micros};
use crate::frames::Simulated;
use crate::net::{History, Medium};
use crate::peer::{Answer, Ending, Peer};
use crate::plan::{Act, Garbage};
use crate::response::pattern;
use engine::Expired;
use std::time::Duration;

impl<P: Simulated> Checker<'_, P> {
    pub(super) fn check_peer(&self, peer: &Peer, is_free: bool) {
        let fail = |what: String| self.world.shared.fail(|| format!("peer {}: {what}", peer.index));
        let Some(connection) = peer.connection else { return fail("it never connected".to_owned()) };
        let history = self.world.network.borrow().history(connection);
        for (index, answer) in peer.answers.iter().enumerate() {
            let id = peer.plan.requests[index];
            if let Err(what) = self.check_answer(connection, id, answer) {
                return fail(format!(
                    "{what}; the answer to {id} is {} with {} bytes, {:?}; {:?}",
                    answer.status,
                    answer.body.len(),
                    answer.keep_alive,
                    self.world.records().requests[id]
                ));
            }
            // After a short send, the rest is sent only when a thread polls, so the time is not checked then.
            if let Some(late) = self.world.records().requests[id].late
                && self.world.plan.conditions.short_sends == 0
                && let Err(what) = check_late_time(peer, index, late)
            {
                return fail(what);
            }
        }
        for &id in &peer.plan.requests {
            let waits = self.world.plan.requests[id].waits_for_continue == Some(Micros::MAX)
                && self.world.plan.config.buffer_bodies;
            let is_late = self.world.records().requests[id].dismissed.is_some_and(|(_, status)| status == Some(408));
            let is_there = peer.acted.is_none() && matches!(peer.ending, Some(Ending::End | Ending::Left));
            if waits && is_late && is_there && !peer.told_to_continue.contains(&id) {
                return fail(format!("request {id} is refused although the server should have sent 100 Continue"));
            }
        }
        let missing = peer.answers.len();
        let goes_on = peer.answers.last().is_none_or(|last| last.keep_alive);
        if !goes_on {
            let begun =
                peer.plan.requests[missing..].iter().find(|&&id| self.world.records().requests[id].begun.is_some());
            if let Some(id) = begun {
                return fail(format!("request {id} begins after the last answer"));
            }
        }
        let Some(&id) = peer.plan.requests.get(missing).filter(|_| goes_on) else {
            return self.check_idle(peer, &history);
        };
        if let Err(what) = self.excuse(peer, missing, &history, is_free) {
            let record = &self.world.records().requests[id];
            return fail(format!("request {id} has no answer: {what}; {:?}, {record:?}, {history:?}", peer.ending));
        }
        self.check_idle(peer, &history);
    }

    /// Checks that the answer is the correct one.
    fn check_answer(&self, connection: usize, id: usize, answer: &Answer) -> Result<(), String> {
        let (request, record) = (&self.world.plan.requests[id], &self.world.records().requests[id]);
        let script = &request.script;
        let wrong = |what: &str| Err(what.to_owned());
        if answer.id.is_some_and(|other| other != id) {
            return wrong("it answers another request");
        }
        let is_refusal = answer.id.is_none();
        if is_refusal && answer.keep_alive {
            return wrong("the connection is kept alive after a refusal");
        }
        let by_engine = match (record.called, record.dismissed) {
            (Some(_), _) => None,
            (None, Some((_, Some(status)))) => Some(status),
            (None, Some((_, None))) => return wrong("the engine had dropped it"),
            (None, None) => match self.world.records().connections[connection].refused {
                Some((_, status)) => Some(status),
                None if answer.status == 503 && self.world.rules.source().has_refused_waiting(0, answer.at) => {
                    Some(503)
                }
                None => return wrong("neither engine nor application sent it"),
            },
        };
        if let Some(status) = by_engine {
            if answer.status != status {
                return wrong("the engine refused with another status");
            }
            if answer.has_retry_after != (status == 503) {
                return wrong("only 503 may have Retry-After");
            }
            return self.check_refusal(connection, id, status);
        }
        if let Some(late) = record.late {
            return check_late_answer(self.world, id, late, answer);
        }
        let shown = |length: usize| if request.is_bodiless() { Vec::new() } else { pattern(id, 0, length) };
        let length = script.length();
        match record.ended.map(|(_, how)| how) {
            Some(CallEnd::Refused(status)) if is_refusal && answer.status == status => Ok(()),
            Some(CallEnd::Refused(_)) => wrong("it is not the error page of the application"),
            Some(CallEnd::Panicked) => wrong("it is answered although the application panicked at its head"),
            _ if is_refusal => wrong("the engine refused a request that was called"),
            _ if answer.status != script.status => wrong("its status is wrong"),
            Some(CallEnd::Whole) if answer.body == shown(length) => self.check_keep_alive(id, answer),
            Some(CallEnd::Whole) => wrong("its body is wrong"),
            // A response that is cut after its last byte is complete for the peer.
            Some(CallEnd::Cut | CallEnd::Abandoned) | None if request.is_bodiless() => Ok(()),
            Some(CallEnd::Cut | CallEnd::Abandoned) | None
                if script.declared == Some(answer.body.len() as u64) && answer.body == shown(answer.body.len()) =>
            {
                Ok(())
            }
            Some(CallEnd::Cut | CallEnd::Abandoned) | None => wrong("it was cut, and the cut is not visible"),
        }
    }

    /// Checks that the connection is kept alive unless there is a reason to close it.
    fn check_keep_alive(&self, id: usize, answer: &Answer) -> Result<(), String> {
        let request = &self.world.plan.requests[id];
        let is_draining = self
            .world
            .draining_since
            .is_some_and(|since| self.world.records().requests[id].called.is_some_and(|at| at > since));
        let is_last = request.asks_to_close || request.script.closes || request.is_until_close();
        let may_end = is_last || self.world.draining_since.is_some() || !self.world.plan.config.buffer_bodies;
        match answer.keep_alive {
            true if is_last || is_draining => Err("the connection is kept alive".to_owned()),
            false if !may_end => Err("the connection is closed".to_owned()),
            _ => Ok(()),
        }
    }

    /// Checks that the engine had a reason for the refusal.
    fn check_refusal(&self, connection: usize, id: usize, status: u16) -> Result<(), String> {
        let (request, record) = (&self.world.plan.requests[id], &self.world.records().requests[id]);
        let config = &self.world.plan.config;
        let history = self.world.network.borrow().history(connection);
        let has_ended = |at: Micros| history.left_at.is_some_and(|left| left <= at);
        let limit = |time: Option<Duration>| time.map_or(Micros::MAX, micros);
        let at = record
            .dismissed
            .map(|(at, _)| at)
            .or(self.world.records().connections[connection].refused.map(|(at, _)| at));
        let at = at.unwrap_or_default() + EARLY;
        let accepted = history.accepted.unwrap_or_default();
        let is_right = match (status, request.garbage) {
            (505, Some(Garbage::Head(505))) | (400, Some(_)) => true,
            (400, None) => has_ended(at),
            (408, _) => {
                let graced = self.world.stopped.map_or(Micros::MAX, |(stopped, _)| stopped + self.grace());
                let is_slow_head = at >= accepted.saturating_add(limit(config.header_timeout)).min(graced);
                record.begun.map_or(is_slow_head, |begun| {
                    self.is_stalled(id, begun, record.last_arrival, record.last_arrival.max(begun), at)
                })
            }
            (503, _) => {
                // The engine may have paused reading, so the time counts from the end of the request before, or from accept.
                let before = id.checked_sub(1).map(|before| &self.world.records().requests[before]);
                let before =
                    before.filter(|before| before.connection == Some(connection)).and_then(|before| before.ended);
                let since = before.map_or(accepted, |(ended, _)| ended);
                at >= since.saturating_add(limit(config.queue_timeout))
                    || has_ended(at)
                    || self.world.rules.source().has_refused_waiting(since, Micros::MAX)
            }
            _ => false,
        };
        if is_right { Ok(()) } else { Err(format!("there was no reason for {status}")) }
    }

    /// Returns the minimum time for which an idle connection may still send a request after an order to stop.
    pub(crate) fn grace(&self) -> Micros {
        self.world.plan.stops.iter().map(|stop| micros(stop.grace)).min().unwrap_or(Micros::MAX)
    }

    /// Returns true if the engine may refuse a body at `at` as too slow. The body's last bytes arrived at
    /// `last_arrival`, and the engine has waited for the body since `since`.
    pub(crate) fn is_stalled(&self, id: usize, begun: Micros, last_arrival: Micros, since: Micros, at: Micros) -> bool {
        let config = &self.world.plan.config;
        let limit = config.body_timeout.map_or(Micros::MAX, micros);
        let stalls_at = last_arrival.max(begun).saturating_add(limit);
        // A body that arrives continuously but too slowly is refused at this time or later. The same is true of a body
        // of which only chunk sizes arrived, which are no part of the body. On a multiplexed connection, the last bytes
        // may belong to another exchange.
        let may_be_nothing = P::MULTIPLEXED || config.min_rate > 0 || self.world.plan.requests[id].is_chunked;
        let earliest = if may_be_nothing { begun.saturating_add(limit) } else { stalls_at };
        let latest = since.max(last_arrival).saturating_add(limit).saturating_add(SLACK);
        at + EARLY >= earliest && (self.world.plan.most_calls == 1 || at <= latest + EARLY)
    }

    /// Checks that there is a reason why a request has no complete answer: first the reasons of the connection, whose
    /// order matters, then those of the request.
    fn excuse(&self, peer: &Peer, index: usize, history: &History, is_free: bool) -> Result<(), String> {
        let id = peer.plan.requests[index];
        let record = &self.world.records().requests[id];
        let place = peer.places[index];
        let config = &self.world.plan.config;
        let limit = |time: Option<Duration>| time.map_or(Micros::MAX, micros);
        // The peer has left, or does not read.
        let is_away = peer.ending == Some(Ending::Left) || peer.acted.is_some_and(|(_, act)| act == Act::StallReading);
        if is_away || history.was_refused {
            return Ok(());
        }
        // With a full queue the engine reads no handshake either, and without a handshake it cannot send the refusal.
        let is_refused =
            peer.connection.is_some_and(|number| self.world.records().connections[number].refused.is_some());
        if self.world.plan.is_encrypted && is_refused && history.taken == 0 {
            return Ok(());
        }
        let is_answered = record.late.is_some_and(|late| matches!(late.outcome, Expired::Answered { .. }));
        let hangs = (record.hangs || !is_free) && !is_answered;
        let Some(ending) = peer.ending else {
            return if hangs { Ok(()) } else { Err("it waits forever".to_owned()) };
        };
        let shows = ending == Ending::Reset || peer.is_broken || !peer.has_part();
        if !shows {
            return Err("the cut is not visible".to_owned());
        }
        // An empty line before a request line is not a request yet.
        let blank = if self.world.plan.requests[id].bytes.starts_with(b"\r\n") { 2 } else { 0 };
        if peer.sent <= place.start + blank || hangs {
            return Ok(());
        }
        if let (Some(late), None) = (record.late, history.dropped) {
            // The socket remains open while the call runs.
            return excuse_late(peer, late).unwrap_or(Ok(()));
        }
        let Some((dropped, _)) = history.dropped else { return Err("the server still has it open".to_owned()) };
        let late = dropped + EARLY;
        let is_stopping = self.world.stopped.is_some_and(|(at, _)| at <= dropped);
        if self.world.stopped.is_some_and(|(_, until)| until <= late) {
            return Ok(());
        }
        let has_stalled =
            history.full_since.is_some_and(|since| since.saturating_add(limit(config.write_timeout)) <= late);
        // A peer that reads continuously but too slowly is cut at this time or later.
        let by_rate = record.called.filter(|_| config.min_rate > 0);
        let is_too_slow = by_rate.is_some_and(|at| at.saturating_add(limit(config.write_timeout)) <= late);
        if has_stalled || is_too_slow {
            return Ok(());
        }
        if ending == Ending::Reset && self.is_destroyed(peer, record, history, dropped, is_stopping) {
            return Ok(());
        }
        // A reset that makes a cut visible destroys earlier answers that have not been read.
        let breaks = |&id: &usize| {
            let Record { ended, late, .. } = self.world.records().requests[id];
            let was_cut = ended.is_some_and(|(_, how)| how == CallEnd::Cut)
                || late.is_some_and(|late| matches!(late.outcome, Expired::Cut { .. }));
            let panicked = ended.is_some_and(|(_, how)| how == CallEnd::Panicked);
            panicked || self.has_missing_file(id) || (was_cut && self.world.plan.requests[id].is_until_close())
        };
        // A Unix socket has no resets: the client sees that a part is missing.
        let may_be_reset = ending == Ending::Reset || self.world.plan.medium == Medium::Unix;
        if may_be_reset && peer.plan.requests[index..].iter().any(breaks) {
            return Ok(());
        }
        // A response without a body may be cut after its head.
        let before = index.checked_sub(1).map(|before| &self.world.records().requests[peer.plan.requests[before]]);
        if before.is_some_and(|before| {
            before.late.is_some()
                || before.ended.is_some_and(|(_, how)| matches!(how, CallEnd::Cut | CallEnd::Abandoned))
        }) {
            return Ok(());
        }
        if let Some(late) = record.late
            && let Some(excuse) = excuse_late(peer, late)
        {
            return excuse;
        }
        self.judge_request(index, record, history, place.start, dropped)
    }

    /// Returns true if a reset may have destroyed the answer to a request before its peer read it.
    fn is_destroyed(
        &self,
        peer: &Peer,
        record: &Record,
        history: &History,
        dropped: Micros,
        is_stopping: bool,
    ) -> bool {
        let late = dropped + EARLY;
        // The rest of the answer was destroyed because the peer continued to send for longer than the server lingers.
        let answered =
            record.late.map(|late| late.at).or(record.ended.map(|(at, _)| at)).or(record.dismissed.map(|(at, _)| at));
        let answered = answered
            .or(self.world.records().connections[peer.connection.unwrap_or_default()].refused.map(|(at, _)| at));
        if answered.is_some_and(|at| at + LINGER <= late) {
            return true;
        }
        let refused = self.world.deadlines().refused_at.first().is_some_and(|&at| at + LINGER <= late);
        if record.called.is_none() && refused {
            return true;
        }
        // The peer has not read the answer, and then sends a request on a connection that was idle for too long.
        let keep_alive = self.world.plan.config.keep_alive.map_or(Micros::MAX, micros);
        let idle = keep_alive.min(if is_stopping { self.grace() } else { Micros::MAX });
        let was_idle = history.last_send.saturating_add(idle) <= late && history.last_arrival > dropped;
        answered.is_some() && was_idle
    }

    /// Checks that the request itself is a reason for the missing answer. `start` is the offset of its first byte.
    fn judge_request(
        &self,
        index: usize,
        record: &Record,
        history: &History,
        start: usize,
        dropped: Micros,
    ) -> Result<(), String> {
        let config = &self.world.plan.config;
        let limit = |time: Option<Duration>| time.map_or(Micros::MAX, micros);
        let late = dropped + EARLY;
        let is_stopping = self.world.stopped.is_some_and(|(at, _)| at <= dropped);
        match (record.begun, record.ended.map(|(_, how)| how), record.dismissed) {
            // The application cut the response, or panicked when no error page could be sent any more.
            (_, Some(CallEnd::Cut | CallEnd::Panicked), _) => Ok(()),
            (_, Some(how), _) => Err(format!("its call ended: {how:?}")),
            (Some(_), None, Some((_, status))) => Err(format!("it was dropped: {status:?}")),
            (Some(_), None, None) => Err("it was neither called nor refused".to_owned()),
            // The request arrived when the idle connection had been closed, or was about to be.
            (None, None, _) if history.taken <= start as u64 => {
                let since = if index == 0 { history.accepted.unwrap_or_default() } else { history.last_send };
                let idle = limit(if index == 0 { config.header_timeout } else { config.keep_alive });
                let was_there =
                    history.unread_since.is_some_and(|at| at + SLACK < dropped && at < since.saturating_add(idle));
                if was_there && !is_stopping {
                    return Err("it arrived in time and was not read".to_owned());
                }
                let is_idle =
                    since.saturating_add(idle) <= late || since.saturating_add(idle).saturating_add(LINGER) <= late;
                if is_stopping || is_idle { Ok(()) } else { Err("it was not read".to_owned()) }
            }
            (None, None, _) => Err("it never began".to_owned()),
        }
    }

    pub(crate) fn has_missing_file(&self, id: usize) -> bool {
        let is_missing = |op: &crate::plan::Op| matches!(op, crate::plan::Op::File { missing: 1.., .. });
        self.world.plan.requests[id].script.ops.iter().any(is_missing)
    }

    /// Checks that an idle connection was closed at its time limit, neither early nor much later.
    fn check_idle(&self, peer: &Peer, history: &History) {
        let Some((dropped, _)) = history.dropped else { return };
        let has_answers_only = peer.answers.last().is_some_and(|last| last.keep_alive)
            && history.taken == peer.places[peer.answers.len() - 1].end as u64;
        let (Some(limit), true, None) =
            (self.world.plan.config.keep_alive.map(micros), has_answers_only, self.world.stopped)
        else {
            return;
        };
        let left = history.left_at.is_some_and(|at| at <= dropped);
        if left || history.was_refused || history.full_since.is_some() {
            return;
        }
        // The end of a response without a body causes no send.
        let last = &self.world.records().requests[peer.plan.requests[peer.answers.len() - 1]];
        let (Some((last, CallEnd::Whole)), None) = (last.ended, last.late) else { return };
        let last = last.max(history.last_send);
        if dropped + EARLY < last.saturating_add(limit) {
            self.world.shared.fail(|| format!("peer {} was idle and was closed too early; {history:?}", peer.index));
        }
        let is_prompt = self.world.plan.most_calls > 1 && peer.plan.reads.pause == 0;
        let latest = last.max(history.last_arrival) + 2 * peer.plan.latency + limit + SLACK;
        if is_prompt && dropped > latest && !peer.acted.is_some_and(|(_, act)| act == Act::StallReading) {
            self.world.shared.fail(|| format!("peer {} was idle and was closed too late; {history:?}", peer.index));
        }
    }
}
