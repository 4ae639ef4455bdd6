//! One connection: receive, serve, send, and know when time is up.
//!
//! A connection is always in one [`Phase`] and waits for one thing ([`Wait`]). [`Connection::drive`] does all that can
//! be done without waiting and settles what is waited for next:
//!
//! ```text
//!        ┌────────────────────────── keep-alive ──────────────────────────┐
//!        ▼                                                                │
//!      Head ──head, no body──▶ App::call ──┬─ Done ───────────────────────┴─▶ Closing ─▶ Linger ─▶ gone
//!        │                        ▲        ├─ Cut ───────────────────────────▶ Closing
//!        └─head──▶ Body ──its end─┘        └─ Blocked, Yield ─▶ Response ─▶ App::resume ─▶ (like call)
//! ```
//!
//! While output waits for the peer, nothing is read, parsed or produced for this connection: that is the
//! backpressure, in both directions.

use crate::app::{App, Progress, Refusal, Report};
use crate::compose::Composer;
use crate::config::{Config, IDLE_AFTER, LINGER, LINGER_BYTES, STEPS_PER_TURN, STOP_GRACE};
use crate::courier::Courier;
use crate::deadline::{Millis, Sweep, millis, transfer};
use crate::net::{self, Moved};
use crate::output::Output;
use crate::reply::{self, Begun, Reply};
use crate::spool::{Body, Spool};
use crate::statistics::Statistics;
use std::any::Any;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::http1::{self, BodyStep, CONTINUE, Fault, Field, Framing, Receiver, Request, Stamp};

/// What all connections of an engine share while one of them is driven.
pub(crate) struct Hub<C> {
    pub(crate) config: Config,
    pub(crate) now: Millis,
    pub(crate) stamp: Stamp,
    pub(crate) statistics: Statistics,
    pub(crate) sweep: Sweep,
    /// Output being composed for the connection that is driven; empty between two.
    pub(crate) out: Composer<C>,
    pub(crate) courier: Courier<C>,
    /// Whether the application produces the parts of a response without pauses, as far as is known.
    pub(crate) parts_come_fast: bool,
    /// Scratch for heads.
    pub(crate) fields: Vec<Field>,
    /// Whether the engine is stopping: no connection goes on after its response. Another thread may say so.
    pub(crate) stopping: Arc<AtomicBool>,
}

impl<C> Hub<C> {
    pub(crate) fn is_stopping(&self) -> bool {
        // Nothing else is published with it.
        self.stopping.load(Ordering::Relaxed)
    }
}

/// What becomes of a connection that was driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It waits for its socket or its deadline.
    Wait,
    /// It could go on, but others should have their turn.
    Again,
    /// It is over.
    Close,
}

/// What follows a step of [`Connection::drive`].
enum Step {
    Next,
    Stop(Fate),
}

pub(crate) struct Connection<A: App> {
    socket: OwnedFd,
    phase: Phase<A>,
    receiver: Receiver,
    /// Received and not used yet.
    input: Vec<u8>,
    output: Output<A::Chunk>,
    /// The response that has begun, until it ends.
    begun: Option<Begun>,
    app: A::Connection,
    wait: Wait,
    /// When what is waited for must have come; `Millis::MAX` for never.
    deadline: Millis,
    /// When it was last driven.
    touched: Millis,
    /// The transfer that is waited for: since when, and how many bytes have moved since.
    since: Millis,
    moved: u64,
    /// The socket may have bytes for us: set by readiness, cleared by a short read.
    pub(crate) readable: bool,
    /// The peer has said that it sends no more, so the end of input has still to be read even after a short read.
    pub(crate) read_closed: bool,
    /// The end of input has been read.
    ended: bool,
    /// `input` has been looked at and is not enough.
    exhausted: bool,
    /// A request has come.
    served: bool,
    /// What was kept for speed has been given back.
    forgotten: bool,
    /// The poller knows this socket; and tells when it takes output again.
    pub(crate) registered: bool,
    pub(crate) awaits_writable: bool,
    /// Queued to be driven in the next turn.
    pub(crate) queued: bool,
}

enum Phase<A: App> {
    /// A head is awaited or partly here.
    Head,
    /// A request's body is.
    Body(Box<Receiving<A>>),
    /// A response is under way.
    Response(Box<Responding<A>>),
    /// The last response is leaving.
    Closing(Closing),
    /// All is sent; what the peer still sends is discarded until it closes, up to so many bytes.
    Linger(u64),
}

