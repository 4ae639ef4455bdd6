//! Conditional requests (RFC 9110 section 13) and ranges: they determine which part of a representation is sent.

use super::codings::AcceptedCodings;
use super::ranges::Ranges;
use crate::message::{Field, RequestHead};
use std::time::{SystemTime, UNIX_EPOCH};

/// The validators of a representation. They change whenever its content changes.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The strong entity tag, with its quotes.
    pub etag: &'a [u8],
    /// The time of the last change, for Last-Modified: Unix time in seconds.
    pub modified: u64,
}

/// The response that preconditions and ranges select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// 200: the whole representation.
    Whole,
    /// 206: parts of the representation. Never [`Ranges::Whole`] or [`Ranges::Unsatisfiable`].
    Ranges(Ranges),
    /// 304: the client's copy is still valid.
    NotModified,
    /// 412: a precondition failed, because the representation has changed.
    Failed,
    /// 416: no byte of the requested ranges exists.
    Unsatisfiable,
}

/// The fields of a request head that determine what is sent.
#[derive(Clone, Copy, Debug)]
pub struct Conditions<'a> {
    head: RequestHead<'a>,
    has_if_match: bool,
    has_if_none_match: bool,
    has_accept_encoding: bool,
    if_modified_since: Single<'a>,
    if_unmodified_since: Single<'a>,
    if_range: Single<'a>,
    range: Single<'a>,
}

/// A field that is allowed once. A repeated one is ignored.
#[derive(Clone, Copy, Debug, Default)]
enum Single<'a> {
    #[default]
    None,
    Value(&'a [u8]),
    Repeated,
}

impl<'a> Single<'a> {
    fn add(&mut self, value: &'a [u8]) {
        *self = if matches!(self, Single::None) { Single::Value(value) } else { Single::Repeated };
    }

    fn value(self) -> Option<&'a [u8]> {
        if let Single::Value(value) = self { Some(value) } else { None }
    }

    fn date(self) -> Option<u64> {
        self.value().and_then(date)
    }
}

impl<'a> Conditions<'a> {
    /// Finds the relevant fields in a head.
    #[must_use]
    pub fn read(head: &RequestHead<'a>) -> Self {
        let mut found = Self {
            head: *head,
            has_if_match: false,
            has_if_none_match: false,
            has_accept_encoding: false,
            if_modified_since: Single::None,
            if_unmodified_since: Single::None,
            if_range: Single::None,
            range: Single::None,
        };
        for field in head.fields {
            let is = |known: &[u8]| is_named(field, head, known);
            // As a CGI variable, Range is called `HTTP_RANGE`.
            let prefix = if head.is_cgi { 5 } else { 0 };
            match field.name(head.block).len().wrapping_sub(prefix) {
                5 if is(b"range") => found.range.add(field.value(head.block)),
                8 if is(b"if-match") => found.has_if_match = true,
                8 if is(b"if-range") => found.if_range.add(field.value(head.block)),
                13 if is(b"if-none-match") => found.has_if_none_match = true,
                15 if is(b"accept-encoding") => found.has_accept_encoding = true,
                17 if is(b"if-modified-since") => found.if_modified_since.add(field.value(head.block)),
                19 if is(b"if-unmodified-since") => found.if_unmodified_since.add(field.value(head.block)),
                _ => {}
            }
        }
        found
    }

    /// Returns the content codings that the client accepts; `None` without Accept-Encoding.
    #[must_use]
    pub fn accepted_codings(&self) -> Option<AcceptedCodings> {
        self.has_accept_encoding.then(|| AcceptedCodings::read(self.values(b"accept-encoding")))
    }

    /// Selects the response to a GET or HEAD of a representation of `length` bytes. It evaluates the preconditions in
    /// the order of RFC 9110 section 13.2.2, then the ranges. Ranges apply only to GET (section 14.2).
    #[must_use]
    pub fn select(&self, validators: Validators<'_>, length: u64) -> Selected {
        if self.has_if_match {
            if !self.names(b"if-match", validators.etag, Comparison::Strong) {
                return Selected::Failed;
            }
        } else if self.if_unmodified_since.date().is_some_and(|date| validators.modified > date) {
            return Selected::Failed;
        }
        if self.has_if_none_match {
            if self.names(b"if-none-match", validators.etag, Comparison::Weak) {
                return Selected::NotModified;
            }
        } else if self.if_modified_since.date().is_some_and(|date| validators.modified <= date) {
            return Selected::NotModified;
        }
        let Some(range) = self.range.value().filter(|_| self.head.method == b"GET" && self.is_range_meant(validators))
        else {
            return Selected::Whole;
        };
        match Ranges::read(range, length) {
            Ranges::Whole => Selected::Whole,
            Ranges::Unsatisfiable => Selected::Unsatisfiable,
            ranges @ Ranges::Some(..) => Selected::Ranges(ranges),
        }
    }

