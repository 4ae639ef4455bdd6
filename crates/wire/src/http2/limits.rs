//! The bounds on what HTTP/2 alone has; the others are in [`Limits`](crate::message::Limits).
//!
//! Each allowance below is refilled with time, so that what a long-lived client does now and then never adds up. One
//! that is used up ends the connection with `ENHANCE_YOUR_CALM`.

/// The bytes of a request's body that a client may send before the application has read them. A stream at a round trip
/// of 50 ms then takes 5 MB a second. Go and nginx have 1 MiB and 64 KiB.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
/// The same for all streams of a connection together: the most that its bodies can take in memory. Not streams ×
/// window.
pub(super) const CONNECTION_WINDOW: u32 = 1 << 20;

/// The smallest part of a window that is given back: the data of a full frame. A client sends frames no larger than its
/// window.
pub(super) const PART_OF_WINDOW: u32 = 16 << 10;
/// The parts of `Cookie` in a head. Browsers send one for each cookie, 90 beside 15 other fields; Envoy's bound of 100
/// fields with cookies included broke them.
pub(super) const CRUMBS: usize = 400;
/// How many times larger than the limit a head may be before the connection ends. Up to that, the request is answered
/// with 431, and the rest of its head is decoded for the compression's sake. The `h2` crate has the same factor.
pub(super) const HEAD_EXCESS: usize = 4;
/// The frames of one header block. 64 KiB are four; clients that send small ones send a few (CVE-2024-27316).
pub(super) const BLOCK_FRAMES: u32 = 32;
/// Requests that the client has reset before their response was complete (CVE-2023-44487): at once, and a second. A
/// browser that leaves a page cancels as many as it has under way.
pub(super) const RESETS: (u32, u32) = (200, 20);
/// Streams that the server had to reset because of what the client sent (CVE-2025-8671), refused ones included.
pub(super) const PROVOKED_RESETS: (u32, u32) = (200, 20);
/// Frames that cost work and carry nothing: PING, SETTINGS, PRIORITY, unknown ones, empty and tiny DATA, and others on
/// streams that are over (CVE-2019-9512 to 9518). DATA that this end sends is worth `WINDOW_UPDATE` frames.
pub(super) const IDLE_FRAMES: (u32, u32) = (4000, 1000);
/// DATA frames with fewer bytes count as frames that carry nothing, unless they end the body.
pub(super) const TINY_DATA: usize = 16;
/// Priorities that arrived before their streams (RFC 9218 section 7.1).
pub(super) const EARLY_PRIORITIES: usize = 16;
/// Streams that ended last, which are remembered to tell late frames from wrong ones.
pub(super) const CLOSED_STREAMS: usize = 64;
/// Bytes of answers that wait before nothing more is to be read. Those of one call come on top.
pub(super) const ANSWERS: usize = 1 << 10;

/// A number of events that is allowed, which grows again with time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// The number at once, and per second.
    most: (u32, u32),
    used: u32,
    /// The time up to which the allowance has been refilled, in milliseconds.
    at: u64,
}

impl Allowance {
    pub(super) fn new(most: (u32, u32)) -> Self {
        Self { most, used: 0, at: 0 }
    }

    /// Uses one. Returns false if there is none.
    pub(super) fn take(&mut self, now: u64) -> bool {
        let (burst, a_second) = self.most;
        let elapsed = now.saturating_sub(self.at);
        let refill = elapsed.saturating_mul(u64::from(a_second)) / 1000;
        if refill > 0 {
            self.used = self.used.saturating_sub(u32::try_from(refill).unwrap_or(u32::MAX));
            self.at = now;
        }
        self.used += 1;
        self.used <= burst
    }

    /// Gives `count` back.
    pub(super) fn give_back(&mut self, count: u32) {
        self.used = self.used.saturating_sub(count);
    }
}

/// The allowances of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowances {
    pub(super) resets: Allowance,
    pub(super) provoked_resets: Allowance,
    pub(super) idle_frames: Allowance,
}

impl Default for Allowances {
    fn default() -> Self {
        Self {
            resets: Allowance::new(RESETS),
            provoked_resets: Allowance::new(PROVOKED_RESETS),
            idle_frames: Allowance::new(IDLE_FRAMES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance_is_refilled_with_time() {
        let mut allowance = Allowance::new((3, 2));
        assert!((0..3).all(|_| allowance.take(10)));
        assert!(!allowance.take(10));
        assert!(!allowance.take(400));
        assert!(allowance.take(2100));
        allowance.give_back(2);
        assert!(allowance.take(2100));
    }
}
