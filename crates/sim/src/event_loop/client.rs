//! Clients: of HTTP/1.1, and of WebSockets by the client role of [`wire`].

use super::plan::{ClientOp, ClientPlan, Plan, label, message};
use crate::clock::{Micros, Shared};
use crate::net::{Got, Network, Route};
use crate::plan::{Act, Trigger};
use crate::response::pattern;
use std::rc::Rc;
use wire::http1::BodyStep;
use wire::http1::client::Receiver;
use wire::message::{Field, Limits};
use wire::websocket::Receiver as FrameReceiver;
use wire::websocket::{CloseCode, Compression, ControlPayload, Keys, Kind, Outgoing, Received, Role, Sender};

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) keep_alive: bool,
    /// The application has made it, not the server.
    pub(crate) is_own: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    End,
    Reset,
    /// The client had left before.
    Left,
}

pub(crate) struct Client {
    index: usize,
    pub(crate) plan: ClientPlan,
    shared: Rc<Shared>,
    pub(crate) connection: Option<usize>,
    pub(crate) round: u64,
    connected_at: Micros,
    /// All bytes that are to be sent so far, and how many of them have been sent.
    out: Vec<u8>,
    pub(crate) sent: usize,
    /// The offsets in `out` at which each request begins and ends.
    pub(crate) places: Vec<(usize, usize)>,
    got: usize,
    may_send_at: Micros,
    may_read_at: Micros,
    input: Vec<u8>,
    receiver: Receiver,
    fields: Vec<Field>,
    partial: Option<Answer>,
    pub(crate) answers: Vec<Answer>,
    pub(crate) ending: Option<Ending>,
    pub(crate) acted: Option<Act>,
    pub(crate) websocket: Option<WebSocketClient>,
}

/// A client's WebSocket.
pub(crate) struct WebSocketClient {
    receiver: FrameReceiver,
    sender: Sender,
    compression: Compression,
    /// True once the client has sent its Close frame.
    has_closed: bool,
    /// The handshake was answered with 101.
    pub(crate) is_open: bool,
    /// The next operation, and when it may begin.
    at: usize,
    next_at: Micros,
    /// For each message whose bytes have been made, the offset in `out` at which it ends.
    pub(crate) ends: Vec<usize>,
    pub(crate) received: usize,
    /// The code with which it has closed first.
    pub(crate) own_close: Option<u16>,
    /// The code of the server's Close frame.
    pub(crate) close: Option<u16>,
    pub(crate) has_broken: bool,
}

impl Client {
    pub(crate) fn new(index: usize, plan: &ClientPlan, world: &Rc<Plan>, shared: &Rc<Shared>) -> Self {
        let mut out = Vec::new();
        let mut places = Vec::new();
        for &id in &plan.calls {
            let start = out.len();
            out.extend_from_slice(&world.calls[id].bytes);
            places.push((start, out.len()));
        }
        let is_websocket = world.calls[plan.calls[0]].is_websocket;
        let websocket = is_websocket.then(|| WebSocketClient {
            receiver: FrameReceiver::new(false, None),
            sender: Sender::new(Role::Client(Keys::new(index as u64)), None),
            compression: Compression::new(1),
            has_closed: false,
            is_open: false,
            at: 0,
            next_at: 0,
            ends: Vec::new(),
            received: 0,
            own_close: None,
            close: None,
            has_broken: false,
        });
        Self {
            index,
            plan: plan.clone(),
            shared: Rc::clone(shared),
            connection: None,
            round: 0,
            connected_at: 0,
            out,
            sent: 0,
            places,
            got: 0,
            may_send_at: 0,
            may_read_at: 0,
            input: Vec::new(),
            receiver: Receiver::default(),
            fields: Vec::new(),
            partial: None,
            answers: Vec::new(),
            ending: None,
            acted: None,
            websocket,
        }
    }

    /// Returns true if it does nothing that a server may punish.
    pub(crate) fn is_honest(&self) -> bool {
        self.plan.acts.is_none()
    }

