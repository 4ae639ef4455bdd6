//! An application that does what it is told and writes down what it was asked.

use super::PATIENCE;
use engine::{AcceptPause, App, Body, Engine, Input, Now, Os, Peer, Refusal, Reply, Report, Ticket};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;
use wire::http1::{Draft, Head, Misuse, PartialRequestLine};

/// How a request is answered: the head, then one operation after the other.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) status: &'static str,
    /// Content-Length as the application declares it.
    pub(crate) declared: Option<u64>,
    /// Fields besides.
    pub(crate) fields: Vec<(&'static str, &'static str)>,
    pub(crate) ops: Vec<Op>,
    /// What it does when the peer does not keep up.
    pub(crate) manner: Manner,
    /// Panics when its head arrives.
    pub(crate) panics_early: bool,
}

/// What an application does that writes faster than its peer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Stops, and gives its response back until the peer has caught up.
    Stops,
    /// Waits in the middle of its call.
    Waits,
    /// Goes on.
    Impolite,
}

/// One step of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Writes the head, which the first part does otherwise.
    Begin,
    /// Writes so many bytes of the [`pattern`].
    Write(usize),
    /// The same from a file; the file is then cut so that `missing` bytes of them are not there.
    File {
        length: usize,
        missing: usize,
    },
    /// Sends back what has come of the request's body.
    Echo,
    /// Reads so many bytes of the body at most, and waits until there are some; the same again.
    Read(usize),
    /// Reads the body to its end, so many bytes at a time.
    ReadAll(usize),
    /// Does so, and sends each part back before it reads the next.
    EchoAll(usize),
    Flush,
    SendSoon,
    /// Keeps busy until the peer has received so many bytes, as [`Script::received`] tells.
    Await(usize),
    /// Keeps busy until so many bytes lie unread in the kernel at [`Script::peer`].
    AwaitUnread(u64),
    /// Has what piles up kept elsewhere.
    Relieve,
    /// Lets others go on.
    Yield,
    Panic(&'static str),
    /// Ends the response; without it the end of the operations does.
    Finish,
    /// Says that the response is done, whether or not it is.
    Done,
    /// Breaks off.
    Cut,
    /// Answers with a page of the server's.
    Refuse(u16),
}

impl Plan {
    /// A response with a declared length, in the parts given.
    pub(crate) fn sized(parts: &[usize]) -> Self {
        let length = parts.iter().sum::<usize>() as u64;
        Self { declared: Some(length), ..Self::chunked(parts) }
    }

    /// A response of a length that is not known before its end.
    pub(crate) fn chunked(parts: &[usize]) -> Self {
        let mut ops = vec![Op::Begin];
        ops.extend(parts.iter().map(|&length| Op::Write(length)));
        Self::of(ops)
    }

    /// What it is, from an application that goes on whatever its peer does.
    pub(crate) fn impolite(self) -> Self {
        Self { manner: Manner::Impolite, ..self }
    }

    /// A response of undeclared length that follows `ops`.
    pub(crate) fn of(ops: Vec<Op>) -> Self {
        Self { status: "200 OK", declared: None, fields: Vec::new(), ops, manner: Manner::Stops, panics_early: false }
    }

    pub(crate) fn declaring(self, length: usize) -> Self {
        Self { declared: Some(length as u64), ..self }
    }

    /// Body bytes that all operations write together.
    pub(crate) fn length(&self) -> usize {
        let of = |op: &Op| match op {
            Op::Write(length) | Op::File { length, .. } => *length,
            _ => 0,
        };
        self.ops.iter().map(of).sum()
    }
}

/// Bytes `from` to `from + length` of the body that plan `id` writes: every place in every body has its own look.
pub(crate) fn pattern(id: usize, from: usize, length: usize) -> Vec<u8> {
    let of = |place: usize| ((place as u64 ^ (id as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (from..from + length).map(of).collect()
}

/// What the application was asked, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
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
        body: Told,
    },
    Resume {
        id: usize,
    },
    /// A body that was read as it came is over.
    Body {
        id: usize,
        bytes: Vec<u8>,
    },
    /// The rest of it will not come.
    Broken {
        id: usize,
        status: u16,
    },
    Wake {
        waiter: usize,
    },
    /// The application is through with a response.
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
    Refused {
        status: u16,
        fault: Option<&'static str>,
    },
    AcceptPaused(Pause),
    Panicked(String),
    SpoolFailed,
    FileShrank,
}

/// Why accepting paused, in a form that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Connections(usize),
    Descriptors(usize),
    Failed,
}