struct Receiving<A: App> {
    request: A::Request,
    facts: Request,
    spool: Spool,
}

struct Responding<A: App> {
    response: A::Response,
    facts: Request,
    /// It lets others go on before it does.
    yielded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// The peer asked for it and has sent nothing more.
    Orderly,
    /// The peer may still be sending.
    Linger,
    /// The peer must see that something is missing.
    Reset,
}

/// What a connection waits for; each has its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// When the next request begins.
    Idle,
    /// When a head is whole.
    Head,
    /// When more of a body comes.
    Body,
    /// When the peer takes more.
    Output,
    /// When the application goes on.
    App,
    /// When the peer closes.
    Linger,
}

impl<A: App> Connection<A> {
    pub(crate) fn new(socket: OwnedFd, app: A::Connection, now: Millis) -> Self {
        Self {
            socket,
            phase: Phase::Head,
            receiver: Receiver::default(),
            input: Vec::new(),
            output: Output::new(),
            begun: None,
            app,
            // Different from what the first `settle` finds, so that it sets a deadline.
            wait: Wait::App,
            deadline: Millis::MAX,
            touched: now,
            since: now,
            moved: 0,
            readable: true,
            read_closed: false,
            ended: false,
            exhausted: true,
            served: false,
            forgotten: true,
            registered: false,
            awaits_writable: false,
            queued: false,
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Does all that can be done without waiting, and settles what is waited for next.
    pub(crate) fn drive(&mut self, hub: &mut Hub<A::Chunk>, buffer: &mut [u8], app: &mut A) -> Fate {
        self.touched = hub.now;
        let mut fate = Fate::Again;
        for _ in 0..STEPS_PER_TURN {
            match self.step(hub, buffer, app) {
                Step::Next => {}
                Step::Stop(stop) => {
                    fate = stop;
                    break;
                }
            }
        }
        // A step that stops to wait has just flushed. Doing so again could drain what is waited for, and then nobody
        // would go on.
        if fate == Fate::Again && !self.flush(hub) {
            fate = Fate::Close;
        }
        hub.out.clear();
        if fate == Fate::Close {
            if self.output.has_file_shrunk() {
                hub.statistics.cut += 1;
                app.report(Report::FileShrank);
            }
            self.leave(app);
        } else {
            self.settle(hub);
        }
        fate
    }

    /// One step: send, then go on with a response, or with input that is here, or receive.
    fn step(&mut self, hub: &mut Hub<A::Chunk>, buffer: &mut [u8], app: &mut A) -> Step {
        if !self.flush(hub) {
            return Step::Stop(Fate::Close);
        }
        if !self.output.is_empty() {
            return Step::Stop(Fate::Wait);
        }
        match &mut self.phase {
            Phase::Response(responding) => {
                if std::mem::take(&mut responding.yielded) {
                    // It has had its share of this turn.
                    return Step::Stop(Fate::Again);
                }
                self.resume(hub, app);
                return Step::Next;
            }
            Phase::Closing(Closing::Reset) => {
                net::reset_on_close(&self.socket);
                return Step::Stop(Fate::Close);
            }
            // Closing while unread bytes lie in the socket would be a reset, which destroys what is on its way.
            Phase::Closing(Closing::Orderly) if self.input.is_empty() && !self.readable => {
                return Step::Stop(Fate::Close);
            }
            Phase::Closing(_) if self.ended => return Step::Stop(Fate::Close),
            Phase::Closing(_) => {
                net::end_output(&self.socket);
                self.input = Vec::new();
                self.phase = Phase::Linger(LINGER_BYTES);
            }
            Phase::Head | Phase::Body(_) | Phase::Linger(_) => {}
        }
        if !self.exhausted && !self.input.is_empty() {
            let mut input = std::mem::take(&mut self.input);
            let used = self.serve(&input, hub, app);
            input.drain(..used);
            self.input = input;
            return Step::Next;
        }
        if !self.readable {
            return Step::Stop(Fate::Wait);
        }
        match net::receive(&self.socket, buffer) {
            Ok(Moved::Bytes(0)) => self.end_of_input(hub, app),
            Ok(Moved::Bytes(count)) => {
                hub.statistics.bytes_in += count as u64;
                // A short read has drained the socket: no second call to be told so (edge-triggered readiness comes
                // again with the next byte), unless the end of input is behind it, which comes with no edge.
                self.readable = count == buffer.len() || self.read_closed;
                self.take_in(&buffer[..count], hub, app);
                Step::Next
            }
            Ok(Moved::WouldBlock) => {
                self.readable = false;
                Step::Stop(Fate::Wait)
            }
            Err(_) => Step::Stop(Fate::Close),
        }
    }

    /// Serves what was received, behind what was left over.
    fn take_in(&mut self, received: &[u8], hub: &mut Hub<A::Chunk>, app: &mut A) {
        if self.input.is_empty() {
            let used = self.serve(received, hub, app);
            if used < received.len() {
                self.input.extend_from_slice(&received[used..]);
            } else if self.input.capacity() > 0 {
                self.input = Vec::new();
            }
        } else {
            let mut input = std::mem::take(&mut self.input);
            input.extend_from_slice(received);
            let used = self.serve(&input, hub, app);
            if used < input.len() {
                input.drain(..used);
                self.input = input;
            }
        }
    }

    /// Serves the requests in `input` as far as they are here and returns how many bytes of it are used.
    fn serve(&mut self, input: &[u8], hub: &mut Hub<A::Chunk>, app: &mut A) -> usize {
        let mut used = 0;
        self.exhausted = false;
        // A response under way, or output that the peer does not take, ends the loop with input left.
        while self.output.is_empty() {
            let rest = &input[used..];
            if rest.is_empty() {
                self.exhausted = true;
                break;
            }
            match &mut self.phase {
                Phase::Head => match self.head(rest, hub, app) {
                    0 => {
                        self.exhausted = true;
                        break;
                    }
                    count => used += count,
                },
                Phase::Body(_) => {
                    used += self.body(rest, hub, app);
                    if matches!(self.phase, Phase::Body(_)) {
                        self.exhausted = true;
                        break;
                    }
                }
                Phase::Response(_) => break,
                Phase::Closing(_) => {
                    // Nothing behind the last request is read as another one. That it is there is noted.
                    if let Phase::Closing(Closing::Orderly) = self.phase {
                        self.phase = Phase::Closing(Closing::Linger);
                    }
                    used = input.len();
                    break;
                }
                Phase::Linger(left) => {
                    *left = left.saturating_sub(rest.len() as u64);
                    if *left == 0 {
                        self.phase = Phase::Closing(Closing::Reset);
                    }
                    used = input.len();
                    break;
                }
            }
            if hub.out.is_full() && !self.flush(hub) {
                break;
            }
        }
        used
    }

    /// Reads a head and calls the application if the request has no body, or has it right behind. Returns the bytes
    /// used: none until the head is whole.
    fn head(&mut self, input: &[u8], hub: &mut Hub<A::Chunk>, app: &mut A) -> usize {
        let limits = &hub.config.limits;
        let head = match self.receiver.head(input, &mut hub.fields, limits) {
            Ok(Some(head)) => head,
            Ok(None) => return 0,
            Err(fault) => {
                self.refuse_unread(Refusal { status: fault.status(), fault: Some(fault) }, hub, app);
                return input.len();
            }
        };
        let facts = Request { version: head.version, is_head: head.method == b"HEAD", keep_alive: head.keep_alive };
        let (framing, expects_continue) = (head.framing, head.expects_continue);
        let mut used = head.length;
        let request = app.begin(&head, &mut self.app);
        self.served = true;
        self.forgotten = false;
        // Whatever is waited for next is waited for from now on.
        self.wait = Wait::App;
        if matches!(framing, Framing::None | Framing::Length(0)) {
            self.call(request, facts, Body::Empty, hub, app);
            return used;
        }
        // A body that lies here as a whole is lent, not copied.
        let whole = match framing {
            Framing::Length(length) => (input.len() - used) as u64 >= length,
            _ => false,
        };
        if whole && let Ok((count, BodyStep::Data(data))) = self.receiver.body(&input[used..], limits) {
            used += count;
            if data.len() <= hub.config.body_memory {
                self.call(request, facts, Body::Borrowed(data), hub, app);
                return used;
            }
            self.phase = Phase::Body(Box::new(Receiving { request, facts, spool: Spool::default() }));
            if !self.spool(data, hub, app) {
                return input.len();
            }
            return used + self.body(&input[used..], hub, app);
        }
        if expects_continue && input.len() == used {
            hub.out.bytes.extend_from_slice(CONTINUE);
        }
        self.phase = Phase::Body(Box::new(Receiving { request, facts, spool: Spool::default() }));
        used + self.body(&input[used..], hub, app)
    }

    /// Reads what is here of a body and calls the application at its end. Returns the bytes used.
    fn body(&mut self, input: &[u8], hub: &mut Hub<A::Chunk>, app: &mut A) -> usize {
        let mut used = 0;
        loop {
            match self.receiver.body(&input[used..], &hub.config.limits) {
                Ok((count, step)) => {
                    used += count;
                    match step {
                        BodyStep::Data(data) => {
                            if !self.spool(data, hub, app) {
                                return input.len();
                            }
                        }
                        // WSGI has no place for trailers; they are checked and dropped.
                        BodyStep::Trailer { .. } => {}
                        BodyStep::More => return used,
                        BodyStep::End => {
                            self.body_ended(hub, app);
                            return used;
                        }
                    }
                }
                Err(fault) => {
                    self.refuse_request(Refusal { status: fault.status(), fault: Some(fault) }, hub, app);
                    return input.len();
                }
            }
        }
    }

    /// Keeps a part of a body; false if it could not be kept and the request has been refused.
    fn spool(&mut self, data: &[u8], hub: &mut Hub<A::Chunk>, app: &mut A) -> bool {
        let Phase::Body(receiving) = &mut self.phase else { return false };
        match receiving.spool.push(data, hub.config.body_memory) {
            Ok(()) => true,
            Err(error) => {
                self.spool_failed(error, hub, app);
                false
            }
        }
    }

    fn body_ended(&mut self, hub: &mut Hub<A::Chunk>, app: &mut A) {
        let Phase::Body(receiving) = std::mem::replace(&mut self.phase, Phase::Head) else { return };
        let Receiving { request, facts, spool } = *receiving;
        match spool.finish() {
            Ok(body) => self.call(request, facts, body, hub, app),
            Err(error) => {
                let receiving = Receiving { request, facts, spool: Spool::default() };
                self.phase = Phase::Body(Box::new(receiving));
                self.spool_failed(error, hub, app);
            }
        }
    }

    fn spool_failed(&mut self, error: std::io::Error, hub: &mut Hub<A::Chunk>, app: &mut A) {
        let status = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => 507,
            _ => 500,
        };
        app.report(Report::SpoolFailed(error));
        self.refuse_request(Refusal { status, fault: None }, hub, app);
    }

    fn call(&mut self, request: A::Request, facts: Request, body: Body<'_>, hub: &mut Hub<A::Chunk>, app: &mut A) {
        hub.statistics.requests += 1;
        self.exchange(facts, hub, app, |app, reply| app.call(request, body, reply));
    }

    fn resume(&mut self, hub: &mut Hub<A::Chunk>, app: &mut A) {
        let Phase::Response(responding) = std::mem::replace(&mut self.phase, Phase::Head) else { return };
        let Responding { response, facts, .. } = *responding;
        self.exchange(facts, hub, app, |app, reply| app.resume(response, reply));
    }

    /// Lets the application write, and takes note of how far it got.
    fn exchange(
        &mut self,
        facts: Request,
        hub: &mut Hub<A::Chunk>,
        app: &mut A,
        write: impl FnOnce(&mut A, &mut Reply<'_, A>) -> Progress<A::Response>,
    ) {
        let sent_before = hub.statistics.bytes_out;
        let mut reply = Reply {
            out: &mut hub.out,
            output: &mut self.output,
            courier: &mut hub.courier,
            begun: &mut self.begun,
            statistics: &mut hub.statistics,
            socket: self.socket.as_fd(),
            stamp: &hub.stamp,
            request: facts,
            stopping: &hub.stopping,
            produced: 0,
            gone: false,
            lent: false,
            parts_come_fast: &mut hub.parts_come_fast,
        };
        let progress = match catch_unwind(AssertUnwindSafe(|| write(app, &mut reply))) {
            Ok(Progress::Done) if !reply.is_begun() => {
                app.report(Report::Panicked("a response was called done and is empty".to_owned()));
                reply.refuse(500, "The server has failed.");
                Progress::Done
            }
            Ok(progress) => progress,
            Err(panic) => {
                app.report(Report::Panicked(panic_message(&*panic)));
                reply.statistics.panics += 1;
                if reply.refuse(500, "The server has failed.") { Progress::Done } else { Progress::Cut }
            }
        };
        reply.recall();
        let gone = reply.gone;
        let is_stopping = hub.is_stopping();
        self.moved += hub.statistics.bytes_out - sent_before;
        let yielded = matches!(progress, Progress::Yield(_));
        self.phase = match progress {
            Progress::Blocked(response) | Progress::Yield(response) if gone => {
                app.abandon(response);
                Phase::Closing(Closing::Reset)
            }
            Progress::Blocked(response) | Progress::Yield(response) => {
                Phase::Response(Box::new(Responding { response, facts, yielded }))
            }
            Progress::Done | Progress::Cut if gone => Phase::Closing(Closing::Reset),
            Progress::Done => match self.begun.take() {
                Some(begun) if begun.sender.keeps_alive() => Phase::Head,
                _ if facts.keep_alive || is_stopping => Phase::Closing(Closing::Linger),
                _ => Phase::Closing(Closing::Orderly),
            },
            Progress::Cut => {
                hub.statistics.cut += 1;
                match self.begun.take() {
                    Some(begun) if begun.sender.needs_reset() => Phase::Closing(Closing::Reset),
                    _ => Phase::Closing(Closing::Linger),
                }
            }
        };
    }

    /// The peer has closed its side.
    fn end_of_input(&mut self, hub: &mut Hub<A::Chunk>, app: &mut A) -> Step {
        self.ended = true;
        self.readable = false;
        let truncated = Refusal { status: Fault::Truncated.status(), fault: Some(Fault::Truncated) };
        match &self.phase {
            Phase::Head if self.receiver.end_of_input(&self.input).is_ok() => return Step::Stop(Fate::Close),
            Phase::Head => self.refuse_unread(truncated, hub, app),
            Phase::Body(_) => self.refuse_request(truncated, hub, app),
            _ => return Step::Stop(Fate::Close),
        }
        Step::Next
    }

    /// Answers what never became a request.
    fn refuse_unread(&mut self, refusal: Refusal, hub: &mut Hub<A::Chunk>, app: &mut A) {
        app.refused(refusal, &mut self.app);
        self.write_refusal(refusal, self.receiver.is_head(), hub);
    }

    /// Answers a request whose body did not come as it should.
    fn refuse_request(&mut self, refusal: Refusal, hub: &mut Hub<A::Chunk>, app: &mut A) {
        let Phase::Body(receiving) = std::mem::replace(&mut self.phase, Phase::Head) else { return };
        let is_head = receiving.facts.is_head;
        app.abandon_request(receiving.request, Some(refusal));
        self.write_refusal(refusal, is_head, hub);
    }

    fn write_refusal(&mut self, Refusal { status, fault }: Refusal, is_head: bool, hub: &mut Hub<A::Chunk>) {
        let explanation = fault.map_or_else(|| explanation(status), Fault::explanation);
        http1::refuse(status, explanation, is_head, &hub.stamp, &mut hub.out.bytes);
        hub.statistics.refused += 1;
        self.input = Vec::new();
        self.exhausted = true;
        self.phase = Phase::Closing(Closing::Linger);
    }

    /// Sends what is composed; false if the peer is gone.
    fn flush(&mut self, hub: &mut Hub<A::Chunk>) -> bool {
        if hub.out.is_empty() && self.output.is_empty() {
            return true;
        }
        let Ok(count) = reply::flush(&mut hub.out, &mut self.output, self.socket.as_fd()) else {
            // Where it was a file that failed, the peer is still there and has to see the cut.
            net::reset_on_close(&self.socket);
            return false;
        };
        hub.statistics.bytes_out += count;
        self.moved += count;
        true
    }

    /// Sets the deadline of what is waited for now.
    fn settle(&mut self, hub: &mut Hub<A::Chunk>) {
        let now = hub.now;
        let config = &hub.config;
        let after = |timeout: Option<Duration>| timeout.map_or(Millis::MAX, |timeout| now + millis(timeout));
        let wait = match &self.phase {
            _ if !self.output.is_empty() => Wait::Output,
            Phase::Head if self.input.is_empty() && self.served => Wait::Idle,
            Phase::Head => Wait::Head,
            Phase::Body(_) => Wait::Body,
            Phase::Response(_) | Phase::Closing(_) => Wait::App,
            Phase::Linger(_) => Wait::Linger,
        };
        let changed = std::mem::replace(&mut self.wait, wait) != wait;
        if changed {
            self.since = now;
            self.moved = 0;
        }
        let rate = config.min_rate;
        self.deadline = match wait {
            Wait::Idle if hub.is_stopping() => now + millis(STOP_GRACE),
            Wait::Idle => after(config.keep_alive),
            Wait::Head if changed => after(config.header_timeout),
            Wait::Linger if changed => after(Some(LINGER)),
            Wait::Head | Wait::Linger => self.deadline,
            Wait::Body => {
                let received = match &self.phase {
                    Phase::Body(receiving) => receiving.spool.length(),
                    _ => 0,
                };
                transfer(config.body_timeout, rate, self.since, now, received)
            }
            Wait::Output => transfer(config.write_timeout, rate, self.since, now, self.moved),
            Wait::App => Millis::MAX,
        };
        let rests_at = if wait == Wait::Idle && !self.forgotten { now + millis(IDLE_AFTER) } else { Millis::MAX };
        hub.sweep.note(self.deadline.min(rests_at));
    }

    /// Whether no request is under way and none has begun.
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.phase, Phase::Head) && self.input.is_empty() && self.output.is_empty()
    }