    /// Returns true if there is no If-Range, or if it matches the current representation (RFC 9110 section 13.1.5).
    fn is_range_meant(&self, validators: Validators<'_>) -> bool {
        match self.if_range {
            Single::None => true,
            Single::Repeated => false,
            Single::Value(value) if value.first() == Some(&b'"') => value == validators.etag,
            // A weak tag is not a date, so it matches nothing.
            Single::Value(value) => date(value) == Some(validators.modified),
        }
    }

    /// Returns true if the list of entity tags in `field` contains `etag`, or is `*`. Members after a malformed one are
    /// ignored.
    fn names(&self, field: &[u8], etag: &[u8], comparison: Comparison) -> bool {
        self.values(field).any(|value| {
            value == b"*"
                || tags(value).any(|(is_weak, tag)| tag == etag && !(is_weak && comparison == Comparison::Strong))
        })
    }

    fn values(&self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let head = self.head;
        head.fields.iter().filter(move |field| is_named(field, &head, name)).map(move |field| field.value(head.block))
    }
}

/// Returns true if `field` is the request field `name`, which must be in lower case.
fn is_named(field: &Field, head: &RequestHead<'_>, name: &[u8]) -> bool {
    if head.is_cgi { field.is_variable_of(head.block, name) } else { field.is(head.block, name) }
}

/// The method of comparing entity tags (RFC 9110 section 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Returns the entity tags in a list, up to the first malformed one. Each comes with true if it is weak.
fn tags(value: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    let mut rest = value;
    std::iter::from_fn(move || {
        let start = rest.iter().position(|&b| !matches!(b, b',' | b' ' | b'\t'))?;
        rest = &rest[start..];
        let (is_weak, tagged) = rest.strip_prefix(b"W/").map_or((false, rest), |tagged| (true, tagged));
        let inside = tagged.strip_prefix(b"\"")?;
        let end = inside.iter().position(|&b| b == b'"')?;
        // A tag consists of etagc (RFC 9110 section 8.8.3). A space is not allowed: it would indicate a missing quote.
        if inside[..end].iter().any(|&b| b <= 0x20 || b == 0x7f) {
            return None;
        }
        let tag = &tagged[..end + 2];
        rest = &tagged[end + 2..];
        let is_member_over = matches!(rest.first(), None | Some(b',' | b' ' | b'\t'));
        is_member_over.then_some((is_weak, tag))
    })
}

