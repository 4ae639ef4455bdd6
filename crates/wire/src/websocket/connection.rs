//! One end of an open connection: frames in both directions, answers to pings, and the closing handshake
//! (RFC 6455 sections 5.5 and 7).

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

/// Bounds on one connection, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketLimits {
    /// The largest message, counted after inflating. 16 MiB is uvicorn's.
    pub message: usize,
    /// While more than this waits to be sent, no message is accepted and no ping is answered. One message may exceed
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
    /// Nothing for the application.
    Nothing,
    /// A message.
    Message {
        /// The type of the message.
        kind: Kind,
        /// Its bytes; UTF-8 if it is text.
        bytes: Cow<'i, [u8]>,
    },
    /// A Pong frame, which may answer a ping or not.
    Pong(ControlPayload),
    /// The peer closes, or answers our Close frame. No message follows in either direction.
    Close(CloseFrame),
    /// The peer broke a rule. The connection closes; no message follows in either direction.
    Fault(WebSocketFault),
}

/// The action that the caller waits for; each has a deadline of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Anything from the peer. A ping that it does not answer shows that it is gone; any bytes show that it is not.
    Peer,
    /// The caller itself, which has [put off](Connection::postpone) the answer to a fault.
    Caller,
    /// The peer's answer to our Close frame (RFC 6455 section 7.1.2). When its deadline passes, the transport is
    /// closed.
    Close,
    /// The end of the transport. A server closes it when all output is sent; a client waits until the server does
    /// (RFC 6455 section 7.1.1), and closes it itself when the deadline passes.
    End,
}

/// One end of an open connection.
///
/// [`next`](Self::next) is given what is received. [`flush`](Self::flush) writes the answers that are owed and is
/// called after it, and whenever the peer has taken output. The other methods write what the application sends.
#[derive(Debug)]
pub struct Connection {
    receiver: Receiver,
    sender: Sender,
    limits: WebSocketLimits,
    handshake: ClosingHandshake,
    /// The answer to the last ping (RFC 6455 section 5.5.3 lets it stand for those before).
    pong: Option<Box<ControlPayload>>,
    /// The code of the peer's Close frame; [`CloseCode::ABNORMAL`] until it has arrived.
    close_code: u16,
}

impl Connection {
    /// Creates a connection whose opening handshake is done, with the `deflate` that was agreed on.
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

    /// Reads on in `input`, which is changed. Returns how many bytes have been taken, and what they say. It is called
    /// again while input is left.
    ///
    /// When a Close frame has been written, messages of the peer are read and discarded until its own Close frame
    /// comes. Behind that, and behind a fault, all input is discarded.
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

    /// Appends the answers that are owed to `out`: a Pong frame, or a Close frame. `backlog` is how many bytes wait to
    /// be sent. While they are more than the limit pings are not answered, and of those that come meanwhile the last
    /// one is.
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

    /// Puts off the answer to a [fault](Event::Fault) that [`next`](Self::next) has just returned, so that messages
    /// which came before it can still be answered. Nothing more is read. The caller bounds the time until
    /// [`take_up`](Self::take_up). (RFC 6455 section 7.1.7 forbids to process what follows a fault, and not what was
    /// before.)
    pub fn postpone(&mut self, fault: WebSocketFault) {
        self.handshake.postpone(fault);
    }

    /// Closes because the caller has no memory for what the peer sends. The received part of a message is dropped, and
    /// all input is discarded from now on.
    pub fn overload(&mut self, reason: &'static str, compression: &mut Compression) {
        self.receiver.stop(compression);
        self.pong = None;
        self.handshake.overload(reason);
    }

    /// Takes up the answer that was put off, and returns what it answers: a Close frame is owed now.
    pub fn take_up(&mut self) -> Option<WebSocketFault> {
        self.handshake.take_up()
    }

    /// Appends a message to `out`, as one frame. `backlog` is how many bytes wait to be sent.
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

    /// Returns the header of a message of `length` bytes that the caller sends after it without a copy; `None` if the
    /// message must be [sent](Self::send) as a whole, because it is masked or may be compressed.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn head(&mut self, kind: Kind, length: u64, backlog: usize) -> Result<Option<FrameHead>, SendError> {
        self.admit(backlog)?;
        self.sender.head(kind, length)
    }

    /// Appends a part of a message to `out`. All parts of a message are of one kind; no other message is sent between
    /// them.
    ///
    /// A part of text ends where a character ends.
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

    /// Returns the bytes to send for a message that goes to many clients.
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

    /// Appends a Close frame to `out` and begins the closing handshake. A message that is sent in parts stays without
    /// its end. `reason` is cut at 123 bytes.
    ///
    /// # Errors
    /// [`SendError::Closed`] if the connection is closed or closing already.
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

    /// Returns true if [`flush`](Self::flush) has anything to write.
    #[must_use]
    pub fn owes_answer(&self) -> bool {
        self.handshake.owed().is_some() || self.is_open() && self.pong.is_some()
    }

    /// Returns the action that the caller waits for.
    #[must_use]
    pub fn waits_for(&self) -> Wait {
        match self.handshake.stage() {
            HandshakeStage::Open => Wait::Peer,
            HandshakeStage::Postponed => Wait::Caller,
            HandshakeStage::Closing => Wait::Close,
            HandshakeStage::Owing | HandshakeStage::Closed => Wait::End,
        }
    }

    /// Returns the code that the peer's Close frame gave, as it is reported to an application: [`CloseCode::NO_STATUS`]
    /// if it gave none, [`CloseCode::ABNORMAL`] if no such frame has arrived (RFC 6455 section 7.1.5).
    #[must_use]
    pub fn close_code(&self) -> u16 {
        self.close_code
    }

    /// Returns true if a message or a frame of the peer has begun and not ended.
    #[must_use]
    pub fn is_in_message(&self) -> bool {
        self.receiver.is_in_message()
    }

    /// Returns the number of bytes received of the unfinished message, after inflating.
    #[must_use]
    pub fn partial_bytes(&self) -> usize {
        self.receiver.partial_bytes()
    }

    /// Returns the heap memory of this connection, in bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.receiver.kept_bytes() + self.pong.as_ref().map_or(0, |_| size_of::<ControlPayload>())
    }
}
