//! A scripted application that records its calls.

use super::PATIENCE;
use super::kind::{Kind, Plain};
use engine::{
    AcceptPause, App, Body, Engine, Input, Net, Now, Peer, Protocols, Refusal, Rejection, Reply, Report, Ticket,
};
use sim::response::{self, pattern};
use std::borrow::Cow;
use std::io::Read;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;
use wire::message::{Client, Misuse, PartialRequestLine, RequestHead};

/// The application's plan for a response: the head, then one operation after the other.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) status: &'static str,
    /// The Content-Length that the application declares.
    pub(crate) declared: Option<u64>,
    /// Further header fields.
    pub(crate) fields: Vec<(&'static str, &'static str)>,
    pub(crate) ops: Vec<Op>,
    /// The application's behaviour when the peer does not read.
    pub(crate) manner: Manner,
    /// True if the application panics when the request's head arrives.
    pub(crate) panics_early: bool,
}

/// The behaviour of an application that writes faster than its peer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Stops, and suspends its response until the peer has read.
    Stops,
    /// Waits within its call.
    Waits,
    /// Continues writing.
    Impolite,
}

/// One operation of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Writes the head; otherwise the first part does.
    Begin,
    /// Writes this many bytes of the [`pattern`].
    Write(usize),
    /// Writes this many bytes from a file that lacks the last `missing` of them.
    File {
        length: usize,
        missing: usize,
    },
    /// Sends back the received part of the request's body.
    Echo,
    /// Reads at most this many bytes of the body, and waits until there are some; repeated.
    Read(usize),
    /// Reads the body to its end, this many bytes at a time.
    ReadAll(usize),
    /// Reads the body to its end, and sends each part back before it reads the next one.
    EchoAll(usize),
    Flush,
    SendSoon,
    /// Stays busy until the peer has received this many bytes, as [`Script::received`] reports.
    Await(usize),
    /// Stays busy until the kernel holds this many unread bytes at [`Script::peer`].
    AwaitUnread(u64),
    /// Stores unread output in a file.
    Relieve,
    /// Yields to other calls.
    Yield,
    Panic(&'static str),
    /// Ends the response; otherwise the end of the operations does.
    Finish,
    /// Completes the response as done, even if it is not.
    Done,
    /// Cuts the response.
    Cut,
    /// Answers with an error page of the server.
    Refuse(u16),
}

impl Plan {
    /// Returns the plan of a response with a declared length, in these parts.
    pub(crate) fn sized(parts: &[usize]) -> Self {
        let length = parts.iter().sum::<usize>() as u64;
        Self { declared: Some(length), ..Self::chunked(parts) }
    }

    /// Returns the plan of a response without a declared length, in these parts.
    pub(crate) fn chunked(parts: &[usize]) -> Self {
        let mut ops = vec![Op::Begin];
        ops.extend(parts.iter().map(|&length| Op::Write(length)));
        Self::of(ops)
    }

    /// Returns the plan of the same response, by an application that continues writing whatever its peer does.
    pub(crate) fn impolite(self) -> Self {
        Self { manner: Manner::Impolite, ..self }
    }

    /// Returns the plan of a response without a declared length that follows `ops`.
    pub(crate) fn of(ops: Vec<Op>) -> Self {
        Self { status: "200 OK", declared: None, fields: Vec::new(), ops, manner: Manner::Stops, panics_early: false }
    }

    pub(crate) fn declaring(self, length: usize) -> Self {
        Self { declared: Some(length as u64), ..self }
    }

    /// Returns the number of body bytes that all operations write together.
    pub(crate) fn length(&self) -> usize {
        let of = |op: &Op| match op {
            Op::Write(length) | Op::File { length, .. } => *length,
            _ => 0,
        };
        self.ops.iter().map(of).sum()
    }
}

/// A call of the application, or the outcome of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Insecure,
    Connect {
        listener: usize,
        has_address: bool,
    },
    Begin {
        id: usize,
        repeated: bool,
        retained: bool,
    },
    Call {
        id: usize,
        body: ReceivedBody,
    },
    Resume {
        id: usize,
    },
    /// The end of a body that was read as it arrived.
    Body {
        id: usize,
        bytes: Vec<u8>,
    },
    /// The rest of the body will not arrive.
    Broken {
        id: usize,
        status: u16,
    },
    Wake {
        waiter: usize,
    },
    /// The application has completed a response.
    End {
        id: usize,
        how: How,
    },
    Abandon {
        id: usize,
    },
    AbandonRequest {
        id: usize,
        status: Option<u16>,
    },
    Idle {
        connection: usize,
    },
    Rejected(Rejection),
    Refused {
        status: u16,
        fault: Option<&'static str>,
    },
    AcceptPaused(Pause),
    Panicked(String),
    SpoolFailed,
    MessageMemoryFull,
    HandshakesFull(usize),
    StaticFileFailed,
    FileShrank,
}

