//! Peers: simulated clients, built on the client role of [`wire`], or on [`crate::exchanges`] if a connection has many
//! exchanges at a time. Each sends requests and reads answers at its own pace. Some leave, stall or vanish on the way.

use crate::clock::{Micros, Shared};
use crate::exchanges::Exchanges;
use crate::net::{Got, Network, Route};
use crate::plan::{Act, PeerPlan, Plan, Trigger};
use crate::websocket::WebSocketClient;
use std::rc::Rc;
use wire::http1::BodyStep;
use wire::http1::client::{Body, Receiver};
use wire::message::{Field, Limits};

/// A complete answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The request that the answer names in a field; `None` for error pages of the server, which lack the field.
    pub(crate) id: Option<usize>,
    pub(crate) body: Vec<u8>,
    pub(crate) keep_alive: bool,
    pub(crate) has_retry_after: bool,
    pub(crate) at: Micros,
}

/// The way in which a connection ended for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The server closed its side, between two answers or within one.
    End,
    Reset,
    /// The peer had already left.
    Left,
}

pub(crate) struct Peer {
    pub(crate) index: usize,
    pub(crate) plan: PeerPlan,
    world: Rc<Plan>,
    shared: Rc<Shared>,
    pub(crate) connection: Option<usize>,
    pub(crate) round: u64,
    connected_at: Micros,
    /// All bytes that the peer would send; with many exchanges, the bytes that it has written so far. `places` has the
    /// offsets of the requests.
    out: Vec<u8>,
    pub(crate) places: Vec<Place>,
    pub(crate) sent: usize,
    got: usize,
    may_send_at: Micros,
    may_read_at: Micros,
    /// The request whose head has been sent, and the time when it had been sent.
    head_left_at: Option<(usize, Micros)>,
    /// True if `100 Continue` has arrived for the next request to be answered.
    is_told_to_continue: bool,
    /// The requests for which `100 Continue` has arrived.
    pub(crate) told_to_continue: Vec<usize>,
    input: Vec<u8>,
    receiver: Receiver,
    fields: Vec<Field>,
    partial: Option<Answer>,
    pub(crate) answers: Vec<Answer>,
    pub(crate) ending: Option<Ending>,
    /// The misbehaviour that the peer has carried out, and its time.
    pub(crate) acted: Option<(Micros, Act)>,
    /// True if the server's bytes were malformed, or stopped within an answer.
    pub(crate) is_broken: bool,
    /// True if the peer ignores input after the last answer.
    is_deaf: bool,
    /// The exchanges, if the connection can have many at a time.
    pub(crate) exchanges: Option<Exchanges>,
    /// The WebSocket, if the peer's request asks for one.
    pub(crate) websocket: Option<WebSocketClient>,
}

/// The offsets of a request in all bytes that a peer sends: its start, the end of its head, and its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) start: usize,
    pub(crate) head: usize,
    pub(crate) end: usize,
}

impl Peer {
    pub(crate) fn new(index: usize, plan: &PeerPlan, world: &Rc<Plan>, shared: &Rc<Shared>) -> Self {
        let mut out = Vec::new();
        let mut places = Vec::new();
        for &id in plan.requests.iter().filter(|_| !world.is_multiplexed) {
            let request = &world.requests[id];
            let start = out.len();
            out.extend_from_slice(&request.bytes);
            places.push(Place { start, head: start + request.head, end: out.len() });
        }
        let first = plan.requests[0];
        let websocket = world.requests[first].is_websocket;
        Self {
            index,
            plan: plan.clone(),
            world: Rc::clone(world),
            shared: Rc::clone(shared),
            connection: None,
            round: 0,
            connected_at: 0,
            out,
            places,
            sent: 0,
            got: 0,
            may_send_at: 0,
            may_read_at: 0,
            head_left_at: None,
            is_told_to_continue: false,
            told_to_continue: Vec::new(),
            input: Vec::new(),
            receiver: Receiver::default(),
            fields: Vec::new(),
            partial: None,
            answers: Vec::new(),
            ending: None,
            acted: None,
            is_broken: false,
            is_deaf: false,
            exchanges: world.is_multiplexed.then(|| Exchanges::new(index, plan, world, shared)),
            websocket: websocket.then(|| WebSocketClient::new(index, first, plan, shared)),
        }
    }

