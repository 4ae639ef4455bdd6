//! Content codings (RFC 9110 section 8.4.1), and those that a client accepts (section 12.5.3).

use crate::grammar::{list, trim};

/// The content coding of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Coding {
    /// Not encoded.
    Identity,
    /// gzip (RFC 1952).
    Gzip,
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Coding {
    /// All variants, each at the index of its numeric value.
    pub const ALL: [Self; 4] = [Self::Identity, Self::Gzip, Self::Brotli, Self::Zstd];

    /// Returns the token for Content-Encoding; empty for `Identity`.
    #[must_use]
    pub fn token(self) -> &'static str {
        ["", "gzip", "br", "zstd"][self as usize]
    }

    /// Returns the suffix of an encoded file's name: `app.js.gz` is stored beside `app.js`.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        ["", ".gz", ".br", ".zst"][self as usize]
    }

    fn named(token: &[u8]) -> Option<Self> {
        let is = |name: &[u8]| token.eq_ignore_ascii_case(name);
        match token.len() {
            2 if is(b"br") => Some(Self::Brotli),
            4 if is(b"gzip") => Some(Self::Gzip),
            4 if is(b"zstd") => Some(Self::Zstd),
            // An equivalent of gzip (RFC 9110 section 8.4.1.3).
            6 if is(b"x-gzip") => Some(Self::Gzip),
            8 if is(b"identity") => Some(Self::Identity),
            _ => None,
        }
    }
}

/// The weights of an Accept-Encoding field, in thousandths.
#[derive(Clone, Copy, Debug)]
pub struct AcceptedCodings {
    weights: [Option<u16>; Coding::ALL.len()],
    any: Option<u16>,
}

impl AcceptedCodings {
    /// Reads the values of all Accept-Encoding fields. Without any, only unencoded content is accepted. Malformed
    /// members are ignored. If a coding is repeated, the first weight is used.
    pub fn read<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut accepted = Self { weights: [None; Coding::ALL.len()], any: None };
        for member in values.flat_map(list) {
            let mut parts = member.splitn(2, |&b| b == b';');
            let token = trim(parts.next().unwrap_or_default());
            let Some(weight) = parts.next().map_or(Some(1000), weight) else { continue };
            if token == b"*" {
                accepted.any.get_or_insert(weight);
            } else if let Some(coding) = Coding::named(token) {
                accepted.weights[coding as usize].get_or_insert(weight);
            }
        }
        accepted
    }

    /// Returns the weight of `coding` in thousandths; 0 if it is not acceptable.
    fn weight(&self, coding: Coding) -> u16 {
        self.weights[coding as usize].or(self.any).unwrap_or(0)
    }

    /// Chooses one of the `available` codings, which are given with the length of the encoded file in bytes: the one
    /// with the highest weight, and among equals the shortest. Unencoded content is acceptable unless the client
    /// excludes it, and ranks after the codings that the client lists. If nothing is acceptable, the client gets
    /// unencoded content too (RFC 9110 section 12.5.3).
    #[must_use]
    pub fn choose(&self, available: impl Iterator<Item = (Coding, u64)>) -> Coding {
        let mut best = (0, u64::MAX);
        let mut chosen = Coding::Identity;
        for (coding, length) in available {
            let weight = match coding {
                Coding::Identity => self.weights[0].or(self.any).unwrap_or(1),
                _ => self.weight(coding),
            };
            if weight > best.0 || weight == best.0 && weight > 0 && length < best.1 {
                best = (weight, length);
                chosen = coding;
            }
        }
        chosen
    }
}

/// Reads `q=` and a qvalue, in thousandths (RFC 9110 section 12.4.2).
fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', value @ ..] = trim(parameter) else { return None };
    let (whole, decimals) = match value {
        [whole @ (b'0' | b'1')] => (*whole, &b""[..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        _ => return None,
    };
    let mut thousandths = u16::from(whole - b'0') * 1000;
    let mut unit = 100;
    for digit in decimals {
        if !digit.is_ascii_digit() {
            return None;
        }
        thousandths += u16::from(digit - b'0') * unit;
        unit /= 10;
    }
    (thousandths <= 1000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of the tests: gzip is the longest encoded one, Zstandard the shortest.
    const ALL: [(Coding, u64); 4] =
        [(Coding::Identity, 100), (Coding::Gzip, 50), (Coding::Brotli, 41), (Coding::Zstd, 40)];

    fn chosen(value: &str) -> &'static str {
        AcceptedCodings::read([value.as_bytes()].into_iter()).choose(ALL.into_iter()).token()
    }

    #[test]
    fn the_highest_weight_decides_and_then_the_length() {
        for (value, expected) in [
            ("gzip", "gzip"),
            ("gzip, deflate, br, zstd", "zstd"),
            ("gzip, deflate, br", "br"),
            ("GZip;q=0.5, BR;Q=0.4", "gzip"),
            ("x-gzip", "gzip"),
            ("gzip;q=0", ""),
            ("br;q=1.0, gzip;q=0.8, *;q=0.1", "br"),
            ("*", "zstd"),
            ("*;q=0.5, zstd;q=0", "br"),
            ("identity", ""),
            ("identity;q=0.5, gzip;q=0.2", ""),
            ("identity;q=0.5, gzip;q=0.5", "gzip"),
            ("identity;q=0, gzip;q=0.001", "gzip"),
            ("*;q=0", ""),
            ("", ""),
            ("deflate", ""),
            (" gzip ; q=1 ", "gzip"),
            ("gzip;q=1.000", "gzip"),
            (", ,gzip,", "gzip"),
            ("gzip;q=0, gzip", ""),
        ] {
            assert_eq!(chosen(value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_malformed_member_counts_for_nothing() {
        for value in
            ["gzip;q=2", "gzip;q=1.001", "gzip;q=0.1234", "gzip;q", "gzip;q=", "gzip;q=-1", "gzip;q=a", "gz ip"]
        {
            assert_eq!(chosen(value), "", "{value:?}");
        }
    }

    #[test]
    fn fields_are_one_list_and_none_is_no_encoding() {
        let none = AcceptedCodings::read(std::iter::empty());
        assert_eq!(none.choose(ALL.into_iter()), Coding::Identity);
        let two = AcceptedCodings::read([&b"gzip;q=0.1"[..], b"br"].into_iter());
        assert_eq!(two.choose(ALL.into_iter()), Coding::Brotli);
        assert_eq!(two.choose(ALL[..2].iter().copied()), Coding::Gzip);
    }
}
