//! The invariants at the end of a world with an event loop.

use crate::app::CallEnd;
use crate::clock::{EARLY, Micros, micros};
use crate::frames::Simulated;
use crate::net::History;
use crate::peer::{Ending, Peer};
use crate::plan::tasks::{ClientOp, Handling, Outside, TaskOp};
use crate::response::pattern;
use crate::websocket::WebSocketClient;
use crate::world::World;

/// The checker of a world with an event loop.
pub(crate) struct LoopChecker<'a, P: Simulated> {
    pub(crate) world: &'a World<P>,
}

impl<P: Simulated> LoopChecker<'_, P> {
    pub(crate) fn check_end(&mut self) {
        let core = self.world.rules.source();
        let describe = || self.world.describe();
        if !core.engine.is_stopped() || core.engine.connections() > 0 {
            return self.world.shared.fail(|| format!("the engine does not come to its end: {}", describe()));
        }
        for (id, call) in self.world.event_loop.calls.iter().enumerate() {
            let record = &core.records.requests[id];
            if let Some(call) = call.as_ref().filter(|call| !call.is_over) {
                return self.world.shared.fail(|| format!("call {id} never ends: {call:?}"));
            }
            if record.begun.is_some() && record.called.is_none() && record.dismissed.is_none() {
                return self.world.shared.fail(|| format!("call {id} is lost"));
            }
        }
        let statistics = core.engine.statistics();
        if (statistics.running, statistics.suspended, statistics.connections, statistics.websockets) != (0, 0, 0, 0) {
            return self.world.shared.fail(|| format!("the counters do not add up: {}", describe()));
        }
        for (index, client) in self.world.connections.iter().enumerate() {
            let Some(number) = client.connection else { continue };
            let history = self.world.network.borrow().history(number);
            if let Err(what) = self.check_client(client, &history) {
                return self.world.shared.fail(|| format!("client {index}: {what}; {history:?}"));
            }
        }
    }

    fn outcome(&self, id: usize) -> Option<CallEnd> {
        self.world.records().requests[id].ended.map(|(_, how)| how)
    }

    fn check_client(&self, client: &Peer, history: &History) -> Result<(), String> {
        // A stop cuts requests that are under way, and accepts no connection that arrives late.
        let is_stopping = history.dropped.is_none_or(|(at, _)| at >= self.world.plan.stops[0].at);
        for (index, answer) in client.answers.iter().enumerate() {
            let id = client.plan.requests[index];
            let is_own = answer.id.is_some();
            if is_own && (answer.id != Some(id) || answer.body != pattern(id, 0, answer.body.len())) {
                return Err(format!("the answer to {id} is not the one that was written"));
            }
            let written = self.world.event_loop.calls[id].as_ref().map_or(0, |call| call.written);
            match self.outcome(id) {
                Some(CallEnd::Whole) if is_own && answer.body.len() == written => {}
                Some(CallEnd::Refused(status)) if answer.status == status => {}
                // Everything that was declared had been sent when the application failed.
                Some(CallEnd::Cut)
                    if is_own && self.world.plan.requests[id].handling.declared() == Some(answer.body.len() as u64) => {
                }
                // The request of this client was never completed.
                None if !is_own && matches!(answer.status, 400 | 408 | 503) && !client.is_honest() => {}
                None if answer.status == 408 && is_stopping => {}
                outcome => {
                    let (status, length) = (answer.status, answer.body.len());
                    return Err(format!("it has {status} and {length} bytes for call {id}, which was {outcome:?}"));
                }
            }
        }
        if !client.is_honest() {
            return Ok(());
        }
        match &client.websocket {
            Some(websocket) if websocket.is_open => self.check_websocket(client, websocket, is_stopping),
            _ => self.check_answers(client, is_stopping, history),
        }
    }

    fn check_answers(&self, client: &Peer, is_stopping: bool, history: &History) -> Result<(), String> {
        let answered = client.answers.len();
        let Some(&id) = client.plan.requests.get(answered) else { return Ok(()) };
        if is_stopping || client.answers.last().is_some_and(|last| !last.keep_alive) {
            return Ok(());
        }
        // The connection ends after a response that was cut, even if everything that it declared was sent; and after a
        // body that the application has not read, because the server does not wait long for the rest of the client's
        // bytes.
        let is_cut = |&id: &usize| self.outcome(id) == Some(CallEnd::Cut);
        let is_unread = |&id: &usize| self.outcome(id).is_some() && !self.is_body_read(id);
        if client.plan.requests[..answered].iter().any(is_cut)
            || client.plan.requests[..=answered].iter().any(is_unread)
        {
            return Ok(());
        }
        // If a slow client sends on a connection that was idle for too long, the server's reset destroys the bytes that
        // the client has not read.
        let idle = self.world.plan.config.keep_alive.map_or(Micros::MAX, micros);
        let dropped = history.dropped.map_or(0, |(at, _)| at + EARLY);
        if history.last_send.saturating_add(idle) <= dropped && history.last_arrival > dropped {
            return Ok(());
        }
        match (self.outcome(id), client.ending) {
            (Some(CallEnd::Cut), Some(Ending::Reset)) => Ok(()),
            (Some(CallEnd::Cut), Some(Ending::End)) if self.is_cut_visible(client, id) => Ok(()),
            (outcome, ending) => Err(format!("it has no answer to call {id}, which was {outcome:?}; {ending:?}")),
        }
    }

    fn is_body_read(&self, id: usize) -> bool {
        self.world.records().requests[id].read == self.world.plan.requests[id].body
    }

    /// Returns true if a client that sees the end of the connection knows that the response is incomplete.
    fn is_cut_visible(&self, client: &Peer, id: usize) -> bool {
        let has_head = self.world.event_loop.calls[id].as_ref().is_some_and(|call| call.has_head);
        !has_head || client.has_part()
    }

    fn check_websocket(&self, client: &Peer, websocket: &WebSocketClient, is_stopping: bool) -> Result<(), String> {
        let id = client.plan.requests[0];
        let Some(call) = &self.world.event_loop.calls[id] else { return Err("it is open without a call".to_owned()) };
        let record = &self.world.records().requests[id];
        if websocket.received > call.messages_sent {
            return Err(format!("it has {} messages of {}", websocket.received, call.messages_sent));
        }
        let made = websocket.ends.len();
        if record.taken > record.arrived || record.arrived > made {
            return Err(format!("{made} messages were sent, {} arrived, {} taken", record.arrived, record.taken));
        }
        if let Some(end) = &call.end {
            let is_right = match end.code {
                // If both sides have closed at the same time, this code cannot be distinguished from others.
                code if end.is_own => self.server_codes(id).contains(&code),
                1006 => is_stopping,
                code => websocket.own_close == Some(code) || self.server_codes(id).contains(&code),
            };
            if !is_right {
                return Err(format!("the application gets {end:?}"));
            }
            let is_clients = !end.is_own && websocket.own_close == Some(end.code);
            if is_clients && !self.server_codes(id).contains(&end.code) && record.taken != made {
                return Err(format!("the application has taken {} messages of {made} before {end:?}", record.taken));
            }
        }
        let Some(code) = websocket.close else {
            return if is_stopping { Ok(()) } else { Err(format!("it has no Close frame; {:?}", client.ending)) };
        };
        if websocket.own_close != Some(code) && !self.server_codes(id).contains(&code) {
            return Err(format!("it is closed with {code}"));
        }
        // The end of a call must close the WebSocket at once, and not leave that to the end of the server.
        let ends_at = self.world.plan.drain.unwrap_or(Micros::MAX).min(self.world.plan.stops[0].at);
        if matches!(code, 1001 | 1012) && websocket.own_close != Some(code) && call.over_at < ends_at {
            return Err(format!("it is closed with {code}, and its call was over before"));
        }
        if websocket.received != call.messages_sent {
            let (got, sent) = (websocket.received, call.messages_sent);
            return Err(format!("it has {got} messages of {sent} before the Close frame {code}"));
        }
        match client.ending {
            // A reset occurs if the server has not read bytes that the client sent after the server's Close frame.
            Some(Ending::End | Ending::Reset) => Ok(()),
            ending => Err(format!("its WebSocket is closed, and the connection is not: {ending:?}")),
        }
    }

    /// Returns the codes with which the server may close the WebSocket of a call.
    fn server_codes(&self, id: usize) -> Vec<u16> {
        // For an application's call that ends without closing, or with an exception.
        let mut codes = vec![1000];
        let plan = &self.world.plan.requests[id];
        let is_cancelled = plan.cancelled.is_some_and(|cancelled| !cancelled.is_swallowed);
        match &plan.handling {
            Handling::Tasks(tasks) => {
                for op in tasks.iter().flatten() {
                    match op {
                        TaskOp::Close(code) => codes.push(*code),
                        TaskOp::Raise => codes.push(1011),
                        _ => {}
                    }
                }
            }
            Handling::Handler { .. } => codes.push(4002),
        }
        // Sending a message raises an exception if that is impossible.
        codes.extend(is_cancelled.then_some(1011));
        for (_, of, act) in &self.world.plan.outside {
            if let (true, Outside::Close(code)) = (*of == id, act) {
                codes.push(*code);
            }
        }
        if self.world.plan.connections[self.world.owners[id]].ops.contains(&ClientOp::Break) {
            codes.push(1002);
        }
        codes.extend(self.world.plan.drain.map(|_| 1012));
        codes.push(1001);
        codes
    }
}
