//! Rate limits: the number of requests that a client may send in a time, by path. [`buckets`] describes the memory,
//! which all workers share.

mod buckets;

pub(crate) use buckets::SIZE;

use crate::clock;
use crate::scoreboard::View;
use crate::text::percent_decoded;
use buckets::{BucketWords, Buckets, Pace};
use engine::{Peer, Refusal, RefusalCause};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::hash::Hasher;
use std::net::IpAddr;
use wire::message::RequestHead;

/// A limit as Python passes it: the path prefix, the text of the limit, the number of requests (0: no limit), seconds,
/// burst, and the scope of a bucket: `client`, `all`, or the name of a field.
type GivenLimit = (String, String, u32, f64, u32, String);

/// The rate limits of a server.
pub(crate) struct RateLimits {
    /// The limits by prefixes of whole segments, the longest prefix first. All limits of one prefix apply.
    prefixes: Vec<(Box<[u8]>, Vec<RateLimit>)>,
    /// The buckets, in memory that `_view` keeps alive.
    words: &'static BucketWords,
    _view: View,
}

struct RateLimit {
    /// The limit as the operator wrote it.
    text: String,
    pace: Pace,
    /// The number of this limit, the same on all hosts.
    number: u64,
    scope: Scope,
}

/// Says which requests share a bucket.
enum Scope {
    Client,
    All,
    /// All requests with the same value of the field with this name, in lower case. A request without the field counts
    /// for its client.
    Field(Box<[u8]>),
}

/// The refusal of a request that exceeds a limit.
pub(crate) struct Exceeded<'a> {
    pub(crate) refusal: Refusal,
    /// The limit as the operator wrote it.
    pub(crate) limit: &'a str,
}

