//! The requests of one HTTP/2 connection: writes them, and reads the responses in the order in which they arrive.
//!
//! The flow-control windows for the server's output are as large as HTTP/2 allows, as in h2load, so that a response
//! never waits for the generator.

use crate::answers::{Answer, Wanted};
use crate::script::{Form, Script};
use crate::tally::Job;
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use wire::http2::{ClientConnection, ClientEvent, ErrorCode, Violation};

/// The flow-control window of each stream and of the connection, in bytes.
const WINDOW: u32 = 1 << 30;
/// The number of received body bytes after which the window is replenished.
const PART_OF_WINDOW: u32 = WINDOW / 4;
/// The number of unsent bytes above which no more request bodies are written.
const OUTPUT: usize = 64 * 1024;
/// The offset of the type in a frame header (RFC 9113 section 4.1).
const TYPE: usize = 3;
/// The types of the frames that contain fields: HEADERS and CONTINUATION.
const FIELDS: [u8; 2] = [1, 9];

/// The next event in the input. A request is identified by its index among the unanswered ones.
#[derive(Debug)]
pub(crate) enum Step {
    /// The input has no complete event; more is needed.
    More,
    /// An event that concerns no single request.
    Nothing,
    /// A part of the response to this request, which is not complete.
    Part(usize),
    /// The complete response to this request, which has been removed from the unanswered ones.
    Whole(usize, Answer),
    /// The server has reset the stream of this request, which has been removed from the unanswered ones.
    Reset(usize, u32),
    /// The server will not process the requests from this index on, and accepts no more.
    GoAway(usize, u32),
}

/// A request whose response is not complete.
#[derive(Debug)]
struct Exchange {
    stream: u32,
    /// The number of body bytes of the request that have been written.
    written: usize,
    is_request_open: bool,
    /// The response so far; `None` before its final head.
    answer: Option<Answer>,
    hash: Option<Sha256>,
    /// The number of bytes of the heads: of interim responses and of the final one.
    heads: u64,
    /// The number of received body bytes that have not been returned to the stream's window.
    owed: u32,
}

#[derive(Debug)]
pub(crate) struct Streams {
    connection: ClientConnection,
    /// The frames to be sent. The first `sent` bytes have been sent.
    output: Vec<u8>,
    sent: usize,
    /// One entry for each unanswered request, in order.
    exchanges: VecDeque<Exchange>,
    /// The number of requests whose body has not been written completely.
    uploads: usize,
    owed: u32,
    /// The number of bytes of the frames of an incomplete header block.
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

    /// Returns the number of concurrent requests that the server accepts. Before its settings have arrived this is 1,
    /// because the server might refuse more.
    pub(crate) fn most(&self) -> usize {
        self.connection.most_streams().map_or(1, |most| usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Writes the head of a request after the other output.
    pub(crate) fn begin(&mut self, form: &Form) {
        let fields = form.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
        let is_request_open = !form.body.is_empty();
        let stream = self.connection.begin(fields, !is_request_open, &mut self.output);
        self.uploads += usize::from(is_request_open);
        let (answer, hash) = (None, None);
        self.exchanges.push_back(Exchange { stream, written: 0, is_request_open, answer, hash, heads: 0, owed: 0 });
    }

    /// Returns the number of body bytes received for a request; `None` if its response has not begun.
    pub(crate) fn received(&self, index: usize) -> Option<u64> {
        self.exchanges.get(index)?.answer.as_ref().map(|answer| answer.length)
    }

    /// Cancels a request, and removes it from the unanswered ones.
    pub(crate) fn cancel(&mut self, index: usize) {
        if let Some(exchange) = self.remove(index) {
            self.connection.reset(exchange.stream, ErrorCode::Cancel, &mut self.output);
        }
    }

    /// Removes the requests from this index on, which the server will not process.
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

    /// Returns the bytes to be sent. `jobs` are the unanswered requests.
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

    /// Notes that the first `count` of the unsent bytes were sent.
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

    /// Returns the next event in `input`, and the number of bytes consumed. `wanted(index)` returns which parts of the
    /// response to a request must be kept.
    ///
    /// # Errors
    /// The rule that the server violated. The connection must not be used afterwards.
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

    /// Returns the event after a part of a response. `ended` is the request's index, and true if the response is
    /// complete.
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

/// Formats a head as text.
fn shown(status: u16, fields: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/2 {status}\n").into_bytes();
    head.extend_from_slice(fields);
    head
}
