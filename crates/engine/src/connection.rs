//! One connection: receive, serve, send, and know when time is up.
//!
//! A connection is always in one [`Phase`] and waits for one thing ([`Wait`]). [`Connection::drive`] does all that can
//! be done without waiting and settles what is waited for next:
//!
//! ```text
//!        ┌────────────────────────────── keep-alive ────────────────────────────────┐
//!        ▼                                                                          │
//!      Head ──head, no body──▶ handed out ──▶ Running ── put back ─┬─ Done ─────────┴─▶ Closing ─▶ Linger ─▶ gone
//!        │                      ▲   ▲            ▲                 ├─ Cut ────────────▶ Closing
//!        └─head─▶ Body ──its end┘ Queued         └──── Response ◀──┴─ Blocked, Yield
//! ```
//!
//! While output waits for the peer, nothing is read, parsed or produced for this connection: that is the
//! backpressure, in both directions. While the application works on a request the connection is `Running`: the engine
//! is free for others, and the connection's slot stays taken, whatever its peer does.

mod expiring;
mod incoming;
mod receiving;
mod waiting;
mod watchdog;

use crate::app::{App, Progress, Refusal, Report};
use crate::coalescing::DeferredOutput;
use crate::compose::Composer;
use crate::config::{CALLS_PER_ROUND, Config, GLANCE, LINGER_BYTES};
use crate::deadline::{Millis, Sweep};
use crate::memory::Reservation;
use crate::meter::{self, Meter};
use crate::net::{Moved, Net, Socket};
use crate::output::Output;
use crate::reply::{self, Ending, InFlight, Reply};
use crate::spool::Body;
use crate::stages::{Stage, Stages};
use crate::statistics::Statistics;
use expiring::Expiring;
use incoming::Incoming;
use receiving::Receiving;
use std::any::Any;
use std::collections::VecDeque;
use std::time::Duration;
use wire::http1::{
    self, BodyStep, CONTINUE, Fault, Field, Framing, PartialRequestLine, Receiver, Request, Sender, Stamp,
};

pub use expiring::Expired;
pub use incoming::Input;
pub(crate) use waiting::Wait;
pub(crate) use watchdog::Serviced;

/// What all connections of an engine share while one of them is driven.
pub(crate) struct EngineContext<A: App> {
    pub(crate) config: Config,
    pub(crate) now: Millis,
    pub(crate) stamp: Stamp,
    pub(crate) statistics: Statistics,
    pub(crate) sweep: Sweep,
    /// Composers that no connection needs now.
    #[allow(clippy::vec_box, reason = "connections take them and give them back as they are")]
    pub(crate) spare: Vec<Box<Composer<A::Chunk>>>,
    pub(crate) deferred: DeferredOutput,
    /// Whether the application produces the parts of a response without pauses, as far as is known.
    pub(crate) parts_come_fast: bool,
    /// Scratch for heads.
    pub(crate) fields: Vec<Field>,
    /// Scratch for the chunks of a body that were received together.
    pub(crate) chunks: Vec<u8>,
    pub(crate) meter: Meter,
    /// No connection goes on after its response.
    pub(crate) draining: bool,
    /// The engine is stopping: so long may a connection be idle still. It is draining too.
    pub(crate) grace: Option<Duration>,
    /// Requests that wait for somebody to call the application.
    pub(crate) queued: usize,
    /// Whether whoever turns the engine may call it.
    pub(crate) may_call: bool,
    /// Nobody can call the application now, and as many requests wait as may: no further one is read.
    pub(crate) is_full: bool,
    /// Connections in a row whose first request asked for the connection to be closed after it.
    pub(crate) brief_in_a_row: u32,
    /// Counts how often there was nothing more to do.
    pub(crate) round: u64,
    /// Where somebody wants to know where the time of requests goes.
    pub(crate) stages: Option<Box<Stages>>,
}

impl<A: App> EngineContext<A> {
    #[allow(clippy::unnecessary_box_returns, reason = "a connection keeps it so, since most have none")]
    fn composer(&mut self) -> Box<Composer<A::Chunk>> {
        self.spare.pop().unwrap_or_else(|| Box::new(Composer::new()))
    }
}

/// What becomes of a connection that was driven.
pub(crate) enum NextAction<A: App> {
    /// It waits for its socket, its deadline, or whoever answers its request.
    Wait,
    /// It could go on, but others should have their turn.
    Again,
    /// A request may be there that cannot even wait now.
    AwaitRoom,
    /// A request is ready to be answered; the connection is `Running`.
    Call(A::Request),
    /// Its response may go on; the connection is `Running`.
    Resume(A::Response),
    /// It is over, and so is the response that was under way.
    Close(Option<A::Response>),
}

/// What follows a step of [`Connection::drive`].
enum Step<A: App> {
    Next,
    Stop(NextAction<A>),
}

