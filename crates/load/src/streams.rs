//! The requests of one HTTP/2 connection: writes them, and reads the responses in whatever order they arrive.
//!
//! Windows are as large as HTTP/2 allows for what the server sends, as h2load's: a response waits for the server, never
//! for the generator.

use crate::answers::{Answer, Wanted};
use crate::script::{Form, Script};
use crate::tally::Job;
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use wire::http2::{ClientConnection, ClientEvent, ErrorCode, Violation};

/// The window of each stream and of the connection, in bytes.
const WINDOW: u32 = 1 << 30;
/// The bytes of bodies after which the server gets them back.
const PART_OF_WINDOW: u32 = WINDOW / 4;
/// Bytes that may wait for the socket before more of the requests' bodies is written.
const OUTPUT: usize = 64 * 1024;
/// The bytes of a frame's header; the fourth one is its type (RFC 9113 section 4.1).
const TYPE: usize = 3;
/// The types of the frames that carry fields: HEADERS and CONTINUATION.
const FIELDS: [u8; 2] = [1, 9];

/// The next thing in the input. A request is named by its place among the unanswered ones.
#[derive(Debug)]
pub(crate) enum Step {
    /// More input is needed.
    More,
    /// Nothing that concerns a request alone.
    Nothing,
    /// A part of this response, which is not whole.
    Part(usize),
    /// The whole response to this request, which is not among the unanswered ones any more.
    Whole(usize, Answer),
    /// The server has reset the stream of this request, which is not among the unanswered ones any more.
    Reset(usize, u32),
    /// The server processes no request from this one on, and takes no other.
    GoAway(usize, u32),
}

/// A request whose response is not whole.
#[derive(Debug)]
struct Exchange {
    stream: u32,
    /// Bytes of the request's body that have been written.
    written: usize,
    is_request_open: bool,
    /// The response so far, from its final head on.
    answer: Option<Answer>,
    hash: Option<Sha256>,
    /// Bytes of heads: of interim responses, and of the final one.
    heads: u64,
    /// Received bytes of the body that were not given back to the stream's window.
    owed: u32,
}

