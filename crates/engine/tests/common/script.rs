//! An application that does what it is told and writes down what it was asked.

use super::PATIENCE;
use engine::{AcceptPause, App, Body, Peer, Progress, Refusal, Reply, Report};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::Instant;
use wire::http1::{Draft, Head, Misuse};

/// How a request is answered: the head, then one operation after the other.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) status: &'static str,
    /// Content-Length as the application declares it.
    pub(crate) declared: Option<u64>,
    /// Fields besides.
    pub(crate) fields: Vec<(&'static str, &'static str)>,
    pub(crate) ops: Vec<Op>,
    /// Whether it stops when the peer does not keep up.
    pub(crate) yields_to_peer: bool,
    /// Panics when its head arrives.
    pub(crate) panics_early: bool,
}

/// One step of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Sends the request's body back.
    Echo,
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

    /// A response of undeclared length that follows `ops`.
    pub(crate) fn of(ops: Vec<Op>) -> Self {
        Self { status: "200 OK", declared: None, fields: Vec::new(), ops, yields_to_peer: true, panics_early: false }
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
    /// Held by every request and response, so that they can be counted.
    life: Rc<()>,
    connections: usize,
    /// Welcoming the next connection, or the rest of an idle one, panics.
    pub(crate) panics_at_next: Option<&'static str>,
    /// Tells how many bytes a peer has received.
    pub(crate) received: Option<Receiver<usize>>,
    /// The other end of a connection.
    pub(crate) peer: Option<OwnedFd>,
}

/// A request that has begun.
pub(crate) struct Ticket {
    id: usize,
    life: Rc<()>,
}

/// A response under way.
pub(crate) struct Course {
    id: usize,
    /// The next operation.
    at: usize,
    /// Body bytes written.
    written: usize,
    /// It was stopped because the peer did not keep up.
    blocked: bool,
    body: Vec<u8>,
    life: Rc<()>,
}

impl Script {
    pub(crate) fn new(plans: Vec<Plan>) -> Self {
        Self {
            plans,
            log: Vec::new(),
            life: Rc::new(()),
            connections: 0,
            panics_at_next: None,
            received: None,
            peer: None,
        }
    }

    /// Requests and responses that exist.
    pub(crate) fn alive(&self) -> usize {
        Rc::strong_count(&self.life) - 1
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

    fn go_on(&mut self, mut course: Course, reply: &mut Reply<'_, Self>) -> Progress<Course> {
        let id = course.id;
        let plan = self.plans[id].clone();
        let end = |script: &mut Self, how| {
            script.log.push(Event::End { id, how });
            if how == How::Done { Progress::Done } else { Progress::Cut }
        };
        loop {
            let op = plan.ops.get(course.at).cloned().unwrap_or(Op::Finish);
            course.at += 1;
            let writes = matches!(op, Op::Write(_) | Op::File { .. } | Op::Echo | Op::Finish | Op::Begin);
            if writes && !reply.is_begun() {
                Self::write_head(&plan, reply);
            }
            let verdict = match op {
                Op::Begin => Ok(()),
                Op::Write(length) => {
                    let from = course.written;
                    course.written += length;
                    reply.write(pattern(id, from, length))
                }
                Op::Echo => reply.write(std::mem::take(&mut course.body)),
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
                Op::Await(bytes) => {
                    let received = self.received.as_ref().expect("somebody tells");
                    while received.recv_timeout(PATIENCE).expect("the bytes leave while the application works") < bytes
                    {
                    }
                    Ok(())
                }
                Op::AwaitUnread(bytes) => {
                    let peer = self.peer.as_ref().expect("somebody is looked at");
                    let patience = Instant::now() + PATIENCE;
                    while rustix::io::ioctl_fionread(peer).expect("a socket") < bytes {
                        assert!(Instant::now() < patience, "nothing leaves while the application works");
                        std::thread::yield_now();
                    }
                    Ok(())
                }
                Op::Relieve => {
                    if reply.relieve().is_err() {
                        return end(self, How::Cut);
                    }
                    Ok(())
                }
                Op::Yield => return Progress::Yield(course),
                Op::Panic(message) => {
                    self.log.push(Event::End { id, how: How::Panicked });
                    panic!("{message}");
                }
                Op::Finish => {
                    return match reply.finish() {
                        Ok(()) => end(self, How::Done),
                        Err(Misuse::BodyTooShort) => end(self, How::Cut),
                        Err(other) => panic!("finish: {other}"),
                    };
                }
                Op::Done => return end(self, How::Done),
                Op::Cut => return end(self, How::Cut),
                Op::Refuse(status) => {
                    return if reply.refuse(status, "As the plan says.") {
                        end(self, How::Done)
                    } else {
                        end(self, How::Cut)
                    };
                }
            };
            if verdict.is_err() {
                return end(self, How::Cut);
            }
            if plan.yields_to_peer && (reply.is_full() || reply.is_gone()) {
                course.blocked = !reply.is_gone();
                return Progress::Blocked(course);
            }
        }
    }
}

impl App for Script {
    /// Its number.
    type Connection = usize;
    type Request = Ticket;
    type Response = Course;
    type Chunk = Vec<u8>;

    fn connect(&mut self, peer: &Peer) -> usize {
        if let Some(message) = self.panics_at_next.take() {
            panic!("{message}");
        }
        self.log.push(Event::Connect { listener: peer.listener, has_address: peer.address.is_some() });
        self.connections += 1;
        self.connections - 1
    }

    fn begin(&mut self, head: &Head<'_>, _connection: &mut usize) -> Ticket {
        let path = std::str::from_utf8(head.target.path).expect("tests ask in ASCII");
        let id = path[1..].parse().expect("the path names a plan");
        self.log.push(Event::Begin { id, repeated: head.repeated, retained: head.retained });
        assert!(!self.plans[id].panics_early, "a panic of plan {id}");
        Ticket { id, life: Rc::clone(&self.life) }
    }

    fn call(&mut self, request: Ticket, body: Body<'_>, reply: &mut Reply<'_, Self>) -> Progress<Course> {
        let id = request.id;
        let body = match body {
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
        let course = Course { id, at: 0, written: 0, blocked: false, body: body.bytes().to_vec(), life: request.life };
        self.log.push(Event::Call { id, body });
        self.go_on(course, reply)
    }

    fn resume(&mut self, mut course: Course, reply: &mut Reply<'_, Self>) -> Progress<Course> {
        self.log.push(Event::Resume { id: course.id });
        if std::mem::take(&mut course.blocked) {
            assert!(!reply.is_full(), "resumed before the peer has caught up");
        }
        self.go_on(course, reply)
    }

    fn abandon(&mut self, course: Course) {
        self.log.push(Event::Abandon { id: course.id });
    }

    fn abandon_request(&mut self, request: Ticket, refusal: Option<Refusal>) {
        self.log.push(Event::AbandonRequest { id: request.id, status: refusal.map(|refusal| refusal.status) });
    }

    fn idle(&mut self, connection: &mut usize) {
        if let Some(message) = self.panics_at_next.take() {
            panic!("{message}");
        }
        self.log.push(Event::Idle { connection: *connection });
    }

    fn refused(&mut self, refusal: Refusal, _connection: &mut usize) {
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
