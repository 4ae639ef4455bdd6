//! The configuration of an engine.

use crate::compression::CompressionConfig;
use crate::memory::BodyMemory;
use crate::protocol::ProtocolKind;
use crate::responder::{EdgeConfig, StaticFiles};
use std::sync::Arc;
use std::time::Duration;
use wire::forwarded::{Trust, Trusted};
use wire::message::Limits;
use wire::websocket::DeflateSettings;

/// The limits and times of an engine. A time of `None` means no limit.
#[derive(Clone, Debug)]
pub struct Config {
    /// The limits on the size of an HTTP message.
    pub limits: Limits,
    /// The maximum number of open connections. At the limit the engine stops accepting and the kernel's backlog fills.
    pub connections: usize,
    /// The maximum number of encrypted connections whose handshake is under way. At the limit the engine closes the
    /// oldest of them when it accepts a new one.
    pub handshakes: usize,
    /// The maximum number of idle connections that keep buffers for one second, to make their next request faster.
    pub warm: usize,
    /// The protocol of each listener, in the order of the listeners. Listeners beyond the end of the list use HTTP/1.
    pub protocols: Vec<ProtocolKind>,
    /// For each listener, true if its connections have to begin with a header of the PROXY protocol; false for
    /// listeners beyond the end of the list.
    pub proxy_listeners: Vec<bool>,
    /// The peers that may send a header of the PROXY protocol; `None` for all peers.
    pub proxy_from: Option<Trusted>,
    /// The proxies that are trusted to name the client of a request. `None`: the client is always the peer of the
    /// socket.
    pub trust: Option<Trust>,
    /// The maximum number of concurrent requests on one connection, for protocols that allow more than one.
    pub exchanges: usize,
    /// The maximum number of concurrent calls for one connection, if its protocol allows several requests; further
    /// requests wait. Connections of trusted proxies and web servers have no such limit, because they pass on the
    /// requests of many clients.
    pub calls: usize,
    /// True if the engine, at the limit of connections, accepts a new one and closes the connection that has waited
    /// longest for input from its client. For servers whose clients send their request at once, so that silent clients
    /// keep no other client out.
    pub evicts_silent: bool,
    /// The number of engines that share the process's limit on descriptors, this one included.
    pub engines: usize,
    /// The time that a connection may be idle between requests. The default is longer than the 60 s after which the
    /// usual proxies and load balancers close, so that they close first. If the server closes first, a request may
    /// already be on its way and would be lost.
    pub keep_alive: Option<Duration>,
    /// The time that a request head may take to arrive, counted from its first byte or from the accepting of the
    /// connection.
    pub header_timeout: Option<Duration>,
    /// The time without progress after which a request body is too slow, and the grace period before `min_rate`
    /// applies.
    pub body_timeout: Option<Duration>,
    /// The time after which a peer that does not read the response is too slow, and the grace period before `min_rate`
    /// applies.
    pub write_timeout: Option<Duration>,
    /// The minimum average rate of a body or a response after its grace period, in bytes per second; 0 for no limit. It
    /// ends the connection of a peer that sends a single byte from time to time.
    pub min_rate: u64,
    /// The maximum number of bytes of a request body that are kept in memory. A longer body is stored in an unlinked
    /// file.
    pub body_memory: usize,
    /// The memory that all request bodies together may use, each from its first byte until its response is complete. If
    /// the memory is used up, a body goes to a file, however short it is; a body that the application reads as it
    /// arrives is read only [`LEAST_AHEAD`] bytes ahead. Engines with clones of this value share the limit.
    pub body_memory_total: BodyMemory,
    /// True if the engine returns a request only after it has received the whole body.
    pub buffer_bodies: bool,
    /// The number of requests that may wait for a thread to call the application. At the limit the engine reads no
    /// further request. Requests whose bodies were being received, or that followed an answer on their connection, may
    /// still join the queue.
    pub queue: usize,
    /// The time that a request may wait in that queue.
    pub queue_timeout: Option<Duration>,
    /// The value of the Server field; if it is empty, the field is left out.
    pub server: String,
    /// The responder for ACME challenges and for clients that do not use HTTPS; `None` for none.
    pub edge: Option<EdgeConfig>,
    /// The `Strict-Transport-Security` field of responses on encrypted connections (RFC 6797): max-age, and true for
    /// `includeSubDomains`. `None`: no such field.
    pub transport_security: Option<(Duration, bool)>,
    /// The path of health checks; empty for none. The engine itself answers GET and HEAD of this path, with any query,
    /// with the state of the server. If there is such a path, the engine reads a few bytes of each connection that has
    /// to wait, to find health checks among them.
    pub health_path: String,
    /// The static files that the engine serves itself.
    pub static_files: Option<Arc<StaticFiles>>,
    /// The time after which the server counts as stalled if connections wait and no thread polls; `None` for never.
    pub stalled_after: Option<Duration>,
    /// The settings of WebSockets. `None`: a request that asks for a WebSocket is an ordinary request.
    pub websocket: Option<WebSocketConfig>,
    /// The settings of content codings. `None`: bodies are sent as they are.
    pub compression: Option<CompressionConfig>,
}

