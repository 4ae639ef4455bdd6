//! The WebSocket that an exchange has become (RFC 6455), between its client and an application of any interface.
//!
//! ```text
//!   head ─▶ Asked ─ accept ─▶ Open ─ an end ─▶ ended: no message follows in either direction
//!             └─ any other response: the exchange goes on as HTTP
//! ```
//!
//! [`wire::websocket`] reads and writes the frames. This module has the queue of messages that the application has not
//! received yet, and the deadlines for pings, the closing handshake, and incomplete messages. It does not depend on the
//! transport: bytes and the time are arguments. With HTTP/1.1 the frames are the bytes of the connection, with HTTP/2
//! those of a stream (`connection/websocket.rs`).

use crate::config::{Config, LEAST_AHEAD, READ_AHEAD, WebSocketConfig};
use crate::deadline::{Millis, Timer, Wait, millis};
use crate::memory::Reservation;
use crate::meter::{self, Meter};
use std::borrow::Cow;
use std::collections::VecDeque;
use wire::websocket::{
    self as frames, CloseCode, Compression, ControlPayload, Deflate, Event, Kind, Outgoing, PendingOpening, Role,
    SendError, WebSocketFault, WebSocketLimits,
};

/// The high-water mark of unsent output in bytes. Above it the application cannot send messages, and should not produce
/// any.
const HIGH_WATER: usize = 64 << 10;
/// The low-water mark of unsent output in bytes, at which an application that waits for room continues.
const LOW_WATER: usize = 16 << 10;
/// The reason in the Close frame of a WebSocket that was closed because [`WebSocketConfig::memory`] was exhausted.
const NO_MEMORY: &str = "The server has no memory left for messages.";
/// The time in milliseconds in which the client has to answer a Close frame, and in which the application has to
/// receive the messages before a protocol error.
const CLOSE_TIMEOUT: Millis = 10_000;

/// The identifier of a WebSocket of an engine. It stays unique after its connection has ended, and it outlives the call
/// that accepted the WebSocket: the call may return until a message arrives
/// ([`Progress::Listening`](crate::Progress::Listening)), and the application can send messages meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketId {
    pub(crate) slot: usize,
    pub(crate) exchange: u32,
    /// The serial number, which is unique among the engine's WebSockets.
    pub(crate) serial: u64,
}

impl WebSocketId {
    /// Returns the serial number, which is unique among the engine's WebSockets.
    #[must_use]
    pub fn serial(self) -> u64 {
        self.serial
    }
}

/// The reason why no message follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketEnd {
    /// The code of the first Close frame, from either side: 1005 if it had no code, 1006 if the connection ended
    /// without a Close frame.
    pub code: u16,
    /// The reason in the Close frame.
    pub reason: Box<str>,
    /// True if the application has closed the WebSocket.
    pub is_own: bool,
}

impl WebSocketEnd {
    /// Returns the end of a WebSocket whose connection ended without a Close frame.
    #[must_use]
    pub fn abnormal() -> Self {
        Self { code: CloseCode::ABNORMAL, reason: Box::default(), is_own: false }
    }
}

/// The result of receiving from a WebSocket.
#[derive(Debug)]
pub enum Incoming<M> {
    /// A message.
    Message(M),
    /// No message waits now.
    Pending,
    /// No message follows. Every later call returns this, too.
    End(WebSocketEnd),
}

/// The room for more output. It tells the application if it should send more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The application may send more.
    Left,
    /// Much output waits for the client. [`Awaited::OUTPUT`](crate::Awaited::OUTPUT) waits for room.
    Full,
}

/// The WebSocket state of an exchange whose request asks for a WebSocket.
#[allow(clippy::large_enum_variant, reason = "it lies behind a pointer, and is soon the large one")]
pub(crate) enum Upgrade<M> {
    /// The application has not answered the request.
    Asked(PendingOpening),
    Open(WebSocket<M>),
}

impl<M> Upgrade<M> {
    pub(crate) fn websocket(&mut self) -> Option<&mut WebSocket<M>> {
        if let Upgrade::Open(websocket) = self { Some(websocket) } else { None }
    }
}

/// The result of a missed deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// The WebSocket stays open.
    Nothing,
    /// The engine sends the reason to the client, if the client still reads, and closes the transport.
    Ended,
}

