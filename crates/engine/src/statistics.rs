//! What an engine counts.

/// Counters since the start, and gauges of now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Connections open now.
    pub connections: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests given to the application.
    pub requests: u64,
    /// Requests that the engine answered by itself.
    pub refused: u64,
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
    /// Each with its name.
    pub fn entries(&self) -> [(&'static str, u64); 10] {
        [
            ("connections", self.connections),
            ("accepted", self.accepted),
            ("requests", self.requests),
            ("refused", self.refused),
            ("timeouts", self.timeouts),
            ("cut", self.cut),
            ("accept_pauses", self.accept_pauses),
            ("panics", self.panics),
            ("bytes_in", self.bytes_in),
            ("bytes_out", self.bytes_out),
        ]
    }
}
