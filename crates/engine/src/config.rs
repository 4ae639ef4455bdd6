//! What an engine is told once.

use crate::memory::BodyMemory;
use crate::protocol::ProtocolKind;
use crate::responder::StaticFiles;
use std::sync::Arc;
use std::time::Duration;
use wire::forwarded::{Trust, Trusted};
use wire::message::Limits;
use wire::websocket::DeflateSettings;

/// Limits and times of an engine. A `None` time is no limit.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bounds on a message.
    pub limits: Limits,
    /// Connections at a time; at the bound, accepting pauses and the kernel's backlog fills.
    pub connections: usize,
    /// What is spoken at each listener, in their order; HTTP/1 where it is not said.
    pub protocols: Vec<ProtocolKind>,
    /// For each listener whether a connection has to begin with a header of the PROXY protocol; not where it is not said.
    pub proxy_listeners: Vec<bool>,
    /// The peers that may send such a header; `None`: all.
    pub proxy_from: Option<Trusted>,
    /// The proxies that are trusted to name the client of a request; `None`: the client is the peer of the socket.
    pub trust: Option<Trust>,
    /// Requests that one connection may have under way at a time, where its protocol has more than one.
    pub exchanges: usize,
    /// At the bound, close the connection that has waited longest for its client to send, and accept. For servers whose
    /// clients say what they want at once, so that silent ones keep no other client out.
    pub evicts_silent: bool,
    /// Engines that share the process's limit on descriptors, this one included.
    pub engines: usize,
    /// How long a connection may be idle between requests. The default outlasts the 60 s of the usual proxies and
    /// load balancers, so that it is they who close: a server that closes first can cross a request on its way.
    pub keep_alive: Option<Duration>,
    /// From the first byte of a head, or from accepting, to its end.
    pub header_timeout: Option<Duration>,
    /// How long a request body may stand still, and the grace before `min_rate` counts.
    pub body_timeout: Option<Duration>,
    /// How long a response may stand still because the peer does not read, and the grace before `min_rate` counts.
    pub write_timeout: Option<Duration>,
    /// Bytes per second that a body or a response must average, once its grace is over; 0 for no limit. It is what
    /// ends a peer that sends one byte every so often.
    pub min_rate: u64,
    /// Bytes of a request body kept in memory; a longer one goes to an unlinked file.
    pub body_memory: usize,
    /// What all request bodies together may take of memory, from their first byte until their responses are complete. A
    /// body for which there is no room goes to a file, however short it is; of one that is handed on as it arrives only
    /// [`LEAST_AHEAD`] bytes are read ahead then. Engines that are given clones share it.
    pub body_memory_total: BodyMemory,
    /// Whether a request is handed out only when its body is here as a whole.
    pub buffer_bodies: bool,
    /// Requests that may wait for a thread to call the application. While as many do, no further one is read; those
    /// whose bodies were under way, or that came behind an answer on their connection, may still join them.
    pub queue: usize,
    /// How long a request may wait so.
    pub queue_timeout: Option<Duration>,
    /// The Server field; empty leaves it out.
    pub server: String,
    /// GET and HEAD of this path, with whatever query, are answered by the engine: how the server is. Empty for none.
    /// Of each connection that has to wait, a few bytes are read then, to see whether it asks for this.
    pub health_path: String,
    /// Requests that the engine answers with files.
    pub static_files: Option<Arc<StaticFiles>>,
    /// How long no thread may poll, while connections wait, before the server counts as stalled; `None`: forever.
    pub stalled_after: Option<Duration>,
    /// Requests may ask for a WebSocket; `None`: what asks for one is an ordinary request.
    pub websocket: Option<WebSocketConfig>,
}

/// Limits and times of WebSockets. A `None` time is no limit.
#[derive(Clone, Debug)]
pub struct WebSocketConfig {
    /// Bytes of a message, after inflating. A longer one is answered with close code 1009.
    pub message: usize,
    /// What all WebSockets together may take of memory for messages that have not come to their end, and for those that
    /// the application has not taken. One for which there is no room closes its WebSocket with code 1013. What takes
    /// no more than [`LEAST_AHEAD`] bytes of a WebSocket is not counted.
    pub memory: BodyMemory,
    /// Messages that may wait for the application. While as many do, or [`READ_AHEAD`] bytes, nothing is read.
    pub queue: usize,
    /// How messages are compressed; `None`: they are not.
    pub deflate: Option<DeflateSettings>,
    /// How often a client is pinged; `None`: never.
    pub ping_interval: Option<Duration>,
    /// How long a client may send nothing at all after a ping.
    pub ping_timeout: Option<Duration>,
    /// A handshake that breaks a rule is refused; otherwise it is an ordinary request.
    pub refuses_broken: bool,
}

