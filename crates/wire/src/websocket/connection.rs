//! One end of an established connection: frames in both directions, answers to pings, and the closing handshake (RFC
//! 6455 sections 5.5 and 7).

use super::close::CloseFrame;
use super::close_code::CloseCode;
use super::closing::{ClosingHandshake, HandshakeStage};
use super::deflate::Compression;
use super::extension::Deflate;
use super::fault::WebSocketFault;
use super::frame::{ControlPayload, Kind};
use super::mask::Role;
use super::receive::{Received, Receiver};
use super::send::{FrameHead, Outgoing, Prepared, SendError, Sender};
use std::borrow::Cow;

/// Limits of one connection, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketLimits {
    /// The largest message, measured after inflating. 16 MiB is uvicorn's default.
    pub message: usize,
    /// The backlog of unsent bytes above which no message is accepted and no ping is answered. One message may exceed
    /// it.
    pub backlog: usize,
}

impl Default for WebSocketLimits {
    fn default() -> Self {
        Self { message: 16 << 20, backlog: 1 << 20 }
    }
}

/// An event of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// An event that does not concern the application.
    Nothing,
    /// A message of the peer.
    Message {
        /// The type of the message.
        kind: Kind,
        /// The bytes of the message; valid UTF-8 if it is text.
        bytes: Cow<'i, [u8]>,
    },
    /// A Pong frame, whether or not it answers a ping.
    Pong(ControlPayload),
    /// A Close frame of the peer, which begins or completes the closing handshake. No messages follow in either
    /// direction.
    Close(CloseFrame),
    /// The peer broke a rule. The connection closes, and no messages follow in either direction.
    Fault(WebSocketFault),
}

/// The event that the connection waits for. Each has its own deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Any bytes of the peer, which show that it is alive. A peer that does not answer a ping counts as gone.
    Peer,
    /// The caller itself, which has [postponed](Connection::postpone) the answer to a fault.
    Caller,
    /// The peer's answer to this end's Close frame (RFC 6455 section 7.1.2). At the deadline, the transport is closed.
    Close,
    /// The end of the transport. A server closes it when all output is sent. A client waits for the server to do so
    /// (RFC 6455 section 7.1.1), and closes it itself at the deadline.
    End,
}

/// One end of an established connection.
///
/// The caller passes received bytes to [`next`](Self::next). After that, and whenever the peer has accepted output, it
/// calls [`flush`](Self::flush), which writes pending answers. The other methods write what the application sends.
#[derive(Debug)]
pub struct Connection {
    receiver: Receiver,
    sender: Sender,
    limits: WebSocketLimits,
    handshake: ClosingHandshake,
    /// The pending answer to the last ping. It answers earlier pings too (RFC 6455 section 5.5.3).
    pong: Option<Box<ControlPayload>>,
    /// The code of the peer's Close frame, or [`CloseCode::ABNORMAL`] if none has arrived.
    close_code: u16,
}

impl Connection {
    /// Creates a connection after its opening handshake. `deflate` is the negotiated compression.
    #[must_use]
    pub fn new(role: Role, deflate: Option<Deflate>, limits: WebSocketLimits) -> Self {
        let sender = Sender::new(role, deflate);
        let receiver = Receiver::new(sender.is_server(), deflate);
        Self {
            receiver,
            sender,
            limits,
            handshake: ClosingHandshake::new(),
            pong: None,
            close_code: CloseCode::ABNORMAL,
        }
    }

