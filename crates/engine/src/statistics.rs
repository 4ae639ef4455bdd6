//! The counters of an engine.

/// Counters of events since the start of the engine, and gauges of the current state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Gauge: open connections.
    pub connections: u64,
    /// Gauge: open connections with HTTP/2.
    pub http2_connections: u64,
    /// Gauge: open HTTP/2 streams.
    pub http2_streams: u64,
    /// Accepted connections.
    pub accepted: u64,
    /// Requests passed to the application.
    pub requests: u64,
    /// Requests passed to the application that arrived over HTTP/2.
    pub http2_requests: u64,
    /// Gauge: running calls of the application, including calls that wait for their peer.
    pub running: u64,
    /// Gauge: incomplete responses that the application has returned, to be resumed when their peer has read, other
    /// connections have been served, or a message has arrived.
    pub suspended: u64,
    /// Gauge: requests that wait for a thread that can call the application.
    pub queued: u64,
    /// Requests refused after they had waited too long in the queue.
    pub queue_timeouts: u64,
    /// Requests dropped from the queue because their peer had closed the connection.
    pub left: u64,
    /// Requests that the engine refused without the application.
    pub refused: u64,
    /// Refused requests that the application [refuses](crate::App::refuses) for a while.
    pub quarantined: u64,
    /// Refused requests of clients that sent too many requests in a short time.
    pub rate_limited: u64,
    /// Answered health checks.
    pub health_checks: u64,
    /// Requests for static files that the engine answered, with the file or with an error.
    pub static_files: u64,
    /// Responses by the first digit of their status, 1 to 5: responses of the application and error pages, without
    /// health checks. A status above 599 counts as 5. For digit 1, only `100 Continue` and `101 Switching Protocols`
    /// are counted.
    pub statuses: [u64; 5],
    /// Connections or responses cut at a deadline.
    pub timeouts: u64,
    /// Responses cut after their first byte.
    pub cut: u64,
    /// The number of pauses in accepting, for lack of descriptors or at the limit of connections.
    pub accept_pauses: u64,
    /// Panics in the engine that were caught.
    pub panics: u64,
    /// Gauge: connections that have become a WebSocket.
    pub websockets: u64,
    /// Messages of WebSockets received from clients.
    pub messages_in: u64,
    /// Messages of WebSockets sent to clients.
    pub messages_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

impl Statistics {
    /// Counts a response whose head has been sent or is about to be.
    pub(crate) fn count_status(&mut self, status: u16) {
        self.statuses[usize::from(status / 100).clamp(1, 5) - 1] += 1;
    }

    /// Updates the number of counted streams of a connection from `before` to `now`. `None`: the connection is not
    /// counted.
    pub(crate) fn count_streams(&mut self, before: Option<usize>, now: Option<usize>) {
        let change = |gauge: &mut u64, before: u64, now: u64| *gauge = *gauge + now - before;
        change(&mut self.http2_connections, before.is_some().into(), now.is_some().into());
        change(&mut self.http2_streams, before.unwrap_or(0) as u64, now.unwrap_or(0) as u64);
    }
}
