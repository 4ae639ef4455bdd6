//! A stage: the engine with one innocent client and some attackers, in memory. `measure` runs plans on it.
//!
//! The stage has neither time nor randomness. An attacker's socket has the next arrival ready as soon as the engine has
//! read the previous one, so the attackers are as fast as the engine allows.

use super::attack::Script;
use super::gauges::MemoryWatch;
use super::names::{Host, Protocol};
use crate::response;
use engine::{
    Accepted, AllProtocols, App, Body, BodyMemory, Config, Engine, Incoming, Local, Moved, Net, Now, Peer, Progress,
    ProtocolKind, Readiness, Refusal, Report, Socket, Tcp, Ticket, WebSocketConfig, WebSocketId, Work,
};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::Duration;
use wire::message::{Client, PartialRequestLine, RequestHead};
use wire::websocket::{Kind, Opening};

/// The listener of the innocent client, and the listener of the attackers.
const INNOCENT: usize = 0;
const ATTACKERS: usize = 1;
/// The innocent client's request.
const GET: &[u8] = b"GET /innocent HTTP/1.1\r\nHost: a.example\r\n\r\n";
/// The memory in bytes that all request bodies share, and that all WebSocket messages share. It is less than on a real
/// server, so that memory kept in addition becomes visible.
const SHARED: usize = 1 << 20;
/// The maximum number of turns of a run.
const TURNS_MOST: usize = 20_000;
/// The time, which does not advance.
const NOW: Now = Now { monotonic: Duration::from_secs(1000), wall: Duration::from_secs(784_111_777) };

/// The sockets of all clients.
#[derive(Default)]
pub(super) struct Sockets {
    clients: Vec<ClientSocket>,
    /// The clients whose connections are open. A turn examines only these, because its steps are counted as the
    /// engine's.
    open: Vec<usize>,
    backlogs: [VecDeque<usize>; 2],
    /// The number of bytes that attackers may still send.
    pub(super) budget: u64,
    /// The number of bytes that the engine has received from attackers.
    pub(super) received: u64,
    /// The number of times that the engine has received bytes from attackers.
    pub(super) arrivals: u64,
    /// The number of attackers' connections.
    pub(super) connections: u64,
    /// The number of further arrivals from attackers after which the innocent client sends.
    pub(super) innocent_waits: Option<u64>,
    /// The number of steps, and the value of `received`, when the innocent client sent its request.
    pub(super) asked: Option<(u64, u64)>,
    /// The number of bytes that the engine has sent to the innocent client.
    answered: usize,
    pub(super) memory: Option<MemoryWatch>,
}

/// The client's side of a connection.
struct ClientSocket {
    /// The bytes that an attacker sends; `None` for the innocent client.
    script: Option<Rc<Script>>,
    slot: Option<usize>,
    /// The number of bytes that the engine has received from this client.
    at: u64,
    /// The number of bytes of the current arrival that the engine has not received.
    here: usize,
    /// True if the client has sent since the poller last reported it.
    is_fresh: bool,
}

impl Sockets {
    fn connect(&mut self, listener: usize, script: Option<Rc<Script>>) -> usize {
        let number = self.clients.len();
        self.connections += u64::from(script.is_some());
        self.clients.push(ClientSocket { script, slot: None, at: 0, here: 0, is_fresh: true });
        self.open.push(number);
        self.backlogs[listener].push_back(number);
        number
    }

    /// Records the peak of memory, if it is watched.
    pub(super) fn note_memory(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.note(self.connections);
        }
    }

    /// Returns true once the innocent client has received its answer.
    pub(super) fn is_answered(&self) -> bool {
        self.answered > 0
    }

    /// Makes the innocent client send its request after `count` further arrivals from attackers; at once if that is 0.
    pub(super) fn await_arrivals(&mut self, count: u64, work: u64) {
        if count == 0 {
            self.ask(work);
        } else {
            self.innocent_waits = Some(count);
        }
    }

    /// Makes the innocent client send its request.
    fn ask(&mut self, work: u64) {
        self.asked = Some((work, self.received));
        self.answered = 0;
        self.clients[0].here = GET.len();
        self.clients[0].at = 0;
        self.clients[0].is_fresh = true;
    }

    /// Makes the next arrival of an attacker ready, if there is one.
    fn arrive(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if let Some(script) = &client.script
            && client.here == 0
        {
            let left = script.length().map_or(u64::MAX, |length| length.saturating_sub(client.at));
            let next = self.budget.min(left).min(script.piece as u64);
            client.here = usize::try_from(next).unwrap_or(usize::MAX);
            client.is_fresh |= client.here > 0;
        }
    }
}