    /// Does everything that the peer can do now. Returns the time when it wants to act again if no event happens
    /// before; `None` for never.
    pub(crate) fn act(&mut self, network: &mut Network) -> Option<Micros> {
        let now = self.shared.now();
        if self.ending.is_some() {
            return None;
        }
        let Some(connection) = self.connection else {
            let plan = &self.plan;
            self.connection = Some(network.connect(Route {
                peer: self.index,
                listener: plan.listener % self.world.listeners,
                latency: plan.latency,
                packet: plan.packet,
                capacity: plan.capacity,
                is_encrypted: self.world.is_encrypted && !self.index.is_multiple_of(4),
            }));
            self.connected_at = now;
            self.shared.trace(|| format!("peer {} connects as c{}", self.index, self.connection.unwrap_or_default()));
            return Some(now);
        };
        network.flush_records(connection);
        self.misbehave_if_due(network);
        let mut next = Micros::MAX;
        if self.ending.is_none() {
            next = next.min(self.send(connection, network));
            next = next.min(self.read(connection, network));
            self.misbehave_if_due(network);
            self.close_if_done(connection, network);
        }
        if let (Some((Trigger::After(time), _)), None) = (self.plan.acts, self.acted) {
            next = next.min(self.connected_at + time);
        }
        (self.ending.is_none() && next != Micros::MAX).then_some(next.max(now))
    }

    // ------------------------------------------------------------------------------------------------ misbehaviour

    fn misbehave_if_due(&mut self, network: &mut Network) {
        let Some((trigger, _)) = self.plan.acts.filter(|_| self.acted.is_none() && self.ending.is_none()) else {
            return;
        };
        let is_due = match trigger {
            Trigger::After(time) => self.shared.now() >= self.connected_at + time,
            Trigger::Sent(bytes) => self.sent >= bytes,
            Trigger::Got(bytes) => self.got >= bytes,
            Trigger::Waited(_) => false,
        };
        if is_due {
            self.misbehave(network);
        }
    }

    /// Makes the peer misbehave, because its plan limits how long it waits for a call.
    pub(crate) fn lose_patience(&mut self, network: &mut Network) {
        if self.acted.is_none() && self.ending.is_none() {
            self.misbehave(network);
        }
    }

    fn misbehave(&mut self, network: &mut Network) {
        let (Some((_, act)), Some(connection)) = (self.plan.acts, self.connection) else { return };
        self.shared.trace(|| format!("peer {}: {act:?}", self.index));
        self.acted = Some((self.shared.now(), act));
        match act {
            Act::Vanish => network.peer_vanishes(connection),
            Act::Reset => network.peer_resets(connection),
            Act::Close => network.peer_closes(connection),
            Act::HalfClose => network.peer_ends(connection),
            Act::StallSending | Act::StallReading => {}
        }
        if matches!(act, Act::Vanish | Act::Reset | Act::Close) {
            self.ending = Some(Ending::Left);
        }
    }

    fn has_done(&self, act: Act) -> bool {
        self.acted.is_some_and(|(_, done)| done == act)
    }

    // ----------------------------------------------------------------------------------------------------- sending

    /// Sends the bytes that may be sent now. Returns the time when more may be sent.
    fn send(&mut self, connection: usize, network: &mut Network) -> Micros {
        let now = self.shared.now();
        if self.has_done(Act::HalfClose) || self.has_done(Act::StallSending) {
            return Micros::MAX;
        }
        let (limit, next) = if let Some(exchanges) = &mut self.exchanges {
            let next = exchanges.write(connection, self.sent, &mut self.out, network);
            (self.out.len(), next)
        } else if let Some(websocket) = &mut self.websocket {
            let next = websocket.write(self.sent == self.out.len(), &mut self.out);
            (self.out.len(), next)
        } else {
            self.may_send()
        };
        // If the trigger of the misbehaviour is a number of bytes, the peer first sends exactly that many.
        let limit = match self.plan.acts {
            Some((Trigger::Sent(bytes), _)) if self.acted.is_none() => limit.min(bytes.max(self.sent)),
            _ => limit,
        };
        if self.sent >= limit {
            return next;
        }
        if now < self.may_send_at {
            return self.may_send_at;
        }
        let end = limit.min(self.sent.saturating_add(self.plan.sends.burst));
        let count = network.peer_sends(connection, &self.out[self.sent..end]);
        self.sent += count;
        if count > 0 {
            self.shared.trace(|| format!("peer {} sends {count}, {} in all", self.index, self.sent));
            self.may_send_at = now + self.plan.sends.pause;
            let index = self.answers.len();
            if self.places.get(index).is_some_and(|place| self.sent >= place.head) {
                self.head_left_at.get_or_insert((index, now));
            }
            return if self.plan.sends.pause == 0 && count == end && self.sent < limit {
                now
            } else {
                self.may_send_at.min(next)
            };
        }
        Micros::MAX
    }