/// How a body was handed over.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Empty,
    Borrowed(Vec<u8>),
    Memory(Vec<u8>),
    File(Vec<u8>),
}

impl Told {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Told::Empty => &[],
            Told::Borrowed(bytes) | Told::Memory(bytes) | Told::File(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Told {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = match self {
            Told::Empty => "Empty",
            Told::Borrowed(_) => "Borrowed",
            Told::Memory(_) => "Memory",
            Told::File(_) => "File",
        };
        match self.bytes() {
            short if short.len() <= 40 => write!(out, "{how}({})", short.escape_ascii()),
            long => write!(out, "{how}({} bytes)", long.len()),
        }
    }
}

/// What the application said last of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Done,
    Cut,
    Panicked,
}

pub(crate) struct Script {
    pub(crate) plans: Vec<Plan>,
    pub(crate) log: Vec<Event>,
    /// Who has been woken, until somebody looks.
    pub(crate) woken: Vec<usize>,
    /// Held by every request and response, so that they can be counted.
    life: Rc<()>,
    /// Held by every part of a body.
    parts: Arc<()>,
    connections: usize,
    calls: usize,
    /// Welcoming the next connection, or the rest of an idle one, panics.
    pub(crate) panics_at_next: Option<&'static str>,
    /// Tells how many bytes a peer has received.
    pub(crate) received: Option<Receiver<usize>>,
    /// The other end of a connection.
    pub(crate) peer: Option<OwnedFd>,
}

/// A request that has begun.
pub(crate) struct Asked {
    id: usize,
    body: Told,
    life: Rc<()>,
}

