//! What an engine counts.

/// Counters since the start, and gauges of now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Connections that are open now.
    pub connections: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests given to the application.
    pub requests: u64,
    /// Calls of the application that are out now, those included that wait for their peer.
    pub running: u64,
    /// Responses that wait for their peer or their turn without anybody waiting with them.
    pub suspended: u64,
    /// Requests that wait for somebody to call the application.
    pub queued: u64,
    /// Requests that waited for too long and were refused.
    pub queue_timeouts: u64,
    /// Requests whose peer had left when their turn came.
    pub left: u64,
    /// Requests that the engine answered by itself.
    pub refused: u64,
    /// Health checks that were answered.
    pub health_checks: u64,
    /// Responses by the first digit of their status, from 1 to 5: the application's, and pages of our own, but not
    /// what health checks get. What is beyond 599 counts as 5; of 1 there is `100 Continue`.
    pub statuses: [u64; 5],
    /// Connections or responses cut because time was up.
    pub timeouts: u64,
    /// Responses that broke off after their first byte.
    pub cut: u64,
    /// Times that accepting paused for want of descriptors or at the bound on connections.
    pub accept_pauses: u64,
    /// Panics of ours that were contained.
    pub panics: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

impl Statistics {
    /// The head of a response is sent, or about to be.
    pub(crate) fn count_status(&mut self, status: u16) {
        self.statuses[usize::from(status / 100).clamp(1, 5) - 1] += 1;
    }
}