    /// Returns the offset up to which the peer may send now, and the time when it may send more.
    fn may_send(&self) -> (usize, Micros) {
        let now = self.shared.now();
        let answered = self.answers.len();
        let begun = self.places.iter().filter(|place| place.start < self.sent).count();
        let most = match self.answers.last() {
            // The server closes after this answer. A request of which a part has been sent may still be completed.
            Some(last) if !last.keep_alive => {
                let ends_politely = self.index.is_multiple_of(2);
                if ends_politely {
                    return (self.sent, Micros::MAX);
                }
                begun
            }
            Some(last) if now < last.at + self.plan.thinks && begun <= answered => {
                return (self.sent, last.at + self.plan.thinks);
            }
            _ => (answered + self.plan.depth).min(self.places.len()),
        };
        let mut limit = most.checked_sub(1).map_or(0, |last| self.places[last].end);
        let mut next = Micros::MAX;
        for (index, place) in self.places[..most].iter().enumerate().skip(answered) {
            let Some(patience) = self.world.requests[self.plan.requests[index]].waits_for_continue else { continue };
            let is_told = index == answered && self.is_told_to_continue;
            let waited_since = self.head_left_at.filter(|&(of, _)| of == index).map(|(_, at)| at);
            if !is_told && waited_since.is_none_or(|since| now < since.saturating_add(patience)) {
                limit = limit.min(place.head.max(self.sent));
                next = waited_since.map_or(Micros::MAX, |since| since.saturating_add(patience));
                break;
            }
        }
        (limit, next)
    }

    // ----------------------------------------------------------------------------------------------------- reading

    /// Reads the bytes that may be read now. Returns the time when more may be read.
    fn read(&mut self, connection: usize, network: &mut Network) -> Micros {
        let now = self.shared.now();
        if self.has_done(Act::StallReading) || !network.peer_is_ready(connection) {
            return Micros::MAX;
        }
        if now < self.may_read_at {
            return self.may_read_at;
        }
        let limit = match self.plan.acts {
            Some((Trigger::Got(bytes), _)) if self.acted.is_none() => bytes.saturating_sub(self.got).max(1),
            _ => usize::MAX,
        };
        match network.peer_reads(connection, self.plan.reads.burst.min(limit)) {
            Got::Bytes(bytes) => {
                self.got += bytes.len();
                self.input.extend(bytes);
                self.parse();
                self.may_read_at = now + self.plan.reads.pause;
                // The read bytes may allow the peer to send more frames.
                let has_frames = self.exchanges.is_some() || self.websocket.is_some();
                if has_frames { now } else { self.may_read_at }
            }
            Got::End => {
                self.shared.trace(|| format!("peer {} sees the end", self.index));
                let is_whole = self.receiver.end_of_input(&self.input).is_ok();
                self.parse();
                let has_frames = self.exchanges.is_some() || self.is_open();
                self.is_broken |= if has_frames { !self.input.is_empty() } else { !is_whole };
                self.ending = Some(Ending::End);
                network.peer_closes(connection);
                Micros::MAX
            }
            Got::Reset => {
                self.shared.trace(|| format!("peer {} sees a reset", self.index));
                self.ending = Some(Ending::Reset);
                Micros::MAX
            }
            Got::Nothing => Micros::MAX,
        }
    }

    fn parse(&mut self) {
        if let Some(exchanges) = &mut self.exchanges {
            return exchanges.read(&mut self.input);
        }
        if let Some(websocket) = &mut self.websocket {
            if !websocket.is_open && self.answers.is_empty() && self.partial.is_none() {
                websocket.open(&mut self.input);
            }
            if websocket.is_open {
                return websocket.read(&mut self.input, &mut self.out);
            }
        }
        let limits = Limits::default();
        let mut used = 0;
        while !self.is_deaf {
            if self.partial.is_none() {
                match self.take_head(used, &limits) {
                    Some(next) => used = next,
                    None => break,
                }
                continue;
            }
            match self.receiver.body(&self.input[used..], &limits) {
                Ok((count, step)) => {
                    match step {
                        BodyStep::Data(data) => {
                            if let Some(partial) = &mut self.partial {
                                partial.body.extend_from_slice(data);
                            }
                        }
                        BodyStep::Trailer { .. } => {}
                        BodyStep::More => {
                            used += count;
                            break;
                        }
                        BodyStep::End => self.finish(),
                    }
                    used += count;
                }
                Err(fault) => {
                    self.shared.fail(|| format!("peer {} cannot read a body: {fault:?}", self.index));
                    return;
                }
            }
        }
        if self.is_deaf {
            self.input.clear();
        } else {
            self.input.drain(..used.min(self.input.len()));
        }
    }

