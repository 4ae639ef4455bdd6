//! The one way up: what the engine asks of an application.

use crate::net::{Net, Peer};
use crate::protocol::Protocol;
use crate::spool::Body;
use std::borrow::Cow;
use std::fmt;
use wire::message::{Client, Draft, Fault, PartialRequestLine, RequestHead};
use wire::proxy::ProxyFault;
use wire::websocket::{Kind, Opening};

/// How far an application got with a response.
#[derive(Debug)]
pub enum Progress<R> {
    /// It has been written as a whole.
    Done,
    /// The peer reads slower than the application writes ([`Reply::is_full`]): go on when it has caught up.
    Blocked(R),
    /// There is more, and others wait: go on in the next poll.
    Yield(R),
    /// A WebSocket ([`Engine::accept_websocket`](crate::Engine::accept_websocket)): go on when a message is there, or its
    /// end.
    Listening(R),
    /// It broke off after its head had left; the peer has to see the cut.
    Cut,
}

impl<R> Progress<R> {
    /// The response, if there is more of it.
    pub(crate) fn into_response(self) -> Option<R> {
        match self {
            Progress::Blocked(response) | Progress::Yield(response) | Progress::Listening(response) => Some(response),
            Progress::Done | Progress::Cut => None,
        }
    }
}

/// An answer that the engine gave by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status that the peer got.
    pub status: u16,
    /// The rule that it broke; `None` if it was too slow or the engine could not serve it.
    pub fault: Option<Fault>,
    /// Seconds for which the application still refuses such requests ([`App::refuses`]); `None` for any other refusal.
    pub quarantine: Option<u32>,
}

impl Refusal {
    /// The refusal of a request that broke no rule.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        Self { status, fault: None, quarantine: None }
    }

    /// Returns one sentence for the client.
    #[must_use]
    pub fn explanation(&self) -> &'static str {
        match (self.fault, self.quarantine) {
            (Some(fault), _) => fault.explanation(),
            (None, Some(_)) => "Requests of this kind have crashed the server, and are not accepted for a while.",
            (None, None) => explanation(self.status),
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::of_status(fault.status()) }
    }
}

/// One sentence about a refusal for which no rule was broken.
fn explanation(status: u16) -> &'static str {
    match status {
        408 => "The request took too long to arrive.",
        503 => "The server has too much to do at the moment.",
        504 => "The application did not answer in time.",
        507 => "The server has no room for the request body.",
        _ => "The server has failed.",
    }
}

/// Why the engine closes a connection without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The peer is none of those that may send a header of the PROXY protocol, and the listener demands one.
    NotAllowed,
    /// The listener is for web servers, which name the clients of their requests, and the peer is no trusted proxy.
    NotTrusted,
    /// The connection does not begin with a header of the PROXY protocol, and the listener demands one.
    Header(ProxyFault),
}

impl fmt::Display for Rejection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::NotAllowed => {
                out.write_str("this peer is not among --proxy-from, and the address is for proxies alone")
            }
            Rejection::NotTrusted => out.write_str(
                "this peer is not among --trusted-proxies, and the address is for web servers, which are believed",
            ),
            Rejection::Header(fault) => fault.fmt(out),
        }
    }
}

/// Why accepting pauses.
#[derive(Debug)]
pub enum AcceptPause {
    /// As many connections are open as were asked for.
    Connections(usize),
    /// As many are open as the limit on descriptors leaves room for, some being kept free for everything else.
    Descriptors(usize),
    /// The system refused.
    Failed(std::io::Error),
}

/// An event for the operator's log or counters.
#[derive(Debug)]
pub enum Report {
    /// Accepting pauses until a connection has closed.
    AcceptPaused(AcceptPause),
    /// A file became shorter while it was sent; its response was cut.
    FileShrank,
    /// Code of ours panicked while it served a connection; the message. That connection is gone.
    Panicked(String),
    /// A static file could not be read: its path, and why.
    StaticFileFailed(String),
    /// A WebSocket was closed because messages take all of [`WebSocketConfig::memory`](crate::WebSocketConfig::memory),
    /// which has so many bytes. Reported once a minute.
    MessageMemoryFull(usize),
    /// A request body could not be kept in a file; its request got 507 or 500.
    SpoolFailed(std::io::Error),
}

/// Says which exchange a call answers. It is given out with [`Work`] and goes back with
/// [`Engine::complete`](crate::Engine::complete); until then the exchange is kept, whatever its client does.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) call: CallId,
}

impl Ticket {
    /// The call that it is for.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.call
    }
}

/// Names a call by its connection and its exchange there. It is valid from when the call's [`Ticket`] was given out until
/// [`Engine::complete`](crate::Engine::complete) has taken it back as done or cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    pub(crate) slot: usize,
    pub(crate) exchange: u32,
}

/// What the protocol of an application keeps of a request for its response.
pub(crate) type RequestOf<A> = <<A as App>::Protocol as Protocol>::Request;

