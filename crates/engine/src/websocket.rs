//! The WebSocket that an exchange has become (RFC 6455), between its client and an application of any interface.
//!
//! ```text
//!   head ─▶ Asked ─ accept ─▶ Open ─ an end ─▶ ended: no message follows in either direction
//!             └─ any other response: the exchange goes on as HTTP
//! ```
//!
//! The frames are [`wire::websocket`]'s. Here are what it leaves to its caller, the queue of messages that the
//! application has not taken and the time: pings, the closing handshake, and messages that do not come to their end.
//! Nothing here knows what carries the frames: bytes and the time are arguments. With HTTP/1.1 the connection's own bytes
//! are the frames (`connection/websocket.rs`).

use crate::config::{Config, LEAST_AHEAD, READ_AHEAD, WebSocketConfig};
use crate::deadline::{Millis, Timer, Wait, millis};
use crate::memory::Reservation;
use crate::meter::{self, Meter};
use std::borrow::Cow;
use std::collections::VecDeque;
use wire::message::Stamp;
use wire::websocket::{
    self as frames, AcceptMisuse, CloseCode, Compression, ControlPayload, Event, Kind, Outgoing, PendingOpening, Role,
    SendError, WebSocketFault, WebSocketLimits,
};

/// Bytes of output that may wait: while more do, no message is taken from the application, and it should not make one.
const HIGH_WATER: usize = 64 << 10;
/// An application that waits for room goes on when no more than this waits.
const LOW_WATER: usize = 16 << 10;
/// The reason of a Close frame for want of [`WebSocketConfig::memory`].
const NO_MEMORY: &str = "The server has no memory left for messages.";
/// How long the client may take to answer a Close frame, and the application to take the messages before a broken rule.
const CLOSE_TIMEOUT: Millis = 10_000;

/// Names a WebSocket of an engine, also when its connection is gone. It outlives the call that has accepted it: a call may
/// be given back until a message comes ([`Progress::Listening`](crate::Progress::Listening)), and messages are sent
/// meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketId {
    pub(crate) slot: usize,
    pub(crate) exchange: u32,
    /// No other WebSocket of the engine has it.
    pub(crate) serial: u64,
}

impl WebSocketId {
    /// No other WebSocket of the engine has this number.
    #[must_use]
    pub fn serial(self) -> u64 {
        self.serial
    }
}

/// Why no message follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketEnd {
    /// The code of the Close frame that came first, from either side: 1005 if it had none, 1006 if the connection ended
    /// without one.
    pub code: u16,
    /// The reason that the frame gave.
    pub reason: Box<str>,
    /// The application has closed it.
    pub is_own: bool,
}

impl WebSocketEnd {
    /// The end of a connection without a Close frame.
    #[must_use]
    pub fn abnormal() -> Self {
        Self { code: CloseCode::ABNORMAL, reason: Box::default(), is_own: false }
    }
}

/// What there is to be received.
#[derive(Debug)]
pub enum Incoming<M> {
    /// A message.
    Message(M),
    /// Nothing that was not taken.
    Pending,
    /// No message follows. That is said as often as it is asked.
    End(WebSocketEnd),
}

/// Whether the application should go on to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may.
    Left,
    /// The client has much to take: [`Awaited::OUTPUT`](crate::Awaited::OUTPUT) says when there is room again.
    Full,
}

/// An exchange whose request asks for a WebSocket.
#[allow(clippy::large_enum_variant, reason = "it lies behind a pointer, and is soon the large one")]
pub(crate) enum Upgrade<M> {
    /// The application has not answered.
    Asked(PendingOpening),
    Open(WebSocket<M>),
}

impl<M> Upgrade<M> {
    pub(crate) fn websocket(&mut self) -> Option<&mut WebSocket<M>> {
        if let Upgrade::Open(websocket) = self { Some(websocket) } else { None }
    }
}

/// What is to be done at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// Go on.
    Nothing,
    /// The client is told why, if it still hears, and the transport is closed.
    Ended,
}

/// An open WebSocket, and what is left of it until its application has heard of its end.
pub(crate) struct WebSocket<M> {
    pub(crate) serial: u64,
    frames: frames::Connection,
    /// The message that the application takes next, with its length, and those behind it: usually there is one at most.
    next: Option<(usize, M)>,
    incoming: VecDeque<(usize, M)>,
    incoming_bytes: usize,
    /// For those messages, and for the one that arrives.
    memory: Reservation,
    end: Option<Box<WebSocketEnd>>,
    /// The transport is at its end, or is to be closed although the client has not answered.
    is_lost: bool,
    /// The application's call is over: what comes is discarded.
    is_released: bool,
    /// When bytes were received last.
    heard: Millis,
    /// When the next ping is sent.
    ping_at: Millis,
    /// When the ping was sent that is waited for: only bytes that are received since show that the client is there.
    pinged: Option<Millis>,
    /// The client's answer to our Close frame, or the rest of its message.
    timer: Timer,
    message_bytes: u64,
    /// Payload bytes sent, before compressing.
    pub(crate) sent_bytes: u64,
}

impl<M> WebSocket<M> {
    /// Accepts: writes the head of HTTP/1.1's answer.
    ///
    /// # Errors
    /// What the application may not answer with. Nothing has been written then.
    pub(crate) fn accept<'f>(
        opening: &PendingOpening,
        (subprotocol, fields): (Option<&str>, impl IntoIterator<Item = (&'f [u8], &'f [u8])>),
        (serial, now): (u64, Millis),
        config: &WebSocketConfig,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Result<Self, AcceptMisuse> {
        let agreement = opening.agree(subprotocol)?;
        agreement.write(fields, stamp, out)?;
        let limits = WebSocketLimits { message: config.message, backlog: HIGH_WATER };
        Ok(Self {
            serial,
            frames: frames::Connection::new(Role::Server, agreement.deflate, limits),
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
        })
    }

