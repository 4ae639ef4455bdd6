//! Time limits of calls. Uses no Python.

use std::time::Duration;

/// The time limits of requests, by path.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// The limit for paths that match no prefix.
    default: Limit,
    /// The limits for path prefixes, the longest first. A prefix matches whole path segments only.
    prefixes: Vec<(Box<[u8]>, Limit)>,
    /// The shortest of all limits; `None` if there is no limit.
    shortest: Option<Duration>,
}

impl Limits {
    pub(crate) fn new(default: Option<Duration>, prefixes: Vec<(String, Option<Duration>)>) -> Self {
        let shortest = prefixes.iter().filter_map(|(_, limit)| *limit).chain(default).min();
        let mut prefixes: Vec<_> = prefixes
            .into_iter()
            .map(|(prefix, limit)| (prefix.trim_end_matches('/').as_bytes().into(), limit.into()))
            .collect();
        prefixes.sort_by_key(|(prefix, _): &(Box<[u8]>, _)| std::cmp::Reverse(prefix.len()));
        Self { default: default.into(), prefixes, shortest }
    }

    /// Returns the limit of a request for `path`, in the undecoded form of the request line.
    pub(crate) fn of(&self, path: &[u8]) -> Limit {
        let fits = |prefix: &[u8]| path.strip_prefix(prefix).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        self.prefixes.iter().find(|(prefix, _)| fits(prefix)).map_or(self.default, |(_, limit)| *limit)
    }

    /// Returns the shortest limit of any request; `None` if there is no limit.
    pub(crate) fn shortest(&self) -> Option<Duration> {
        self.shortest
    }
}

/// A number of nanoseconds. One integer keeps the data of each request small.
pub(super) type Nanos = u64;

/// A time that is never reached. It means that there is no limit, or that the call is not running.
pub(super) const NEVER: Nanos = Nanos::MAX;

pub(super) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// The time limit of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(super) Nanos);

impl From<Option<Duration>> for Limit {
    fn from(limit: Option<Duration>) -> Self {
        Self(limit.map_or(NEVER, nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<Duration> = Some(Duration::from_secs(1));
    const TWO: Option<Duration> = Some(Duration::from_secs(2));
    const THREE: Option<Duration> = Some(Duration::from_secs(3));

    #[test]
    fn test_longest_prefix_of_whole_segments_decides() {
        let prefixes = [("/a", TWO), ("/a/b/", THREE), ("/free", None)];
        let limits = Limits::new(ONE, prefixes.map(|(prefix, limit)| (prefix.to_owned(), limit)).into());
        for (path, limit) in [
            ("/", ONE),
            ("/a", TWO),
            ("/a/", TWO),
            ("/ab", ONE),
            ("/a/b", THREE),
            ("/a/bc", TWO),
            ("/a/b/c", THREE),
            ("/free/of/all", None),
        ] {
            assert_eq!(limits.of(path.as_bytes()), Limit::from(limit), "{path}");
        }
        assert_eq!(limits.shortest(), ONE);
    }

    #[test]
    fn test_limit_of_a_path_alone_is_the_shortest() {
        let limits = Limits::new(None, vec![("/slow".to_owned(), TWO)]);
        assert_eq!(limits.of(b"/fast"), Limit::from(None));
        assert_eq!(limits.shortest(), TWO);
        assert_eq!(Limits::new(None, Vec::new()).shortest(), None);
    }

    #[test]
    fn test_limit_beyond_what_can_be_counted_is_none() {
        assert_eq!(Limit::from(Some(Duration::MAX)), Limit::from(None));
    }
}