/// Reads a date in one of the three formats of RFC 9110 section 5.6.7. Returns Unix time in seconds.
fn date(value: &[u8]) -> Option<u64> {
    let date: SystemTime = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::Receiver;
    use crate::message::Limits;
    use std::fmt::Write as _;

    /// 2026-01-01 00:00:00 UTC, a Thursday.
    const MODIFIED: u64 = 1_767_225_600;
    const THEN: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
    const BEFORE: &str = "Wed, 31 Dec 2025 23:59:59 GMT";
    const AFTER: &str = "Thu, 01 Jan 2026 00:00:01 GMT";

    fn select_by(method: &str, fields: &[(&str, &str)]) -> Selected {
        let mut text = format!("{method} / HTTP/1.1\r\nHost: a\r\n");
        for (name, value) in fields {
            write!(text, "{name}: {value}\r\n").unwrap();
        }
        text += "\r\n";
        let (mut receiver, mut table) = (Receiver::default(), Vec::new());
        let head = receiver.head(text.as_bytes(), &mut table, &Limits::default()).unwrap().unwrap();
        Conditions::read(&head.request).select(Validators { etag: b"\"x-1\"", modified: MODIFIED }, 10)
    }

    fn select(fields: &[(&str, &str)]) -> Selected {
        select_by("GET", fields)
    }

    fn part(first: u64, last: u64) -> Selected {
        let mut ranges = [super::super::ByteRange::default(); super::super::RANGES_MAX];
        ranges[0] = super::super::ByteRange { first, last };
        Selected::Ranges(Ranges::Some(1, ranges))
    }

    #[test]
    fn if_none_match_compares_weakly() {
        for value in ["\"x-1\"", "W/\"x-1\"", "*", "\"a\", \"x-1\"", "\"a,b\",W/\"x-1\" , \"c\"", ", \"x-1\""] {
            assert_eq!(select(&[("If-None-Match", value)]), Selected::NotModified, "{value}");
        }
        for value in
            ["\"x\"", "x-1", "\"x-1", "\"\"", "\"X-1\"", "w/\"x-1\"", "a, \"x-1\"", "\"a b\", \"x-1\"", "\"a\"\"x-1\""]
        {
            assert_eq!(select(&[("If-None-Match", value)]), Selected::Whole, "{value}");
        }
        let fields = [("If-None-Match", "\"a\""), ("if-none-match", "\"x-1\"")];
        assert_eq!(select(&fields), Selected::NotModified);
    }

    #[test]
    fn if_match_compares_strongly() {
        for value in ["\"x-1\"", "*", "W/\"x-1\", \"x-1\""] {
            assert_eq!(select(&[("If-Match", value)]), Selected::Whole, "{value}");
        }
        for value in ["W/\"x-1\"", "\"a\"", "x-1", ""] {
            assert_eq!(select(&[("If-Match", value)]), Selected::Failed, "{value:?}");
        }
    }

    #[test]
    fn dates_are_compared_by_the_second_and_ignored_where_malformed() {
        assert_eq!(select(&[("If-Modified-Since", THEN)]), Selected::NotModified);
        assert_eq!(select(&[("If-Modified-Since", AFTER)]), Selected::NotModified);
        assert_eq!(select(&[("If-Modified-Since", BEFORE)]), Selected::Whole);
        assert_eq!(select(&[("If-Unmodified-Since", THEN)]), Selected::Whole);
        assert_eq!(select(&[("If-Unmodified-Since", AFTER)]), Selected::Whole);
        assert_eq!(select(&[("If-Unmodified-Since", BEFORE)]), Selected::Failed);
        for bad in ["yesterday", "", "Thu, 01 Jan 2026 00:00:00", "1767225600", "Thu, 41 Jan 2026 00:00:00 GMT"] {
            assert_eq!(select(&[("If-Modified-Since", bad)]), Selected::Whole, "{bad}");
            assert_eq!(select(&[("If-Unmodified-Since", bad)]), Selected::Whole, "{bad}");
        }
        // The obsolete date formats.
        assert_eq!(select(&[("If-Modified-Since", "Thursday, 01-Jan-26 00:00:00 GMT")]), Selected::NotModified);
        assert_eq!(select(&[("If-Modified-Since", "Thu Jan  1 00:00:00 2026")]), Selected::NotModified);
        assert_eq!(select(&[("If-Modified-Since", THEN), ("If-Modified-Since", THEN)]), Selected::Whole);
    }

    #[test]
    fn preconditions_have_an_order() {
        for (fields, expected) in [
            // A tag takes precedence over a date.
            (vec![("If-None-Match", "\"a\""), ("If-Modified-Since", AFTER)], Selected::Whole),
            (vec![("If-Match", "\"x-1\""), ("If-Unmodified-Since", BEFORE)], Selected::Whole),
            // If-Match is evaluated before If-None-Match.
            (vec![("If-Match", "\"a\""), ("If-None-Match", "\"x-1\"")], Selected::Failed),
            (vec![("If-Unmodified-Since", BEFORE), ("If-None-Match", "*")], Selected::Failed),
            (vec![("If-Match", "*"), ("If-None-Match", "\"x-1\"")], Selected::NotModified),
            // Ranges are evaluated last.
            (vec![("If-None-Match", "\"x-1\""), ("Range", "bytes=0-1")], Selected::NotModified),
            (vec![("If-Match", "\"a\""), ("Range", "bytes=90-")], Selected::Failed),
            (vec![("If-Match", "\"x-1\""), ("Range", "bytes=90-")], Selected::Unsatisfiable),
            (vec![("If-None-Match", "\"a\""), ("Range", "bytes=1-2")], part(1, 2)),
        ] {
            assert_eq!(select(&fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn if_range_needs_the_very_same_state() {
        for value in ["\"x-1\"", THEN] {
            assert_eq!(select(&[("Range", "bytes=1-2"), ("If-Range", value)]), part(1, 2), "{value}");
        }
        for value in ["W/\"x-1\"", "\"a\"", "\"x-1\", \"x-1\"", BEFORE, AFTER, "", "nonsense"] {
            assert_eq!(select(&[("Range", "bytes=1-2"), ("If-Range", value)]), Selected::Whole, "{value}");
            assert_eq!(select(&[("Range", "bytes=90-"), ("If-Range", value)]), Selected::Whole, "{value}");
        }
        assert_eq!(select(&[("If-Range", "\"x-1\"")]), Selected::Whole);
        let twice = [("Range", "bytes=1-2"), ("If-Range", "\"x-1\""), ("If-Range", "\"x-1\"")];
        assert_eq!(select(&twice), Selected::Whole);
    }

    #[test]
    fn ranges_are_for_get_and_for_one_field() {
        assert_eq!(select(&[("Range", "bytes=1-2")]), part(1, 2));
        assert_eq!(select(&[("Range", "bytes=90-")]), Selected::Unsatisfiable);
        assert_eq!(select(&[("Range", "bytes=1-2"), ("Range", "bytes=3-4")]), Selected::Whole);
        assert_eq!(select_by("HEAD", &[("Range", "bytes=1-2")]), Selected::Whole);
        assert_eq!(select_by("HEAD", &[("Range", "bytes=90-")]), Selected::Whole);
        assert_eq!(select_by("HEAD", &[("If-None-Match", "*")]), Selected::NotModified);
    }
}
