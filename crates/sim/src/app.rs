//! The simulated application as the engine sees it ([`engine::App`]), and the records of all requests.
//!
//! Nothing here takes virtual time: [`crate::threads::driver`] runs the application's calls.

use crate::clock::{Micros, SLACK, Shared, micros};
use crate::frames::Simulated;
use crate::net::{Network, Side, number_of};
use crate::plan::tasks::{label, message};
use crate::plan::{Host, Plan, RequestPlan, upload};
use crate::response::pattern;
use engine::{AcceptPause, App, Body, Expired, Peer, Refusal, Report, Ticket};
use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Read;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use wire::message::{Client, PartialRequestLine, RequestHead};
use wire::websocket::{Kind, Opening};

/// The message of a panic of the application that is part of the plan.
const PLANNED_PANIC: &str = "as planned";
/// The engine's report of a response that was completed although it is empty.
const EMPTY_RESPONSE: &str = "a response was called done and is empty";

/// The way in which a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// The whole response was written.
    Whole,
    /// A page of the server was sent, with this status.
    Refused(u16),
    /// The response was cut.
    Cut,
    /// The application panicked when the head of the request arrived.
    Panicked,
    /// The engine dropped the suspended response, because its peer was gone or too slow.
    Abandoned,
}

/// A call that has missed its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) at: Micros,
    pub(crate) outcome: Expired,
}

/// A call of the application.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: usize,
    pub(crate) connection: usize,
    /// The thread to which the call is bound.
    pub(crate) worker: usize,
    /// The ticket; `None` while the call is suspended.
    pub(crate) ticket: Option<Ticket>,
    /// The index of the next operation.
    pub(crate) at: usize,
    pub(crate) written: usize,
    /// The number of body bytes that the current operation has read.
    pub(crate) read: usize,
}

/// The recorded history of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) connection: Option<usize>,
    /// The time when the head had arrived.
    pub(crate) begun: Option<Micros>,
    /// The number of bytes that the server had received on the connection when the request began.
    pub(crate) received: u64,
    /// The time when the request was ready to be passed to the application.
    pub(crate) ready: Option<Micros>,
    /// True if a poll left the request in the queue.
    pub(crate) was_queued: bool,
    pub(crate) called: Option<Micros>,
    /// The time when the engine gave up the request, and the status that the peer received.
    pub(crate) dismissed: Option<(Micros, Option<u16>)>,
    /// The time by then at which the last bytes had arrived from the peer.
    pub(crate) last_arrival: Micros,
    pub(crate) ended: Option<(Micros, CallEnd)>,
    /// The number of body bytes that the application has received.
    pub(crate) read: usize,
    /// True if the call never returns.
    pub(crate) hangs: bool,
    /// True while the call is suspended, and has been neither resumed nor abandoned.
    pub(crate) is_suspended: bool,
    /// The missed deadline of the call; `None` if it has missed none.
    pub(crate) late: Option<Late>,
    /// True if the watchdog may have refused the request, which the next poll will report.
    pub(crate) may_be_refused: bool,
    /// The numbers of messages that the engine has received, and that the application has taken.
    pub(crate) arrived: usize,
    pub(crate) taken: usize,
}

/// The recorded history of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionRecord {
    /// The requests of the connection whose heads have arrived.
    pub(crate) begun: Vec<usize>,
    /// The time when the engine answered bytes that never became a request, and the status.
    pub(crate) refused: Option<(Micros, u16)>,
    /// True while the application's object for the connection exists.
    pub(crate) is_open: bool,
}

/// The counts of objects of the application. The engine may drop a chunk in any poll, but not in a tick.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) is_ticking: AtomicBool,
    pub(crate) dropped_in_tick: AtomicU64,
    /// The number of bytes in living chunks, for each request.
    pub(crate) deferred: Vec<AtomicI64>,
    pub(crate) alive: AtomicI64,
    /// The number of requests and responses that were dropped instead of being returned.
    pub(crate) lost: AtomicU64,
}

impl Ledger {
    /// Creates the ledger for `count` requests.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            is_ticking: AtomicBool::new(false),
            dropped_in_tick: AtomicU64::new(0),
            deferred: (0..count).map(|_| AtomicI64::new(0)).collect(),
            alive: AtomicI64::new(0),
            lost: AtomicU64::new(0),
        })
    }
}

