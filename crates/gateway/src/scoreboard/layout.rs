//! The layout of a scoreboard, and the counting of values in it. Uses no Python.

use engine::Statistics;
use scheduler::PoolStatistics;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tls::{HANDSHAKE_COUNTERS, HandshakeCounts};

/// The counters and gauges of an engine at one moment.
pub(crate) struct Snapshot {
    /// The time of the snapshot, from the coarse clock.
    pub(crate) at: Duration,
    pub(crate) engine: Statistics,
    pub(crate) is_draining: bool,
    pub(crate) is_stalled: bool,
    /// The number of calls that wait for their peers to read. The engine counts them as running.
    pub(crate) blocked: u64,
    pub(crate) overdue: u64,
    pub(crate) pool_statistics: PoolStatistics,
    /// The number of log lines that the process has dropped.
    pub(crate) log_lines_dropped: u64,
}

/// The table of all counters and gauges: the names, in their order in memory, and the sources of the values.
macro_rules! fields {
    ($snapshot:ident => $($name:literal: $value:expr,)*) => {
        const FIELDS: &[&str] = &[$($name),*];

        impl Snapshot {
            /// Returns the values of [`FIELDS`].
            fn values(&self) -> Values {
                let $snapshot = self;
                [$($value),*]
            }
        }
    };
}

fields! { snapshot =>
    "published": nanos(snapshot.at),
    "draining": snapshot.is_draining.into(),
    "stalled": snapshot.is_stalled.into(),
    "accepted": snapshot.engine.accepted,
    "requests": snapshot.engine.requests,
    "http2_requests": snapshot.engine.http2_requests,
    "queue_timeouts": snapshot.engine.queue_timeouts,
    "left": snapshot.engine.left,
    "refused": snapshot.engine.refused,
    "timeouts": snapshot.engine.timeouts,
    "cut": snapshot.engine.cut,
    "quarantined": snapshot.engine.quarantined,
    "rate_limited": snapshot.engine.rate_limited,
    "health_checks": snapshot.engine.health_checks,
    "static_files": snapshot.engine.static_files,
    "accept_pauses": snapshot.engine.accept_pauses,
    "panics": snapshot.engine.panics,
    "log_lines_dropped": snapshot.log_lines_dropped,
    "bytes_in": snapshot.engine.bytes_in,
    "bytes_out": snapshot.engine.bytes_out,
    "websocket_messages_in": snapshot.engine.messages_in,
    "websocket_messages_out": snapshot.engine.messages_out,
    "overdue": snapshot.overdue,
    "handovers": snapshot.pool_statistics.handovers,
    "status_1xx": snapshot.engine.statuses[0],
    "status_2xx": snapshot.engine.statuses[1],
    "status_3xx": snapshot.engine.statuses[2],
    "status_4xx": snapshot.engine.statuses[3],
    "status_5xx": snapshot.engine.statuses[4],
    "connections": snapshot.engine.connections,
    "http2_connections": snapshot.engine.http2_connections,
    "http2_streams": snapshot.engine.http2_streams,
    "websockets": snapshot.engine.websockets,
    // The engine does not distinguish a greenlet that waits for its client from one that works.
    "running": snapshot.engine.running.saturating_sub(snapshot.blocked),
    "queued": snapshot.engine.queued,
    "suspended": snapshot.engine.suspended + snapshot.blocked,
    "threads": snapshot.pool_statistics.threads as u64,
    "threads_idle": snapshot.pool_statistics.idle as u64,
    "threads_most": snapshot.pool_statistics.max_calls as u64,
}

/// The values of [`FIELDS`], one word each.
pub(super) type Values = [u64; VALUES];

/// The number of fields.
pub(super) const VALUES: usize = FIELDS.len();

/// The memory of a scoreboard.
pub(super) type Words = [AtomicU64; WORDS];

/// The fields that are 0 or 1.
const FLAGS: [&str; 2] = ["draining", "stalled"];

impl Snapshot {
    /// Returns the name and the sum over all engines of each counter and gauge.
    pub(crate) fn entries(engines: &[Self]) -> impl Iterator<Item = (&'static str, u64)> {
        let mut sum: Values = [0; FIELDS.len()];
        for engine in engines {
            for (sum, value) in sum.iter_mut().zip(engine.values()) {
                *sum = sum.wrapping_add(value);
            }
        }
        let entries = FIELDS.iter().copied().zip(sum).filter(|(name, _)| *name != "published");
        entries.map(|(name, value)| (name, if FLAGS.contains(&name) { value.min(1) } else { value }))
    }
}