    /// Reads from `input`, which it modifies. Returns the number of bytes used, and their event. The caller repeats
    /// this while input is left.
    ///
    /// After this end has sent a Close frame, messages of the peer are read and discarded until its Close frame
    /// arrives. After that, and after a fault, all input is discarded.
    pub fn next<'i>(&mut self, input: &'i mut [u8], compression: &mut Compression) -> (usize, Event<'i>) {
        let length = input.len();
        let (used, received) = match self.receiver.next(input, self.limits.message, compression) {
            Ok(step) => step,
            Err(fault) => {
                self.handshake.fail(fault);
                return (length, Event::Fault(fault));
            }
        };
        let event = match received {
            Received::Message { kind, bytes } if self.is_open() => Event::Message { kind, bytes },
            Received::Pong(payload) if self.is_open() => Event::Pong(payload),
            Received::More | Received::Part | Received::Message { .. } | Received::Pong(_) => Event::Nothing,
            Received::Ping(payload) => {
                self.pong = Some(Box::new(payload)).filter(|_| self.is_open());
                Event::Nothing
            }
            Received::Close(frame) => {
                self.close_code = frame.number();
                self.handshake.end_by_peer(frame.code);
                Event::Close(frame)
            }
        };
        (used, event)
    }

    /// Appends pending answers to `out`: a Pong frame, or a Close frame. `backlog` is the number of unsent bytes. While
    /// it exceeds the limit, pings are not answered; later only the last of them is.
    pub fn flush(&mut self, backlog: usize, out: &mut Vec<u8>) {
        if let Some((code, reason)) = self.handshake.owed() {
            self.sender.close(code, reason, out);
            self.handshake.answer();
        } else if self.is_open()
            && let Some(payload) = self.pong.take_if(|_| backlog <= self.limits.backlog)
        {
            self.sender.pong(&payload, out);
        }
    }

    /// Postpones the answer to the [fault](Event::Fault) that [`next`](Self::next) has just returned, so that the
    /// application can still answer earlier messages. No more input is read. The caller limits the time until
    /// [`take_up`](Self::take_up). (RFC 6455 section 7.1.7 forbids only the processing of data after a fault.)
    pub fn postpone(&mut self, fault: WebSocketFault) {
        self.handshake.postpone(fault);
    }

    /// Closes the connection because the caller has no memory for the peer's messages. The received part of a message
    /// is dropped, and all later input is discarded.
    pub fn overload(&mut self, reason: &'static str, compression: &mut Compression) {
        self.receiver.stop(compression);
        self.pong = None;
        self.handshake.overload(reason);
    }

    /// Ends the [postponement](Self::postpone): a Close frame is pending now. Returns the fault that it answers; `None`
    /// if nothing was postponed.
    pub fn take_up(&mut self) -> Option<WebSocketFault> {
        self.handshake.take_up()
    }

    /// Appends a message to `out`, as one frame. `backlog` is the number of unsent bytes.
    ///
    /// # Errors
    /// [`SendError::Closed`], [`SendError::QueueFull`], [`SendError::MessageOpen`].
    pub fn send(
        &mut self,
        message: Outgoing<'_>,
        compression: &mut Compression,
        backlog: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        self.admit(backlog)?;
        self.sender.message(message, compression, out)
    }

    /// Returns the header of a message of `length` bytes, after which the caller sends these bytes without copying
    /// them. Returns `None` if the message may have to be masked or compressed; then [`send`](Self::send) must be used.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn head(&mut self, kind: Kind, length: u64, backlog: usize) -> Result<Option<FrameHead>, SendError> {
        self.admit(backlog)?;
        self.sender.head(kind, length)
    }

    /// Appends a part of a message to `out`. All parts of a message have the same type, and no other message may be
    /// sent between them.
    ///
    /// A part of a text must not end in the middle of a character.
    ///
    /// # Errors
    /// [`SendError::Closed`], [`SendError::QueueFull`], [`SendError::KindChanged`].
    pub fn part(
        &mut self,
        part: Outgoing<'_>,
        is_last: bool,
        backlog: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        self.admit(backlog)?;
        self.sender.part(part, is_last, out)
    }

    /// Returns the bytes to send for a message to many clients.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn prepared<'p>(
        &mut self,
        prepared: &'p Prepared,
        compression: &mut Compression,
        backlog: usize,
    ) -> Result<&'p [u8], SendError> {
        self.admit(backlog)?;
        self.sender.prepared(prepared, compression)
    }

    /// Appends a Ping frame to `out`.
    ///
    /// # Errors
    /// [`SendError::Closed`].
    pub fn ping(&mut self, payload: &ControlPayload, out: &mut Vec<u8>) -> Result<(), SendError> {
        self.admit(0)?;
        self.sender.ping(payload, out);
        Ok(())
    }

    /// Appends a Close frame to `out` and begins the closing handshake. A message of which only some parts were sent
    /// stays incomplete. `reason` is cut after at most 123 bytes.
    ///
    /// # Errors
    /// [`SendError::Closed`] if the connection is already closing or closed.
    pub fn close(&mut self, code: CloseCode, reason: &str, out: &mut Vec<u8>) -> Result<(), SendError> {
        self.admit(0)?;
        self.sender.close(Some(code), reason, out);
        self.handshake.close();
        self.pong = None;
        Ok(())
    }

    fn admit(&self, backlog: usize) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        if backlog <= self.limits.backlog { Ok(()) } else { Err(SendError::QueueFull) }
    }

    /// Returns true if messages may be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.handshake.is_open()
    }

    /// Returns true if [`flush`](Self::flush) may have something to write.
    #[must_use]
    pub fn owes_answer(&self) -> bool {
        self.handshake.owed().is_some() || self.is_open() && self.pong.is_some()
    }

    /// Returns the event that the connection waits for.
    #[must_use]
    pub fn waits_for(&self) -> Wait {
        match self.handshake.stage() {
            HandshakeStage::Open => Wait::Peer,
            HandshakeStage::Postponed => Wait::Caller,
            HandshakeStage::Closing => Wait::Close,
            HandshakeStage::Owing | HandshakeStage::Closed => Wait::End,
        }
    }

    /// Returns the code of the peer's Close frame as it is reported to an application: [`CloseCode::NO_STATUS`] if the
    /// frame has no code, [`CloseCode::ABNORMAL`] if no frame has arrived (RFC 6455 section 7.1.5).
    #[must_use]
    pub fn close_code(&self) -> u16 {
        self.close_code
    }

    /// Returns true if a message or a frame of the peer is incomplete.
    #[must_use]
    pub fn is_in_message(&self) -> bool {
        self.receiver.is_in_message()
    }

    /// Returns the number of bytes received of the incomplete message, after inflating.
    #[must_use]
    pub fn partial_bytes(&self) -> usize {
        self.receiver.partial_bytes()
    }

    /// Returns the heap memory that this connection uses, in bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.receiver.kept_bytes() + self.pong.as_ref().map_or(0, |_| size_of::<ControlPayload>())
    }
}