/// The reason why accepting paused, in a comparable form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Connections(usize),
    Descriptors(usize),
    Failed,
}

/// The form in which a body was passed to the application.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ReceivedBody {
    Empty,
    Borrowed(Vec<u8>),
    Memory(Vec<u8>),
    File(Vec<u8>),
}

impl ReceivedBody {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            ReceivedBody::Empty => &[],
            ReceivedBody::Borrowed(bytes) | ReceivedBody::Memory(bytes) | ReceivedBody::File(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for ReceivedBody {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = match self {
            ReceivedBody::Empty => "Empty",
            ReceivedBody::Borrowed(_) => "Borrowed",
            ReceivedBody::Memory(_) => "Memory",
            ReceivedBody::File(_) => "File",
        };
        match self.bytes() {
            short if short.len() <= 40 => write!(out, "{how}({})", short.escape_ascii()),
            long => write!(out, "{how}({} bytes)", long.len()),
        }
    }
}

/// The way in which the application completed a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Done,
    Cut,
    Panicked,
}

pub(crate) struct Script<K: Kind = Plain> {
    kind: PhantomData<K>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) log: Vec<Event>,
    /// Calls that were woken since the world took them.
    pub(crate) woken: Vec<usize>,
    /// Held by every request and response, to count them.
    life: Rc<()>,
    /// Held by every part of a body, to count them.
    parts: Arc<()>,
    connections: usize,
    calls: usize,
    /// Makes the next connect or idle report panic.
    pub(crate) panics_at_next: Option<&'static str>,
    /// Receives the number of bytes that a peer has received.
    pub(crate) received: Option<Receiver<usize>>,
    /// The other end of a connection.
    pub(crate) peer: Option<OwnedFd>,
}

/// A request in the queue.
pub(crate) struct Asked {
    id: usize,
    body: ReceivedBody,
    life: Rc<()>,
}

/// A response in progress.
pub(crate) struct Course {
    pub(crate) id: usize,
    /// Number of the call, and its waiter.
    pub(crate) number: usize,
    /// Index of the next operation.
    at: usize,
    /// The number of body bytes written.
    written: usize,
    /// True if the call was suspended because the peer did not read.
    blocked: bool,
    /// The part of the request's body that was received.
    pub(crate) body: Vec<u8>,
    life: Rc<()>,
}

/// A part of a body.
pub(crate) struct Part {
    bytes: Vec<u8>,
    _life: Arc<()>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The step that follows an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    AwaitInput,
    AwaitOutput,
    Blocked,
    Yield,
    Done,
    Cut,
}

impl<K: Kind> Script<K> {
    pub(crate) fn new(plans: Vec<Plan>) -> Self {
        Self {
            kind: PhantomData,
            plans,
            log: Vec::new(),
            woken: Vec::new(),
            life: Rc::new(()),
            parts: Arc::new(()),
            connections: 0,
            calls: 0,
            panics_at_next: None,
            received: None,
            peer: None,
        }
    }

    /// Returns the number of requests and responses that exist.
    pub(crate) fn alive(&self) -> usize {
        Rc::strong_count(&self.life) - 1
    }

    /// Returns the number of parts of bodies that exist.
    pub(crate) fn parts_alive(&self) -> usize {
        Arc::strong_count(&self.parts) - 1
    }

    pub(crate) fn part(&self, bytes: Vec<u8>) -> Part {
        Part { bytes, _life: Arc::clone(&self.parts) }
    }

    pub(crate) fn count(&self, of: impl Fn(&Event) -> bool) -> usize {
        self.log.iter().filter(|event| of(event)).count()
    }

    /// Returns the ids of the calls so far, in order.
    pub(crate) fn called(&self) -> Vec<usize> {
        self.log.iter().filter_map(|event| if let Event::Call { id, .. } = event { Some(*id) } else { None }).collect()
    }

