//! The application as the engine sees it, and the book that is kept of every request.
//!
//! Nothing here takes time: what an application does with a request happens in [`crate::driver`].

use crate::clock::{Micros, Shared};
use crate::deadlines::Late;
use crate::net::{Network, Side, number_of};
use crate::plan::{Plan, RequestPlan, pattern, upload};
use engine::{AcceptPause, App, Body, Peer, Refusal, Report};
use std::cell::RefCell;
use std::io::Read;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use wire::http1::{Head, PartialRequestLine};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The whole response was written.
    Whole,
    /// A page of the server's own.
    Refused(u16),
    /// Broken off.
    Cut,
    /// The response was taken away from the application, because its peer was gone or too slow.
    Abandoned,
}

/// What is known of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) connection: Option<usize>,
    /// Its head is here.
    pub(crate) started_call: Option<Micros>,
    /// It could be called.
    pub(crate) ready: Option<Micros>,
    /// A turn has left it waiting in the queue.
    pub(crate) was_queued: bool,
    pub(crate) called: Option<Micros>,
    /// The engine has given it up; what its peer was told.
    pub(crate) dismissed: Option<(Micros, Option<u16>)>,
    /// When something had arrived from its peer last, then.
    pub(crate) heard: Micros,
    pub(crate) ended: Option<(Micros, How)>,
    /// Body bytes that the application has got.
    pub(crate) read: usize,
    /// Its application hangs.
    pub(crate) hangs: bool,
    /// Its call has missed its deadline.
    pub(crate) late: Option<Late>,
}

/// What is known of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guestbook {
    /// Its requests that have begun.
    pub(crate) started_call: Vec<usize>,
    /// When the engine answered by itself what never became a request, and with what.
    pub(crate) refused: Option<(Micros, u16)>,
    /// The application's object is alive.
    pub(crate) is_open: bool,
}

/// Counts what lives. The engine may drop a chunk wherever it is turned, but not in a tick.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) is_ticking: AtomicBool,
    pub(crate) dropped_in_tick: AtomicU64,
    /// Bytes of chunks for each request.
    pub(crate) deferred: Vec<AtomicI64>,
    pub(crate) alive: AtomicI64,
    /// Requests and responses that were dropped and not handed back.
    pub(crate) lost: AtomicU64,
}

/// Part of a body.
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

/// Something that the engine has to hand back: dropped while it is not settled, it counts as lost.
#[derive(Debug)]
pub(crate) struct Entrusted {
    is_settled: bool,
    ledger: Arc<Ledger>,
}

impl Entrusted {
    pub(crate) fn new(ledger: &Arc<Ledger>) -> Self {
        ledger.alive.fetch_add(1, Ordering::Relaxed);
        Self { is_settled: false, ledger: Arc::clone(ledger) }
    }

    pub(crate) fn settle(mut self) {
        self.is_settled = true;
    }
}

impl Drop for Entrusted {
    fn drop(&mut self) {
        self.ledger.alive.fetch_sub(1, Ordering::Relaxed);
        if !self.is_settled {
            self.ledger.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What the application keeps with a connection.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) number: usize,
    alive: Entrusted,
}

/// A request on its way to the application.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: usize,
    pub(crate) entrusted: Entrusted,
}

/// A response that was left alone.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) job: crate::driver::Job,
    pub(crate) entrusted: Entrusted,
}

/// The application, with the book of all requests.
pub(crate) struct Records {
    shared: Rc<Shared>,
    network: Rc<RefCell<Network>>,
    pub(crate) plan: Rc<Plan>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) requests: Vec<Record>,
    pub(crate) guests: Vec<Guestbook>,
    /// Workers that were woken in the middle of a call.
    pub(crate) woken: Vec<usize>,
    /// Requests that have become ready since somebody looked.
    pub(crate) ready: Vec<usize>,
    /// Statuses that the engine has answered with by itself.
    pub(crate) refusals: u64,
    pub(crate) pauses_reported: u64,
}

impl Records {
    pub(crate) fn new(shared: Rc<Shared>, plan: Rc<Plan>, network: Rc<RefCell<Network>>) -> Self {
        let count = plan.requests.len();
        Self {
            shared,
            network,
            ledger: Arc::new(Ledger {
                is_ticking: AtomicBool::new(false),
                dropped_in_tick: AtomicU64::new(0),
                deferred: (0..count).map(|_| AtomicI64::new(0)).collect(),
                alive: AtomicI64::new(0),
                lost: AtomicU64::new(0),
            }),
            requests: vec![Record::default(); count],
            guests: vec![Guestbook::default(); plan.connections.len()],
            woken: Vec::new(),
            ready: Vec::new(),
            refusals: 0,
            pauses_reported: 0,
            plan,
        }
    }

    fn make_ready(&mut self, id: usize) {
        if self.requests[id].ready.replace(self.shared.now()).is_some() {
            self.shared.fail(|| format!("request {id} becomes ready twice"));
        }
        self.ready.push(id);
    }

    /// A request is called: for the first time, in its turn, and with its peer still there.
    pub(crate) fn call(&mut self, asked: Asked, left_at: Option<Micros>) -> usize {
        let (now, id) = (self.shared.now(), asked.id);
        asked.entrusted.settle();
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
        if let (Some(limit), Some(ready)) = (self.plan.config.queue_timeout, record.ready) {
            // A sweep may be late, and a thread alone turns the engine when it comes to it.
            let late = now.saturating_sub(ready + crate::driver::micros(limit));
            if record.was_queued && self.plan.most_calls > 1 && late > crate::check::SLACK {
                self.shared.fail(|| format!("request {id} is called after it has waited for too long"));
            }
        }
        id
    }

