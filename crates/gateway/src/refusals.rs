//! Reports of requests that the server itself refuses. The first refusal of a kind is reported in full; of those that
//! follow within the interval, only the number is. So a client that sends bad requests can cause at most one log line
//! for each rule and interval. Uses no Python.

use crate::text::escaped;
use engine::{Refusal, RefusalCause, Rejection};
use std::io;
use std::time::{Duration, Instant};
use wire::message::Fault;

#[derive(Default)]
pub(crate) struct Refusals {
    /// One entry for each rule at most.
    kinds: Vec<Kind>,
    /// True if there are counted refusals that have not been reported.
    has_more: bool,
}

struct Kind {
    what: What,
    /// The time of the last report.
    reported: Instant,
    /// The number of refusals since then.
    more: u64,
}

/// A kind of refusal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// The server refused a request. The remaining seconds of a quarantine or a rate limit are set to 0 for comparison.
    Refused(Refusal),
    /// The server closed a connection without a response.
    Rejected(Rejection),
    /// The server closed a connection because its TLS handshake failed.
    Insecure,
}

/// The refused client, and its request as far as it is known.
pub(crate) struct Refused<'a> {
    pub(crate) client: String,
    pub(crate) method: &'a [u8],
    pub(crate) target: &'a [u8],
}

/// The minimum time between two reports of refusals of one kind.
const INTERVAL: Duration = Duration::from_secs(10);
/// The maximum length of a request target in a report, in bytes.
const TARGET_MAX: usize = 200;

impl Refusals {
    /// Counts a refused request. Returns a message if one is due.
    pub(crate) fn note<'a>(&mut self, refusal: Refusal, refused: impl FnOnce() -> Refused<'a>) -> Option<String> {
        let cause = refusal.cause.map(|cause| match cause {
            RefusalCause::Quarantine(_) => RefusalCause::Quarantine(0),
            RefusalCause::RateLimit(_) => RefusalCause::RateLimit(0),
            cause => cause,
        });
        if !self.is_first(What::Refused(Refusal { cause, ..refusal })) {
            return None;
        }
        let Refused { client, method, target } = refused();
        let asked = match (method, target) {
            (b"", _) => String::new(),
            (method, b"") => format!(", {}", escaped(method)),
            (method, target) => {
                let dots = if target.len() > TARGET_MAX { "..." } else { "" };
                format!(", {} {}{dots}", escaped(method), escaped(&target[..target.len().min(TARGET_MAX)]))
            }
        };
        Some(format!("refused with {}: client {client}{asked}: {}", refusal.status, reason(refusal)))
    }

    /// Counts a connection that was closed without a response. Returns a message if one is due.
    pub(crate) fn note_rejection(&mut self, rejection: Rejection, client: impl FnOnce() -> String) -> Option<String> {
        let is_first = self.is_first(What::Rejected(rejection));
        is_first.then(|| format!("closed a connection without an answer: client {}: {rejection}", client()))
    }

    /// Counts a connection that was closed because TLS failed. Returns a message if one is due. All reasons count as
    /// one kind, because a client can choose among them.
    pub(crate) fn note_insecure(&mut self, reason: &io::Error, client: impl FnOnce() -> String) -> Option<String> {
        self.is_first(What::Insecure).then(|| format!("TLS with client {} failed: {reason}", client()))
    }

    /// Returns true if this refusal must be reported in full. Otherwise counts it.
    fn is_first(&mut self, what: What) -> bool {
        match self.kinds.iter_mut().find(|kind| kind.what == what) {
            // Earlier refusals that were only counted are reported first.
            Some(kind) if kind.more > 0 || kind.reported.elapsed() < INTERVAL => {
                kind.more += 1;
                self.has_more = true;
                return false;
            }
            Some(kind) => kind.reported = Instant::now(),
            None => self.kinds.push(Kind { what, reported: Instant::now(), more: 0 }),
        }
        true
    }

    /// Returns true if there are counted refusals that have not been reported.
    pub(crate) fn has_counts(&self) -> bool {
        self.has_more
    }

    /// Returns messages with the numbers of refusals since the last report, if the interval has passed or `is_last` is
    /// true.
    pub(crate) fn take_counts(&mut self, is_last: bool) -> Vec<String> {
        if !self.has_more {
            return Vec::new();
        }
        let mut counts = Vec::new();
        self.has_more = false;
        for kind in &mut self.kinds {
            if kind.more == 0 {
                continue;
            }
            let since = kind.reported.elapsed();
            if since < INTERVAL && !is_last {
                self.has_more = true;
                continue;
            }
            let were = if kind.more == 1 { " was" } else { "s were" };
            let (more, seconds) = (kind.more, since.as_secs().max(1));
            counts.push(match kind.what {
                What::Refused(refusal) => {
                    let (status, reason) = (refusal.status, reason(refusal));
                    format!("and {more} more request{were} refused with {status} within {seconds} s: {reason}")
                }
                What::Insecure => format!("and {more} more failure{were} of TLS within {seconds} s"),
                What::Rejected(rejection) => {
                    format!("and {more} more connection{were} closed without an answer within {seconds} s: {rejection}")
                }
            });
            kind.more = 0;
            kind.reported = Instant::now();
        }
        counts
    }
}