/// A kind of duration that is counted in a histogram.
#[derive(Clone, Copy)]
pub(crate) enum Histogram {
    /// The time from the moment when a request is complete until the application is called; 0 if it did not have to
    /// wait.
    QueueWait,
    /// The time from the call of the application to the end of its response.
    ServiceTime,
    /// The time for which a thread waits for the GIL after it has waited for the engine.
    InterpreterWait,
}

const HISTOGRAMS: [&str; 3] = ["queue_wait", "service_time", "interpreter_wait"];

/// The upper bounds of the buckets, in nanoseconds. One more bucket has no upper bound.
const BOUNDS: [u64; 17] = {
    const MICRO: u64 = 1_000;
    const MILLI: u64 = 1_000 * MICRO;
    const SECOND: u64 = 1_000 * MILLI;
    [
        100 * MICRO,
        250 * MICRO,
        500 * MICRO,
        MILLI,
        2_500 * MICRO,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        SECOND,
        2_500 * MILLI,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
    ]
};

/// The number of words of a histogram: the sum, and the buckets.
const HISTOGRAM: usize = 1 + BOUNDS.len() + 1;
/// The index of the first handshake counter.
const HANDSHAKES: usize = FIELDS.len() + HISTOGRAMS.len() * HISTOGRAM;
pub(super) const WORDS: usize = HANDSHAKES + HANDSHAKE_COUNTERS.len();

/// The size of the scoreboard in bytes.
pub(crate) const SIZE: usize = WORDS * size_of::<AtomicU64>();

/// Returns the names of all words, in order.
pub(crate) fn names() -> Vec<String> {
    let buckets = |name: &'static str| (0..=BOUNDS.len()).map(move |bucket| format!("{name}_{bucket}"));
    let of = |name| std::iter::once(format!("{name}_sum")).chain(buckets(name));
    let handshakes = HANDSHAKE_COUNTERS.into_iter().map(|(family, name)| format!("tls:{family}:{name}"));
    let fields = FIELDS.iter().map(|&name| name.to_owned());
    fields.chain(HISTOGRAMS.into_iter().flat_map(of)).chain(handshakes).collect()
}

/// Returns the upper bounds of the buckets in seconds.
#[allow(clippy::cast_precision_loss, reason = "they are far below the 52 bits of a float")]
pub(crate) fn bounds() -> Vec<f64> {
    BOUNDS.iter().map(|&bound| bound as f64 / 1e9).collect()
}

