//! Byte ranges (RFC 9110 section 14).

use crate::grammar::list;

/// The maximum number of ranges in one response. A request for more gets the whole representation. Ranges are not
/// sorted or merged: other servers spent minutes on that (CVE-2011-3192, CVE-2025-62727).
pub const RANGES_MAX: usize = 8;

/// A range of bytes in a representation. `first <= last < length`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// The position of the first byte.
    pub first: u64,
    /// The position of the last byte (inclusive).
    pub last: u64,
}

impl ByteRange {
    /// Returns the length in bytes, at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// The byte ranges that a Range field requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// The field is to be ignored: the whole representation is sent.
    Whole,
    /// No byte of the ranges exists in the representation: 416.
    Unsatisfiable,
    /// The number of ranges, at least 1, and the ranges in the order requested.
    Some(usize, [ByteRange; RANGES_MAX]),
}

impl Ranges {
    /// Reads the ranges that `value` requests from a representation of `length` bytes. The field is ignored, as section
    /// 14.2 allows, if it is malformed, has another unit, lists more than [`RANGES_MAX`] ranges, or requests more bytes
    /// than there are.
    #[must_use]
    pub fn read(value: &[u8], length: u64) -> Self {
        let Some((unit, set)) = value.split_at_checked(6) else { return Ranges::Whole };
        if !unit.eq_ignore_ascii_case(b"bytes=") {
            return Ranges::Whole;
        }
        let mut ranges = [ByteRange::default(); RANGES_MAX];
        let mut count = 0;
        let mut asked = 0;
        let mut total = 0u64;
        for spec in list(set) {
            asked += 1;
            if asked > RANGES_MAX {
                return Ranges::Whole;
            }
            match Spec::read(spec, length) {
                Spec::Malformed => return Ranges::Whole,
                Spec::Outside => {}
                Spec::Within(range) => {
                    debug_assert!(range.first <= range.last && range.last < length, "a range is within its file");
                    total = total.saturating_add(range.len());
                    ranges[count] = range;
                    count += 1;
                }
            }
        }
        match (asked, count) {
            (0, _) => Ranges::Whole,
            // For an empty representation, a suffix range is satisfied by the whole of it (RFC 9110 section 14.1.2).
            (_, 0) if length == 0 && list(set).any(|spec| spec[0] == b'-' && !is_zero(&spec[1..])) => Ranges::Whole,
            (_, 0) => Ranges::Unsatisfiable,
            // The ranges overlap. A client must not be able to request the same bytes many times.
            _ if total > length => Ranges::Whole,
            _ => {
                debug_assert!((1..=RANGES_MAX).contains(&count), "{count} ranges");
                Ranges::Some(count, ranges)
            }
        }
    }
}

/// One range of the `Range` header field (RFC 9110 section 14.1.1).
enum Spec {
    Malformed,
    /// None of the requested bytes exists.
    Outside,
    Within(ByteRange),
}

impl Spec {
    fn read(spec: &[u8], length: u64) -> Self {
        let Some(dash) = memchr::memchr(b'-', spec) else { return Spec::Malformed };
        let (first, last) = (&spec[..dash], &spec[dash + 1..]);
        if first.is_empty() {
            return match position(last) {
                None => Spec::Malformed,
                Some(suffix) if suffix == 0 || length == 0 => Spec::Outside,
                Some(suffix) => Spec::Within(ByteRange { first: length.saturating_sub(suffix), last: length - 1 }),
            };
        }
        let last = if last.is_empty() { Some(u64::MAX) } else { position(last) };
        match (position(first), last) {
            (Some(first), Some(last)) if first <= last && first < length => {
                Spec::Within(ByteRange { first, last: last.min(length - 1) })
            }
            (Some(first), Some(last)) if first <= last => Spec::Outside,
            _ => Spec::Malformed,
        }
    }
}

/// Reads 1*DIGIT. A number that exceeds the largest value becomes that value. Returns `None` for other text.
fn position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

fn is_zero(digits: &[u8]) -> bool {
    digits.iter().all(|&b| b == b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str, length: u64) -> Vec<(u64, u64)> {
        match Ranges::read(value.as_bytes(), length) {
            Ranges::Some(count, ranges) => ranges[..count].iter().map(|range| (range.first, range.last)).collect(),
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn ranges_are_cut_at_the_end_of_the_representation() {
        for (value, expected) in [
            ("bytes=0-0", vec![(0, 0)]),
            ("bytes=0-9", vec![(0, 9)]),
            ("Bytes=5-", vec![(5, 9)]),
            ("bytes=5-99999999999999999999999999", vec![(5, 9)]),
            ("bytes=-3", vec![(7, 9)]),
            ("bytes=-30", vec![(0, 9)]),
            ("bytes=0-0,-1", vec![(0, 0), (9, 9)]),
            ("bytes=3-4 , ,0-1,", vec![(3, 4), (0, 1)]),
            ("bytes=1-2,2-3", vec![(1, 2), (2, 3)]),
            ("bytes=20-30,1-1", vec![(1, 1)]),
            ("bytes=-0,1-1", vec![(1, 1)]),
            ("bytes=007-008", vec![(7, 8)]),
            ("bytes=0-0,1-1,2-2,3-3,4-4,5-5,6-6,7-7", (0..8).map(|at| (at, at)).collect()),
        ] {
            assert_eq!(read(value, 10), expected, "{value}");
        }
    }

    #[test]
    fn what_lies_outside_is_unsatisfiable() {
        for value in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99999999999999999999999-", "bytes=10-,11-"] {
            assert_eq!(Ranges::read(value.as_bytes(), 10), Ranges::Unsatisfiable, "{value}");
        }
        assert_eq!(Ranges::read(b"bytes=0-", 0), Ranges::Unsatisfiable);
        assert_eq!(Ranges::read(b"bytes=-5", 0), Ranges::Whole);
        assert_eq!(Ranges::read(b"bytes=-0", 0), Ranges::Unsatisfiable);
    }

    #[test]
    fn what_is_malformed_or_too_much_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=1",
            "bytes=2-1",
            "bytes=1-2-3",
            "bytes=--1",
            "bytes =0-1",
            "items=0-1",
            "bytes=0 -1",
            "bytes=0- 1",
            "bytes=+1-2",
            "bytes=0x1-2",
            "bytes=0-1,a",
            "bytes=0-9,0-0",
            "bytes=0-0,1-1,2-2,3-3,4-4,5-5,6-6,7-7,8-8",
            "bytes=0-1;1-2",
        ] {
            assert_eq!(Ranges::read(value.as_bytes(), 10), Ranges::Whole, "{value:?}");
        }
    }
}
