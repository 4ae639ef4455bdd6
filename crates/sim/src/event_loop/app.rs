//! The application as the engine sees it, with the records of all calls.

use super::plan::{Plan, label, message};
use crate::app::{Chunk, Ledger, Returnable};
use crate::clock::Shared;
use crate::net::{Side, number_of};
use crate::plan::upload;
use crate::response::pattern;
use engine::{App, Body, Http1, OnlySerial, Peer, Refusal, Report};
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::message::{Client, PartialRequestLine, RequestHead};
use wire::websocket::{Kind, Opening};

/// The recorded history of a request and its call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) connection: Option<usize>,
    pub(crate) has_begun: bool,
    pub(crate) is_called: bool,
    /// The engine has given the request up.
    pub(crate) is_dismissed: bool,
    /// Bytes of the body that the application has taken.
    pub(crate) read: usize,
    /// Messages that the engine has made of frames, and those that the application has taken.
    pub(crate) arrived: usize,
    pub(crate) taken: usize,
}

/// A message of a WebSocket that the application has not taken.
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
    // The engine drops the messages that no call takes any more.
    fn drop(&mut self) {
        self.ledger.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request, or a call that is given back until there is a message or room for one.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) id: usize,
    pub(crate) returnable: Returnable,
}

pub(crate) struct LoopApp {
    shared: Rc<Shared>,
    plan: Rc<Plan>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) records: Vec<Record>,
    /// Calls that are woken, until the loop takes them.
    pub(crate) wakes: Vec<usize>,
    /// Number of requests that the engine has answered by itself.
    pub(crate) refusals: u64,
}

impl LoopApp {
    pub(crate) fn new(shared: &Rc<Shared>, plan: &Rc<Plan>) -> Self {
        let count = plan.calls.len();
        Self {
            shared: Rc::clone(shared),
            plan: Rc::clone(plan),
            ledger: Ledger::new(count),
            records: vec![Record::default(); count],
            wakes: Vec::new(),
            refusals: 0,
        }
    }

    pub(crate) fn chunk(&self, id: usize, bytes: Vec<u8>) -> Chunk {
        Chunk::new(id, bytes, &self.ledger)
    }

    pub(crate) fn held(&self, id: usize) -> Held {
        Held { id, returnable: Returnable::new(&self.ledger) }
    }

    fn begin_any(&mut self, head: &RequestHead<'_>, connection: usize, is_websocket: bool) -> Held {
        self.shared.moved();
        let path = str::from_utf8(head.target.path).unwrap_or_default();
        let id = path.strip_prefix('/').and_then(|id| id.parse().ok()).filter(|&id: &usize| id < self.records.len());
        let Some(id) = id else {
            self.shared.fail(|| format!("a request begins that no client has sent: {head:?}"));
            return self.held(0);
        };
        self.shared.trace(|| format!("call {id} begins on c{connection}"));
        if self.plan.calls[id].is_websocket != is_websocket {
            self.shared.fail(|| format!("call {id} is taken for a WebSocket, or is not"));
        }
        let record = &mut self.records[id];
        record.connection = Some(connection);
        if std::mem::replace(&mut record.has_begun, true) {
            self.shared.fail(|| format!("call {id} begins twice"));
        }
        self.held(id)
    }

    /// Judges a part of a body that the application takes.
    pub(crate) fn note_read(&mut self, id: usize, bytes: &[u8]) {
        let record = &mut self.records[id];
        let at = record.read;
        record.read += bytes.len();
        if record.read > self.plan.calls[id].body || bytes != pattern(upload(id), at, bytes.len()) {
            self.shared.fail(|| format!("the body of call {id} is not the one that was sent, from {at} on"));
        }
    }

    /// Judges a message that the application takes: whole, right, and the next one.
    pub(crate) fn note_taken(&mut self, id: usize, kind: Kind, bytes: &[u8]) {
        let record = &mut self.records[id];
        let number = record.taken;
        record.taken += 1;
        if bytes != message(id, number, kind, bytes.len(), false) {
            self.shared.fail(|| format!("call {id} takes {:?} as message {number}", label(bytes)));
        }
    }
}

impl App for LoopApp {
    type Net = Side;
    type Protocols = OnlySerial<Http1>;
    type Connection = usize;
    type Request = Held;
    type Response = Held;
    type Chunk = Chunk;
    type Waiter = usize;
    type Message = Message;

    fn connect(&mut self, peer: &Peer) -> usize {
        peer.address.map(number_of).expect("the network reports addresses")
    }

    fn begin(&mut self, head: &RequestHead<'_>, connection: &mut usize) -> Held {
        self.begin_any(head, *connection, false)
    }

    fn begin_websocket(&mut self, head: &RequestHead<'_>, _: &Opening<'_>, connection: &mut usize) -> Held {
        self.begin_any(head, *connection, true)
    }

    fn message(&mut self, kind: Kind, bytes: Cow<'_, [u8]>) -> Message {
        self.shared.moved();
        let Some((id, number, false)) = label(&bytes).filter(|&(id, ..)| id < self.records.len()) else {
            self.shared.fail(|| format!("a message arrives that no client has sent: {:?}", label(&bytes)));
            return Message::new(kind, Vec::new(), &self.ledger);
        };
        let record = &mut self.records[id];
        if record.arrived != number {
            let arrived = record.arrived;
            self.shared.fail(|| format!("message {number} of call {id} arrives behind {arrived} others"));
        }
        record.arrived = number + 1;
        // The one that the application is taking is not counted as taken yet.
        let waiting = (record.arrived - record.taken).saturating_sub(1);
        let queue = self.plan.config.websocket.as_ref().map_or(0, |config| config.queue);
        if waiting > queue {
            self.shared.fail(|| format!("{waiting} messages of call {id} wait, and {queue} may"));
        }
        Message::new(kind, bytes.into_owned(), &self.ledger)
    }

    fn receive(&mut self, request: &mut Held, body: Body<'_>) {
        // The body has arrived with the head.
        let bytes = match &body {
            Body::Empty => &[][..],
            Body::Borrowed(bytes) => bytes,
            Body::Memory(bytes) => bytes,
            Body::File(..) => return self.shared.fail(|| format!("the body of call {} is in a file", request.id)),
        };
        self.note_read(request.id, bytes);
    }

    fn abandon_request(&mut self, request: Held, refusal: Option<Refusal>) {
        self.shared.moved();
        let id = request.id;
        request.returnable.give_back();
        let status = refusal.map(|refusal| refusal.status);
        self.shared.trace(|| format!("call {id} is given up: {status:?}"));
        let record = &mut self.records[id];
        if record.is_called || std::mem::replace(&mut record.is_dismissed, true) {
            self.shared.fail(|| format!("call {id} is given up although it was called, or given up before"));
        }
    }

    fn wake(&mut self, call: usize) {
        self.shared.moved();
        self.wakes.push(call);
    }

    fn idle(&mut self, _: &mut usize) {}

    fn refused(
        &mut self,
        refusal: Refusal,
        _: Option<PartialRequestLine<'_>>,
        _: Option<&Client>,
        connection: &mut usize,
    ) {
        self.shared.moved();
        self.refusals += 1;
        self.shared.trace(|| format!("c{connection} is refused with {}", refusal.status));
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::AcceptPaused(_) => {}
            report => self.shared.fail(|| format!("the engine reports {report:?}")),
        }
    }
}