/// Returns the index of the bucket for a duration. Most durations are short, so the search is linear.
fn bucket(nanos: u64) -> usize {
    1 + BOUNDS.iter().position(|&bound| nanos <= bound).unwrap_or(BOUNDS.len())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn words_of(words: &Words, histogram: Histogram) -> &[AtomicU64] {
    &words[FIELDS.len() + histogram as usize * HISTOGRAM..][..HISTOGRAM]
}

/// Counts a duration. Any thread may call this.
pub(super) fn count(words: &Words, histogram: Histogram, nanos: u64) {
    let words = words_of(words, histogram);
    words[0].fetch_add(nanos, Ordering::Relaxed);
    words[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
}

/// Does the same if no two threads count in this histogram at the same time, which is cheaper.
pub(super) fn count_alone(words: &Words, histogram: Histogram, nanos: u64) {
    let words = words_of(words, histogram);
    for (word, more) in [(&words[0], nanos), (&words[bucket(nanos)], 1)] {
        word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}

/// Stores the values of an engine. If there are several engines, `published` has the values that this one published
/// last: each word is increased by the change of the value, so that it is the sum of all engines without a lock.
pub(super) fn publish(words: &Words, snapshot: &Snapshot, published: Option<&mut Values>) {
    let words = words.iter().zip(snapshot.values());
    let Some(published) = published else {
        for (word, value) in words {
            word.store(value, Ordering::Relaxed);
        }
        return;
    };
    for ((index, (word, value)), published) in words.enumerate().zip(published.iter_mut()) {
        if index == PUBLISHED {
            word.fetch_max(value, Ordering::Relaxed);
        } else if value != *published {
            word.fetch_add(value.wrapping_sub(*published), Ordering::Relaxed);
            *published = value;
        }
    }
}

/// Stores the numbers of handshakes.
pub(super) fn publish_handshakes(words: &Words, counts: &HandshakeCounts) {
    for (word, count) in words[HANDSHAKES..].iter().zip(counts) {
        word.store(*count, Ordering::Relaxed);
    }
}

/// The index of the word with the time of the last publication.
const PUBLISHED: usize = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Words {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    fn word(words: &Words, name: &str) -> u64 {
        let index = names().iter().position(|known| known == name).unwrap();
        words[index].load(Ordering::Relaxed)
    }

    fn snapshot(at: u64, requests: u64, connections: u64, is_draining: bool) -> Snapshot {
        let engine = Statistics { requests, connections, ..Statistics::default() };
        let pool_statistics = PoolStatistics { threads: 3, idle: 1, running: 2, max_calls: 4, handovers: 0 };
        Snapshot {
            at: Duration::from_nanos(at),
            engine,
            is_draining,
            is_stalled: false,
            blocked: 0,
            overdue: 0,
            pool_statistics,
            log_lines_dropped: 0,
        }
    }

    #[test]
    fn test_every_word_has_one_name() {
        let names = names();
        assert_eq!(names.len() * size_of::<u64>(), SIZE);
        assert_eq!(names.iter().collect::<std::collections::HashSet<_>>().len(), names.len());
        assert_eq!(names[PUBLISHED], "published");
        assert_eq!(names.iter().filter(|name| name.starts_with("queue_wait_")).count(), HISTOGRAM);
        assert!(FLAGS.iter().all(|flag| FIELDS.contains(flag)));
    }

    #[test]
    fn test_histograms_count_in_the_bucket_that_holds_the_time() {
        for count in [count, count_alone] {
            let words = memory();
            for nanos in [0, 100_000, 100_001, u64::from(u32::MAX) * 1000] {
                count(&words, Histogram::ServiceTime, nanos);
            }
            assert_eq!(word(&words, "service_time_0"), 2);
            assert_eq!(word(&words, "service_time_1"), 1);
            assert_eq!(word(&words, &format!("service_time_{}", BOUNDS.len())), 1);
            assert_eq!(word(&words, "service_time_sum"), 200_001 + u64::from(u32::MAX) * 1000);
            assert_eq!(word(&words, "queue_wait_0") + word(&words, "interpreter_wait_0"), 0);
        }
    }

    #[test]
    fn test_bounds_ascend_in_seconds() {
        let bounds = bounds();
        assert!(bounds.is_sorted());
        assert_eq!(bounds.first().zip(bounds.last()), Some((&0.0001, &30.0)));
    }

    #[test]
    fn test_engine_that_is_alone_stores_what_is() {
        let words = memory();
        publish(&words, &snapshot(7, 5, 2, true), None);
        publish(&words, &snapshot(8, 6, 1, false), None);
        let shown = ["published", "requests", "connections", "draining", "threads", "threads_most"];
        assert_eq!(shown.map(|name| word(&words, name)), [8, 6, 1, 0, 3, 4]);
    }

    #[test]
    fn test_words_of_several_engines_are_their_sums() {
        let words = memory();
        let mut published = [[0; VALUES]; 2];
        publish(&words, &snapshot(7, 5, 2, false), Some(&mut published[0]));
        publish(&words, &snapshot(9, 1, 1, false), Some(&mut published[1]));
        publish(&words, &snapshot(8, 6, 0, false), Some(&mut published[0]));
        let shown = ["published", "requests", "connections", "threads"];
        assert_eq!(shown.map(|name| word(&words, name)), [9, 7, 1, 6]);
    }

    #[test]
    fn test_entries_of_several_engines_are_added_but_flags_are_not() {
        let snapshots = [snapshot(7, 5, 2, true), snapshot(9, 1, 1, true)];
        let entries: std::collections::HashMap<_, _> = Snapshot::entries(&snapshots).collect();
        assert_eq!((entries["requests"], entries["connections"], entries["draining"]), (6, 3, 1));
        assert!(!entries.contains_key("published"));
    }
}