pub(super) struct Side(Rc<RefCell<Sockets>>, fn() -> u64);

pub(super) struct MemorySocket {
    sockets: Rc<RefCell<Sockets>>,
    number: usize,
    work: fn() -> u64,
}

impl Net for Side {
    type Listener = usize;
    type Transport = Tcp<MemorySocket>;

    fn listen(&mut self, _: &usize, _: usize) -> io::Result<Local> {
        Ok(Local::Unix)
    }

    fn unlisten(&mut self, _: &usize) {}

    fn accept(&mut self, listener: &usize) -> io::Result<Accepted<Self::Transport>> {
        let Some(number) = self.0.borrow_mut().backlogs[*listener].pop_front() else { return Ok(Accepted::None) };
        let socket = MemorySocket { sockets: Rc::clone(&self.0), number, work: self.1 };
        Ok(Accepted::Connection(Tcp::new(socket), None))
    }

    fn is_awaited(&self, listener: &usize) -> bool {
        !self.0.borrow().backlogs[*listener].is_empty()
    }

    fn watch(&mut self, transport: &Self::Transport, slot: usize, _: bool, _: bool) -> io::Result<()> {
        let mut sockets = self.0.borrow_mut();
        let client = &mut sockets.clients[transport.socket().number];
        client.slot = Some(slot);
        Ok(())
    }

    fn room(&self) -> usize {
        1 << 16
    }

    fn drain_wakes(&mut self) {}
}

impl Socket for MemorySocket {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Moved> {
        let sockets = &mut *self.sockets.borrow_mut();
        sockets.note_memory();
        sockets.arrive(self.number);
        let client = &mut sockets.clients[self.number];
        let count = client.here.min(buffer.len());
        if count == 0 {
            return Ok(Moved::WouldBlock);
        }
        match &client.script {
            Some(script) => script.copy(client.at, &mut buffer[..count]),
            None => buffer[..count].copy_from_slice(&GET[usize::try_from(client.at).unwrap_or(0)..][..count]),
        }
        client.at += count as u64;
        client.here -= count;
        if client.script.is_some() {
            // The arrivals of other attackers may have used up the budget meanwhile.
            sockets.budget = sockets.budget.saturating_sub(count as u64);
            sockets.received += count as u64;
            sockets.arrivals += 1;
            sockets.arrive(self.number);
            if let Some(left) = &mut sockets.innocent_waits {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    sockets.innocent_waits = None;
                    sockets.ask((self.work)());
                }
            }
        }
        Ok(Moved::Bytes(count))
    }

    fn send(&self, slices: &[IoSlice<'_>], _: bool) -> io::Result<Moved> {
        let count = slices.iter().map(|slice| slice.len()).sum();
        let sockets = &mut *self.sockets.borrow_mut();
        sockets.note_memory();
        match &sockets.clients[self.number].script {
            None => sockets.answered += count,
            Some(script) if !script.reads => return Ok(Moved::WouldBlock),
            Some(_) => {}
        }
        Ok(Moved::Bytes(count))
    }

    fn send_file(&self, _: &File, _: u64, _: u64) -> io::Result<Moved> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn end_output(&self) {
        // The client closes as well, and an attacker connects again.
        let sockets = &mut *self.sockets.borrow_mut();
        sockets.clients[self.number].is_fresh = true;
    }

    fn reset_on_drop(&self) {}

    fn cut(&self) {}

    fn has_peer_left(&self) -> bool {
        false
    }
}

impl Drop for MemorySocket {
    fn drop(&mut self) {
        let sockets = &mut *self.sockets.borrow_mut();
        let client = &mut sockets.clients[self.number];
        sockets.open.retain(|&open| open != self.number);
        if let Some(script) = client.script.clone()
            && client.at > 0
            && sockets.budget > 0
        {
            sockets.connect(ATTACKERS, Some(script));
        }
    }
}