    /// Whether bytes of the client are to be read: there is room for what they say.
    pub(crate) fn wants_input(&self, config: &WebSocketConfig) -> bool {
        match self.frames.waits_for() {
            frames::Wait::Peer => {
                let waiting = usize::from(self.next.is_some()) + self.incoming.len();
                waiting < config.queue && self.incoming_bytes < READ_AHEAD
            }
            // The client's messages are discarded then.
            frames::Wait::Close => true,
            frames::Wait::Caller | frames::Wait::End => false,
        }
    }

    /// Reads on in `input`, which is changed, until there is no room for more messages, or the turn is over. Each ping is
    /// answered in its turn. `backlog`: bytes of output that wait before those in `out`. Returns the bytes used, and
    /// whether the WebSocket was closed for want of memory.
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
                // What came before it is still answered, and the frames say why none follows when the application asks.
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

    /// Reserves memory for the messages that wait, for `more` bytes of another one, and for the one that arrives. Returns
    /// false and changes nothing if there is none.
    fn reserve(&mut self, more: usize) -> bool {
        let needed = self.incoming_bytes + more + self.frames.kept_bytes();
        let counted = if needed > LEAST_AHEAD { needed } else { 0 };
        counted == self.memory.bytes() || self.memory.resize(counted)
    }

    fn note_fault(&mut self, fault: WebSocketFault) {
        self.note_end(fault.code().number(), fault.explanation().into(), false);
    }

    /// Takes up the fault that lies behind the messages. Its Close frame is to be written then.
    fn take_up_fault(&mut self) {
        if let Some(fault) = self.frames.take_up() {
            self.note_fault(fault);
        }
    }

    fn note_end(&mut self, code: u16, reason: Box<str>, is_own: bool) {
        self.end.get_or_insert_with(|| Box::new(WebSocketEnd { code, reason, is_own }));
    }

    /// The transport has come to its end, or cannot be used any more.
    pub(crate) fn lose(&mut self) {
        self.take_up_fault();
        self.is_lost = true;
        self.note_end(CloseCode::ABNORMAL, Box::default(), false);
    }

    pub(crate) fn has_something(&self) -> bool {
        self.next.is_some() || self.end.is_some() || self.frames.waits_for() == frames::Wait::Caller
    }

    /// The next message. What the application takes makes room for more.
    pub(crate) fn take(&mut self) -> Incoming<M> {
        if self.next.is_none() {
            self.take_up_fault();
        }
        match (self.next.take(), &self.end) {
            (Some((length, message)), _) => {
                self.incoming_bytes -= length;
                // It becomes less, for which there is always room.
                self.reserve(0);
                self.next = self.incoming.pop_front();
                if self.incoming.is_empty() {
                    // An idle connection has none of it.
                    self.incoming = VecDeque::new();
                }
                Incoming::Message(message)
            }
            (None, Some(end)) => Incoming::End(WebSocketEnd::clone(end)),
            (None, None) => Incoming::Pending,
        }
    }

    /// Why no message follows, if none does.
    pub(crate) fn end(&self) -> Option<&WebSocketEnd> {
        self.end.as_deref()
    }

    /// Sends a message. `backlog`: bytes of output that wait.
    ///
    /// # Errors
    /// [`SendError::Closed`]; [`SendError::QueueFull`]: it may be sent again when there is room.
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

    /// Writes the header of a message whose bytes the caller sends behind it. False if it has to be [sent](Self::send) as a
    /// whole, because it may be compressed; nothing has been written then.
    ///
    /// # Errors
    /// As [`send`](Self::send).
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

    /// Sends a message that is framed once for many.
    ///
    /// # Errors
    /// As [`send`](Self::send).
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

    /// Whether an application that waits for room may go on to send.
    pub(crate) fn has_room(&self, backlog: usize) -> bool {
        backlog <= LOW_WATER || self.end.is_some()
    }

    /// The same for one that has sent.
    pub(crate) fn room(backlog: usize) -> Room {
        if backlog > HIGH_WATER { Room::Full } else { Room::Left }
    }

    /// Begins the closing handshake, unless it has begun. Messages that came before are still received.
    pub(crate) fn close(&mut self, code: CloseCode, reason: &str, is_own: bool, out: &mut Vec<u8>) {
        if self.end.is_none() && self.frames.close(code, reason, out).is_ok() {
            self.note_end(code.number(), reason.into(), is_own);
        }
    }

    /// The application's call is over.
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

    /// Whether messages may be sent and received.
    pub(crate) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// Whether answers of our own are to be written.
    pub(crate) fn owes_answer(&self) -> bool {
        self.frames.owes_answer()
    }

    pub(crate) fn write_answers(&mut self, backlog: usize, out: &mut Vec<u8>) {
        self.frames.flush(backlog, out);
    }

    /// Whether the transport is to be closed when all output is sent.
    pub(crate) fn is_over(&self) -> bool {
        self.is_lost || self.frames.waits_for() == frames::Wait::End && !self.owes_answer()
    }

    /// When something is to be done, if no bytes come.
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
            // What it has sent since lies unread: it is not its turn.
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

    /// The time is up for something.
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

    /// The client is late: it is told why, and not waited for.
    fn give_up(&mut self, code: CloseCode, reason: &str, out: &mut Vec<u8>) -> Overdue {
        // It is open, or there would be no such deadline.
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

    /// What an idle WebSocket takes in the engine beside its connection, which is as large as one of HTTP.
    #[test]
    fn idle_websocket_takes_little_memory() {
        assert!(size_of::<Upgrade<[usize; 2]>>() <= 512, "{}", size_of::<Upgrade<[usize; 2]>>());
    }
}