    fn id_of(&self, head: &Head<'_>) -> Option<usize> {
        let path = str::from_utf8(head.target.path).ok()?;
        path.strip_prefix('/')?.parse().ok().filter(|&id| id < self.plan.requests.len())
    }

    fn check_head(&self, id: usize, head: &Head<'_>) {
        let RequestPlan { is_head, is_old, asks_to_close, .. } = self.plan.requests[id];
        let is_right = (head.method == b"HEAD") == is_head
            && (head.version == wire::http1::Version::Http10) == is_old
            && head.keep_alive != asks_to_close
            && head.field(b"host") == Some(b"a.example");
        if !is_right {
            self.shared.fail(|| format!("the head of request {id} is not the one that was sent: {head:?}"));
        }
    }

    /// Takes a part of a body that the application has read.
    pub(crate) fn take_body(&mut self, id: usize, part: &[u8]) {
        let record = &mut self.requests[id];
        let at = record.read;
        record.read += part.len();
        if record.read > self.plan.requests[id].body || part != pattern(upload(id), at, part.len()) {
            self.shared.fail(|| format!("the body of request {id} is not the one that was sent, from {at} on"));
        }
    }

    /// The body is over.
    pub(crate) fn end_body(&self, id: usize) {
        let (read, length) = (self.requests[id].read, self.plan.requests[id].body);
        if read != length || self.plan.requests[id].garbage.is_some() {
            self.shared.fail(|| format!("the body of request {id} ends after {read} bytes of {length}"));
        }
    }
}

impl App for Records {
    type Net = Side;
    type Connection = Guest;
    type Request = Asked;
    type Response = Course;
    type Chunk = Chunk;
    type Waiter = usize;

    fn connect(&mut self, peer: &Peer) -> Guest {
        let number = peer.address.map(number_of).expect("the network tells addresses");
        self.guests[number].is_open = true;
        Guest { number, alive: Entrusted::new(&self.ledger) }
    }

    fn begin(&mut self, head: &Head<'_>, guest: &mut Guest) -> Asked {
        let now = self.shared.now();
        self.shared.moved();
        let entrusted = Entrusted::new(&self.ledger);
        let Some(id) = self.id_of(head) else {
            self.shared.fail(|| format!("a request begins that nobody has sent: {head:?}"));
            return Asked { id: 0, entrusted };
        };
        self.shared.trace(|| format!("request {id} begins on c{}", guest.number));
        self.check_head(id, head);
        let records = &mut self.guests[guest.number];
        let expected = self.plan.connections.iter().flat_map(|peer| &peer.requests).any(|&other| other == id);
        if let Some(&before) = records.started_call.last() {
            // One after the other.
            if before + 1 != id || self.requests[before].ended.is_none() || self.requests[before].late.is_some() {
                self.shared.fail(|| format!("request {id} begins behind {before}, {:?}", self.requests[before]));
            }
        }
        if records.refused.is_some() || !expected {
            self.shared.fail(|| format!("request {id} begins where nothing should"));
        }
        records.started_call.push(id);
        let record = &mut self.requests[id];
        record.connection = Some(guest.number);
        if record.started_call.replace(now).is_some() {
            self.shared.fail(|| format!("request {id} begins twice"));
        }
        if self.plan.requests[id].body == 0 || !self.plan.config.buffer_bodies {
            // One whose body lies behind its head is told of it all the same.
            if !matches!(head.framing, wire::http1::Framing::Chunked) || !self.plan.config.buffer_bodies {
                self.make_ready(id);
            }
        }
        Asked { id, entrusted }
    }

    fn receive(&mut self, asked: &mut Asked, body: Body<'_>) {
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
            self.shared.fail(|| format!("the body of request {id}, {} bytes, is kept in a wrong place", bytes.len()));
        }
        self.take_body(id, &bytes);
        self.end_body(id);
        if self.requests[id].ready.is_none() {
            self.make_ready(id);
        }
    }

    fn abandon_request(&mut self, asked: Asked, refusal: Option<Refusal>) {
        let now = self.shared.now();
        self.shared.moved();
        let id = asked.id;
        asked.entrusted.settle();
        let status = refusal.map(|refusal| refusal.status);
        self.refusals += u64::from(refusal.is_some());
        self.shared.trace(|| format!("request {id} is given up: {status:?}"));
        let record = &mut self.requests[id];
        record.heard = record.connection.map_or(0, |number| self.network.borrow().story(number).last_arrival);
        if record.called.is_some() || record.dismissed.replace((now, status)).is_some() {
            self.shared.fail(|| format!("request {id} is given up although it was {record:?}"));
        }
    }

    fn wake(&mut self, worker: usize) {
        self.shared.moved();
        self.woken.push(worker);
    }

    fn idle(&mut self, _guest: &mut Guest) {}

    fn refused(&mut self, refusal: Refusal, _line: Option<PartialRequestLine<'_>>, guest: &mut Guest) {
        self.shared.moved();
        self.refusals += 1;
        self.shared.trace(|| format!("c{} is refused with {}", guest.number, refusal.status));
        let before = self.guests[guest.number].refused.replace((self.shared.now(), refusal.status));
        if before.is_some() {
            self.shared.fail(|| format!("c{} is refused twice", guest.number));
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
            Report::FileShrank => {}
            Report::Panicked(message) => self.shared.fail(|| format!("the engine panicked: {message}")),
            Report::SpoolFailed(error) => self.shared.fail(|| format!("a body could not be kept: {error}")),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // A connection goes when it is over, and need not be handed back.
        self.alive.is_settled = true;
    }
}