/// A response under way.
pub(crate) struct Course {
    pub(crate) id: usize,
    /// Counts the calls; it waits under this number.
    pub(crate) number: usize,
    /// The next operation.
    at: usize,
    /// Body bytes written.
    written: usize,
    /// It was stopped because the peer did not keep up.
    blocked: bool,
    /// What has come of the request's body.
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

/// What follows an operation.
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

impl Script {
    pub(crate) fn new(plans: Vec<Plan>) -> Self {
        Self {
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

    /// Requests and responses that exist.
    pub(crate) fn alive(&self) -> usize {
        Rc::strong_count(&self.life) - 1
    }

    /// Parts of bodies that exist.
    pub(crate) fn parts_alive(&self) -> usize {
        Arc::strong_count(&self.parts) - 1
    }

    fn part(&self, bytes: Vec<u8>) -> Part {
        Part { bytes, _life: Arc::clone(&self.parts) }
    }

    pub(crate) fn count(&self, of: impl Fn(&Event) -> bool) -> usize {
        self.log.iter().filter(|event| of(event)).count()
    }

    /// The ids of the calls so far, in their order.
    pub(crate) fn called(&self) -> Vec<usize> {
        self.log.iter().filter_map(|event| if let Event::Call { id, .. } = event { Some(*id) } else { None }).collect()
    }

    pub(crate) fn abandoned(&self, wanted: usize) -> usize {
        self.count(|event| matches!(event, Event::Abandon { id } if *id == wanted))
    }

    pub(crate) fn resumed(&self, wanted: usize) -> usize {
        self.count(|event| matches!(event, Event::Resume { id } if *id == wanted))
    }

    /// Reports that accepting paused.
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

    /// The body that a request came with.
    pub(crate) fn body(&self, wanted: usize) -> Option<&Told> {
        self.log.iter().find_map(|event| match event {
            Event::Call { id, body } if *id == wanted => Some(body),
            _ => None,
        })
    }

    /// The body that was read as it came.
    pub(crate) fn body_read(&self, wanted: usize) -> Option<&[u8]> {
        self.log.iter().find_map(|event| match event {
            Event::Body { id, bytes } if *id == wanted => Some(bytes.as_slice()),
            _ => None,
        })
    }

    /// The status with which a body broke off.
    pub(crate) fn broken(&self, wanted: usize) -> Option<u16> {
        self.log.iter().find_map(|event| match event {
            Event::Broken { id, status } if *id == wanted => Some(*status),
            _ => None,
        })
    }

    fn write_head(plan: &Plan, reply: &mut Reply<'_, Self>) {
        let mut draft = Draft::default();
        draft.start(plan.status.as_bytes()).expect("a status");
        for (name, value) in &plan.fields {
            draft.field(name.as_bytes(), value.as_bytes()).expect("a field");
        }
        if let Some(length) = plan.declared {
            draft.field(b"Content-Length", length.to_string().as_bytes()).expect("a length");
        }
        reply.begin(&draft, None);
    }

    /// Takes up a request.
    pub(crate) fn call(&mut self, request: Asked) -> Course {
        let Asked { id, body, life } = request;
        self.calls += 1;
        let number = self.calls;
        let course = Course { id, number, at: 0, written: 0, blocked: false, body: body.bytes().to_vec(), life };
        self.log.push(Event::Call { id, body });
        course
    }

    /// Takes up a response.
    pub(crate) fn resume(&mut self, engine: &mut Engine<Self>, ticket: &Ticket, course: &mut Course) {
        self.log.push(Event::Resume { id: course.id });
        if std::mem::take(&mut course.blocked) {
            assert!(!engine.reply(ticket, |reply| reply.is_full()), "resumed before the peer has caught up");
        }
    }

    /// Takes note that a response cannot go on.
    pub(crate) fn abandon(&mut self, course: &Course) {
        self.log.push(Event::Abandon { id: course.id });
    }

    /// Does the next operation. A panic in it is dealt with as a driver has to.
    pub(crate) fn step(&mut self, engine: &mut Engine<Self>, ticket: &Ticket, course: &mut Course, now: Now) -> Next {
        match catch_unwind(AssertUnwindSafe(|| self.operate(engine, ticket, course, now))) {
            Ok(next) => next,
            Err(panic) => {
                let message = panic.downcast_ref::<String>().cloned();
                let message = message.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
                self.report(Report::Panicked(message.expect("panics say something")));
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
            Op::Await(bytes) => {
                // What is held back leaves at the second tick.
                engine.tick();
                engine.tick();
                let received = self.received.as_ref().expect("somebody tells");
                while received.recv_timeout(PATIENCE).expect("the bytes leave while the application works") < bytes {}
                return Next::GoOn;
            }
            Op::AwaitUnread(bytes) => {
                engine.tick();
                engine.tick();
                let peer = self.peer.as_ref().expect("somebody is looked at");
                let patience = Instant::now() + PATIENCE;
                while rustix::io::ioctl_fionread(peer).expect("a socket") < bytes {
                    assert!(Instant::now() < patience, "nothing leaves while the application works");
                    std::thread::yield_now();
                }
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
                        assert!(count > 0, "no bytes are not some");
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

    /// The operations that write.
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
                let mut file = tempfile::tempfile().expect("a temporary file");
                file.write_all(b"not this").expect("there is room");
                file.write_all(&pattern(id, from, length)).expect("there is room");
                file.set_len((8 + length - missing) as u64).expect("a file");
                file.seek(SeekFrom::Start(0)).expect("a file");
                reply.write_file(file, 8, length as u64)
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

impl App for Script {
    type Net = Os;
    /// Its number.
    type Connection = usize;
    type Request = Asked;
    type Response = Course;
    type Chunk = Part;
    /// The number of a call.
    type Waiter = usize;

    fn connect(&mut self, peer: &Peer) -> usize {
        if let Some(message) = self.panics_at_next.take() {
            panic!("{message}");
        }
        self.log.push(Event::Connect { listener: peer.listener, has_address: peer.address.is_some() });
        self.connections += 1;
        self.connections - 1
    }

    fn begin(&mut self, head: &Head<'_>, _connection: &mut usize) -> Asked {
        let path = std::str::from_utf8(head.target.path).expect("tests ask in ASCII");
        let id = path[1..].parse().expect("the path names a plan");
        self.log.push(Event::Begin { id, repeated: head.is_repeated(), retained: head.retained });
        assert!(!self.plans[id].panics_early, "a panic of plan {id}");
        Asked { id, body: Told::Empty, life: Rc::clone(&self.life) }
    }

    fn receive(&mut self, request: &mut Asked, body: Body<'_>) {
        assert_eq!(request.body, Told::Empty, "a request has one body");
        request.body = match body {
            Body::Empty => Told::Empty,
            Body::Borrowed(bytes) => Told::Borrowed(bytes.to_vec()),
            Body::Memory(bytes) => Told::Memory(bytes),
            Body::File(mut file, length) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).expect("a file to read");
                assert_eq!(bytes.len() as u64, length);
                Told::File(bytes)
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

    fn refused(&mut self, refusal: Refusal, _line: Option<PartialRequestLine<'_>>, _connection: &mut usize) {
        self.log.push(Event::Refused { status: refusal.status, fault: refusal.fault.map(wire::http1::Fault::name) });
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
            Report::FileShrank => Event::FileShrank,
        });
    }
}