impl RateLimits {
    /// Creates the limits; `None` if there are none.
    ///
    /// # Errors
    /// `ValueError` if the memory is missing, and the errors of [`View::lend`].
    pub(crate) fn new(given: Vec<GivenLimit>, memory: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Self>> {
        if given.is_empty() {
            return Ok(None);
        }
        let memory = memory.ok_or_else(|| PyValueError::new_err("rate_limit needs rate_limit_memory"))?;
        let (view, words) = View::lend::<BucketWords>("rate_limit_memory", memory)?;
        // SAFETY: `View::lend` has checked size and alignment. The memory is writable and stays at its address until
        // the view is released, which happens when the reference is dropped. All accesses are atomic.
        let words = unsafe { &*words };
        let mut prefixes: Vec<(Box<[u8]>, Vec<RateLimit>)> = Vec::new();
        for (prefix, text, requests, seconds, burst, scope) in given {
            let prefix: Box<[u8]> = prefix.into_bytes().into();
            let at = prefixes.iter().position(|(other, _)| *other == prefix).unwrap_or_else(|| {
                prefixes.push((prefix, Vec::new()));
                prefixes.len() - 1
            });
            if requests > 0 {
                let limits = &mut prefixes[at];
                limits.1.push(RateLimit::new(&limits.0, &text, (requests, seconds, burst), &scope));
            }
        }
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(Some(Self { prefixes, words, _view: view }))
    }

    /// Takes a token for a request from the bucket of each limit of its path. If a bucket is empty, puts the tokens
    /// back and returns the limit.
    pub(crate) fn check(&self, head: &RequestHead<'_>, peer: &Peer) -> Option<Exceeded<'_>> {
        let limits = self.of(head.target.path)?;
        let (buckets, now) = (Buckets(self.words), clock::fine());
        for (index, limit) in limits.iter().enumerate() {
            if let Err(wait) = buckets.take(limit.key(head, peer), limit.pace, now) {
                for earlier in &limits[..index] {
                    buckets.give_back(earlier.key(head, peer), earlier.pace);
                }
                let seconds = u32::try_from(wait.div_ceil(1_000_000_000)).unwrap_or(u32::MAX);
                let refusal = Refusal { status: 429, cause: Some(RefusalCause::RateLimit(seconds)) };
                return Some(Exceeded { refusal, limit: &limit.text });
            }
        }
        None
    }

    /// Returns the limits of a path in the form of the request line. The path is decoded first, as for the application,
    /// so escapes do not evade a limit.
    fn of(&self, path: &[u8]) -> Option<&[RateLimit]> {
        let decoded;
        let path = if path.contains(&b'%') {
            decoded = percent_decoded(path);
            &decoded
        } else {
            path
        };
        let fits = |prefix: &[u8]| path.strip_prefix(prefix).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        self.prefixes.iter().find(|(prefix, _)| fits(prefix)).map(|(_, limits)| limits.as_slice())
    }
}

impl RateLimit {
    fn new(prefix: &[u8], text: &str, (requests, seconds, burst): (u32, f64, u32), scope: &str) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and at most a year")]
        let interval = ((seconds * 1e9 / f64::from(requests)) as u64).max(1);
        let pace = Pace { interval, whole: interval.saturating_mul(burst.into()) };
        let mut hasher = hasher(0);
        hasher.write(prefix);
        for number in [pace.interval, pace.whole] {
            hasher.write_u64(number);
        }
        hasher.write(scope.as_bytes());
        let scope = match scope {
            "client" => Scope::Client,
            "all" => Scope::All,
            name => Scope::Field(name.as_bytes().into()),
        };
        let text =
            if prefix.is_empty() { text.to_owned() } else { format!("{}={text}", String::from_utf8_lossy(prefix)) };
        Self { text, pace, number: hasher.finish(), scope }
    }

    /// Returns the key of the bucket from which a request takes its token. The key is the same on all hosts, so it is
    /// not secret; the table has a secret of its own.
    fn key(&self, head: &RequestHead<'_>, peer: &Peer) -> u64 {
        let mut hasher = hasher(self.number);
        let value = match &self.scope {
            Scope::All => return self.number.max(1),
            Scope::Client => None,
            Scope::Field(name) => head.field(name),
        };
        if let Some(value) = value {
            hasher.write_u8(1);
            hasher.write(value);
        } else {
            write_client(head, peer, &mut hasher);
        }
        hasher.finish().max(1)
    }
}

/// Hashes the client of a request: the one that a trusted proxy names, or else the peer.
fn write_client(head: &RequestHead<'_>, peer: &Peer, hasher: &mut impl Hasher) {
    let address = match head.client {
        Some(client) => client.address,
        None => peer.address.map(|address| address.ip().to_canonical()),
    };
    match address {
        None => hasher.write_u8(2),
        Some(IpAddr::V4(address)) => {
            hasher.write_u8(4);
            hasher.write(&address.octets());
        }
        // A subscriber has at least a /64, and may use any address in it (RFC 6177).
        Some(IpAddr::V6(address)) => {
            hasher.write_u8(6);
            hasher.write(&address.octets()[..8]);
        }
    }
}

/// Returns a hash function that is the same on all hosts and in all versions of the standard library.
#[allow(deprecated, reason = "a map has a better default; nothing else in the standard library takes a key")]
fn hasher(key: u64) -> std::hash::SipHasher {
    std::hash::SipHasher::new_with_keys(key, 0)
}

/// Calls `act` with the buckets in `memory`.
fn with_buckets<R>(memory: &Bound<'_, PyAny>, act: impl FnOnce(Buckets<'_>) -> R) -> PyResult<R> {
    let (view, words) = View::lend::<BucketWords>("rate_limit_memory", memory)?;
    // SAFETY: as in `RateLimits::new`; `view` lives longer than the reference.
    let result = act(Buckets(unsafe { &*words }));
    drop(view);
    Ok(result)
}

/// Returns how many buckets were evicted before they were full.
pub(crate) fn given_up(memory: &Bound<'_, PyAny>) -> PyResult<u64> {
    with_buckets(memory, |buckets| buckets.given_up())
}

/// Returns the tokens taken on this host since the last call: pairs of key and time, 8 bytes each, big-endian.
pub(crate) fn take_debts(memory: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let debts = with_buckets(memory, |buckets| buckets.take_debts())?;
    Ok(debts.into_iter().flat_map(|(key, debt)| [key.to_be_bytes(), debt.to_be_bytes()]).flatten().collect())
}

/// Records tokens taken on other hosts, in the form of [`take_debts`].
pub(crate) fn add_debts(memory: &Bound<'_, PyAny>, debts: &[u8]) -> PyResult<()> {
    let (pairs, rest) = debts.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(PyValueError::new_err("debts are pairs of 8 bytes each"));
    }
    with_buckets(memory, |buckets| {
        let now = clock::fine();
        for pair in pairs {
            let [key, debt] = [0, 8].map(|at| u64::from_be_bytes(std::array::from_fn(|index| pair[at + index])));
            // No bucket has the key 0.
            buckets.add_debt(key.max(1), debt, now);
        }
    })
}