    /// Returns the number of connections whose encryption failed.
    pub(crate) fn insecure(&self) -> usize {
        self.count(|event| matches!(event, Event::Insecure))
    }

    pub(crate) fn abandoned(&self, wanted: usize) -> usize {
        self.count(|event| matches!(event, Event::Abandon { id } if *id == wanted))
    }

    pub(crate) fn resumed(&self, wanted: usize) -> usize {
        self.count(|event| matches!(event, Event::Resume { id } if *id == wanted))
    }

    /// Returns the reports that accepting paused.
    pub(crate) fn pauses(&self) -> Vec<Pause> {
        self.log
            .iter()
            .filter_map(|event| if let Event::AcceptPaused(why) = event { Some(*why) } else { None })
            .collect()
    }

    pub(crate) fn panics(&self) -> Vec<&str> {
        self.log
            .iter()
            .filter_map(|event| if let Event::Panicked(message) = event { Some(message.as_str()) } else { None })
            .collect()
    }

    /// Returns the body that was passed with its request.
    pub(crate) fn body(&self, wanted: usize) -> Option<&ReceivedBody> {
        self.log.iter().find_map(|event| match event {
            Event::Call { id, body } if *id == wanted => Some(body),
            _ => None,
        })
    }

    /// Returns the body that was read as it arrived.
    pub(crate) fn body_read(&self, wanted: usize) -> Option<&[u8]> {
        self.log.iter().find_map(|event| match event {
            Event::Body { id, bytes } if *id == wanted => Some(bytes.as_slice()),
            _ => None,
        })
    }

    /// Returns the status with which a body failed.
    pub(crate) fn broken(&self, wanted: usize) -> Option<u16> {
        self.log.iter().find_map(|event| match event {
            Event::Broken { id, status } if *id == wanted => Some(*status),
            _ => None,
        })
    }

    fn write_head(plan: &Plan, reply: &mut Reply<'_, Self>) {
        reply.begin(&response::head(plan.status, &plan.fields, plan.declared), None);
    }

    /// Begins a call.
    pub(crate) fn call(&mut self, request: Asked) -> Course {
        let Asked { id, body, life } = request;
        self.calls += 1;
        let number = self.calls;
        let course = Course { id, number, at: 0, written: 0, blocked: false, body: body.bytes().to_vec(), life };
        self.log.push(Event::Call { id, body });
        course
    }

    /// Resumes a response.
    pub(crate) fn resume(&mut self, engine: &mut Engine<Self>, ticket: &Ticket, course: &mut Course) {
        self.log.push(Event::Resume { id: course.id });
        if std::mem::take(&mut course.blocked) {
            assert!(!engine.reply(ticket, |reply| reply.is_full()), "resumed before the peer has read");
        }
    }

    /// Records that a response was abandoned.
    pub(crate) fn abandon(&mut self, course: &Course) {
        self.log.push(Event::Abandon { id: course.id });
    }

    /// Runs the next operation. Handles a panic as a driver has to.
    pub(crate) fn step(&mut self, engine: &mut Engine<Self>, ticket: &Ticket, course: &mut Course, now: Now) -> Next {
        match catch_unwind(AssertUnwindSafe(|| self.operate(engine, ticket, course, now))) {
            Ok(next) => next,
            Err(panic) => {
                let message = panic.downcast_ref::<String>().cloned();
                let message = message.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
                self.report(Report::Panicked(message.expect("the panic has a message")));
                let refused = engine.reply(ticket, |reply| reply.refuse(500, "The server has failed."));
                if refused { Next::Done } else { Next::Cut }
            }
        }
    }

    fn end(&mut self, id: usize, how: How) -> Next {
        self.log.push(Event::End { id, how });
        if how == How::Done { Next::Done } else { Next::Cut }
    }