    /// Carries out everything that the client can do now. Returns when it wants to act again if nothing happens before.
    pub(crate) fn act(&mut self, network: &mut Network) -> Option<Micros> {
        let now = self.shared.now();
        if self.ending.is_some() {
            return None;
        }
        let Some(connection) = self.connection else {
            let ClientPlan { latency, packet, capacity, .. } = self.plan;
            let route = Route { peer: self.index, listener: 0, latency, packet, capacity };
            self.connection = Some(network.connect(route));
            self.connected_at = now;
            self.shared.trace(|| format!("client {} connects as c{}", self.index, self.connection.unwrap_or_default()));
            return Some(now);
        };
        self.misbehave_if_due(connection, network);
        let mut next = Micros::MAX;
        if self.ending.is_none() {
            next = next.min(self.read(connection, network));
        }
        if self.ending.is_none() {
            next = next.min(self.send(connection, network));
            self.misbehave_if_due(connection, network);
            self.close_if_done(connection, network);
        }
        if let (Some((Trigger::After(time), _)), None) = (self.plan.acts, self.acted) {
            next = next.min(self.connected_at + time);
        }
        (self.ending.is_none() && next != Micros::MAX).then_some(next.max(now))
    }

    fn misbehave_if_due(&mut self, connection: usize, network: &mut Network) {
        let Some((trigger, act)) = self.plan.acts.filter(|_| self.acted.is_none() && self.ending.is_none()) else {
            return;
        };
        let is_due = match trigger {
            Trigger::After(time) => self.shared.now() >= self.connected_at + time,
            Trigger::Sent(bytes) => self.sent >= bytes,
            Trigger::Got(bytes) => self.got >= bytes,
            Trigger::Waited(_) => false,
        };
        if !is_due {
            return;
        }
        self.shared.trace(|| format!("client {}: {act:?}", self.index));
        self.acted = Some(act);
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

    // ----------------------------------------------------------------------------------------------------- sending

    /// Returns the offset in `out` up to which it may send now.
    fn limit(&self) -> usize {
        if self.websocket.is_some() {
            return self.out.len();
        }
        let answered = self.answers.len();
        if self.answers.last().is_some_and(|last| !last.keep_alive) {
            return self.sent;
        }
        let most = (answered + self.plan.depth).min(self.places.len());
        self.places[most - 1].1
    }

    /// Sends the bytes that it may send now; returns when it may send more.
    fn send(&mut self, connection: usize, network: &mut Network) -> Micros {
        let now = self.shared.now();
        if matches!(self.acted, Some(Act::HalfClose | Act::StallSending)) {
            return Micros::MAX;
        }
        let next = self.write_frames();
        let limit = match self.plan.acts {
            Some((Trigger::Sent(bytes), _)) if self.acted.is_none() => self.limit().min(bytes.max(self.sent)),
            _ => self.limit(),
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
        if count == 0 {
            return Micros::MAX;
        }
        self.shared.trace(|| format!("client {} sends {count}, {} in all", self.index, self.sent));
        self.may_send_at = now + self.plan.sends.pause;
        self.may_send_at
    }

    /// Makes the bytes of the next operations, once those before are sent. Returns when the next one is due.
    fn write_frames(&mut self) -> Micros {
        let (is_sent, id) = (self.sent == self.out.len(), self.plan.calls[0]);
        let may_begin = self.plan.is_eager;
        let Some(websocket) = &mut self.websocket else { return Micros::MAX };
        if !websocket.is_open && !may_begin {
            return Micros::MAX;
        }
        if !is_sent || websocket.has_closed || websocket.has_broken {
            return Micros::MAX;
        }
        let now = self.shared.now();
        while websocket.next_at <= now
            && let Some(&op) = self.plan.ops.get(websocket.at)
        {
            websocket.at += 1;
            let out = &mut self.out;
            match op {
                ClientOp::Message(kind, length, parts) => {
                    let bytes = message(id, websocket.ends.len(), kind, length, false);
                    let step = bytes.len().div_ceil(parts);
                    let count = bytes.chunks(step).count();
                    for (index, part) in bytes.chunks(step).enumerate() {
                        let part = match kind {
                            Kind::Text => Outgoing::Text(str::from_utf8(part).expect("ASCII")),
                            Kind::Binary => Outgoing::Binary(part),
                        };
                        websocket.sender.part(part, index + 1 == count, out).expect("all parts are of one kind");
                    }
                    websocket.ends.push(out.len());
                }
                ClientOp::Ping => websocket.sender.ping(&ControlPayload::default(), out),
                ClientOp::Close(code) => {
                    websocket.own_close = Some(code);
                    websocket.has_closed = true;
                    websocket.sender.close(CloseCode::new(code), "", out);
                    return Micros::MAX;
                }
                ClientOp::Break => {
                    websocket.has_broken = true;
                    // A reserved opcode.
                    out.extend([0x83, 0x80, 0, 0, 0, 0]);
                    return Micros::MAX;
                }
                ClientOp::Pause(time) => websocket.next_at = now + time,
            }
        }
        if websocket.at < self.plan.ops.len() { websocket.next_at.max(now) } else { Micros::MAX }
    }

    // ----------------------------------------------------------------------------------------------------- reading

    fn read(&mut self, connection: usize, network: &mut Network) -> Micros {
        let now = self.shared.now();
        if self.acted == Some(Act::StallReading) || !network.peer_is_ready(connection) {
            return Micros::MAX;
        }
        if now < self.may_read_at {
            return self.may_read_at;
        }
        match network.peer_reads(connection, self.plan.reads.burst) {
            Got::Bytes(bytes) => {
                self.got += bytes.len();
                self.input.extend(bytes);
                self.parse();
                self.may_read_at = now + self.plan.reads.pause;
                self.may_read_at
            }
            Got::End => {
                self.shared.trace(|| format!("client {} sees the end", self.index));
                self.ending = Some(Ending::End);
                network.peer_closes(connection);
                Micros::MAX
            }
            Got::Reset => {
                self.shared.trace(|| format!("client {} sees a reset", self.index));
                self.ending = Some(Ending::Reset);
                Micros::MAX
            }
            Got::Nothing => Micros::MAX,
        }
    }

    fn parse(&mut self) {
        if self.websocket.is_some() && self.answers.is_empty() && self.partial.is_none() && !self.is_open() {
            let Some(end) = self.input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return };
            if self.input.starts_with(b"HTTP/1.1 101 ") {
                self.input.drain(..end + 4);
                self.shared.trace(|| format!("client {} has a WebSocket", self.index));
                if let Some(websocket) = &mut self.websocket {
                    websocket.is_open = true;
                }
            }
        }
        if self.is_open() { self.parse_frames() } else { self.parse_answers() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.websocket.as_ref().is_some_and(|websocket| websocket.is_open)
    }

    fn parse_frames(&mut self) {
        let (id, index) = (self.plan.calls[0], self.index);
        let Some(websocket) = &mut self.websocket else { return };
        let mut at = 0;
        while at < self.input.len() {
            if websocket.close.is_some() {
                self.shared.fail(|| format!("client {index} gets bytes behind the Close frame"));
                return;
            }
            let (used, received) =
                match websocket.receiver.next(&mut self.input[at..], usize::MAX, &mut websocket.compression) {
                    Ok(step) => step,
                    Err(fault) => {
                        self.shared.fail(|| format!("client {index} gets a frame that is wrong: {fault:?}"));
                        return;
                    }
                };
            at += used;
            match received {
                Received::More if used == 0 => break,
                Received::Ping(payload) if !websocket.has_closed => websocket.sender.pong(&payload, &mut self.out),
                Received::More | Received::Part | Received::Pong(_) | Received::Ping(_) => {}
                Received::Message { kind, bytes } => {
                    let number = websocket.received;
                    websocket.received += 1;
                    if *bytes != *message(id, number, kind, bytes.len(), true) {
                        self.shared.fail(|| format!("client {index} gets {:?} as message {number}", label(&bytes)));
                        return;
                    }
                }
                Received::Close(frame) => {
                    let code = frame.number();
                    self.shared.trace(|| format!("client {index} gets a Close frame: {code}"));
                    websocket.close = Some(code);
                    if !std::mem::replace(&mut websocket.has_closed, true) {
                        websocket.sender.close(frame.code, "", &mut self.out);
                    }
                }
            }
        }
        self.input.drain(..at);
    }

    fn parse_answers(&mut self) {
        let limits = Limits::default();
        let mut used = 0;
        let index = self.index;
        while used < self.input.len() || self.partial.is_some() {
            if self.partial.is_none() {
                if self.answers.len() == self.places.len() {
                    // The bytes that an eager client has sent after a denied handshake are no request.
                    if self.websocket.is_none() {
                        self.shared.fail(|| format!("client {index} gets more answers than it sent requests"));
                    }
                    self.input.clear();
                    return;
                }
                match self.receiver.head(&self.input[used..], false, &mut self.fields, &limits) {
                    Ok(None) => break,
                    Ok(Some(head)) => {
                        used += head.length;
                        let is_own = head.field(b"x-id").is_some();
                        let wanted = self.plan.calls[self.answers.len()].to_string();
                        if is_own && head.field(b"x-id") != Some(wanted.as_bytes()) {
                            self.shared.fail(|| format!("client {index} gets another answer than that to {wanted}"));
                        }
                        let keep_alive = head.keep_alive;
                        self.partial = Some(Answer { status: head.status, body: Vec::new(), keep_alive, is_own });
                    }
                    Err(fault) => {
                        self.shared.fail(|| format!("client {index} cannot read an answer: {fault:?}"));
                        return;
                    }
                }
            }
            match self.receiver.body(&self.input[used..], &limits) {
                Ok((count, step)) => {
                    used += count;
                    match step {
                        BodyStep::Data(data) => {
                            if let Some(partial) = &mut self.partial {
                                partial.body.extend_from_slice(data);
                            }
                        }
                        BodyStep::Trailer { .. } => {}
                        BodyStep::More => break,
                        BodyStep::End => {
                            if let Some(answer) = self.partial.take() {
                                self.note_answer(answer);
                            }
                        }
                    }
                }
                Err(fault) => {
                    self.shared.fail(|| format!("client {index} cannot read a body: {fault:?}"));
                    return;
                }
            }
        }
        self.input.drain(..used.min(self.input.len()));
    }

    fn note_answer(&mut self, answer: Answer) {
        let id = self.plan.calls[self.answers.len()];
        let (status, length) = (answer.status, answer.body.len());
        self.shared.trace(|| format!("client {} has the answer to {id}: {status}, {length} bytes", self.index));
        if answer.is_own && answer.body != pattern(id, 0, length) {
            self.shared.fail(|| format!("the answer to {id} is not the one that was written"));
        }
        self.answers.push(answer);
    }

    /// Returns true if a part of an answer, or of a message, has arrived.
    pub(crate) fn has_part(&self) -> bool {
        self.partial.is_some() || !self.input.is_empty()
    }

    fn close_if_done(&mut self, connection: usize, network: &mut Network) {
        if self.ending.is_some() || self.acted == Some(Act::StallReading) {
            return;
        }
        let is_done = match &self.websocket {
            // The server closes a WebSocket (RFC 6455 section 7.1.1).
            Some(websocket) => !websocket.is_open && !self.answers.is_empty(),
            None => self.answers.len() == self.places.len(),
        };
        if is_done {
            self.shared.trace(|| format!("client {} has all answers and closes", self.index));
            self.ending = Some(Ending::Left);
            network.peer_closes(connection);
        }
    }
}
