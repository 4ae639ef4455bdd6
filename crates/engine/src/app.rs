//! The interface between the engine and an application: the methods that the engine calls.

use crate::net::{Net, Peer};
use crate::protocol::Protocols;
use crate::spool::Body;
use crate::transport::Transport;
use std::borrow::Cow;
use std::fmt;
use wire::message::{Client, Draft, Fault, PartialRequestLine, RequestHead};
use wire::proxy::ProxyFault;
use wire::websocket::{Kind, Opening};

/// The state of a response when its call returns.
#[derive(Debug)]
pub enum Progress<R> {
    /// The application has written the whole response.
    Done,
    /// The peer reads slower than the application writes ([`Reply::is_full`]). The engine resumes the response when the
    /// peer has read everything that was sent.
    Blocked(R),
    /// The response is not complete, but other connections wait. The engine resumes it in the next poll.
    Yield(R),
    /// The response is a WebSocket ([`Engine::accept_websocket`](crate::Engine::accept_websocket)). The engine resumes
    /// it when a message or the end of the WebSocket has arrived.
    Listening(R),
    /// The response ended early, after its head had been sent. The peer must be able to see that it is incomplete.
    Cut,
}

impl<R> Progress<R> {
    /// Returns the response if it is not complete.
    pub(crate) fn into_response(self) -> Option<R> {
        match self {
            Progress::Blocked(response) | Progress::Yield(response) | Progress::Listening(response) => Some(response),
            Progress::Done | Progress::Cut => None,
        }
    }
}

/// An answer that the engine gave instead of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status that the peer got.
    pub status: u16,
    /// The cause, if the status does not imply it: `None` if the request was too slow or the engine could not serve it.
    pub cause: Option<RefusalCause>,
}

/// The cause of a refusal, if the status alone does not tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// The rule that the request broke.
    Fault(Fault),
    /// The application refuses such requests ([`App::refuses`]). Holds the number of seconds until it accepts them
    /// again.
    Quarantine(u32),
    /// The client has sent too many requests in a short time. Holds the number of seconds until it may send the next
    /// one.
    RateLimit(u32),
    /// The client closed its side of the connection while the request was queued.
    Left,
}

impl Refusal {
    /// Creates the refusal of a request that broke no rule.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        Self { status, cause: None }
    }

    /// Returns the rule that the request broke, if it broke one.
    #[must_use]
    pub const fn fault(&self) -> Option<Fault> {
        match self.cause {
            Some(RefusalCause::Fault(fault)) => Some(fault),
            _ => None,
        }
    }

    /// Returns one sentence for the client.
    #[must_use]
    pub fn explanation(&self) -> &'static str {
        match self.cause {
            Some(RefusalCause::Fault(fault)) => fault.explanation(),
            Some(RefusalCause::Quarantine(_)) => {
                "Requests of this kind have crashed the server, and are not accepted for a while."
            }
            Some(RefusalCause::RateLimit(_)) => "There were too many requests in a short time.",
            Some(RefusalCause::Left) => "The client closed its side of the connection while the request was queued.",
            None => explanation(self.status),
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { status: fault.status(), cause: Some(RefusalCause::Fault(fault)) }
    }
}

/// Returns one sentence about a refusal with this status, if the request broke no rule.
fn explanation(status: u16) -> &'static str {
    match status {
        408 => "The request took too long to arrive.",
        503 => "The server has too much to do at the moment.",
        504 => "The application did not answer in time.",
        507 => "The server has no room for the request body.",
        _ => "The server has failed.",
    }
}

/// The reason why the engine closes a connection without sending a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The listener requires a header of the PROXY protocol, and this peer is not allowed to send one.
    NotAllowed,
    /// The listener is for web servers, which name the client of each request, and the peer is not a trusted proxy.
    NotTrusted,
    /// The listener requires a header of the PROXY protocol, and the connection does not begin with a valid one.
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

/// The reason why the engine has paused accepting connections.
#[derive(Debug)]
pub enum AcceptPause {
    /// The configured maximum number of connections is open. Holds that number.
    Connections(usize),
    /// The number of open connections has reached the limit that the file descriptors allow. Some descriptors stay free
    /// for other uses. Holds the limit.
    Descriptors(usize),
    /// The operating system returned an error.
    Failed(std::io::Error),
}