    fn operate(&mut self, engine: &mut Engine<Self>, ticket: &Ticket, course: &mut Course, now: Now) -> Next {
        let plan = &self.plans[course.id];
        let manner = plan.manner;
        let op = plan.ops.get(course.at).copied().unwrap_or(Op::Finish);
        course.at += 1;
        match op {
            Op::Await(_) | Op::AwaitUnread(_) => {
                self.stay_busy(engine, op);
                return Next::GoOn;
            }
            Op::Read(at_most) | Op::ReadAll(at_most) | Op::EchoAll(at_most) => {
                let mut buffer = vec![0; at_most];
                match engine.read(ticket, &mut buffer, now, self) {
                    Input::Pending => {
                        course.at -= 1;
                        return Next::AwaitInput;
                    }
                    Input::Broken(Refusal { status, .. }) => {
                        self.log.push(Event::Broken { id: course.id, status });
                        let refused = engine.reply(ticket, |reply| reply.refuse(status, "As the body went."));
                        return self.end(course.id, if refused { How::Done } else { How::Cut });
                    }
                    Input::End => {
                        self.log.push(Event::Body { id: course.id, bytes: course.body.clone() });
                        return Next::GoOn;
                    }
                    Input::Bytes(count) => {
                        assert!(count > 0, "a read returns at least one byte");
                        course.body.extend_from_slice(&buffer[..count]);
                        course.at -= usize::from(!matches!(op, Op::Read(_)));
                        if !matches!(op, Op::EchoAll(_)) {
                            return Next::GoOn;
                        }
                        buffer.truncate(count);
                        let (plan, part) = (&self.plans[course.id], self.part(buffer));
                        let written = engine.reply(ticket, |reply| {
                            if !reply.is_begun() {
                                Self::write_head(plan, reply);
                            }
                            let verdict = reply.write(part);
                            reply.send_soon();
                            verdict
                        });
                        if written.is_err() {
                            return self.end(course.id, How::Cut);
                        }
                    }
                }
            }
            Op::Yield => return Next::Yield,
            Op::Done => return self.end(course.id, How::Done),
            Op::Cut => return self.end(course.id, How::Cut),
            op => match engine.reply(ticket, |reply| self.write(&op, course, reply)) {
                Next::GoOn => {}
                next => return next,
            },
        }
        let (is_gone, is_full) = engine.reply(ticket, |reply| (reply.is_gone(), reply.is_full()));
        match manner {
            Manner::Stops if is_gone || is_full => {
                course.blocked = !is_gone;
                Next::Blocked
            }
            Manner::Waits if is_gone => self.end(course.id, How::Cut),
            Manner::Waits if is_full => Next::AwaitOutput,
            _ => Next::GoOn,
        }
    }

    /// Stays busy until the peer has as many bytes as `op` says.
    fn stay_busy(&self, engine: &mut Engine<Self>, op: Op) {
        // Deferred output is sent at the second tick.
        engine.tick();
        engine.tick();
        if let Op::Await(bytes) = op {
            let received = self.received.as_ref().expect("the test sets the channel");
            while received.recv_timeout(PATIENCE).expect("bytes are sent while the application works") < bytes {}
        }
        if let Op::AwaitUnread(bytes) = op {
            let peer = self.peer.as_ref().expect("the test sets the peer");
            let patience = Instant::now() + PATIENCE;
            while rustix::io::ioctl_fionread(peer).expect("a socket") < bytes {
                assert!(Instant::now() < patience, "no byte is sent while the application works");
                std::thread::yield_now();
            }
        }
    }

    /// Performs the operations that write.
    fn write(&mut self, op: &Op, course: &mut Course, reply: &mut Reply<'_, Self>) -> Next {
        let id = course.id;
        let writes = matches!(op, Op::Write(_) | Op::File { .. } | Op::Echo | Op::Finish | Op::Begin);
        if writes && !reply.is_begun() {
            Self::write_head(&self.plans[id], reply);
        }
        let verdict = match *op {
            Op::Write(length) => {
                let from = course.written;
                course.written += length;
                reply.write(self.part(pattern(id, from, length)))
            }
            Op::Echo => reply.write(self.part(std::mem::take(&mut course.body))),
            Op::File { length, missing } => {
                let from = course.written;
                course.written += length;
                let (file, offset) = response::file(id, from, length, missing);
                reply.write_file(file, offset, length as u64)
            }
            Op::Flush => {
                reply.flush();
                Ok(())
            }
            Op::SendSoon => {
                reply.send_soon();
                Ok(())
            }
            Op::Relieve => {
                if reply.relieve().is_err() {
                    return self.end(id, How::Cut);
                }
                Ok(())
            }
            Op::Panic(message) => {
                self.log.push(Event::End { id, how: How::Panicked });
                panic!("{message}");
            }
            Op::Finish => {
                return match reply.finish() {
                    Ok(()) => self.end(id, How::Done),
                    Err(Misuse::BodyTooShort) => self.end(id, How::Cut),
                    Err(other) => panic!("finish: {other}"),
                };
            }
            Op::Refuse(status) => {
                let refused = reply.refuse(status, "As the plan says.");
                return self.end(id, if refused { How::Done } else { How::Cut });
            }
            _ => Ok(()),
        };
        if verdict.is_err() { self.end(id, How::Cut) } else { Next::GoOn }
    }
}