impl Config {
    /// The limits on memory that bodies and messages share.
    pub fn memories(&self) -> impl Iterator<Item = &BodyMemory> {
        let messages = self.websocket.as_ref().map(|websocket| &websocket.memory);
        [&self.body_memory_total].into_iter().chain(messages)
    }
}

impl Default for WebSocketConfig {
    fn default() -> Self {
        Self {
            message: 16 << 20,
            memory: BodyMemory::new(64 << 20),
            queue: 32,
            deflate: Some(DeflateSettings::default()),
            ping_interval: Some(Duration::from_secs(20)),
            ping_timeout: Some(Duration::from_secs(20)),
            refuses_broken: true,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            connections: 65_536,
            protocols: Vec::new(),
            proxy_listeners: Vec::new(),
            proxy_from: None,
            trust: None,
            exchanges: 100,
            evicts_silent: false,
            engines: 1,
            keep_alive: Some(Duration::from_secs(75)),
            header_timeout: Some(Duration::from_secs(15)),
            body_timeout: Some(Duration::from_secs(30)),
            write_timeout: Some(Duration::from_secs(30)),
            min_rate: 500,
            body_memory: 256 << 10,
            body_memory_total: BodyMemory::new(64 << 20),
            buffer_bodies: true,
            queue: 1024,
            queue_timeout: Some(Duration::from_secs(60)),
            server: "kirsch".into(),
            health_path: String::new(),
            static_files: None,
            stalled_after: Some(Duration::from_secs(30)),
            websocket: None,
        }
    }
}

/// The shared read buffer: one `recv` takes this much at most.
pub(crate) const READ_BUFFER: usize = 64 << 10;
/// Output that is still being composed is sent when it exceeds this.
pub(crate) const WRITE_BUFFER: usize = 128 << 10;
/// Body parts up to this size are copied behind the head; larger ones are gathered from where they lie. The copy of a
/// few KiB costs about as much as one more element of a gathered send.
pub(crate) const COPY_AT_MOST: usize = 4 << 10;
/// Requests of one connection that are answered one after the other before others are handled, however many its peer
/// has sent at once.
pub(crate) const CALLS_PER_ROUND: usize = 64;
/// Connections accepted from one listener in a poll.
pub(crate) const ACCEPTS_PER_POLL: usize = 64;
/// So many bytes are read at a time of a connection that has to wait, to see whether it is a health check. They hold an
/// ordinary check as a whole.
pub(crate) const GLANCE: usize = 1 << 10;
/// How long a connection must have waited at a listener before the watchdog accepts there: where other processes accept from the same one, they have had their chance.
pub(crate) const WATCHDOG_AFTER: Duration = Duration::from_millis(180);
/// Connections that it accepts from one listener at a time.
pub(crate) const WATCHDOG_ACCEPTS: usize = 128;
/// Connections accepted from one listener before it is closed: more than any backlog holds.
pub(crate) const ACCEPTS_AT_STOP: usize = 65_536;
/// How long a connection lingers after its last response, so that the response is not destroyed by a reset while
/// the peer still sends (RFC 9112 section 9.6), and how much it may send.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// How long the application may keep the socket of a connection that it has hijacked when its call is over: enough for a
/// client to answer a Close frame.
pub(crate) const HIJACK_LINGER: Duration = Duration::from_secs(10);
/// Bytes discarded while lingering.
pub(crate) const LINGER_BYTES: u64 = 4 << 20;
/// How long descriptors are given to become free before accepting is tried again.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// After this long without a request a connection gives back what it keeps for speed.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(1);
/// How long connections stay open once the engine stops on which no request is, or not even a whole head: one may be on
/// its way to us. The default of [`Engine::stop`](crate::Engine::stop)'s callers.
pub const STOP_GRACE: Duration = Duration::from_millis(500);
/// How long a connection on which nothing has ever arrived stays open once the engine stops, at most. Browsers open
/// connections that they may never use, and send the request again if such a connection is closed. A client that
/// connects because it has a request sends it within this time, unless the network loses two packets.
pub const UNUSED_GRACE: Duration = Duration::from_secs(2);
/// Body bytes that are read ahead of an application that takes a body as it arrives.
pub(crate) const READ_AHEAD: usize = 64 << 10;
/// The same while there is no memory left for more: it goes beyond the bound, because a call that waits for its body has
/// to get on.
pub(crate) const LEAST_AHEAD: usize = 4 << 10;
