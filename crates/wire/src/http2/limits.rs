//! Limits that only HTTP/2 needs. The others are in [`Limits`](crate::message::Limits).
//!
//! Each allowance below is refilled with time, so that rare events on a long-lived connection never add up. When an
//! allowance is used up, the connection ends with `ENHANCE_YOUR_CALM`.

/// The bytes of a request body that a client may send before the application reads them. At a round-trip time of 50 ms,
/// a stream then transfers 5 MB per second. Go has 1 MiB, nginx 64 KiB.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
/// The same limit for all streams of a connection together. It bounds the memory for bodies.
pub(super) const CONNECTION_WINDOW: u32 = 1 << 20;

/// The smallest increment of a connection window: the data of one full frame. A client sends no frame larger than its
/// window.
pub(super) const PART_OF_WINDOW: u32 = 16 << 10;
/// The number of `Cookie` fields in a head. Browsers send one for each cookie, for example 90 beside 15 other fields.
/// Envoy's limit of 100 fields, which counted them, rejected such requests.
pub(super) const CRUMBS: usize = 400;
/// The factor by which a head may exceed its limit before the connection ends. Up to that, the request gets a 431, and
/// the rest of its head is decoded to keep the compression state in step. The `h2` crate has the same factor.
pub(super) const HEAD_EXCESS: usize = 4;
/// The number of frames in one header block. A block of 64 KiB needs four; clients that send small frames need a few
/// more (CVE-2024-27316).
pub(super) const BLOCK_FRAMES: u32 = 32;
/// Requests that the client reset before their response was complete (CVE-2023-44487): the burst, and the number per
/// second. A browser that leaves a page cancels all its requests in progress.
pub(super) const RESETS: (u32, u32) = (200, 20);
/// Streams that the server reset because of an error of the client, including refused ones (CVE-2025-8671).
pub(super) const PROVOKED_RESETS: (u32, u32) = (200, 20);
/// Frames that cost work and carry nothing: PING, SETTINGS, PRIORITY, frames of unknown types, empty and tiny DATA, and
/// frames on closed streams (CVE-2019-9512 to 9518). Each DATA frame that the server sends restores a part, because the
/// client may answer it with `WINDOW_UPDATE` frames.
pub(super) const IDLE_FRAMES: (u32, u32) = (4000, 1000);
/// DATA frames with fewer bytes count as carrying nothing, unless they end the body.
pub(super) const TINY_DATA: usize = 16;
/// The number of priorities that are stored for streams that do not exist yet (RFC 9218 section 7.1).
pub(super) const EARLY_PRIORITIES: usize = 16;
/// The number of recently closed streams that are remembered, to tell frames that were sent before the end from wrong
/// ones.
pub(super) const CLOSED_STREAMS: usize = 64;
/// The bytes of unsent control frames from which on no more input is read. The frame being processed may add to them.
pub(super) const ANSWERS: usize = 1 << 10;

/// A rate limit: a number of events that is refilled with time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// The largest number at once, and the refill per second.
    most: (u32, u32),
    used: u32,
    /// The time up to which the allowance has been refilled, in milliseconds.
    at: u64,
}

impl Allowance {
    pub(super) fn new(most: (u32, u32)) -> Self {
        Self { most, used: 0, at: 0 }
    }

    /// Uses one event. Returns false if none was left.
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

    /// Restores `count` events.
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