/// A part of a body.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    id: usize,
    ledger: Arc<Ledger>,
}

impl Chunk {
    pub(crate) fn new(id: usize, bytes: Vec<u8>, ledger: &Arc<Ledger>) -> Self {
        ledger.deferred[id].fetch_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX), Ordering::Relaxed);
        ledger.alive.fetch_add(1, Ordering::Relaxed);
        Self { bytes, id, ledger: Arc::clone(ledger) }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let length = i64::try_from(self.bytes.len()).unwrap_or(i64::MAX);
        self.ledger.deferred[self.id].fetch_sub(length, Ordering::Relaxed);
        self.ledger.alive.fetch_sub(1, Ordering::Relaxed);
        if self.ledger.is_ticking.load(Ordering::Relaxed) {
            self.ledger.dropped_in_tick.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A marker of an object that the engine has to return. If it is dropped first, it counts as lost.
#[derive(Debug)]
pub(crate) struct Returnable {
    is_given_back: bool,
    ledger: Arc<Ledger>,
}

impl Returnable {
    pub(crate) fn new(ledger: &Arc<Ledger>) -> Self {
        ledger.alive.fetch_add(1, Ordering::Relaxed);
        Self { is_given_back: false, ledger: Arc::clone(ledger) }
    }

    pub(crate) fn give_back(mut self) {
        self.is_given_back = true;
    }
}

impl Drop for Returnable {
    fn drop(&mut self) {
        self.ledger.alive.fetch_sub(1, Ordering::Relaxed);
        if !self.is_given_back {
            self.ledger.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The application's object for a connection.
#[derive(Debug)]
pub(crate) struct ConnectionObject {
    pub(crate) number: usize,
    alive: Returnable,
}

/// A request in the queue.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) id: usize,
    pub(crate) returnable: Returnable,
}

/// A suspended response.
#[derive(Debug)]
pub(crate) struct SuspendedCall {
    pub(crate) job: Job,
    pub(crate) returnable: Returnable,
}

/// A message of a WebSocket that the application has not taken yet.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
    ledger: Arc<Ledger>,
}

impl Message {
    fn new(kind: Kind, bytes: Vec<u8>, ledger: &Arc<Ledger>) -> Self {
        ledger.alive.fetch_add(1, Ordering::Relaxed);
        Self { kind, bytes, ledger: Arc::clone(ledger) }
    }
}

impl Drop for Message {
    // The engine drops messages that no call will take.
    fn drop(&mut self) {
        self.ledger.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The application, with the records of all requests.
pub(crate) struct Records<P> {
    protocol: PhantomData<P>,
    shared: Rc<Shared>,
    network: Rc<RefCell<Network>>,
    pub(crate) plan: Rc<Plan>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) requests: Vec<Record>,
    pub(crate) connections: Vec<ConnectionRecord>,
    /// The threads that were woken within a call; with an event loop, the calls.
    pub(crate) woken: Vec<usize>,
    /// The requests that have become ready since this list was last taken.
    pub(crate) ready: Vec<usize>,
    /// The number of responses that the engine has made by itself.
    pub(crate) refusals: u64,
    pub(crate) pauses_reported: u64,
    /// The number of planned panics of the application that the engine has caught.
    pub(crate) panics: u64,
}

impl<P: Simulated> Records<P> {
    pub(crate) fn new(shared: Rc<Shared>, plan: Rc<Plan>, network: Rc<RefCell<Network>>) -> Self {
        let count = plan.requests.len();
        Self {
            protocol: PhantomData,
            shared,
            network,
            ledger: Ledger::new(count),
            requests: vec![Record::default(); count],
            connections: vec![ConnectionRecord::default(); plan.connections.len()],
            woken: Vec::new(),
            ready: Vec::new(),
            refusals: 0,
            pauses_reported: 0,
            panics: 0,
            plan,
        }
    }

    fn make_ready(&mut self, id: usize) {
        if self.requests[id].ready.replace(self.shared.now()).is_some() {
            self.shared.fail(|| format!("request {id} becomes ready twice"));
        }
        self.ready.push(id);
    }

    /// Records the call of a request. Checks that it is the request's first call, that it is not too late, and that the
    /// peer has not left.
    pub(crate) fn call(&mut self, asked: QueuedRequest, left_at: Option<Micros>) -> usize {
        let (now, id) = (self.shared.now(), asked.id);
        asked.returnable.give_back();
        let record = &mut self.requests[id];
        if record.called.replace(now).is_some() || record.dismissed.is_some() {
            self.shared.fail(|| format!("request {id} is called again"));
        }
        if record.ready.is_none() {
            self.shared.fail(|| format!("request {id} is called before it is ready"));
        }
        if record.was_queued && left_at.is_some() {
            self.shared.fail(|| format!("request {id} is called, whose peer had left while it was queued"));
        }
        // The engine may have received a reset together with the request, but not read it yet. An engine of HTTP/2 may
        // also receive the reset later, and read it even later.
        let network = self.network.borrow();
        let is_reset =
            network.seen_resets.contains(&id) || !self.plan.is_http2 && network.has_received_reset(id, record.received);
        if record.was_queued && is_reset {
            self.shared.fail(|| format!("request {id} is called, whose client had reset it while it was queued"));
        }
        if let (Some(limit), Some(ready)) = (self.plan.config.queue_timeout, record.ready) {
            // A sweep may be late. A single thread polls only when it is free.
            let late = now.saturating_sub(ready + micros(limit));
            if record.was_queued && self.plan.most_calls > 1 && late > SLACK {
                self.shared.fail(|| format!("request {id} is called after it has waited too long"));
            }
        }
        id
    }

    fn id_of(&self, head: &RequestHead<'_>) -> Option<usize> {
        let path = str::from_utf8(head.target.path).ok()?;
        path.strip_prefix('/')?.parse().ok().filter(|&id| id < self.plan.requests.len())
    }

    fn check_head(&self, id: usize, head: &RequestHead<'_>) {
        let RequestPlan { is_head, is_old, asks_to_close, is_websocket, .. } = self.plan.requests[id];
        let is_right = (head.method == b"HEAD") == is_head
            && (head.version == wire::message::Version::Http10) == is_old
            && (asks_to_close || is_websocket) == (head.field(b"connection") != is_old.then_some(&b"keep-alive"[..]))
            && head.field(b"host") == Some(b"a.example");
        if !is_right {
            self.shared.fail(|| format!("the head of request {id} is not the one that was sent: {head:?}"));
        }
    }

    /// Checks a part of a body that the application has read.
    pub(crate) fn take_body(&mut self, id: usize, part: &[u8]) {
        let record = &mut self.requests[id];
        let at = record.read;
        record.read += part.len();
        if record.read > self.plan.requests[id].body || part != pattern(upload(id), at, part.len()) {
            self.shared.fail(|| format!("the body of request {id} is not the one that was sent, from {at} on"));
        }
    }

    /// Checks a message that the application takes: it must be complete, correct, and the next one.
    pub(crate) fn take_message(&mut self, id: usize, kind: Kind, bytes: &[u8]) {
        let record = &mut self.requests[id];
        let number = record.taken;
        record.taken += 1;
        if bytes != message(id, number, kind, bytes.len(), false) {
            self.shared.fail(|| format!("call {id} takes {:?} as message {number}", label(bytes)));
        }
    }

    /// Records the way in which the call of a request ended.
    pub(crate) fn end(&mut self, id: usize, how: CallEnd) {
        self.shared.trace(|| format!("request {id} ends: {how:?}"));
        if self.requests[id].ended.replace((self.shared.now(), how)).is_some() {
            self.shared.fail(|| format!("request {id} ends twice"));
        }
    }

    /// Checks that the body ended at its planned length.
    pub(crate) fn end_body(&self, id: usize) {
        let (read, length) = (self.requests[id].read, self.plan.requests[id].body);
        if read != length || self.plan.requests[id].garbage.is_some() {
            self.shared.fail(|| format!("the body of request {id} ends after {read} bytes of {length}"));
        }
    }
}

impl<P: Simulated> App for Records<P> {
    type Net = Side;
    type Protocols = P;
    type Connection = ConnectionObject;
    type Request = QueuedRequest;
    type Response = SuspendedCall;
    type Chunk = Chunk;
    type Waiter = usize;
    type Message = Message;

    fn connect(&mut self, peer: &Peer) -> ConnectionObject {
        let number = peer.address.map(number_of).expect("the network reports addresses");
        self.connections[number].is_open = true;
        ConnectionObject { number, alive: Returnable::new(&self.ledger) }
    }

    fn message(&mut self, kind: Kind, bytes: Cow<'_, [u8]>) -> Message {
        self.shared.moved();
        let Some((id, number, false)) = label(&bytes).filter(|&(id, ..)| id < self.requests.len()) else {
            self.shared.fail(|| format!("a message arrives that no client has sent: {:?}", label(&bytes)));
            return Message::new(kind, Vec::new(), &self.ledger);
        };
        let record = &mut self.requests[id];
        if record.arrived != number {
            let arrived = record.arrived;
            self.shared.fail(|| format!("message {number} of call {id} arrives behind {arrived} others"));
        }
        record.arrived = number + 1;
        // The message that the application is just taking is not counted as taken yet.
        let waiting = (record.arrived - record.taken).saturating_sub(1);
        let queue = self.plan.config.websocket.as_ref().map_or(0, |config| config.queue);
        if waiting > queue {
            self.shared.fail(|| format!("{waiting} messages of call {id} wait, and {queue} may"));
        }
        Message::new(kind, bytes.into_owned(), &self.ledger)
    }

    fn begin_websocket(
        &mut self,
        head: &RequestHead<'_>,
        _: &Opening<'_>,
        connection: &mut ConnectionObject,
    ) -> QueuedRequest {
        let asked = self.begin(head, connection);
        if !self.plan.requests[asked.id].is_websocket {
            self.shared.fail(|| format!("request {} is taken for a WebSocket", asked.id));
        }
        asked
    }

    fn begin(&mut self, head: &RequestHead<'_>, connection: &mut ConnectionObject) -> QueuedRequest {
        let now = self.shared.now();
        self.shared.moved();
        let returnable = Returnable::new(&self.ledger);
        let Some(id) = self.id_of(head) else {
            self.shared.fail(|| format!("a request begins that no peer has sent: {head:?}"));
            return QueuedRequest { id: 0, returnable };
        };
        self.shared.trace(|| format!("request {id} begins on c{}", connection.number));
        self.check_head(id, head);
        let records = &mut self.connections[connection.number];
        let expected = self.plan.connections.iter().flat_map(|peer| &peer.requests).any(|&other| other == id);
        if P::MULTIPLEXED {
            // A suspended call is not counted, because its exchange may already have ended.
            let is_over =
                |record: &Record| record.ended.is_some() || record.dismissed.is_some() || record.may_be_refused;
            let is_out = |record: &Record| !is_over(record) && !record.is_suspended && record.late.is_none();
            let count = records.begun.iter().filter(|&&other| is_out(&self.requests[other])).count();
            if count >= self.plan.config.exchanges || records.begun.last().is_some_and(|&last| last >= id) {
                self.shared.fail(|| format!("request {id} begins beside {count} others: {:?}", records.begun));
            }
        } else if let Some(&before) = records.begun.last() {
            // The requests of one connection must begin one after the other.
            if before + 1 != id || self.requests[before].ended.is_none() || self.requests[before].late.is_some() {
                self.shared.fail(|| format!("request {id} begins behind {before}, {:?}", self.requests[before]));
            }
        }
        if (records.refused.is_some() && !P::MULTIPLEXED) || !expected {
            self.shared.fail(|| format!("request {id} begins where nothing should"));
        }
        records.begun.push(id);
        let record = &mut self.requests[id];
        record.connection = Some(connection.number);
        record.received = self.network.borrow().taken(connection.number);
        if record.begun.replace(now).is_some() {
            self.shared.fail(|| format!("request {id} begins twice"));
        }
        if self.plan.requests[id].panics {
            let record = &mut self.requests[id];
            record.ended = Some((now, CallEnd::Panicked));
            self.panics += 1;
            returnable.give_back();
            // The engine must catch this panic. `resume_unwind` calls no panic hook, because the panic is planned.
            std::panic::resume_unwind(Box::new(PLANNED_PANIC));
        }
        if self.plan.requests[id].body == 0 || !self.plan.config.buffer_bodies {
            // An empty chunked body is reported like any other.
            if !matches!(head.body, wire::message::BodyLength::Unknown) || !self.plan.config.buffer_bodies {
                self.make_ready(id);
            }
        }
        QueuedRequest { id, returnable }
    }

    fn receive(&mut self, asked: &mut QueuedRequest, body: Body<'_>) {
        let id = asked.id;
        let most = self.plan.config.body_memory;
        let is_total_bounded = self.plan.config.body_memory_total.most() < usize::MAX;
        let mut bytes = Vec::new();
        let fits = match body {
            Body::Empty => true,
            Body::Borrowed(borrowed) => {
                bytes.extend(borrowed);
                bytes.len() <= most
            }
            Body::Memory(memory) => {
                bytes = memory;
                bytes.len() <= most
            }
            Body::File(mut file, length) => {
                let read = file.read_to_end(&mut bytes);
                read.is_ok_and(|read| read as u64 == length) && (bytes.len() > most || is_total_bounded)
            }
        };
        if !fits {
            self.shared
                .fail(|| format!("the body of request {id}, {} bytes, is stored in the wrong place", bytes.len()));
        }
        self.take_body(id, &bytes);
        self.end_body(id);
        if self.requests[id].ready.is_none() {
            self.make_ready(id);
        }
    }

    fn abandon_request(&mut self, asked: QueuedRequest, refusal: Option<Refusal>) {
        let now = self.shared.now();
        self.shared.moved();
        let id = asked.id;
        asked.returnable.give_back();
        let status = refusal.map(|refusal| refusal.status);
        self.refusals += u64::from(refusal.is_some());
        self.shared.trace(|| format!("request {id} is dropped: {status:?}"));
        let record = &mut self.requests[id];
        record.last_arrival = record.connection.map_or(0, |number| self.network.borrow().history(number).last_arrival);
        if record.called.is_some() || record.dismissed.replace((now, status)).is_some() {
            self.shared.fail(|| format!("request {id} is dropped although it was {record:?}"));
        }
    }

    fn wake(&mut self, worker: usize) {
        self.shared.moved();
        self.woken.push(worker);
    }

    fn idle(&mut self, _guest: &mut ConnectionObject) {}

    fn refused(
        &mut self,
        refusal: Refusal,
        _line: Option<PartialRequestLine<'_>>,
        _client: Option<&Client>,
        connection: &mut ConnectionObject,
    ) {
        self.shared.moved();
        self.refusals += 1;
        self.shared.trace(|| format!("c{} is refused with {}", connection.number, refusal.status));
        let before = self.connections[connection.number].refused.replace((self.shared.now(), refusal.status));
        if before.is_some() && !P::MULTIPLEXED {
            self.shared.fail(|| format!("c{} is refused twice", connection.number));
        }
    }

    fn report(&mut self, report: Report) {
        self.shared.trace(|| format!("report: {report:?}"));
        match report {
            Report::AcceptPaused(pause) => {
                self.pauses_reported += 1;
                if let AcceptPause::Connections(count) = pause
                    && count != self.plan.config.connections
                {
                    self.shared.fail(|| format!("accepting pauses at {count} connections"));
                }
            }
            report if self.plan.host == Host::EventLoop => {
                self.shared.fail(|| format!("the engine reports {report:?}"));
            }
            Report::FileShrank
            | Report::StaticFileFailed(_)
            | Report::MessageMemoryFull(_)
            | Report::HandshakesFull(_) => {}
            Report::Panicked(message) if message == PLANNED_PANIC || message == EMPTY_RESPONSE => {}
            Report::Panicked(message) => self.shared.fail(|| format!("the engine panicked: {message}")),
            Report::SpoolFailed(error) => self.shared.fail(|| format!("a body could not be stored: {error}")),
        }
    }
}

impl Drop for ConnectionObject {
    fn drop(&mut self) {
        // A connection's object is dropped with the connection, not returned.
        self.alive.is_given_back = true;
    }
}