    /// Reads the head of the next answer, which begins at offset `used` of the input. Returns the offset after the
    /// head; `None` if the head is incomplete.
    fn take_head(&mut self, used: usize, limits: &Limits) -> Option<usize> {
        if used == self.input.len() {
            return None;
        }
        let Some(&id) = self.plan.requests.get(self.answers.len()) else {
            // The bytes that an eager client has sent after a denied handshake are not a request.
            if self.websocket.is_some() {
                self.input.clear();
            } else {
                self.shared.fail(|| format!("peer {} gets more answers than it sent requests", self.index));
            }
            return None;
        };
        let request = &self.world.requests[id];
        match self.receiver.head(&self.input[used..], request.is_head, &mut self.fields, limits) {
            Ok(None) => None,
            Ok(Some(head)) if head.is_interim => {
                if !request.bytes.windows(7).any(|window| window == b"Expect:") {
                    let status = head.status;
                    self.shared.fail(|| format!("request {id} gets {status} without having sent Expect"));
                }
                self.is_told_to_continue = true;
                self.told_to_continue.push(id);
                Some(used + head.length)
            }
            Ok(Some(head)) => {
                let number = |value: &[u8]| str::from_utf8(value).ok()?.parse().ok();
                self.partial = Some(Answer {
                    status: head.status,
                    id: head.field(b"x-id").and_then(number),
                    body: Vec::new(),
                    keep_alive: head.keep_alive && !request.asks_to_close,
                    has_retry_after: head.field(b"retry-after").is_some(),
                    at: 0,
                });
                if head.body == Body::UntilClose && head.keep_alive {
                    self.shared.fail(|| format!("the end of the answer to {id} is not delimited"));
                }
                Some(used + head.length)
            }
            Err(fault) => {
                let partly = self.input[used..].escape_ascii().to_string();
                self.shared.fail(|| format!("peer {} cannot read {partly:.200}: {fault:?}", self.index));
                None
            }
        }
    }

    fn finish(&mut self) {
        let Some(answer) = self.partial.take() else { return };
        let id = self.plan.requests[self.answers.len()];
        let (status, length) = (answer.status, answer.body.len());
        self.shared.trace(|| format!("peer {} has the answer to {id}: {status}, {length} bytes", self.index));
        // A server that has not read the method cannot know that it is HEAD, and may send a body, which the peer
        // ignores.
        self.is_deaf = self.world.requests[id].is_head && !answer.keep_alive;
        self.answers.push(Answer { at: self.shared.now(), ..answer });
        self.is_told_to_continue = false;
        self.head_left_at = None;
        let next = self.answers.len();
        if self.places.get(next).is_some_and(|place| self.sent >= place.head) {
            self.head_left_at = Some((next, self.shared.now()));
        }
    }

    /// Returns true if a part of an answer has arrived.
    pub(crate) fn has_part(&self) -> bool {
        self.partial.is_some() || (!self.input.is_empty() && !self.is_deaf)
    }

    /// Returns true if the peer has not sent all bytes that it has written.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Returns true if the server has accepted the peer's WebSocket.
    pub(crate) fn is_open(&self) -> bool {
        self.websocket.as_ref().is_some_and(|websocket| websocket.is_open)
    }

    /// Returns true if the peer does nothing for which a server may cut it.
    pub(crate) fn is_honest(&self) -> bool {
        self.plan.acts.is_none()
    }

    /// Closes the connection once all answers have arrived.
    fn close_if_done(&mut self, connection: usize, network: &mut Network) {
        if self.ending.is_some() || self.plan.stays || self.has_done(Act::StallReading) {
            return;
        }
        let has_all = match &self.exchanges {
            // The server closes a WebSocket's connection first (RFC 6455 section 7.1.1).
            None if self.is_open() => false,
            None => self.answers.len() == self.places.len(),
            // Frames that were written, such as a reset, may still have to be sent.
            Some(exchanges) => exchanges.are_over() && self.sent == self.out.len(),
        };
        if has_all {
            self.shared.trace(|| format!("peer {} has all answers and closes", self.index));
            self.ending = Some(Ending::Left);
            network.peer_closes(connection);
        }
    }
}
