//! The invariants at the end for the exchanges of a multiplexed connection. Each exchange has at most one response (see
//! [`crate::exchanges`]), which is complete, or its client sees that it is not, and there is a reason. What happens to
//! one exchange is no reason for another.

use super::Checker;
use crate::app::{CallEnd, Record};
use crate::clock::{EARLY, LINGER, MILLI, Micros, micros};
use crate::exchanges::{End, Exchange, Exchanges, Response, is_garbage, plan_of};
use crate::frames::Simulated;
use crate::net::History;
use crate::peer::{Ending, Peer};
use crate::plan::Act;
use engine::Expired;
use std::time::Duration;

impl<P: Simulated> Checker<'_, P> {
    pub(super) fn check_exchanges(&self, peer: &Peer, is_free: bool) {
        let fail = |what: String| self.world.shared.fail(|| format!("peer {}: {what}", peer.index));
        let (Some(connection), Some(exchanges)) = (peer.connection, &peer.exchanges) else {
            return fail("it never connected".to_owned());
        };
        let history = self.world.network.borrow().history(connection);
        if let Some(at) = exchanges.goes_away_at
            && self.world.draining_since.is_none_or(|since| since > at)
            && !self.may_be_idle(peer, at, &history)
        {
            fail("the end is announced; the server does not drain, and the connection was not idle".to_owned());
        }
        for exchange in &exchanges.all {
            let record = &self.world.records().requests[exchange.id];
            let Some((begun, _)) = exchange.begun else {
                if record.begun.is_some() {
                    fail(format!("request {} was never sent and begins", exchange.id));
                }
                continue;
            };
            if !exchange.has_page()
                && self.had_to_announce_end(exchanges, begun)
                && exchange
                    .end
                    .is_some_and(|(end, how)| how == End::Whole && exchanges.goes_away_at.is_none_or(|at| at > end))
            {
                return fail(format!("request {} is answered, and the drain was not announced before", exchange.id));
            }
            let judged = match (exchange.end, &exchange.response) {
                (Some((_, End::Whole)), Some(response)) => self.check_whole(peer, exchange, response, &history),
                (Some((_, End::Whole)), None) => Err("an end without a response".to_owned()),
                (Some((at, End::Refused)), _) => self.check_refused(peer, exchange, begun, at),
                (Some((at, End::Cut)), _) => self.check_cut(peer, exchange, at, &history),
                (None, _) if exchange.reset.is_some() => Ok(()),
                (None, _) => self.excuse_missing(peer, exchange, &history, is_free),
            };
            if let Err(what) = judged {
                return fail(format!("{what}: {exchange:?}, {record:?}, {history:?}, {:?}", peer.ending));
            }
        }
    }

    /// Returns true if the server, when it reads bytes that a client sent at `sent`, knows that it drains and that the
    /// connection is not a new one.
    fn had_to_announce_end(&self, exchanges: &Exchanges, sent: Micros) -> bool {
        let mut before = exchanges.all.iter().filter(|exchange| exchange.end.is_some_and(|(end, _)| end < sent));
        let had_request = before.any(|exchange| self.world.records().requests[exchange.id].begun.is_some());
        had_request && self.world.draining_since.is_some_and(|since| since < sent)
    }

    /// Returns true if the connection may have exceeded its idle limit at `at`, the time when the server announced the
    /// end of the connection to the client. That is then an allowed reason for the announcement.
    fn may_be_idle(&self, peer: &Peer, at: Micros, history: &History) -> bool {
        let (Some(limit), Some(exchanges)) = (self.world.plan.config.keep_alive.map(micros), &peer.exchanges) else {
            return false;
        };
        // Only a client that reads promptly has read the response without delay.
        let is_prompt = peer.plan.reads.pause == 0 && peer.plan.packet == usize::MAX && peer.plan.capacity >= 8000;
        let ends = exchanges.all.iter().filter_map(|exchange| exchange.end.map(|(end, _)| end));
        let last = ends.filter(|&end| is_prompt && end < at).max().unwrap_or_default();
        let busy_until = last.saturating_sub(peer.plan.latency).max(history.accepted.unwrap_or_default());
        // An HTTP/2 connection may wait for its first request as long as for a head. Refused requests do not count.
        let had_request =
            exchanges.all.iter().any(|exchange| self.world.records().requests[exchange.id].begun.is_some());
        let head = self.world.plan.config.header_timeout.map_or(Micros::MAX, micros);
        let is_unused = self.world.plan.is_http2 && !had_request;
        let accepted = history.accepted.unwrap_or_default();
        busy_until.saturating_add(limit) <= at + EARLY || is_unused && accepted.saturating_add(head) <= at + EARLY
    }

    /// Checks a complete response.
    fn check_whole(
        &self,
        peer: &Peer,
        exchange: &Exchange,
        response: &Response,
        history: &History,
    ) -> Result<(), String> {
        let id = exchange.id;
        let (request, record) = (&self.world.plan.requests[id], &self.world.records().requests[id]);
        let wrong = |what: &str| Err(what.to_owned());
        let Response { status, body, id: answered } = *response;
        if answered.is_none() {
            return self.check_page(peer, exchange, status, body, history);
        }
        if status != request.script.status {
            return wrong("its status is wrong");
        }
        // The bytes of the body were compared when they arrived.
        let length = if request.is_bodiless() { 0 } else { request.script.length() };
        // With HTTP/2 the end follows the last declared byte, whatever the call does afterwards.
        let is_declared = request.is_bodiless() || request.script.declared == Some(body as u64);
        if self.world.plan.is_http2 && is_declared {
            return Ok(());
        }
        match (record.late.map(|late| late.outcome), record.ended.map(|(_, how)| how)) {
            (None | Some(Expired::Whole), _) if body != length => wrong("its body has a wrong length"),
            (Some(Expired::Whole), _) | (None, Some(CallEnd::Whole)) => Ok(()),
            (Some(_), _) => wrong("its call was late, and its response is whole"),
            (None, _) => wrong("it was cut, and the cut is not visible"),
        }
    }

    /// Checks a page of the server itself.
    fn check_page(
        &self,
        peer: &Peer,
        exchange: &Exchange,
        status: u16,
        body: usize,
        history: &History,
    ) -> Result<(), String> {
        let id = exchange.id;
        let (request, record) = (&self.world.plan.requests[id], &self.world.records().requests[id]);
        let wrong = |what: &str| Err(what.to_owned());
        if let Some(late) = record.late {
            let Expired::Answered { body_bytes } = late.outcome else { return wrong("a page after its deadline") };
            let length = if request.is_head { 0 } else { body_bytes };
            let is_right = status == 504 && body as u64 == length;
            return if is_right { Ok(()) } else { wrong("it is not the page of its deadline") };
        }
        // A client that reads slowly learns late that it may send.
        let is_reader = peer.plan.reads.pause == 0;
        let is_starved = exchange.is_starved() && !peer.has_unsent();
        if status == 408 && is_reader && is_starved && !plan_of(&self.world.plan, id).overruns {
            return wrong("its client is called slow, which the server did not let send");
        }
        match (record.ended.map(|(_, how)| how), record.dismissed) {
            (Some(CallEnd::Refused(refused)), _) if refused == status => Ok(()),
            (None, Some((at, Some(refused)))) if refused == status => {
                let config = &self.world.plan.config;
                let limit = |time: Option<Duration>| time.map_or(Micros::MAX, micros);
                let (begun, at) = (record.begun.unwrap_or_default(), at + EARLY);
                let is_right = match status {
                    408 => request.body > 0 && at >= begun.saturating_add(limit(config.body_timeout)),
                    413 => plan_of(&self.world.plan, id).overruns,
                    503 => {
                        // The request may have waited in the kernel before.
                        let sent = exchange.begun.map_or(begun, |(at, _)| at);
                        at >= sent.saturating_add(limit(config.queue_timeout))
                            || history.left_at.is_some_and(|left| left <= at)
                            || self.world.rules.source().has_refused_waiting(begun, Micros::MAX)
                    }
                    _ => false,
                };
                if is_right { Ok(()) } else { Err(format!("there was no reason for {status}")) }
            }
            // The bytes never became a request.
            (None, None) if status == 400 && is_garbage(&self.world.plan, id) && record.begun.is_none() => Ok(()),
            // The engine would report such requests to the application at the next poll, but there may be no further
            // poll.
            (None, None) if status == 503 && self.world.rules.source().has_refused_waiting(0, Micros::MAX) => Ok(()),
            _ => wrong("neither engine nor application sent this page"),
        }
    }

    /// Checks that there was no room for an exchange that was refused, and that the application did not get its
    /// request.
    fn check_refused(&self, peer: &Peer, exchange: &Exchange, begun: Micros, at: Micros) -> Result<(), String> {
        let config = &self.world.plan.config;
        if self.world.records().requests[exchange.id].begun.is_some() {
            return Err("it was refused as not begun, and it was".to_owned());
        }
        let is_draining = self.world.draining_since.is_some_and(|since| since <= at);
        let may_be_busy = config.queue < self.world.plan.requests.len();
        // With HTTP/2 a response may be complete while its call still runs. The call then still counts.
        let counts = |other: &&Exchange| {
            let record = &self.world.records().requests[other.id];
            let runs =
                record.begun.is_some_and(|began| began <= at) && record.ended.is_none_or(|(ended, _)| ended >= begun);
            runs || other.begun.is_some_and(|(sent, _)| sent <= at) && other.end.is_none_or(|(end, _)| end >= begun)
        };
        let all = peer.exchanges.iter().flat_map(|exchanges| &exchanges.all);
        let others = all.filter(|other| other.id != exchange.id && self.world.plan.is_http2);
        let busy = others.filter(counts).count();
        let is_scolded = peer.exchanges.as_ref().is_some_and(|exchanges| exchanges.is_scolded);
        // A request that was on its way when the server announced the end is refused, too.
        let was_told = peer.exchanges.as_ref().and_then(|exchanges| exchanges.goes_away_at) == Some(at);
        if exchange.beside.max(busy) >= config.exchanges || is_draining || may_be_busy || was_told || is_scolded {
            Ok(())
        } else {
            Err(format!("it was refused at {at}, and was one of {} since {begun}", exchange.beside + 1))
        }
    }

    /// Checks that there is a reason why a response was cut.
    fn check_cut(&self, peer: &Peer, exchange: &Exchange, at: Micros, history: &History) -> Result<(), String> {
        let record = &self.world.records().requests[exchange.id];
        if is_garbage(&self.world.plan, exchange.id) {
            return if record.begun.is_none() {
                Ok(())
            } else {
                Err("its head is malformed, and it begins".to_owned())
            };
        }
        let was_cut = record.ended.is_some_and(|(_, how)| how == CallEnd::Cut)
            || record.late.is_some_and(|late| matches!(late.outcome, Expired::Cut { .. }))
            || self.has_missing_file(exchange.id)
            || self.has_panicked(peer);
        let is_scolded = peer.exchanges.as_ref().is_some_and(|exchanges| exchanges.is_scolded);
        if was_cut || is_scolded || self.is_slow(peer, exchange, record, at, history) {
            Ok(())
        } else {
            Err("it was cut without a reason".to_owned())
        }
    }

    /// Returns true if the client reads so slowly that the server need not wait.
    fn is_slow(&self, peer: &Peer, exchange: &Exchange, record: &Record, at: Micros, history: &History) -> bool {
        let Some(limit) = self.world.plan.config.write_timeout.map(micros) else { return false };
        let begun_at = |exchange: &Exchange, record: &Record| {
            record.called.or(record.dismissed.map(|(at, _)| at)).or(exchange.begun.map(|(at, _)| at))
        };
        let mut begun = begun_at(exchange, record);
        if self.world.plan.is_http2 {
            // All responses that wait for the window of the connection become late at the same time.
            let all = peer.exchanges.iter().flat_map(|exchanges| &exchanges.all);
            let together = all.filter(|other| other.end == Some((at, End::Cut)));
            let firsts = together.filter_map(|other| begun_at(other, &self.world.records().requests[other.id]));
            begun = begun.into_iter().chain(firsts).min();
        }
        if begun.is_none_or(|begun| at + EARLY < begun.saturating_add(limit)) {
            return false;
        }
        // Bytes that the client sends before a credit may delay that credit.
        let is_prompt = Exchange::is_prompt(&plan_of(&self.world.plan, exchange.id))
            && peer.plan.reads.pause < 50 * MILLI
            && peer.plan.sends.pause < 50 * MILLI
            && peer.plan.capacity >= 8000
            && !(self.world.plan.is_http2 && self.delays_credits(peer, limit));
        !is_prompt || peer.acted.is_some() || history.full_since.is_some() || self.world.plan.config.min_rate > 0
    }

    /// Returns true if a client's requests may delay a credit after them by more than `limit`.
    fn delays_credits(&self, peer: &Peer, limit: Micros) -> bool {
        let size = |&id: &usize| {
            let request = &self.world.plan.requests[id];
            request.bytes.len() + request.body
        };
        let bytes: usize = peer.plan.requests.iter().map(size).sum();
        let round_trips = (bytes / peer.plan.capacity) as Micros;
        round_trips * 2 * peer.plan.latency > limit
    }

    /// Returns true if a method of the application panicked when the engine called it, which ends the whole connection.
    fn has_panicked(&self, peer: &Peer) -> bool {
        let panicked =
            |&id: &usize| self.world.records().requests[id].ended.is_some_and(|(_, how)| how == CallEnd::Panicked);
        peer.plan.requests.iter().any(panicked)
    }

    /// Returns true if the server has refused bytes of the peer's connection that never became a request.
    fn was_refused(&self, peer: &Peer) -> bool {
        self.world.records().connections[peer.connection.unwrap_or_default()].refused.is_some()
    }

    /// Returns true if an HTTP/2 connection ended before a request was answered: the server takes many resets and small
    /// windows for an attack, and while no thread polls the engine, it refuses requests that it has not begun.
    fn has_refused_connection(&self, peer: &Peer, record: &Record) -> bool {
        self.was_refused(peer)
            || record.begun.is_none() && self.world.rules.source().has_refused_waiting(0, Micros::MAX)
    }

    /// Checks that there is a reason why an exchange has not ended.
    fn excuse_missing(&self, peer: &Peer, exchange: &Exchange, history: &History, is_free: bool) -> Result<(), String> {
        let record = &self.world.records().requests[exchange.id];
        let config = &self.world.plan.config;
        let limit = |time: Option<Duration>| time.map_or(Micros::MAX, micros);
        if self.world.plan.is_http2 && self.has_refused_connection(peer, record) {
            return Ok(());
        }
        let is_away = peer.ending == Some(Ending::Left)
            || peer.acted.is_some_and(|(_, act)| matches!(act, Act::StallReading | Act::HalfClose));
        if is_away || history.was_refused {
            return Ok(());
        }
        if self.has_panicked(peer) {
            return Ok(());
        }
        let is_answered = record.late.is_some_and(|late| matches!(late.outcome, Expired::Answered { .. }));
        let hangs = (record.hangs || !is_free) && !is_answered;
        let Some(ending) = peer.ending else {
            return if hangs { Ok(()) } else { Err("it waits forever".to_owned()) };
        };
        let Some((dropped, _)) = history.dropped else {
            return if hangs { Ok(()) } else { Err("the server still has the connection open".to_owned()) };
        };
        let late = dropped + EARLY;
        if hangs || self.world.stopped.is_some_and(|(_, until)| until <= late) {
            return Ok(());
        }
        let accepted = history.accepted.unwrap_or_default();
        let has_stalled =
            history.full_since.is_some_and(|since| since.saturating_add(limit(config.write_timeout)) <= late);
        let by_rate = config.min_rate > 0 && accepted.saturating_add(limit(config.write_timeout)) <= late;
        // The client reads nothing, or too slowly, on the whole connection. Or only a part of a frame has arrived, for
        // too long.
        let is_slow_path = peer.plan.capacity <= 8000 * (1 + usize::from(peer.plan.latency >= 100 * MILLI) * 4);
        let is_slow_sender = peer.plan.sends.pause > 0 || is_slow_path || peer.acted.is_some();
        let is_partial = is_slow_sender && accepted.saturating_add(limit(config.header_timeout)) <= late;
        if has_stalled || by_rate || is_partial {
            return Ok(());
        }
        // After the order to stop, the connection has less time.
        if is_slow_sender && self.world.stopped.is_some_and(|(stopped, _)| stopped + self.grace() <= late) {
            return Ok(());
        }
        // The client has not read the response, and then sends on a connection that was idle for too long.
        let is_stopping = self.world.stopped.is_some_and(|(at, _)| at <= dropped);
        let idle = limit(config.keep_alive).min(if is_stopping { self.grace() } else { Micros::MAX });
        let is_idle = history.last_send.saturating_add(idle) <= late;
        // The server's last message was that nothing further may begin: an idle connection ends some time after that.
        let is_announced = history.earlier_send.saturating_add(idle) <= history.last_send + EARLY
            && history.last_send + LINGER <= late;
        let was_idle = (is_idle || is_announced) && history.last_arrival > dropped;
        // If the request never began, the server has answered it nevertheless (503 while no thread polls the engine),
        // told its client that it refuses it, or that no further request may begin.
        let was_refused = is_announced || exchange.response.is_some() || self.was_refused(peer);
        let is_over = record.ended.is_some() || record.dismissed.is_some() || (record.begun.is_none() && was_refused);
        if ending == Ending::Reset && is_over && was_idle {
            return Ok(());
        }
        // The client continued to send to a closing server, which destroyed the server's last bytes.
        let is_closing = self.world.draining_since.is_some_and(|since| since + LINGER <= late);
        if ending == Ending::Reset && is_closing {
            return Ok(());
        }
        // The server told the client that nothing further may begin: the client may repeat the request on another
        // connection.
        let was_told = is_announced || peer.exchanges.as_ref().is_some_and(|all| all.goes_away_at.is_some());
        if record.begun.is_none() && was_told {
            return Ok(());
        }
        let Some((_, head)) = exchange.begun else { return Ok(()) };
        // The request arrived when the connection had been closed, or was about to be.
        let is_ending = self.world.draining_since.is_some_and(|since| since <= late);
        if record.begun.is_none() && (is_ending || history.taken < head as u64) {
            let since = history.last_send.max(accepted);
            let idle = limit(config.keep_alive).min(limit(config.header_timeout));
            let is_idle = since.saturating_add(idle) <= late;
            return if is_idle || is_ending { Ok(()) } else { Err("it was not read".to_owned()) };
        }
        Err("it was lost".to_owned())
    }
}
