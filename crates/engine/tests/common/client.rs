//! A client: a connection whose bytes the test moves, and the answers that arrived.

use super::Address;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use wire::http1::BodyStep;
use wire::http1::client::{Receiver, ServerFault};
use wire::message::{Field, Limits};

/// The end of a connection, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In order: all bytes sent have arrived.
    Closed,
    /// By a reset.
    Reset,
}

/// One whole final response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) keep_alive: bool,
    pub(crate) chunked: bool,
    /// The field lines.
    pub(crate) head: String,
}

/// A connection to the engine.
pub(crate) struct Client {
    socket: OwnedFd,
    outbox: VecDeque<u8>,
    /// True if received bytes are read from the kernel.
    pub(crate) reads: bool,
    /// True if the connection accepts no more bytes from the client.
    pub(crate) refused: bool,
    was_reset: bool,
    ends_after_sending: bool,
    pub(crate) end: Option<End>,
    /// All received bytes.
    pub(crate) received: Vec<u8>,
    /// The whole answers in `received`.
    pub(crate) answers: Vec<Answer>,
    /// The number of interim responses.
    pub(crate) interims: usize,
    /// The fault in the received bytes.
    pub(crate) fault: Option<ServerFault>,
    parser: Parser,
}

impl Client {
    /// Connects. The kernel accepts the connection, so the engine need not be polled. `receive_buffer` limits how many
    /// unread bytes the kernel buffers.
    pub(crate) fn connect(address: &Address, receive_buffer: Option<usize>) -> Self {
        let socket = sim::sockets::connect(address, receive_buffer).expect("the engine listens");
        Self {
            socket,
            outbox: VecDeque::new(),
            reads: true,
            refused: false,
            was_reset: false,
            ends_after_sending: false,
            end: None,
            received: Vec::new(),
            answers: Vec::new(),
            interims: 0,
            fault: None,
            parser: Parser::default(),
        }
    }

    /// Queues bytes for [`pump`](Self::pump).
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.outbox.extend(bytes.as_ref());
    }

    /// Returns the number of queued bytes not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// Declares that answer `index` (from 0) is one to HEAD.
    pub(crate) fn expect_head_at(&mut self, index: usize) {
        self.parser.heads.push(index);
    }

    /// Closes the client's sending side after all queued bytes are sent.
    pub(crate) fn end_sending(&mut self) {
        self.ends_after_sending = true;
    }

    /// Closes the client's sending side now.
    pub(crate) fn hang_up(&mut self) {
        self.refused = true;
        rustix::net::shutdown(&self.socket, Shutdown::Write).ok();
    }

    /// Closes the connection with a reset.
    pub(crate) fn reset(self) {
        sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO)).expect("a socket");
    }

    /// Returns the events to wait for; `None` if there are none.
    pub(crate) fn interest(&self) -> Option<PollFlags> {
        let mut interest = PollFlags::empty();
        if self.reads && self.end.is_none() {
            interest |= PollFlags::IN;
        }
        if !self.outbox.is_empty() && !self.refused {
            interest |= PollFlags::OUT;
        }
        (!interest.is_empty()).then_some(interest)
    }

    /// Sends and receives as many bytes as possible. Returns true if any byte moved.
    pub(crate) fn pump(&mut self) -> bool {
        let out = self.pump_out(usize::MAX);
        let arrived = if self.reads { self.pump_in(usize::MAX) } else { 0 };
        out + arrived > 0
    }

    /// Sends at most `limit` queued bytes; returns their number.
    pub(crate) fn pump_out(&mut self, limit: usize) -> usize {
        let mut sent = 0;
        while sent < limit && !self.outbox.is_empty() && !self.refused {
            let (front, _) = self.outbox.as_slices();
            match rustix::net::send(&self.socket, &front[..front.len().min(limit - sent)], SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.outbox.drain(..count);
                    sent += count;
                }
                Err(Errno::WOULDBLOCK) => break,
                Err(error) => {
                    self.refused = true;
                    // The kernel reports a reset once. After that, receiving reports an orderly end.
                    self.was_reset |= error == Errno::CONNRESET;
                }
            }
        }
        if self.outbox.is_empty() && std::mem::take(&mut self.ends_after_sending) {
            // The engine may have closed the connection already.
            rustix::net::shutdown(&self.socket, Shutdown::Write).ok();
        }
        sent
    }

    /// Receives at most `limit` bytes; returns their number.
    pub(crate) fn pump_in(&mut self, limit: usize) -> usize {
        let mut arrived = 0;
        let mut buffer = [0; 16 << 10];
        while arrived < limit && self.end.is_none() {
            let room = buffer.len().min(limit - arrived);
            match rustix::net::recv(&self.socket, &mut buffer[..room], RecvFlags::empty()) {
                Ok((0, _)) => {
                    self.end = Some(if self.was_reset { End::Reset } else { End::Closed });
                    self.read_answers();
                }
                Ok((count, _)) => {
                    self.received.extend_from_slice(&buffer[..count]);
                    arrived += count;
                    self.read_answers();
                }
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::CONNRESET | Errno::PIPE) => {
                    self.end = Some(End::Reset);
                    self.read_answers();
                }
                Err(error) => panic!("recv: {error}"),
            }
        }
        arrived
    }

    fn read_answers(&mut self) {
        if self.fault.is_some() {
            return;
        }
        let outcome = self.parser.read(&self.received, self.end, &mut self.answers, &mut self.interims);
        self.fault = outcome.err();
    }

    /// Returns true if an answer has arrived in part.
    pub(crate) fn has_part(&self) -> bool {
        self.parser.current.is_some() || self.parser.used < self.received.len()
    }

    /// Returns the received bytes as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Parses answers as they arrive.
#[derive(Default)]
struct Parser {
    receiver: Receiver,
    fields: Vec<Field>,
    limits: Limits,
    /// Number of received bytes that answers have used.
    used: usize,
    current: Option<Answer>,
    /// Number of final heads parsed.
    begun: usize,
    /// The indices, from 0, of the answers to HEAD.
    heads: Vec<usize>,
}

impl Parser {
    fn read(
        &mut self,
        received: &[u8],
        end: Option<End>,
        answers: &mut Vec<Answer>,
        interims: &mut usize,
    ) -> Result<(), ServerFault> {
        loop {
            let rest = &received[self.used..];
            let Some(answer) = &mut self.current else {
                let answers_head = self.heads.contains(&self.begun);
                let Some(head) = self.receiver.head(rest, answers_head, &mut self.fields, &self.limits)? else {
                    break;
                };
                self.used += head.length;
                if head.is_interim {
                    *interims += 1;
                    continue;
                }
                self.begun += 1;
                self.current = Some(Answer {
                    status: head.status,
                    body: Vec::new(),
                    keep_alive: head.keep_alive,
                    chunked: head.body == wire::http1::client::Body::Chunked,
                    head: String::from_utf8_lossy(head.block).into_owned(),
                });
                continue;
            };
            let (used, step) = self.receiver.body(rest, &self.limits)?;
            self.used += used;
            match step {
                BodyStep::Data(data) => answer.body.extend_from_slice(data),
                BodyStep::Trailer { .. } => {}
                BodyStep::End => answers.extend(self.current.take()),
                BodyStep::More => break,
            }
        }
        if end == Some(End::Closed) {
            self.receiver.end_of_input(&received[self.used..])?;
            // A body that lasts until the close is complete now.
            if self.current.is_some() {
                let (_, step) = self.receiver.body(&[], &self.limits)?;
                assert_eq!(step, BodyStep::End);
                answers.extend(self.current.take());
            }
        }
        Ok(())
    }
}