/// An event for the operator's log or counters.
#[derive(Debug)]
pub enum Report {
    /// The engine accepts no connection until an open one has closed.
    AcceptPaused(AcceptPause),
    /// A file became shorter while the engine sent it. The engine cut the response.
    FileShrank,
    /// The engine's code panicked while it served a connection, which is now closed. Holds the panic message.
    Panicked(String),
    /// The engine could not read a static file. Holds the path and the reason.
    StaticFileFailed(String),
    /// The engine closed a WebSocket because messages use all of
    /// [`WebSocketConfig::memory`](crate::WebSocketConfig::memory). Holds that limit in bytes. Reported at most once a
    /// minute.
    MessageMemoryFull(usize),
    /// The engine closed the connection whose handshake had taken longest, because more than
    /// [`Config::handshakes`](crate::Config::handshakes) handshakes were under way. Holds that limit. Reported at most
    /// once a minute.
    HandshakesFull(usize),
    /// The engine could not store a request body in a file. The client got 507 or 500.
    SpoolFailed(std::io::Error),
}

/// The right to answer one exchange. The engine returns it with [`Work`], and the caller gives it back with
/// [`Engine::complete`](crate::Engine::complete). Until then the engine keeps the exchange, whatever its client does.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) call: CallId,
}

impl Ticket {
    /// Returns the call that this ticket belongs to.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.call
    }
}

/// The identifier of a call: its connection and its exchange on that connection. It is valid from the moment when the
/// engine returns the call's [`Ticket`] until [`Engine::complete`](crate::Engine::complete) takes that ticket back as
/// done or cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    pub(crate) slot: usize,
    pub(crate) exchange: u32,
}

/// The properties of a request that determine the form of its response.
pub(crate) type TermsOf<A> = <<A as App>::Protocols as Protocols>::Terms;

/// The type that writes a response.
pub(crate) type SenderOf<A> = <<A as App>::Protocols as Protocols>::Sender;

/// The protocol of a connection that has one exchange at a time.
pub(crate) type SerialOf<A> = <<A as App>::Protocols as Protocols>::Serial;

/// The protocol of a connection that has many exchanges at a time.
pub(crate) type MultiplexedOf<A> = <<A as App>::Protocols as Protocols>::Multiplexed;

/// The result of the handshake of an encrypted transport.
pub type SecurityOf<A> = <TransportOf<A> as Transport>::Security;

/// The transport of a connection.
pub type TransportOf<A> = <<A as App>::Net as Net>::Transport;

/// A task for the application. A task may take long, so the engine does not run it but returns it to the polling
/// thread.
pub enum Work<A: App> {
    /// The application has to answer this request.
    Call(Ticket, A::Request),
    /// The application can continue this response.
    Resume(Ticket, A::Response),
    /// This response cannot continue, because its peer has left or was too slow. Its connection is closed.
    Abandon(A::Response),
}

/// An application, as the engine sees it. The engine calls these methods from within its own methods. None of them may
/// block or run code that the application's user wrote.
///
/// For one connection the engine first calls [`connect`](Self::connect). For each request it then calls
/// [`begin`](Self::begin) and, if a body is buffered, [`receive`](Self::receive). After that it either returns the
/// request as [`Work`] or gives it up with [`abandon_request`](Self::abandon_request).
pub trait App: Sized {
    /// The type that represents the operating system.
    type Net: Net;
    /// The protocols of the connections.
    type Protocols: Protocols;
    /// The data that the application keeps with each connection.
    type Connection;
    /// A request whose head has been received. Its body may still be missing.
    type Request;
    /// A response under way.
    type Response;
    /// Body bytes that the engine may keep until the peer has received them. Another thread of the engine may read
    /// chunks, but never drops one.
    type Chunk: AsRef<[u8]> + Send + 'static;
    /// An identifier of a thread or greenlet that waits during a call.
    type Waiter;
    /// A message of a WebSocket that the application has not received yet.
    type Message;

    /// Called when a peer has connected.
    fn connect(&mut self, peer: &Peer) -> Self::Connection;