#[derive(Debug)]
pub(crate) struct Streams {
    connection: ClientConnection,
    /// Frames to be sent, of which the first `sent` bytes were.
    output: Vec<u8>,
    sent: usize,
    /// One for each unanswered request, in their order.
    exchanges: VecDeque<Exchange>,
    /// Number of requests whose body is not written completely.
    uploads: usize,
    owed: u32,
    /// Bytes of the frames of a header block that is not whole.
    heads: u64,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            connection: ClientConnection::new(WINDOW, WINDOW),
            output: Vec::new(),
            sent: 0,
            exchanges: VecDeque::new(),
            uploads: 0,
            owed: 0,
            heads: 0,
        }
    }

    /// Returns the number of requests that the server takes at a time. Before its settings have arrived that is one:
    /// more might be refused.
    pub(crate) fn most(&self) -> usize {
        self.connection.most_streams().map_or(1, |most| usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Writes the head of a request, behind the others.
    pub(crate) fn begin(&mut self, form: &Form) {
        let fields = form.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
        let is_request_open = !form.body.is_empty();
        let stream = self.connection.begin(fields, !is_request_open, &mut self.output);
        self.uploads += usize::from(is_request_open);
        let (answer, hash) = (None, None);
        self.exchanges.push_back(Exchange { stream, written: 0, is_request_open, answer, hash, heads: 0, owed: 0 });
    }

    /// Returns, of the response to a request, the number of its body's bytes received; `None`: its head has not arrived.
    pub(crate) fn received(&self, index: usize) -> Option<u64> {
        self.exchanges.get(index)?.answer.as_ref().map(|answer| answer.length)
    }

    /// Cancels a request, which is not among the unanswered ones any more.
    pub(crate) fn cancel(&mut self, index: usize) {
        if let Some(exchange) = self.remove(index) {
            self.connection.reset(exchange.stream, ErrorCode::Cancel, &mut self.output);
        }
    }

    /// Removes the requests from this one on, which the server does not process.
    pub(crate) fn truncate(&mut self, first: usize) {
        while self.exchanges.len() > first {
            self.remove(first);
        }
    }

    fn remove(&mut self, index: usize) -> Option<Exchange> {
        let exchange = self.exchanges.remove(index)?;
        self.uploads -= usize::from(exchange.is_request_open);
        Some(exchange)
    }

    // --------------------------------------------------------------------------------------------------------- output

    /// Returns the bytes to be sent; `jobs` are the unanswered requests.
    pub(crate) fn unsent(&mut self, jobs: &VecDeque<Job>, script: &Script) -> &[u8] {
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        self.connection.write_control(&mut self.output);
        if self.uploads > 0 {
            self.write_bodies(jobs, script);
        }
        &self.output[self.sent..]
    }

    /// Notes that so many of the bytes were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
    }

    fn write_bodies(&mut self, jobs: &VecDeque<Job>, script: &Script) {
        for (exchange, job) in self.exchanges.iter_mut().zip(jobs).filter(|(exchange, _)| exchange.is_request_open) {
            let rest = &script.form(job.request).body[exchange.written..];
            let room = OUTPUT.saturating_sub(self.output.len() - self.sent);
            let part = &rest[..rest.len().min(room).min(self.connection.window(exchange.stream))];
            if part.is_empty() {
                continue;
            }
            exchange.written += part.len();
            exchange.is_request_open = part.len() < rest.len();
            self.uploads -= usize::from(!exchange.is_request_open);
            self.connection.data(exchange.stream, part, !exchange.is_request_open, &mut self.output);
        }
    }

    // ---------------------------------------------------------------------------------------------------------- input

    /// Returns the next thing in `input`, and the number of bytes that it uses. `wanted` tells what the answer to a
    /// request has to contain.
    ///
    /// # Errors
    /// The rule that the server broke. The connection is of no use any more.
    pub(crate) fn next(&mut self, input: &[u8], wanted: impl Fn(usize) -> Wanted) -> Result<(usize, Step), Violation> {
        let find = |exchanges: &VecDeque<Exchange>, stream| {
            exchanges.binary_search_by_key(&stream, |exchange| exchange.stream).ok()
        };
        let (used, event) = self.connection.next(input)?;
        let has_fields = used > 0 && FIELDS.contains(&input[TYPE]);
        self.heads += if has_fields { used as u64 } else { 0 };
        let ended = match event {
            ClientEvent::More => return Ok((used, Step::More)),
            ClientEvent::Nothing | ClientEvent::Credit { .. } => None,
            ClientEvent::Head { stream, status, fields, is_last, .. } => {
                let heads = std::mem::take(&mut self.heads);
                let Some(index) = find(&self.exchanges, stream) else { return Ok((used, Step::Nothing)) };
                let exchange = &mut self.exchanges[index];
                exchange.heads += heads;
                if status >= 200 {
                    let wanted = wanted(index);
                    exchange.hash = wanted.hash.then(Sha256::new);
                    let head = wanted.head.then(|| shown(status, fields));
                    let heads = exchange.heads;
                    let (hash, content) = (None, None);
                    exchange.answer = Some(Answer { status, heads, length: 0, hash, head, content, keep_alive: true });
                }
                Some((index, is_last))
            }
            ClientEvent::Data { stream, bytes, flow, is_last } => {
                let found = find(&self.exchanges, stream);
                if let Some(exchange) = found.map(|index| &mut self.exchanges[index]) {
                    if let Some(answer) = &mut exchange.answer {
                        answer.length += bytes.len() as u64;
                    }
                    if let Some(hash) = &mut exchange.hash {
                        hash.update(bytes);
                    }
                    exchange.owed += flow;
                    if exchange.owed >= PART_OF_WINDOW {
                        self.connection.enlarge(stream, std::mem::take(&mut exchange.owed));
                    }
                }
                self.owed += flow;
                if self.owed >= PART_OF_WINDOW {
                    self.connection.consumed_by_connection(std::mem::take(&mut self.owed));
                }
                found.map(|index| (index, is_last))
            }
            ClientEvent::Trailers { stream } => {
                self.heads = 0;
                find(&self.exchanges, stream).map(|index| (index, true))
            }
            ClientEvent::Reset { stream, code } => {
                let Some(index) = find(&self.exchanges, stream) else { return Ok((used, Step::Nothing)) };
                self.remove(index);
                return Ok((used, Step::Reset(index, code)));
            }
            ClientEvent::GoAway { last, code } => {
                let first = self.exchanges.partition_point(|exchange| exchange.stream <= last);
                return Ok((used, Step::GoAway(first, code)));
            }
        };
        Ok((used, self.after(ended)))
    }

    /// Returns the step after a part of a response; `ended`: its request, and true if the response is whole.
    fn after(&mut self, ended: Option<(usize, bool)>) -> Step {
        let Some((index, is_whole)) = ended else { return Step::Nothing };
        if !is_whole {
            return Step::Part(index);
        }
        let Some(Exchange { answer: Some(mut answer), hash, .. }) = self.remove(index) else { return Step::Nothing };
        answer.hash = hash.map(|hash| hash.finalize().into());
        Step::Whole(index, answer)
    }
}

/// Returns a head as lines of text.
fn shown(status: u16, fields: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/2 {status}\n").into_bytes();
    head.extend_from_slice(fields);
    head
}