/// A WebSocket, from its acceptance until its application has received the end.
pub(crate) struct WebSocket<M> {
    pub(crate) serial: u64,
    frames: frames::Connection,
    /// The message that the application receives next, with its length in bytes. Usually there is at most one message,
    /// so further ones are in a separate queue.
    next: Option<(usize, M)>,
    incoming: VecDeque<(usize, M)>,
    incoming_bytes: usize,
    /// The reservation of memory for the waiting messages and for the message that is arriving.
    memory: Reservation,
    end: Option<Box<WebSocketEnd>>,
    /// True if the transport has ended, or must be closed although the client has not answered the Close frame.
    is_lost: bool,
    /// True if the application's call has returned. The engine then discards further messages.
    is_released: bool,
    /// The time when bytes were last received.
    heard: Millis,
    /// The time when the next ping is due.
    ping_at: Millis,
    /// The time of the oldest ping since which nothing has been received; `None` if there is none. Only bytes received
    /// after that ping show that the client is alive.
    pinged: Option<Millis>,
    /// The timer for the client's answer to the server's Close frame, or for the rest of its message.
    timer: Timer,
    message_bytes: u64,
    /// The number of payload bytes sent, before compression.
    pub(crate) sent_bytes: u64,
}

impl<M> WebSocket<M> {
    /// Creates the WebSocket after the response that accepts it has been written.
    pub(crate) fn new(deflate: Option<Deflate>, (serial, now): (u64, Millis), config: &WebSocketConfig) -> Self {
        let limits = WebSocketLimits { message: config.message, backlog: HIGH_WATER };
        Self {
            serial,
            frames: frames::Connection::new(Role::Server, deflate, limits),
            next: None,
            incoming: VecDeque::new(),
            incoming_bytes: 0,
            memory: config.memory.reservation(),
            end: None,
            is_lost: false,
            is_released: false,
            heard: now,
            ping_at: after(now, config.ping_interval),
            pinged: None,
            timer: Timer::new(now),
            message_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// Returns true if the engine may read bytes from the client, because there is room for their messages.
    pub(crate) fn wants_input(&self, config: &WebSocketConfig) -> bool {
        match self.frames.waits_for() {
            frames::Wait::Peer => {
                let waiting = usize::from(self.next.is_some()) + self.incoming.len();
                waiting < config.queue && self.incoming_bytes < READ_AHEAD
            }
            // The client's messages are discarded in this state.
            frames::Wait::Close => true,
            frames::Wait::Caller | frames::Wait::End => false,
        }
    }

    /// Reads frames from `input`, which it modifies, until there is no room for more messages or the turn has ended.
    /// Answers each ping in order. `backlog` is the number of unsent bytes before those in `out`. Returns the number of
    /// bytes used, and true if the WebSocket was closed because memory was exhausted.
    pub(crate) fn receive(
        &mut self,
        input: &mut [u8],
        (now, config): (Millis, &WebSocketConfig),
        compression: &mut Compression,
        (backlog, out): (usize, &mut Vec<u8>),
        meter: &mut Meter,
        mut message: impl FnMut(Kind, Cow<'_, [u8]>) -> M,
    ) -> (usize, bool) {
        self.heard = now;
        self.pinged = None;
        let (mut at, mut is_overloaded) = (0, false);
        while at < input.len() && self.wants_input(config) && !meter.is_turn_over() {
            let before = self.frames.partial_bytes();
            let (used, event) = self.frames.next(&mut input[at..], compression);
            at += used;
            let whole = if let Event::Message { bytes, .. } = &event { bytes.len() } else { 0 };
            let inflated = (whole.max(self.frames.partial_bytes())).saturating_sub(before.max(used));
            meter.charge(meter::FRAME + inflated as u64);
            if !self.reserve(if self.is_released { 0 } else { whole }) {
                is_overloaded |= self.end.is_none();
                self.note_end(CloseCode::TRY_AGAIN_LATER.number(), NO_MEMORY.into(), false);
                drop(event);
                self.frames.overload(NO_MEMORY, compression);
                self.reserve(0);
                continue;
            }
            match event {
                Event::Nothing | Event::Pong(_) => {}
                Event::Message { kind, bytes } => {
                    self.message_bytes = 0;
                    if !self.is_released {
                        let length = bytes.len();
                        self.incoming_bytes += length;
                        let message = (length, message(kind, bytes));
                        if self.next.is_none() {
                            self.next = Some(message);
                        } else {
                            self.incoming.push_back(message);
                        }
                    }
                }
                Event::Close(frame) => self.note_end(frame.number(), frame.reason, false),
                // The application first receives the messages before the protocol error, and then the reason.
                Event::Fault(fault) if self.next.is_some() => self.frames.postpone(fault),
                Event::Fault(fault) => self.note_fault(fault),
            }
            if self.frames.owes_answer() {
                meter.charge(meter::FRAME);
                self.frames.flush(backlog + out.len(), out);
            }
            if used == 0 {
                break;
            }
        }
        if self.frames.is_in_message() {
            self.message_bytes += at as u64;
        }
        (at, is_overloaded)
    }

    /// Reserves memory for the waiting messages, for `more` bytes of another one, and for the message that is arriving.
    /// Returns false and changes nothing if there is not enough memory.
    fn reserve(&mut self, more: usize) -> bool {
        let needed = self.incoming_bytes + more + self.frames.kept_bytes();
        let counted = if needed > LEAST_AHEAD { needed } else { 0 };
        counted == self.memory.bytes() || self.memory.resize(counted)
    }

    fn note_fault(&mut self, fault: WebSocketFault) {
        self.note_end(fault.code().number(), fault.explanation().into(), false);
    }

    /// Handles the protocol error that was postponed until the earlier messages were received. The caller has to write
    /// the Close frame afterwards.
    fn take_up_fault(&mut self) {
        if let Some(fault) = self.frames.take_up() {
            self.note_fault(fault);
        }
    }

    fn note_end(&mut self, code: u16, reason: Box<str>, is_own: bool) {
        self.end.get_or_insert_with(|| Box::new(WebSocketEnd { code, reason, is_own }));
    }

    /// Ends the WebSocket because the transport has ended or is unusable.
    pub(crate) fn lose(&mut self) {
        self.take_up_fault();
        self.is_lost = true;
        self.note_end(CloseCode::ABNORMAL, Box::default(), false);
    }

    pub(crate) fn has_something(&self) -> bool {
        self.next.is_some() || self.end.is_some() || self.frames.waits_for() == frames::Wait::Caller
    }

    /// Removes and returns the next message, which makes room for more.
    pub(crate) fn take(&mut self) -> Incoming<M> {
        if self.next.is_none() {
            self.take_up_fault();
        }
        match (self.next.take(), &self.end) {
            (Some((length, message)), _) => {
                self.incoming_bytes -= length;
                // The reservation shrinks, which always succeeds.
                self.reserve(0);
                self.next = self.incoming.pop_front();
                if self.incoming.is_empty() {
                    // Free the queue's memory, so that an idle connection uses none.
                    self.incoming = VecDeque::new();
                }
                Incoming::Message(message)
            }
            (None, Some(end)) => Incoming::End(WebSocketEnd::clone(end)),
            (None, None) => Incoming::Pending,
        }
    }

    /// Returns the reason why no message follows; `None` if messages may follow.
    pub(crate) fn end(&self) -> Option<&WebSocketEnd> {
        self.end.as_deref()
    }

    /// Sends a message. `backlog` is the number of unsent bytes.
    ///
    /// # Errors
    /// [`SendError::Closed`]; [`SendError::QueueFull`]: the caller may try again when there is room.
    pub(crate) fn send(
        &mut self,
        message: Outgoing<'_>,
        compression: &mut Compression,
        backlog: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        if self.end.is_some() {
            return Err(SendError::Closed);
        }
        self.frames.send(message, compression, backlog, out)?;
        self.sent_bytes += message.bytes().len() as u64;
        Ok(())
    }

    /// Writes the frame header of a message whose bytes the caller sends after it. Returns false and writes nothing if
    /// the caller has to [send](Self::send) the whole message, because it may be compressed.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(crate) fn send_head(
        &mut self,
        message: Outgoing<'_>,
        backlog: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, SendError> {
        if self.end.is_some() {
            return Err(SendError::Closed);
        }
        let length = message.bytes().len() as u64;
        let Some(head) = self.frames.head(message.kind(), length, backlog)? else { return Ok(false) };
        out.extend_from_slice(&head);
        self.sent_bytes += length;
        Ok(true)
    }

    /// Sends a message that was framed once for many WebSockets.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(crate) fn send_prepared(
        &mut self,
        message: &frames::Prepared,
        compression: &mut Compression,
        backlog: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        if self.end.is_some() {
            return Err(SendError::Closed);
        }
        out.extend_from_slice(self.frames.prepared(message, compression, backlog)?);
        self.sent_bytes += message.payload().len() as u64;
        Ok(())
    }

    /// Returns true if an application that waits for room may send again, or the WebSocket has ended.
    pub(crate) fn has_room(&self, backlog: usize) -> bool {
        backlog <= LOW_WATER || self.end.is_some()
    }

    /// Returns the room after the application has sent a message.
    pub(crate) fn room(backlog: usize) -> Room {
        if backlog > HIGH_WATER { Room::Full } else { Room::Left }
    }

    /// Begins the closing handshake, unless it has begun. The application still receives earlier messages.
    pub(crate) fn close(&mut self, code: CloseCode, reason: &str, is_own: bool, out: &mut Vec<u8>) {
        if self.end.is_none() && self.frames.close(code, reason, out).is_ok() {
            self.note_end(code.number(), reason.into(), is_own);
        }
    }

    /// Discards the waiting messages and all later ones, because the application's call has returned.
    pub(crate) fn release(&mut self) {
        self.take_up_fault();
        self.is_released = true;
        self.next = None;
        self.incoming.clear();
        self.incoming_bytes = 0;
        self.reserve(0);
    }

    pub(crate) fn is_released(&self) -> bool {
        self.is_released
    }

    /// Returns true if messages may be sent and received.
    pub(crate) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// Returns true if answers to the client's frames still have to be written.
    pub(crate) fn owes_answer(&self) -> bool {
        self.frames.owes_answer()
    }

    pub(crate) fn write_answers(&mut self, backlog: usize, out: &mut Vec<u8>) {
        self.frames.flush(backlog, out);
    }

    /// Returns true if the transport must be closed once all output has been sent.
    pub(crate) fn is_over(&self) -> bool {
        self.is_lost || self.frames.waits_for() == frames::Wait::End && !self.owes_answer()
    }

    /// Returns the next deadline, provided that no bytes arrive before it.
    pub(crate) fn deadline(&mut self, config: &Config, now: Millis) -> Millis {
        let Some(settings) = &config.websocket else { return Millis::MAX };
        match self.frames.waits_for() {
            frames::Wait::End => return Millis::MAX,
            frames::Wait::Caller | frames::Wait::Close => {
                self.timer.turn_to(Wait::Linger, now);
                return self.timer.since.saturating_add(CLOSE_TIMEOUT);
            }
            frames::Wait::Peer => {}
        }
        let pong = match self.pinged {
            // While the engine does not read, an answer of the client may be unread, so the client is not late.
            Some(at) if self.wants_input(settings) => after(at, settings.ping_timeout),
            _ => Millis::MAX,
        };
        let rest = if self.frames.is_in_message() && self.wants_input(settings) {
            let is_new = self.timer.turn_to(Wait::Body, now).is_some();
            let limits = (config.body_timeout, config.min_rate);
            self.timer.transfer(limits, self.timer.since, self.message_bytes, is_new, now)
        } else {
            self.timer.turn_to(Wait::App, now);
            Millis::MAX
        };
        pong.min(rest).min(self.ping_at)
    }

    /// Handles the missed deadlines. Writes pings and Close frames to `out`.
    pub(crate) fn expire(&mut self, now: Millis, config: &Config, out: &mut Vec<u8>) -> Overdue {
        let Some(settings) = &config.websocket else { return Overdue::Nothing };
        match self.frames.waits_for() {
            frames::Wait::End => return Overdue::Nothing,
            frames::Wait::Caller => {
                if self.timer.since.saturating_add(CLOSE_TIMEOUT) <= now {
                    self.take_up_fault();
                }
                return Overdue::Nothing;
            }
            frames::Wait::Close => {
                let is_late = self.timer.since.saturating_add(CLOSE_TIMEOUT) <= now;
                self.is_lost |= is_late;
                return if is_late { Overdue::Ended } else { Overdue::Nothing };
            }
            frames::Wait::Peer => {}
        }
        if let Some(at) = self.pinged {
            if !self.wants_input(settings) {
                self.pinged = Some(now);
            } else if after(at, settings.ping_timeout) <= now {
                return self.give_up(CloseCode::INTERNAL_ERROR, "keepalive ping timeout", out);
            }
        }
        if self.timer.wait == Wait::Body && self.frames.is_in_message() {
            let since = self.timer.since;
            let limits = (config.body_timeout, config.min_rate);
            if self.timer.transfer(limits, since, self.message_bytes, false, now) <= now {
                return self.give_up(CloseCode::POLICY, "a message took too long to arrive", out);
            }
        }
        if self.ping_at <= now {
            self.ping_at = after(now, settings.ping_interval);
            if self.frames.ping(&ControlPayload::default(), out).is_ok() {
                self.pinged = self.pinged.or(Some(now));
            }
        }
        Overdue::Nothing
    }

    /// Sends a Close frame to a client that is late, and does not wait for the answer.
    fn give_up(&mut self, code: CloseCode, reason: &str, out: &mut Vec<u8>) -> Overdue {
        // This cannot fail: the WebSocket is open, otherwise it would not have this deadline.
        let _ = self.frames.close(code, reason, out);
        self.lose();
        Overdue::Ended
    }
}

fn after(now: Millis, time: Option<std::time::Duration>) -> Millis {
    time.map_or(Millis::MAX, |time| now.saturating_add(millis(time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory that an idle WebSocket uses in the engine, in addition to a connection as with HTTP.
    #[test]
    fn idle_websocket_takes_little_memory() {
        assert!(size_of::<Upgrade<[usize; 2]>>() <= 512, "{}", size_of::<Upgrade<[usize; 2]>>());
    }
}