pub(crate) struct Connection<A: App> {
    socket: <A::Net as Net>::Socket,
    slot: usize,
    phase: Phase<A>,
    receiver: Receiver,
    /// Received, and used up to `input_used`.
    input: Vec<u8>,
    input_used: usize,
    /// The body of the request that is answered, where it is handed on as it arrives.
    incoming: Option<Box<Incoming>>,
    /// What the body of the request that waits or is answered takes of memory: the application has it until the response
    /// is complete.
    body_memory: Option<Reservation>,
    /// Output being composed; what could not be sent is in `output`.
    out: Option<Box<Composer<A::Chunk>>>,
    output: Output<A::Chunk>,
    /// The response that has begun, until it ends.
    in_flight: Option<InFlight>,
    /// How the last response in parts ended.
    ending: Ending,
    /// `None` until the application is told of the connection, before it is driven for the first time.
    pub(crate) app: Option<A::Connection>,
    /// Waits in the middle of a call for this connection's input or output.
    waiter: Option<(Awaited, A::Waiter)>,
    wait: Wait,
    /// When what is waited for must have come; `Millis::MAX` for never.
    deadline: Millis,
    /// When it was last driven.
    touched: Millis,
    /// Since when it waits for what it waits for.
    since: Millis,
    /// When a transfer that is waited for last got on, and how far that was.
    progressed: Millis,
    transferred: u64,
    /// Bytes sent since the last head, and for how long that had to wait, up to the wait that is under way.
    moved: u64,
    waited: Millis,
    /// The socket may have bytes for us: set by readiness, cleared by a short read.
    pub(crate) readable: bool,
    /// The peer has said that it sends no more, so the end of input has still to be read even after a short read.
    pub(crate) read_closed: bool,
    /// The end of input has been read.
    ended: bool,
    /// `input` has been looked at and is not enough.
    exhausted: bool,
    /// Requests that became ready in the round with this number.
    round: u64,
    called: usize,
    /// A request has come.
    served: bool,
    /// What was kept for speed has been given back.
    forgotten: bool,
    /// The peer has been found to be gone.
    gone: bool,
    /// The poller knows this socket; and tells when it takes output again.
    pub(crate) registered: bool,
    pub(crate) awaits_writable: bool,
    /// Its call has left output waiting, at a time that was not told: the next turn settles it.
    pub(crate) needs_deadline: bool,
    /// In a queue of those that are driven without readiness.
    pub(crate) again: bool,
    /// Queued to be driven when there is room for its request.
    pub(crate) awaits_room: bool,
}

enum Phase<A: App> {
    /// A head is awaited or partly here.
    Head,
    /// A request's body is.
    Body(Box<Receiving<A>>),
    /// A request waits for somebody to call the application.
    Queued(Box<Queued<A>>),
    /// The application works on it.
    Running(Request),
    /// The same, and the call has missed its deadline: the engine has answered, or cut the connection.
    Expired(Expiring),
    /// A response is under way, and waits for its peer or its turn.
    Response(Box<Responding<A>>),
    /// The last response is leaving.
    Closing(Closing),
    /// All is sent; what the peer still sends is discarded until it closes, up to so many bytes.
    Linger(u64),
}

struct Queued<A: App> {
    request: A::Request,
    facts: Request,
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

/// What somebody waits for in the middle of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Input,
    Output,
}

impl<A: App> Connection<A> {
    pub(crate) fn new(socket: <A::Net as Net>::Socket, slot: usize, app: Option<A::Connection>, now: Millis) -> Self {
        Self {
            socket,
            slot,
            phase: Phase::Head,
            receiver: Receiver::default(),
            input: Vec::new(),
            input_used: 0,
            incoming: None,
            body_memory: None,
            out: None,
            output: Output::new(),
            in_flight: None,
            ending: Ending::Unknown,
            app,
            waiter: None,
            // Different from what the first `set_deadline` finds, so that it sets a deadline.
            wait: Wait::App,
            deadline: Millis::MAX,
            touched: now,
            since: now,
            progressed: now,
            transferred: 0,
            moved: 0,
            waited: 0,
            readable: true,
            read_closed: false,
            ended: false,
            exhausted: true,
            round: 0,
            called: 0,
            served: false,
            forgotten: true,
            gone: false,
            registered: false,
            awaits_writable: false,
            needs_deadline: false,
            again: false,
            awaits_room: false,
        }
    }

    pub(crate) fn socket(&self) -> &<A::Net as Net>::Socket {
        &self.socket
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether nothing has been said in answer to its request, and somebody is there to hear it.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.in_flight.is_none() && !self.gone && !self.is_expired()
    }

    /// Whether nothing is left of it but a call that is out.
    pub(crate) fn is_left_over(&self) -> bool {
        self.gone && self.is_running()
    }

    /// Whether a request is awaited, or is partly here.
    fn is_receiving(&self) -> bool {
        matches!(self.phase, Phase::Head | Phase::Body(_))
    }

    /// Has it driven later, without readiness: by whoever goes through `queue`.
    pub(crate) fn come_back(&mut self, queue: &mut VecDeque<usize>) {
        if !std::mem::replace(&mut self.again, true) {
            queue.push_back(self.slot);
        }
    }

    /// Whether it may go on receiving for long without anything that could be answered: others come first.
    pub(crate) fn is_bulk(&self) -> bool {
        match self.phase {
            Phase::Body(_) | Phase::Linger(_) => true,
            Phase::Running(_) => self.incoming.is_some(),
            _ => false,
        }
    }