/// What writes a response.
pub(crate) type SenderOf<A> = <<A as App>::Protocol as Protocol>::Sender;

/// What the application has to do. It may take long, so the engine returns it to the polling thread.
pub enum Work<A: App> {
    /// A request to be answered.
    Call(Ticket, A::Request),
    /// A response that may go on.
    Resume(Ticket, A::Response),
    /// A response that cannot go on, because its peer has left or was too slow; its connection is gone.
    Abandon(A::Response),
}

/// An application, as the engine sees it. All methods are called from within the engine's own: none of them may wait,
/// or do what the application's user wrote.
///
/// The order for one connection is [`connect`](Self::connect), then for each request [`begin`](Self::begin), with a
/// body [`receive`](Self::receive), and then either it is handed out as [`Work`] or given up with
/// [`abandon_request`](Self::abandon_request).
pub trait App: Sized {
    /// What stands for the operating system.
    type Net: Net;
    /// What the connections speak.
    type Protocol: Protocol;
    /// Kept with each connection.
    type Connection;
    /// A request whose head is here and whose body may not be.
    type Request;
    /// A response under way.
    type Response;
    /// Body bytes that the engine may keep until the peer has taken them. A thread of the engine may read them; it
    /// drops none.
    type Chunk: AsRef<[u8]> + Send + 'static;
    /// Names a thread or greenlet that waits in the middle of a call.
    type Waiter;
    /// A message of a WebSocket that the application has not taken.
    type Message;

    /// A peer has connected.
    fn connect(&mut self, peer: &Peer) -> Self::Connection;

    /// Returns how the engine answers the request instead of the application, if the application wants none of these
    /// requests now. Asked before [`begin`](Self::begin), so it has to be cheap.
    #[inline]
    fn refuses(&mut self, head: &RequestHead<'_>, is_websocket: bool) -> Option<Refusal> {
        let _ = (head, is_websocket);
        None
    }

    /// A head has arrived. It is borrowed: what the request needs of it is taken now.
    fn begin(&mut self, head: &RequestHead<'_>, connection: &mut Self::Connection) -> Self::Request;

    /// A head has arrived that asks for a WebSocket, and breaks no rule of that. What `opening` offers is kept until the
    /// request is answered ([`Engine::accept_websocket`](crate::Engine::accept_websocket)).
    fn begin_websocket(
        &mut self,
        head: &RequestHead<'_>,
        opening: &Opening<'_>,
        connection: &mut Self::Connection,
    ) -> Self::Request {
        let _ = opening;
        self.begin(head, connection)
    }

    /// A message of a WebSocket has arrived; UTF-8 if it is text. It is kept until the application takes it.
    fn message(&mut self, kind: Kind, bytes: Cow<'_, [u8]>) -> Self::Message;

    /// Whether the request's body is to be received as a whole before the application is called, where the
    /// [configuration](crate::Config::buffer_bodies) has bodies buffered at all.
    fn buffers(&mut self, request: &Self::Request) -> bool {
        let _ = request;
        true
    }

    /// The request's body is here as a whole. Not called for a request without one, nor where bodies are not buffered.
    fn receive(&mut self, request: &mut Self::Request, body: Body<'_>);

    /// The request is whole, and waits until a thread is free to call the application.
    fn queued(&mut self, request: &mut Self::Request) {
        let _ = request;
    }

    /// The request will not be called, because its body did not come, or because it waited for too long; `refusal` says
    /// what its peer was told, if it was still there.
    fn abandon_request(&mut self, request: Self::Request, refusal: Option<Refusal>);

    /// What was waited for ([`Engine::wait_for_input`](crate::Engine::wait_for_input),
    /// [`Engine::wait_for_output`](crate::Engine::wait_for_output)) is the case, or never will be.
    fn wake(&mut self, waiter: Self::Waiter);

    /// The connection has been idle for a while: what is kept for speed alone can go.
    fn idle(&mut self, connection: &mut Self::Connection);

    /// The engine has answered by itself what never became a request. `line` is what could be read of its request line.
    /// `client` is that of the connection, where it is not the peer of the socket.
    fn refused(
        &mut self,
        refusal: Refusal,
        line: Option<PartialRequestLine<'_>>,
        client: Option<&Client>,
        connection: &mut Self::Connection,
    );

    /// The engine closes a connection without an answer, before the first request.
    fn rejected(&mut self, rejection: Rejection, connection: &mut Self::Connection) {
        let _ = (rejection, connection);
    }

    /// The engine has answered a request with a static file, or said why there is none. `body_bytes`: of the response's
    /// body.
    fn served(&mut self, head: &RequestHead<'_>, response: &Draft, body_bytes: u64, connection: &mut Self::Connection) {
        let _ = (head, response, body_bytes, connection);
    }

    /// Something happened that an operator should know.
    fn report(&mut self, report: Report);
}