/// The limits and times of WebSockets. A time of `None` means no limit.
#[derive(Clone, Debug)]
pub struct WebSocketConfig {
    /// The maximum length of a message in bytes, after decompression. A longer message is answered with close code
    /// 1009.
    pub message: usize,
    /// The memory that all WebSockets together may use for incomplete messages and for messages that the application
    /// has not received yet. A message that exceeds it closes its WebSocket with code 1013. A WebSocket that uses no
    /// more than [`LEAST_AHEAD`] bytes is not counted.
    pub memory: BodyMemory,
    /// The number of messages that may wait for the application. While this many messages or [`READ_AHEAD`] bytes wait,
    /// the engine does not read from the client.
    pub queue: usize,
    /// The settings of compression; `None` for no compression.
    pub deflate: Option<DeflateSettings>,
    /// The interval between pings; `None` for no pings.
    pub ping_interval: Option<Duration>,
    /// The maximum time after a ping during which a client sends nothing at all.
    pub ping_timeout: Option<Duration>,
    /// True if the engine refuses a handshake that breaks a rule; false if it handles it as an ordinary request.
    pub refuses_broken: bool,
}

impl Config {
    /// Returns the limits on the memory of request bodies, of messages and of encoders.
    pub fn memories(&self) -> impl Iterator<Item = &BodyMemory> {
        let messages = self.websocket.as_ref().map(|websocket| &websocket.memory);
        let encoders = self.compression.as_ref().map(|compression| &compression.memory);
        [&self.body_memory_total].into_iter().chain(messages).chain(encoders)
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
            handshakes: HANDSHAKES,
            warm: WARM,
            protocols: Vec::new(),
            proxy_listeners: Vec::new(),
            proxy_from: None,
            trust: None,
            exchanges: 100,
            calls: usize::MAX,
            evicts_silent: false,
            engines: 1,
            keep_alive: Some(Duration::from_secs(75)),
            header_timeout: Some(Duration::from_secs(15)),
            body_timeout: Some(Duration::from_secs(30)),
            write_timeout: Some(Duration::from_secs(30)),
            min_rate: 500,
            body_memory: 1 << 20,
            body_memory_total: BodyMemory::new(64 << 20),
            buffer_bodies: true,
            queue: 1024,
            queue_timeout: Some(Duration::from_secs(60)),
            server: "kirsch".into(),
            edge: None,
            transport_security: None,
            health_path: String::new(),
            static_files: None,
            stalled_after: Some(Duration::from_secs(30)),
            websocket: None,
            compression: None,
        }
    }
}

/// The size of the shared read buffer in bytes: the most that one `recv` receives.
pub(crate) const READ_BUFFER: usize = 64 << 10;
/// The number of composed bytes above which the output is sent.
pub(crate) const WRITE_BUFFER: usize = 128 << 10;
/// The maximum number of body bytes in one frame of a multiplexed protocol. It lets frames of other exchanges be sent in
/// between, and clients accept it without having been asked (RFC 9113 section 4.2).
pub(crate) const FRAME: usize = 16 << 10;
/// The size in bytes up to which body parts are copied behind the head. Larger parts are sent without a copy. Copying a
/// few KiB costs about as much as one more element of a gathered send.
pub(crate) const COPY_AT_MOST: usize = 4 << 10;
/// The number of requests of one connection that are answered before other connections are served, even if its peer has
/// sent more at once.
pub(crate) const CALLS_PER_ROUND: usize = 64;
/// The maximum number of connections accepted from one listener in a poll.
pub(crate) const ACCEPTS_PER_POLL: usize = 64;
/// The number of bytes read at a time from a connection that has to wait, to check if it sends a health check. An
/// ordinary health check fits.
pub(crate) const GLANCE: usize = 1 << 10;
/// The time that a connection must have waited at a listener before the watchdog accepts it. It gives other processes
/// that listen on the same socket time to accept the connection first.
pub(crate) const WATCHDOG_AFTER: Duration = Duration::from_millis(180);
/// The default of [`Config::handshakes`]. A server completes some thousand handshakes a second, and an ordinary client
/// needs two round trips, so only clients that never finish their handshake can reach this number.
pub const HANDSHAKES: usize = 1024;
/// The number of connections that the watchdog accepts from one listener at a time.
pub(crate) const WATCHDOG_ACCEPTS: usize = 128;
/// The number of connections accepted from one listener before the engine closes it: more than any backlog holds.
pub(crate) const ACCEPTS_AT_STOP: usize = 65_536;
/// The time that a connection lingers after its last response, so that a reset does not destroy the response while the
/// peer still sends (RFC 9112 section 9.6).
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// The time that the application may keep the socket of a hijacked connection after its call has returned: enough for a
/// client to answer a Close frame.
pub(crate) const HIJACK_LINGER: Duration = Duration::from_secs(10);
/// The number of bytes that a connection discards while it lingers.
pub(crate) const LINGER_BYTES: u64 = 4 << 20;
/// The time that the engine waits for free descriptors before it tries to accept again.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The time without a request after which a connection frees the memory that it keeps for speed.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(1);
/// The default of [`Config::warm`]. Ten thousand connections would keep 40 MB, and most of it could not be returned to
/// the system, because other data would be on the same pages by then.
pub const WARM: usize = 1024;
/// The time that connections without a complete request head stay open after the engine has begun to stop, because a
/// request may be on its way. Callers of [`Engine::stop`](crate::Engine::stop) use it by default.
pub const STOP_GRACE: Duration = Duration::from_millis(500);
/// The maximum time that a connection on which nothing has ever arrived stays open after the engine has begun to stop.
/// Browsers open connections that they may never use, and repeat a request whose connection is closed. A client that
/// connects because it has a request sends it within this time, unless the network loses two packets.
pub const UNUSED_GRACE: Duration = Duration::from_secs(2);
/// The number of body bytes that the engine reads ahead for an application that reads a body as it arrives.
pub(crate) const READ_AHEAD: usize = 64 << 10;
/// The number of body bytes read ahead when the memory limit is reached. This exceeds the limit, because a call that
/// waits for its body must be able to continue.
pub(crate) const LEAST_AHEAD: usize = 4 << 10;