    /// Brings the deadline forward.
    pub(crate) fn hurry(&mut self, deadline: Millis, hub: &mut Hub<A::Chunk>) {
        self.deadline = self.deadline.min(deadline);
        hub.sweep.note(self.deadline);
    }

    /// Looks at the clock: whether the time of what is waited for is up.
    pub(crate) fn is_late(&self, now: Millis) -> bool {
        self.deadline <= now
    }

    /// Gives back what is kept for speed, if the connection has been idle for a while; otherwise says when to look
    /// again.
    pub(crate) fn rest(&mut self, hub: &mut Hub<A::Chunk>, app: &mut A) {
        if self.wait != Wait::Idle || self.forgotten {
            return;
        }
        let rests_at = self.touched + millis(IDLE_AFTER);
        if rests_at <= hub.now {
            self.receiver.forget();
            app.idle(&mut self.app);
            self.forgotten = true;
        } else {
            // Not at once when it may rest: with many busy connections that would be at every moment.
            hub.sweep.note(hub.now + millis(IDLE_AFTER));
        }
    }

    /// Says when the sweep has to look again.
    pub(crate) fn note_deadline(&self, hub: &mut Hub<A::Chunk>) {
        hub.sweep.note(self.deadline);
    }

    /// Time is up.
    pub(crate) fn expire(&mut self, hub: &mut Hub<A::Chunk>, app: &mut A) -> Fate {
        match self.wait {
            Wait::Idle | Wait::Linger | Wait::App => {}
            Wait::Head if self.input.is_empty() => {}
            Wait::Head => {
                hub.statistics.timeouts += 1;
                self.refuse_unread(Refusal { status: 408, fault: None }, hub, app);
                return Fate::Again;
            }
            Wait::Body => {
                hub.statistics.timeouts += 1;
                self.refuse_request(Refusal { status: 408, fault: None }, hub, app);
                return Fate::Again;
            }
            Wait::Output => {
                hub.statistics.timeouts += 1;
                net::reset_on_close(&self.socket);
            }
        }
        self.leave(app);
        Fate::Close
    }

    /// Cuts whatever is under way.
    pub(crate) fn cut(&mut self, hub: &mut Hub<A::Chunk>, app: &mut A) {
        if !self.is_between_requests() && !matches!(self.phase, Phase::Linger(_)) {
            hub.statistics.cut += 1;
            net::reset_on_close(&self.socket);
        }
        self.leave(app);
    }

    /// The connection is over: the application is told of what was under way.
    fn leave(&mut self, app: &mut A) {
        match std::mem::replace(&mut self.phase, Phase::Closing(Closing::Orderly)) {
            Phase::Body(receiving) => app.abandon_request(receiving.request, None),
            Phase::Response(responding) => app.abandon(responding.response),
            _ => {}
        }
    }
}

fn explanation(status: u16) -> &'static str {
    match status {
        408 => "The request took too long to arrive.",
        507 => "The server has no room for the request body.",
        _ => "The server has failed.",
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