impl<K: Kind> App for Script<K> {
    type Net = K::Net;
    type Protocols = K::Protocols;
    /// The number of the connection.
    type Connection = usize;
    type Request = Asked;
    type Response = Course;
    type Chunk = Part;
    /// The number of a call.
    type Waiter = usize;
    type Message = (wire::websocket::Kind, Vec<u8>);

    fn connect(&mut self, peer: &Peer) -> usize {
        if let Some(message) = self.panics_at_next.take() {
            panic!("{message}");
        }
        self.log.push(Event::Connect { listener: peer.listener, has_address: peer.address.is_some() });
        self.connections += 1;
        self.connections - 1
    }

    fn begin(&mut self, head: &RequestHead<'_>, _connection: &mut usize) -> Asked {
        let path = std::str::from_utf8(head.target.path).expect("tests use ASCII paths");
        let id = path[1..].parse().expect("the path names a plan");
        self.log.push(Event::Begin { id, repeated: head.is_repeated(), retained: head.retained });
        assert!(!self.plans[id].panics_early, "a panic of plan {id}");
        Asked { id, body: ReceivedBody::Empty, life: Rc::clone(&self.life) }
    }

    fn message(&mut self, kind: wire::websocket::Kind, bytes: Cow<'_, [u8]>) -> Self::Message {
        (kind, bytes.into_owned())
    }

    fn receive(&mut self, request: &mut Asked, body: Body<'_>) {
        assert_eq!(request.body, ReceivedBody::Empty, "a request has one body");
        request.body = match body {
            Body::Empty => ReceivedBody::Empty,
            Body::Borrowed(bytes) => ReceivedBody::Borrowed(bytes.to_vec()),
            Body::Memory(bytes) => ReceivedBody::Memory(bytes),
            Body::File(mut file, length) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).expect("a file to read");
                assert_eq!(bytes.len() as u64, length);
                ReceivedBody::File(bytes)
            }
        };
    }

    fn abandon_request(&mut self, request: Asked, refusal: Option<Refusal>) {
        self.log.push(Event::AbandonRequest { id: request.id, status: refusal.map(|refusal| refusal.status) });
    }

    fn wake(&mut self, waiter: usize) {
        self.log.push(Event::Wake { waiter });
        self.woken.push(waiter);
    }

    fn idle(&mut self, connection: &mut usize) {
        if let Some(message) = self.panics_at_next.take() {
            panic!("{message}");
        }
        self.log.push(Event::Idle { connection: *connection });
    }

    fn refused(
        &mut self,
        refusal: Refusal,
        _line: Option<PartialRequestLine<'_>>,
        _client: Option<&Client>,
        _connection: &mut usize,
    ) {
        self.log
            .push(Event::Refused { status: refusal.status, fault: refusal.fault().map(wire::message::Fault::name) });
    }

    fn failed_to_secure(&mut self, _: &std::io::Error, _: &mut usize) {
        self.log.push(Event::Insecure);
    }

    fn rejected(&mut self, rejection: Rejection, _connection: &mut usize) {
        self.log.push(Event::Rejected(rejection));
    }

    fn report(&mut self, report: Report) {
        self.log.push(match report {
            Report::AcceptPaused(pause) => Event::AcceptPaused(match pause {
                AcceptPause::Connections(bound) => Pause::Connections(bound),
                AcceptPause::Descriptors(bound) => Pause::Descriptors(bound),
                AcceptPause::Failed(_) => Pause::Failed,
            }),
            Report::Panicked(message) => Event::Panicked(message),
            Report::SpoolFailed(_) => Event::SpoolFailed,
            Report::MessageMemoryFull(_) => Event::MessageMemoryFull,
            Report::HandshakesFull(most) => Event::HandshakesFull(most),
            Report::FileShrank => Event::FileShrank,
            Report::StaticFileFailed(_) => Event::StaticFileFailed,
        });
    }
}