/// The application's state for a request.
pub(super) struct Request {
    is_websocket: bool,
}

/// The application. It answers each request with two bytes, accepts each WebSocket, and takes messages if `takes` is
/// true.
#[derive(Default)]
pub(super) struct Application {
    takes: bool,
    /// The number of requests that have begun, including refused ones.
    pub(super) requests: u64,
    /// The number of WebSocket messages.
    pub(super) messages: u64,
    /// The tickets of calls that do not end.
    held: Vec<Ticket>,
}

impl App for Application {
    type Net = Side;
    type Protocols = AllProtocols;
    type Connection = ();
    type Request = Request;
    type Response = WebSocketId;
    type Chunk = Vec<u8>;
    type Waiter = usize;
    type Message = Vec<u8>;

    fn connect(&mut self, _: &Peer) {}

    fn begin(&mut self, _: &RequestHead<'_>, (): &mut ()) -> Request {
        self.requests += 1;
        Request { is_websocket: false }
    }

    fn begin_websocket(&mut self, _: &RequestHead<'_>, _: &Opening<'_>, (): &mut ()) -> Request {
        self.requests += 1;
        Request { is_websocket: true }
    }

    fn message(&mut self, _: Kind, bytes: Cow<'_, [u8]>) -> Vec<u8> {
        self.messages += 1;
        bytes.into_owned()
    }

    fn receive(&mut self, _: &mut Request, _: Body<'_>) {}

    fn abandon_request(&mut self, _: Request, _: Option<Refusal>) {}

    fn wake(&mut self, _: usize) {}

    fn idle(&mut self, (): &mut ()) {}

    fn refused(&mut self, _: Refusal, _: Option<PartialRequestLine<'_>>, _: Option<&Client>, (): &mut ()) {
        self.requests += 1;
    }

    fn report(&mut self, report: Report) {
        assert!(!matches!(report, Report::Panicked(_)), "{report:?}");
    }
}

/// A stage. See the module's documentation.
pub(super) struct Stage {
    engine: Engine<Application>,
    pub(super) app: Application,
    pub(super) sockets: Rc<RefCell<Sockets>>,
    /// The limits on memory that all connections share.
    pub(super) memories: Vec<BodyMemory>,
    ready: Vec<Readiness>,
    jobs: Vec<Work<Application>>,
    host: Host,
}

impl Stage {
    /// Creates a stage without attackers, whose innocent client has already been answered.
    pub(super) fn new(protocol: Protocol, host: Host, work: fn() -> u64) -> Self {
        let (bodies, messages) = (BodyMemory::new(SHARED), BodyMemory::new(SHARED));
        let memories = vec![bodies.clone(), messages.clone()];
        let sockets = Rc::new(RefCell::new(Sockets::default()));
        let kind = match protocol {
            Protocol::Http | Protocol::Http2 | Protocol::WebSocket | Protocol::Proxy => ProtocolKind::Http,
            Protocol::FastCgi => ProtocolKind::FastCgi,
            Protocol::Uwsgi => ProtocolKind::Uwsgi,
            Protocol::Scgi => ProtocolKind::Scgi,
        };
        let config = Config {
            protocols: vec![ProtocolKind::Http, kind],
            proxy_listeners: vec![false, protocol == Protocol::Proxy],
            body_memory_total: bodies,
            websocket: Some(WebSocketConfig { memory: messages, ..WebSocketConfig::default() }),
            ..Config::default()
        };
        let net = Side(Rc::clone(&sockets), work);
        let engine = Engine::new(net, vec![INNOCENT, ATTACKERS], config, NOW).expect("the listeners are numbers");
        let (ready, jobs) = (Vec::with_capacity(1024), Vec::with_capacity(1024));
        let mut stage = Self { engine, app: Application::default(), sockets, memories, ready, jobs, host };
        stage.sockets.borrow_mut().connect(INNOCENT, None);
        for _ in 0..2 {
            stage.sockets.borrow_mut().ask(0);
            while stage.turn() {}
            assert!(stage.sockets.borrow().is_answered(), "nobody else is there");
        }
        stage.sockets.borrow_mut().asked = None;
        stage.app.requests = 0;
        stage
    }