fn reason(refusal: Refusal) -> String {
    let source = refusal.fault().and_then(Fault::source).map(|source| format!(" ({source})")).unwrap_or_default();
    format!("{}{source}", refusal.explanation())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Refused<'static> {
        Refused { client: "127.0.0.1:5".to_owned(), method: b"GET", target: b"/a\x1b" }
    }

    const TOO_LONG: Refusal = Refusal::of_status(414);

    #[test]
    fn test_first_of_a_kind_is_reported_in_full_and_the_rest_are_counted() {
        let mut refusals = Refusals::default();
        let message = refusals.note(TOO_LONG, refused).unwrap();
        assert!(message.starts_with(r"refused with 414: client 127.0.0.1:5, GET /a\x1b: "), "{message}");
        for _ in 0..3 {
            assert_eq!(refusals.note(TOO_LONG, || unreachable!("nothing is shown of it")), None);
        }
        // A refusal of another kind is reported at once.
        assert!(refusals.note(Refusal::of_status(408), refused).is_some());
        assert!(refusals.take_counts(false).is_empty());
        let counts = refusals.take_counts(true);
        assert_eq!(counts.len(), 1);
        assert!(counts[0].starts_with("and 3 more requests were refused with 414 within "), "{counts:?}");
        assert!(refusals.take_counts(true).is_empty());
    }

    #[test]
    fn test_reason_names_the_rule() {
        let fault = Fault::Truncated;
        let mut refusals = Refusals::default();
        let message = refusals.note(Refusal::from(fault), refused).unwrap();
        assert!(message.contains(fault.explanation()), "{message}");
    }

    #[test]
    fn test_closed_connections_are_counted_by_reason() {
        let mut refusals = Refusals::default();
        let message = refusals.note_rejection(Rejection::NotAllowed, || "192.0.2.1:5".to_owned()).unwrap();
        assert!(message.starts_with("closed a connection without an answer: client 192.0.2.1:5: "), "{message}");
        assert!(refusals.note_rejection(Rejection::NotAllowed, || unreachable!("nothing is shown of it")).is_none());
        let other = Rejection::Header(wire::proxy::ProxyFault::NoHeader);
        assert!(refusals.note_rejection(other, String::new).is_some());
        let counts = refusals.take_counts(true);
        assert_eq!(counts.len(), 1);
        assert!(counts[0].starts_with("and 1 more connection was closed without an answer within "), "{counts:?}");
    }

    #[test]
    fn test_long_target_is_cut() {
        let target = [b'a'; 2 * TARGET_MAX];
        let refused = || Refused { client: String::new(), method: b"GET", target: &target };
        let message = Refusals::default().note(TOO_LONG, refused).unwrap();
        assert!(message.contains(&format!("GET {}...:", "a".repeat(TARGET_MAX))), "{message}");
    }
}