    /// Whether it has asked for nothing yet.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.phase, Phase::Head) && !self.served && !self.awaits_room && self.output.is_empty()
    }

    /// Whether a call is out for it, so that its slot has to be kept.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_) | Phase::Expired(_))
    }

    /// Whether its request waits for somebody to call the application.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued(_))
    }

    /// Does all that can be done without waiting, and settles what is waited for next.
    pub(crate) fn drive(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> NextAction<A> {
        self.touched = context.now;
        if self.round != context.round {
            self.round = context.round;
            self.called = 0;
        }
        context.meter.begin_turn();
        // Whoever has been called in this round lets others go on sooner if there is much to do.
        let most_calls = if context.meter.is_stage_over() { 1 } else { CALLS_PER_ROUND };
        let has_turn = self.called < most_calls;
        let mut action = NextAction::Again;
        while has_turn && !context.meter.is_turn_over() {
            context.meter.charge(meter::STEP);
            match self.step(context, buffer, app) {
                Step::Next => {}
                Step::Stop(stop) => {
                    action = stop;
                    break;
                }
            }
        }
        match action {
            // A step that stops to wait has just flushed. Doing so again could drain what is waited for, and then
            // nobody would go on.
            NextAction::Again if !self.flush(context) => action = self.abort(app),
            // What was composed for requests before this one goes with its response, if that comes within a tick.
            NextAction::Call(_) => self.defer(context),
            _ => {}
        }
        if let Some(stages) = &mut context.stages {
            // What a request waits for next.
            let next = match (&action, &self.phase) {
                (NextAction::Call(_), _)
                | (NextAction::AwaitRoom | NextAction::Again, Phase::Head | Phase::Body(_)) => Some(Stage::Queue),
                (NextAction::Wait, Phase::Head | Phase::Body(_)) => Some(Stage::Peer),
                _ => None,
            };
            stages.wait(self.slot, next);
        }
        if let NextAction::Close(response) = &mut action {
            if self.output.has_file_shrunk() {
                context.statistics.cut += 1;
                app.report(Report::FileShrank);
            }
            if response.is_none() {
                *response = self.finish(context, app);
            }
        } else {
            self.set_deadline(context);
        }
        self.store(context);
        action
    }

    /// One step: send, then go on with a response, or with input that is here, or receive.
    fn step(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> Step<A> {
        // Answers to pipelined requests leave together.
        let is_composing =
            self.output.is_empty() && self.out.as_ref().is_some_and(|out| !out.is_full()) && !context.is_full;
        if is_composing && matches!(self.phase, Phase::Head) && !self.exhausted && self.has_input() {
            return self.serve_stored(context, app);
        }
        if !self.flush(context) {
            return Step::Stop(self.abort(app));
        }
        if !self.output.is_empty() {
            return Step::Stop(NextAction::Wait);
        }
        let has_input = self.has_input();
        match &mut self.phase {
            Phase::Response(responding) => {
                if std::mem::take(&mut responding.yielded) {
                    // It has had its share of this turn.
                    return Step::Stop(NextAction::Again);
                }
                return Step::Stop(self.resume(context));
            }
            Phase::Closing(Closing::Reset) => {
                self.socket.reset_on_drop();
                return Step::Stop(NextAction::Close(None));
            }
            // Closing while unread bytes lie in the socket would be a reset, which destroys what is on its way.
            Phase::Closing(Closing::Orderly) if !has_input && !self.readable => {
                return Step::Stop(NextAction::Close(None));
            }
            Phase::Closing(_) if self.ended => return Step::Stop(NextAction::Close(None)),
            Phase::Closing(_) => {
                self.socket.end_output();
                self.drop_input();
                self.phase = Phase::Linger(LINGER_BYTES);
            }
            Phase::Running(_) => {
                self.wake(Awaited::Output, app);
                if !self.incoming.as_ref().is_some_and(|incoming| incoming.wants_more()) {
                    return Step::Stop(NextAction::Wait);
                }
            }
            Phase::Expired(_) => {
                if !self.close_expired() {
                    return Step::Stop(NextAction::Wait);
                }
            }
            Phase::Queued(_) => return Step::Stop(NextAction::Wait),
            Phase::Head | Phase::Body(_) | Phase::Linger(_) => {}
        }
        if !self.exhausted && self.has_input() {
            return self.serve_stored(context, app);
        }
        if !self.readable {
            return Step::Stop(NextAction::Wait);
        }
        let mut buffer = buffer;
        if let (Phase::Running(_), Some(incoming)) = (&self.phase, &self.incoming) {
            let room = incoming.room(&context.config.body_memory_total).min(buffer.len());
            if room == 0 {
                return Step::Stop(NextAction::Wait);
            }
            buffer = &mut buffer[..room];
        }
        if context.is_full && matches!(self.phase, Phase::Head) {
            if context.config.health_path.is_empty() {
                return Step::Stop(NextAction::AwaitRoom);
            }
            // It may ask for nothing but the server's health.
            buffer = &mut buffer[..GLANCE];
        }
        let received =
            if context.stages.is_some() { self.receive(buffer, context) } else { self.socket.receive(buffer) };
        match received {
            Ok(Moved::Bytes(0)) => self.end_of_input(context, app),
            Ok(Moved::Bytes(count)) => {
                context.statistics.bytes_in += count as u64;
                context.meter.charge(count as u64);
                // A short read has drained the socket: no second call to be told so (edge-triggered readiness comes
                // again with the next byte), unless the end of input is behind it, which comes with no edge.
                self.readable = count == buffer.len() || self.read_closed;
                self.serve_received(&buffer[..count], context, app)
            }
            Ok(Moved::WouldBlock) => {
                self.readable = false;
                Step::Stop(NextAction::Wait)
            }
            Err(_) => Step::Stop(self.abort(app)),
        }
    }

    /// Receives, and takes the time of it.
    #[cold]
    fn receive(&self, buffer: &mut [u8], context: &mut EngineContext<A>) -> std::io::Result<Moved> {
        let stages = context.stages.as_mut().filter(|_| matches!(self.phase, Phase::Head | Phase::Body(_)));
        let Some(stages) = stages else { return self.socket.receive(buffer) };
        stages.receive(self.slot);
        let received = self.socket.receive(buffer);
        stages.received(self.slot, matches!(received, Ok(Moved::Bytes(1..))));
        received
    }

    fn has_input(&self) -> bool {
        self.input_used < self.input.len()
    }

    fn drop_input(&mut self) {
        self.input = Vec::new();
        self.input_used = 0;
    }

    /// Serves what lies here.
    fn serve_stored(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        let input = std::mem::take(&mut self.input);
        let (used, step) = self.serve(&input[self.input_used..], context, app);
        self.input_used += used;
        let left = input.len() - self.input_used;
        if left > 0 && left < input.capacity() / 4 {
            // Little is left of much, and it may be long until the rest comes.
            self.input = input[std::mem::take(&mut self.input_used)..].to_vec();
        } else if left > 0 {
            self.input = input;
        } else {
            self.input_used = 0;
        }
        step
    }

    /// Serves what was received, behind what was left over.
    fn serve_received(&mut self, received: &[u8], context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        if self.has_input() {
            self.input.drain(..std::mem::take(&mut self.input_used));
            self.input.extend_from_slice(received);
            return self.serve_stored(context, app);
        }
        let (used, step) = self.serve(received, context, app);
        self.input_used = 0;
        if used < received.len() {
            self.input.clear();
            self.input.extend_from_slice(&received[used..]);
        } else if self.input.capacity() > 0 {
            self.input = Vec::new();
        }
        step
    }

    /// Serves the requests in `input` as far as they are here, until one is ready to be answered. Returns how many
    /// bytes of it are used.
    fn serve(&mut self, input: &[u8], context: &mut EngineContext<A>, app: &mut A) -> (usize, Step<A>) {
        let mut used = 0;
        self.exhausted = false;
        // Output that the peer does not take ends the loop with input left.
        while self.output.is_empty() {
            let rest = &input[used..];
            if rest.is_empty() {
                self.exhausted = true;
                break;
            }
            if context.is_full && matches!(self.phase, Phase::Head) {
                match context.glance(rest) {
                    Some(true) => {}
                    Some(false) => return (used, Step::Stop(NextAction::AwaitRoom)),
                    None => {
                        self.exhausted = true;
                        break;
                    }
                }
            }
            let (count, ready) = match &mut self.phase {
                Phase::Head => match self.head(rest, context, app) {
                    (0, None) => {
                        self.exhausted = true;
                        break;
                    }
                    done => done,
                },
                Phase::Body(_) => {
                    let done = self.body(rest, context, app);
                    if matches!(self.phase, Phase::Body(_)) {
                        self.exhausted = true;
                        used += done.0;
                        break;
                    }
                    done
                }
                Phase::Running(_) => {
                    used += self.take_in(rest, context, app);
                    // What is left is either kept for later or too little to be read.
                    let wants_more = self.incoming.as_ref().is_some_and(|incoming| incoming.wants_more());
                    self.exhausted = wants_more || used == input.len();
                    break;
                }
                Phase::Expired(_) => {
                    self.discard_expired(rest.len() as u64);
                    used = input.len();
                    break;
                }
                Phase::Queued(_) | Phase::Response(_) => break,
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
            };
            used += count;
            if let Some(request) = ready {
                return (used, Step::Stop(NextAction::Call(request)));
            }
            if self.out.as_ref().is_some_and(|out| out.is_full()) {
                break;
            }
        }
        (used, Step::Next)
    }

    /// Reads a head. The request is ready if it has no body, or has it right behind, or is not to wait for it. Returns
    /// the bytes used: none until the head is whole.
    fn head(&mut self, input: &[u8], context: &mut EngineContext<A>, app: &mut A) -> (usize, Option<A::Request>) {
        if let Some(stages) = &mut context.stages {
            stages.parse(self.slot);
        }
        context.meter.charge(meter::HEAD);
        let limits = &context.config.limits;
        let head = match self.receiver.head(input, &mut context.fields, limits) {
            Ok(Some(head)) => head,
            Ok(None) => return (0, None),
            Err(fault) => {
                self.refuse_unread(fault.into(), input, context, app);
                return (input.len(), None);
            }
        };
        let facts = Request { version: head.version, is_head: head.method == b"HEAD", keep_alive: head.keep_alive };
        let (framing, expects_continue) = (head.framing, head.expects_continue);
        let mut used = head.length;
        if context.config.is_health_check(&head) {
            let is_last = !facts.keep_alive && used == input.len();
            self.answer_health_check(context.health(), facts.is_head, is_last, context);
            return (input.len(), None);
        }
        if let Some(stages) = &mut context.stages {
            stages.switch(self.slot, Stage::Environ);
        }
        let mut request = app.begin(&head, known(&mut self.app));
        if let Some(stages) = &mut context.stages {
            stages.switch(self.slot, Stage::Parse);
        }
        if !self.served {
            self.served = true;
            context.brief_in_a_row = if facts.keep_alive { 0 } else { context.brief_in_a_row.saturating_add(1) };
        }
        self.forgotten = false;
        // Whatever is waited for next is waited for from now on.
        self.wait = Wait::App;
        self.moved = 0;
        self.waited = 0;
        if matches!(framing, Framing::None | Framing::Length(0)) {
            return (used, Some(self.ready(request, facts)));
        }
        // A body that lies here as a whole is lent, not copied.
        let whole = match framing {
            Framing::Length(length) => (input.len() - used) as u64 >= length,
            _ => false,
        };
        if whole && let Ok((count, BodyStep::Data(data))) = self.receiver.body(&input[used..], limits) {
            used += count;
            let fits = data.len() <= context.config.body_memory;
            if let Some(reserved) = context.config.body_memory_total.reserve(data.len()).filter(|_| fits) {
                self.body_memory = Some(reserved);
                self.hand_over(&mut request, Body::Borrowed(data), context.stages.as_deref_mut(), app);
                return (used, Some(self.ready(request, facts)));
            }
            let memory = &context.config.body_memory_total;
            self.phase = Phase::Body(Box::new(Receiving::new(request, facts, framing, memory)));
            if let Err(error) = self.keep(data, context) {
                self.spool_failed(error, context, app);
                return (input.len(), None);
            }
            let (count, ready) = self.body(&input[used..], context, app);
            return (used + count, ready);
        }
        if !context.config.buffer_bodies {
            let expects_continue = expects_continue && input.len() == used;
            let mut incoming = Incoming::new(expects_continue, context.config.body_memory_total.reservation());
            used += incoming.take(&mut self.receiver, &input[used..], limits, &mut context.meter);
            self.incoming = Some(Box::new(incoming));
            return (used, Some(self.ready(request, facts)));
        }
        if expects_continue && input.len() == used {
            self.tell_to_continue(context);
        }
        let memory = &context.config.body_memory_total;
        self.phase = Phase::Body(Box::new(Receiving::new(request, facts, framing, memory)));
        let (count, ready) = self.body(&input[used..], context, app);
        (used + count, ready)
    }

    /// Gives the application the body of its request.
    fn hand_over(&self, request: &mut A::Request, body: Body<'_>, mut stages: Option<&mut Stages>, app: &mut A) {
        if let Some(stages) = &mut stages {
            stages.switch(self.slot, Stage::Environ);
        }
        app.receive(request, body);
        if let Some(stages) = &mut stages {
            stages.switch(self.slot, Stage::Parse);
        }
    }

    fn ready(&mut self, request: A::Request, facts: Request) -> A::Request {
        self.phase = Phase::Running(facts);
        self.called += 1;
        request
    }

    /// The request has to wait for somebody to call the application.
    pub(crate) fn enqueue(&mut self, request: A::Request, context: &mut EngineContext<A>) {
        let Phase::Running(facts) = self.phase else { return };
        self.phase = Phase::Queued(Box::new(Queued { request, facts }));
        context.queued += 1;
        // What was composed before it does not wait as long.
        self.flush(context);
        self.set_deadline(context);
        self.store(context);
    }

    /// The request that waits is to be answered now. `None` if its peer has left meanwhile: it is told to try again,
    /// in case that it has only ended its side, and the connection has to be driven.
    pub(crate) fn dequeue(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Option<A::Request> {
        if !self.is_queued() {
            return None;
        }
        if self.socket.has_peer_left() {
            context.statistics.left += 1;
            self.refuse_request(Refusal { status: 503, fault: None }, context, app);
            return None;
        }
        let Phase::Queued(queued) = std::mem::replace(&mut self.phase, Phase::Head) else { return None };
        context.queued -= 1;
        self.phase = Phase::Running(queued.facts);
        self.set_deadline(context);
        Some(queued.request)
    }

    fn resume(&mut self, context: &mut EngineContext<A>) -> NextAction<A> {
        let Phase::Response(responding) = std::mem::replace(&mut self.phase, Phase::Head) else {
            return NextAction::Wait;
        };
        context.statistics.suspended -= 1;
        if let Some(stages) = &mut context.stages {
            stages.switch(self.slot, Stage::Queue);
        }
        self.phase = Phase::Running(responding.facts);
        NextAction::Resume(responding.response)
    }

    /// Lends what a response is written with.
    pub(crate) fn reply<R>(&mut self, context: &mut EngineContext<A>, write: impl FnOnce(&mut Reply<'_, A>) -> R) -> R {
        let facts = match &self.phase {
            Phase::Running(facts) => *facts,
            Phase::Expired(expiring) => return self.reply_to_nobody(expiring.facts, context, write),
            _ => unreachable!("a ticket is for a connection that runs"),
        };
        let is_body_here = self.incoming.as_ref().is_none_or(|incoming| incoming.has_ended());
        let stage = context.stages.as_mut().and_then(|stages| stages.switch(self.slot, Stage::Write));
        let result = write(&mut Reply {
            slot: self.slot,
            out: self.out.get_or_insert_with(|| context.composer()),
            output: &mut self.output,
            deferred: &mut context.deferred,
            in_flight: &mut self.in_flight,
            statistics: &mut context.statistics,
            socket: &self.socket,
            stamp: &context.stamp,
            now: context.now,
            request: Request { keep_alive: facts.keep_alive && is_body_here && !context.draining, ..facts },
            moved: &mut self.moved,
            gone: &mut self.gone,
            parts_come_fast: &mut context.parts_come_fast,
            ending: &mut self.ending,
        });
        if let (Some(stage), Some(stages)) = (stage, &mut context.stages) {
            stages.switch(self.slot, stage);
        }
        if self.gone {
            self.discard_output();
            self.end_incoming(Fault::Truncated.into());
        }
        self.store(context);
        result
    }

    /// Takes note of how far the application got. The connection has to be driven then.
    pub(crate) fn complete(
        &mut self,
        progress: Progress<A::Response>,
        context: &mut EngineContext<A>,
    ) -> Option<A::Response> {
        if let Some(phase) = self.expired_phase() {
            self.phase = phase;
            self.in_flight = None;
            self.incoming = None;
            self.body_memory = None;
            return match progress {
                Progress::Blocked(response) | Progress::Yield(response) => Some(response),
                Progress::Done | Progress::Cut => None,
            };
        }
        let Phase::Running(facts) = self.phase else { unreachable!("a ticket is for a connection that runs") };
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.count_status(&mut context.statistics);
        }
        let is_over = matches!(progress, Progress::Done | Progress::Cut);
        if is_over {
            self.body_memory = None;
        }
        if let Some(stages) = &mut context.stages {
            match progress {
                _ if self.gone => stages.give_up(self.slot),
                Progress::Done => stages.answered(self.slot),
                Progress::Cut => stages.give_up(self.slot),
                Progress::Blocked(_) => {
                    stages.switch(self.slot, Stage::Peer);
                }
                Progress::Yield(_) => {
                    stages.switch(self.slot, Stage::Queue);
                }
            }
        }
        if self.gone {
            // What was read ahead of the application counts as body memory until it is dropped.
            self.incoming = None;
            self.phase = Phase::Closing(Closing::Reset);
            return match progress {
                Progress::Blocked(response) | Progress::Yield(response) => Some(response),
                Progress::Done | Progress::Cut => None,
            };
        }
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.produced = 0;
        }
        // Where nobody has taken the rest of a body, nobody can tell where the next request begins.
        let is_body_left = is_over && self.incoming.take().is_some_and(|incoming| !incoming.has_ended());
        context.statistics.suspended += u64::from(!is_over);
        self.phase = match progress {
            Progress::Blocked(response) => Phase::Response(Box::new(Responding { response, facts, yielded: false })),
            Progress::Yield(response) => Phase::Response(Box::new(Responding { response, facts, yielded: true })),
            Progress::Done => match self.in_flight.take() {
                Some(in_flight) if in_flight.sender.keeps_alive() && !is_body_left => Phase::Head,
                _ if facts.keep_alive || context.draining || is_body_left => Phase::Closing(Closing::Linger),
                _ => Phase::Closing(Closing::Orderly),
            },
            Progress::Cut => {
                context.statistics.cut += 1;
                match self.in_flight.take() {
                    Some(in_flight) if in_flight.sender.needs_reset() => Phase::Closing(Closing::Reset),
                    _ => Phase::Closing(Closing::Linger),
                }
            }
        };
        None
    }

    /// The peer has closed its side.
    fn end_of_input(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        self.ended = true;
        self.readable = false;
        if self.is_receiving()
            && let Some(stages) = &mut context.stages
        {
            stages.give_up(self.slot);
        }
        match &self.phase {
            Phase::Head if self.receiver.end_of_input(&self.input).is_ok() => {
                return Step::Stop(NextAction::Close(None));
            }
            Phase::Head => self.refuse_stored(Fault::Truncated.into(), context, app),
            Phase::Body(_) => self.refuse_request(Fault::Truncated.into(), context, app),
            Phase::Running(_) => self.break_incoming(Fault::Truncated.into(), app),
            Phase::Expired(_) => self.let_expired_go(),
            _ => return Step::Stop(NextAction::Close(None)),
        }
        Step::Next
    }

    /// Answers what lies here and never became a request.
    fn refuse_stored(&mut self, refusal: Refusal, context: &mut EngineContext<A>, app: &mut A) {
        let input = std::mem::take(&mut self.input);
        self.refuse_unread(refusal, &input[self.input_used..], context, app);
    }

    /// Answers `unread`, which never became a request.
    fn refuse_unread(&mut self, refusal: Refusal, unread: &[u8], context: &mut EngineContext<A>, app: &mut A) {
        app.refused(refusal, PartialRequestLine::read(unread), known(&mut self.app));
        self.write_refusal(refusal, self.receiver.is_head(), context);
    }

    /// Answers a request that the application will not see: its body did not come as it should, or it waited too long.
    fn refuse_request(&mut self, refusal: Refusal, context: &mut EngineContext<A>, app: &mut A) {
        let Some((request, facts)) = self.take_request(context) else { return };
        app.abandon_request(request, Some(refusal));
        self.write_refusal(refusal, facts.is_head, context);
    }

    /// Takes a request out that the application has not been called for.
    fn take_request(&mut self, context: &mut EngineContext<A>) -> Option<(A::Request, Request)> {
        match std::mem::replace(&mut self.phase, Phase::Head) {
            Phase::Body(receiving) => Some((receiving.request, receiving.facts)),
            Phase::Queued(queued) => {
                context.queued -= 1;
                self.body_memory = None;
                Some((queued.request, queued.facts))
            }
            phase => {
                self.phase = phase;
                None
            }
        }
    }

    fn write_refusal(&mut self, refusal: Refusal, is_head: bool, context: &mut EngineContext<A>) {
        self.out(context);
        let out = self.out.get_or_insert_with(|| context.composer());
        context.config.refuse(refusal, is_head, &context.stamp, &mut out.bytes);
        self.refused(refusal.status, context);
    }

    /// A refusal has been written: it is the last thing that the peer gets.
    fn refused(&mut self, status: u16, context: &mut EngineContext<A>) {
        context.statistics.refused += 1;
        context.statistics.count_status(status);
        if let Some(stages) = &mut context.stages {
            stages.give_up(self.slot);
        }
        self.incoming = None;
        self.drop_input();
        self.exhausted = true;
        self.phase = Phase::Closing(Closing::Linger);
    }

    /// The peer waits to be told that its body is wanted.
    fn tell_to_continue(&mut self, context: &mut EngineContext<A>) {
        context.statistics.count_status(100);
        self.out(context).bytes.extend_from_slice(CONTINUE);
    }

    /// What is composed for this connection. Nothing of it has left.
    fn out(&mut self, context: &mut EngineContext<A>) -> &mut Composer<A::Chunk> {
        let out = self.out.get_or_insert_with(|| context.composer());
        // What a tick has sent a part of leaves by another way.
        if out.is_begun() {
            out.move_to(&mut self.output);
        }
        out
    }

    /// Gives the composer back if it holds nothing.
    fn store(&mut self, context: &mut EngineContext<A>) {
        if let Some(out) = self.out.take_if(|out| out.is_empty()) {
            context.spare.push(out);
        }
    }

    /// Holds back what is composed, for the next response to leave with it.
    fn defer(&mut self, context: &mut EngineContext<A>) {
        if let Some(out) = &mut self.out
            && !out.is_empty()
        {
            reply::defer(out, &mut context.deferred, self.slot);
        }
    }

    /// A tick has passed: sends what is held back and was not touched since the tick before. Returns whether it is
    /// still held. It drops nothing that belongs to the application.
    pub(crate) fn tick(&mut self, tick: u64, statistics: &mut Statistics, stages: &mut Option<Box<Stages>>) -> bool {
        let Some(out) = &mut self.out else { return false };
        match out.deferred {
            Some(at) if at < tick && self.output.is_empty() && !out.failed && !out.is_sent() => {
                if let Some(stages) = stages {
                    stages.send(self.slot);
                }
                self.send_composed(statistics);
                let Some(out) = &self.out else { return false };
                if let Some(stages) = stages {
                    stages.sent(self.slot, out.is_sent());
                }
                !out.failed && !out.is_sent()
            }
            Some(at) => at >= tick,
            None => false,
        }
    }

    /// Sends what is composed; false if the peer is gone.
    fn flush(&mut self, context: &mut EngineContext<A>) -> bool {
        if context.stages.is_some() { self.flush_timed(context) } else { self.flush_now(context) }
    }

    #[cold]
    fn flush_timed(&mut self, context: &mut EngineContext<A>) -> bool {
        if let Some(stages) = &mut context.stages {
            stages.send(self.slot);
        }
        let flushed = self.flush_now(context);
        if let Some(stages) = &mut context.stages {
            stages.sent(self.slot, self.output.is_empty());
        }
        flushed
    }

    fn flush_now(&mut self, context: &mut EngineContext<A>) -> bool {
        let mut count = 0;
        let flushed = match &mut self.out {
            Some(out) => reply::flush(out, &mut self.output, &self.socket, &mut count),
            None => self.output.flush(&self.socket, &mut count),
        };
        context.statistics.bytes_out += count;
        self.moved += count;
        flushed.is_ok()
    }

    fn discard_output(&mut self) {
        if let Some(out) = &mut self.out {
            out.clear();
        }
        self.output.clear();
    }

    /// The peer is gone, or must see that something is missing because a file could not be sent: the connection is
    /// over, once the call that is out for it comes back.
    fn abort(&mut self, app: &mut A) -> NextAction<A> {
        self.socket.reset_on_drop();
        if !self.is_running() {
            return NextAction::Close(None);
        }
        self.socket.cut();
        self.gone = true;
        self.readable = false;
        self.discard_output();
        self.break_incoming(Fault::Truncated.into(), app);
        self.wake(Awaited::Output, app);
        NextAction::Wait
    }

    /// Somebody waits in the middle of a call until there is input, or its end.
    pub(crate) fn wait_for_input(&mut self, waiter: A::Waiter, context: &mut EngineContext<A>, app: &mut A) {
        if self.incoming.as_ref().is_none_or(|incoming| incoming.has_something()) {
            return app.wake(waiter);
        }
        self.waiter = Some((Awaited::Input, waiter));
        self.set_deadline(context);
    }

    /// Somebody waits in the middle of a call until the peer has taken all output, or is gone. The connection has to be
    /// driven then, because some of it may not have been sent at all.
    pub(crate) fn wait_for_output(&mut self, waiter: A::Waiter, app: &mut A) {
        if self.gone || self.is_expired() || self.output.is_empty() {
            return app.wake(waiter);
        }
        self.waiter = Some((Awaited::Output, waiter));
    }

    /// The call is over. Should somebody still wait in the middle of it, there is nothing to wait for.
    pub(crate) fn release(&mut self, app: &mut A) {
        if let Some((_, waiter)) = self.waiter.take() {
            app.wake(waiter);
        }
    }

    /// Nobody waits any more, because whoever did was told otherwise to stop.
    pub(crate) fn stop_waiting(&mut self) {
        self.waiter = None;
    }

    fn wake(&mut self, awaited: Awaited, app: &mut A) {
        if let Some((_, waiter)) = self.waiter.take_if(|(what, _)| *what == awaited) {
            app.wake(waiter);
        }
    }

    /// Whether whoever waits for the response has left, as far as can be seen.
    pub(crate) fn has_peer_left(&self) -> bool {
        self.gone || self.ended || self.is_expired() || self.socket.has_peer_left()
    }

    /// Cuts whatever is under way. The slot stays if a call is out.
    pub(crate) fn cut(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        if !self.is_between_requests() && !matches!(self.phase, Phase::Linger(_)) {
            if !self.gone && !self.is_expired() {
                context.statistics.cut += 1;
            }
            return match self.abort(app) {
                NextAction::Close(_) => NextAction::Close(self.finish(context, app)),
                action => action,
            };
        }
        NextAction::Close(None)
    }

    /// The connection is over: what was under way is given up.
    fn finish(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Option<A::Response> {
        if let Some(mut out) = self.out.take() {
            out.clear();
            context.spare.push(out);
        }
        match std::mem::replace(&mut self.phase, Phase::Closing(Closing::Orderly)) {
            Phase::Body(receiving) => app.abandon_request(receiving.request, None),
            Phase::Queued(queued) => {
                context.queued -= 1;
                app.abandon_request(queued.request, None);
            }
            Phase::Response(responding) => {
                context.statistics.suspended -= 1;
                return Some(responding.response);
            }
            _ => {}
        }
        None
    }

    /// Code of ours panicked in driving it. If a call is out the slot has to be kept.
    pub(crate) fn give_up(&mut self, context: &mut EngineContext<A>, app: &mut A) -> bool {
        let is_running = self.is_running();
        if is_running {
            self.abort(app);
            return true;
        }
        self.socket.reset_on_drop();
        match self.phase {
            Phase::Queued(_) => context.queued -= 1,
            Phase::Response(_) => context.statistics.suspended -= 1,
            _ => {}
        }
        false
    }
}

fn known<C>(app: &mut Option<C>) -> &mut C {
    app.as_mut().expect("the application is told of a connection before it is driven")
}

impl Config {
    /// Writes the page that a request is refused with.
    fn refuse(&self, Refusal { status, fault }: Refusal, is_head: bool, stamp: &Stamp, out: &mut Vec<u8>) -> Sender {
        let explanation = fault.map_or_else(|| explanation(status), Fault::explanation);
        let retry_after = (status == 503).then(|| self.queue_timeout.map_or(1, |timeout| timeout.as_secs().max(1)));
        http1::refuse(status, explanation, retry_after, is_head, stamp, out)
    }
}

/// One sentence about a refusal for which no rule was broken.
#[must_use]
pub fn explanation(status: u16) -> &'static str {
    match status {
        408 => "The request took too long to arrive.",
        503 => "The server has too much to do at the moment.",
        504 => "The application did not answer in time.",
        507 => "The server has no room for the request body.",
        _ => "The server has failed.",
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