    /// Connects attackers that together send at most `budget` bytes. The application takes their messages if the script
    /// says so.
    pub(super) fn attack(&mut self, script: &Rc<Script>, budget: u64) {
        self.app.takes = script.takes;
        let mut sockets = self.sockets.borrow_mut();
        sockets.budget += budget;
        for _ in 0..script.connections {
            sockets.connect(ATTACKERS, Some(Rc::clone(script)));
        }
    }

    /// Runs turns until nothing is left to do, or `is_over` returns true after a turn.
    pub(super) fn run(&mut self, mut is_over: impl FnMut(&mut Sockets) -> bool) {
        for _ in 0..TURNS_MOST {
            let goes_on = self.turn();
            if is_over(&mut self.sockets.borrow_mut()) || !goes_on {
                break;
            }
        }
    }

    /// Passes the poller's events to the engine. Returns true if there were any.
    fn take_events(&mut self) -> bool {
        let sockets = &mut *self.sockets.borrow_mut();
        for (index, backlog) in sockets.backlogs.iter().enumerate() {
            if !backlog.is_empty() {
                self.ready.push(Readiness::Listener(index));
            }
        }
        for index in 0..sockets.open.len() {
            let number = sockets.open[index];
            sockets.arrive(number);
            let client = &mut sockets.clients[number];
            if let Some(slot) = client.slot
                && std::mem::take(&mut client.is_fresh)
            {
                self.ready.push(Readiness::Connection { slot, readable: true, read_closed: false });
            }
        }
        let any = !self.ready.is_empty();
        self.engine.notice(&mut self.ready);
        any
    }

    /// Runs one iteration of the host: takes the poller's events, lets the engine do everything that is ready, and runs
    /// the application. Returns true if there was anything to do.
    pub(super) fn turn(&mut self) -> bool {
        let before = self.sockets.borrow().received;
        let mut any = self.take_events();
        match self.host {
            // The thread that polls runs each call as soon as a poll returns it.
            Host::Threads => {
                while let Some(work) = self.engine.poll(NOW, &mut self.app, true) {
                    any = true;
                    self.perform(work);
                }
            }
            // Like `Host::run_once` and `Host::poll` of the gateway: all calls of a round are taken first.
            Host::Loop => {
                while let Some(work) = self.engine.poll(NOW, &mut self.app, true) {
                    self.jobs.push(work);
                }
            }
        }
        let mut jobs = std::mem::take(&mut self.jobs);
        any |= !jobs.is_empty();
        for work in jobs.drain(..) {
            self.perform(work);
        }
        self.jobs = jobs;
        any || self.sockets.borrow().received > before || self.engine.must_poll()
    }

    /// Runs the application for one piece of work.
    fn perform(&mut self, work: Work<Application>) {
        let Self { engine, app, .. } = self;
        match work {
            Work::Call(ticket, Request { is_websocket: true }) => {
                match engine.accept_websocket(&ticket, None, [], NOW, app).expect("it has no fields") {
                    Some(id) if app.takes => engine.complete(ticket, Progress::Listening(id), NOW, app),
                    Some(_) => app.held.push(ticket),
                    None => engine.complete(ticket, Progress::Cut, NOW, app),
                }
            }
            Work::Call(ticket, _) => {
                let written = engine.reply(&ticket, |reply| {
                    reply.begin(&response::head("200 OK", &[], Some(2)), None);
                    reply.write(b"ok".to_vec()).and_then(|()| reply.finish())
                });
                let progress = if written.is_ok() { Progress::Done } else { Progress::Cut };
                engine.complete(ticket, progress, NOW, app);
            }
            // One message at a time, like a handler: how long an application continues is up to the application.
            Work::Resume(ticket, id) => {
                let progress = match engine.receive_message(id, NOW, app) {
                    Incoming::Message(_) | Incoming::Pending => Progress::Listening(id),
                    Incoming::End(_) => Progress::Done,
                };
                engine.complete(ticket, progress, NOW, app);
            }
            Work::Abandon(_) => {}
        }
    }
}
