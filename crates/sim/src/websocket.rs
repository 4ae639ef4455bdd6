//! The client's side of a WebSocket, built on the client role of [`wire`].

use crate::clock::{Micros, Shared};
use crate::plan::PeerPlan;
use crate::plan::tasks::{ClientOp, label, message};
use std::rc::Rc;
use wire::websocket::Receiver as FrameReceiver;
use wire::websocket::{CloseCode, Compression, ControlPayload, Keys, Kind, Outgoing, Received, Role, Sender};

/// A client's WebSocket.
pub(crate) struct WebSocketClient {
    shared: Rc<Shared>,
    /// The index of the WebSocket's peer.
    peer: usize,
    /// The request that asks for the WebSocket.
    id: usize,
    ops: Vec<ClientOp>,
    is_eager: bool,
    receiver: FrameReceiver,
    sender: Sender,
    compression: Compression,
    /// True once the client has sent its Close frame.
    has_closed: bool,
    /// True if the handshake was answered with 101.
    pub(crate) is_open: bool,
    /// The index of the next operation, and the time when it may begin.
    at: usize,
    next_at: Micros,
    /// For each message that has been written, the offset in `out` at which it ends.
    pub(crate) ends: Vec<usize>,
    pub(crate) received: usize,
    /// The close code, if the client closed first.
    pub(crate) own_close: Option<u16>,
    /// The code of the server's Close frame.
    pub(crate) close: Option<u16>,
    pub(crate) has_broken: bool,
}

impl WebSocketClient {
    /// Creates the WebSocket of a peer whose request `id` asks for one.
    pub(crate) fn new(peer: usize, id: usize, plan: &PeerPlan, shared: &Rc<Shared>) -> Self {
        Self {
            shared: Rc::clone(shared),
            peer,
            id,
            ops: plan.ops.clone(),
            is_eager: plan.is_eager,
            receiver: FrameReceiver::new(false, None),
            sender: Sender::new(Role::Client(Keys::new(peer as u64)), None),
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
        }
    }

    /// Writes the bytes of the next operations, if those of the previous ones have been sent (`is_sent`). Returns the
    /// time when the next operation is due.
    pub(crate) fn write(&mut self, is_sent: bool, out: &mut Vec<u8>) -> Micros {
        if !self.is_open && !self.is_eager || !is_sent || self.has_closed || self.has_broken {
            return Micros::MAX;
        }
        let now = self.shared.now();
        while self.next_at <= now
            && let Some(&op) = self.ops.get(self.at)
        {
            self.at += 1;
            match op {
                ClientOp::Message(kind, length, parts) => {
                    let bytes = message(self.id, self.ends.len(), kind, length, false);
                    let step = bytes.len().div_ceil(parts);
                    let count = bytes.chunks(step).count();
                    for (index, part) in bytes.chunks(step).enumerate() {
                        let part = match kind {
                            Kind::Text => Outgoing::Text(str::from_utf8(part).expect("ASCII")),
                            Kind::Binary => Outgoing::Binary(part),
                        };
                        self.sender.part(part, index + 1 == count, out).expect("all parts are of one kind");
                    }
                    self.ends.push(out.len());
                }
                ClientOp::Ping => self.sender.ping(&ControlPayload::default(), out),
                ClientOp::Close(code) => {
                    self.own_close = Some(code);
                    self.has_closed = true;
                    self.sender.close(CloseCode::new(code), "", out);
                    return Micros::MAX;
                }
                ClientOp::Break => {
                    self.has_broken = true;
                    // A reserved opcode.
                    out.extend([0x83, 0x80, 0, 0, 0, 0]);
                    return Micros::MAX;
                }
                ClientOp::Pause(time) => self.next_at = now + time,
            }
        }
        if self.at < self.ops.len() { self.next_at.max(now) } else { Micros::MAX }
    }

    /// Handles the answer to the handshake, if it is in `input` and opens the WebSocket.
    pub(crate) fn open(&mut self, input: &mut Vec<u8>) {
        let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return };
        if input.starts_with(b"HTTP/1.1 101 ") {
            input.drain(..end + 4);
            self.shared.trace(|| format!("peer {} has a WebSocket", self.peer));
            self.is_open = true;
        }
    }

    /// Reads the complete frames in `input`. Appends the answers to them to `out`.
    pub(crate) fn read(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) {
        let (id, index) = (self.id, self.peer);
        let mut at = 0;
        while at < input.len() {
            if self.close.is_some() {
                self.shared.fail(|| format!("peer {index} gets bytes behind the Close frame"));
                return;
            }
            let (used, received) = match self.receiver.next(&mut input[at..], usize::MAX, &mut self.compression) {
                Ok(step) => step,
                Err(fault) => {
                    self.shared.fail(|| format!("peer {index} gets a frame that is wrong: {fault:?}"));
                    return;
                }
            };
            at += used;
            match received {
                Received::More if used == 0 => break,
                Received::Ping(payload) if !self.has_closed => self.sender.pong(&payload, out),
                Received::More | Received::Part | Received::Pong(_) | Received::Ping(_) => {}
                Received::Message { kind, bytes } => {
                    let number = self.received;
                    self.received += 1;
                    if *bytes != *message(id, number, kind, bytes.len(), true) {
                        self.shared.fail(|| format!("peer {index} gets {:?} as message {number}", label(&bytes)));
                        return;
                    }
                }
                Received::Close(frame) => {
                    let code = frame.number();
                    self.shared.trace(|| format!("peer {index} gets a Close frame: {code}"));
                    self.close = Some(code);
                    if !std::mem::replace(&mut self.has_closed, true) {
                        self.sender.close(frame.code, "", out);
                    }
                }
            }
        }
        input.drain(..at);
    }
}