    /// Returns a refusal if the application does not accept such requests now. The engine then answers the client
    /// itself. The engine calls this before [`begin`](Self::begin) for each request, so it has to be cheap.
    #[inline]
    fn refuses(
        &mut self,
        head: &RequestHead<'_>,
        is_websocket: bool,
        connection: &mut Self::Connection,
    ) -> Option<Refusal> {
        let _ = (head, is_websocket, connection);
        None
    }

    /// Called when a request head has arrived. The head is borrowed, so this method copies everything that the request
    /// needs.
    fn begin(&mut self, head: &RequestHead<'_>, connection: &mut Self::Connection) -> Self::Request;

    /// Called when the head of a valid WebSocket handshake has arrived. The engine keeps the offers in `opening` until
    /// the request is answered ([`Engine::accept_websocket`](crate::Engine::accept_websocket)).
    fn begin_websocket(
        &mut self,
        head: &RequestHead<'_>,
        opening: &Opening<'_>,
        connection: &mut Self::Connection,
    ) -> Self::Request {
        let _ = opening;
        self.begin(head, connection)
    }

    /// Called when a WebSocket message has arrived. Text is valid UTF-8. The engine keeps the returned message until
    /// the application receives it.
    fn message(&mut self, kind: Kind, bytes: Cow<'_, [u8]>) -> Self::Message;

    /// Returns true if the engine has to receive the whole request body before it calls the application. Asked only if
    /// the [configuration](crate::Config::buffer_bodies) enables buffering.
    fn buffers(&mut self, request: &Self::Request) -> bool {
        let _ = request;
        true
    }

    /// Called when the whole request body has been received. Not called if a request has no body or if its body is not
    /// buffered.
    fn receive(&mut self, request: &mut Self::Request, body: Body<'_>);

    /// Called when the request is ready and waits for a thread that can call the application.
    fn queued(&mut self, request: &mut Self::Request) {
        let _ = request;
    }

    /// Called when the engine gives up a request because its body did not arrive or because it waited too long in the
    /// queue. `refusal` is the response to the peer, or `None` if the peer has disconnected.
    fn abandon_request(&mut self, request: Self::Request, refusal: Option<Refusal>);

    /// Called when the condition that `waiter` waits for ([`Engine::wait_for_input`](crate::Engine::wait_for_input),
    /// [`Engine::wait_for_output`](crate::Engine::wait_for_output)) has become true, or can no longer become true.
    fn wake(&mut self, waiter: Self::Waiter);

    /// Called when the connection has been idle for a while, or is idle together with many others. The application can
    /// drop data that it keeps only for speed.
    fn idle(&mut self, connection: &mut Self::Connection);

    /// Called after a sweep, with the number of connections for which it called [`App::idle`] because they had been
    /// idle for a while.
    fn rested(&mut self, _connections: usize) {}

    /// Called when the engine has answered input that never became a request. `line` is the part of the request line
    /// that could be parsed. `client` is the client of the connection, if that is not the peer of the socket.
    fn refused(
        &mut self,
        refusal: Refusal,
        line: Option<PartialRequestLine<'_>>,
        client: Option<&Client>,
        connection: &mut Self::Connection,
    );

    /// Called when the handshake of an encrypted transport has ended, before the first request.
    fn secured(&mut self, security: SecurityOf<Self>, connection: &mut Self::Connection) {
        let _ = (security, connection);
    }

    /// Called when the handshake of an encrypted transport has failed, or when the peer has broken the encryption
    /// protocol while no call was running. The connection is closed. `error` says why.
    fn failed_to_secure(&mut self, error: &std::io::Error, connection: &mut Self::Connection) {
        let _ = (error, connection);
    }

    /// Called when the engine closes a connection before the first request, without sending a response.
    fn rejected(&mut self, rejection: Rejection, connection: &mut Self::Connection) {
        let _ = (rejection, connection);
    }

    /// Called when the engine has answered a request with a static file, or with an error because no file matched.
    /// `body_bytes` is the length of the response body.
    fn served(&mut self, head: &RequestHead<'_>, response: &Draft, body_bytes: u64, connection: &mut Self::Connection) {
        let _ = (head, response, body_bytes, connection);
    }

    /// Reports an event to the operator.
    fn report(&mut self, report: Report);
}
