//! Conversion of a request path to the name of a file below a directory.
//!
//! A path is percent-decoded exactly once. Ambiguous paths are refused, not repaired: no dot segments are removed and
//! no slashes are merged. So no two paths mean the same file, and no order of steps can be wrong.

/// The path of a request, percent-decoded once.
#[derive(Clone, Copy, Debug)]
pub struct DecodedPath<'a> {
    bytes: &'a [u8],
    /// True if an escape is malformed, or stands for a slash or NUL. No file has such a path.
    is_unusable: bool,
}

/// The meaning of a path relative to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beneath<'a> {
    /// The path is the prefix itself, without a slash after it.
    Prefix,
    /// The path is the name of a file or directory.
    Name(FileName<'a>),
    /// No file is served for this path.
    Unusable,
}

/// The name of a file below a directory: segments separated by single slashes. A segment is not empty, does not begin
/// with a dot (except [`WELL_KNOWN`] at the top), and has no control character and no backslash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileName<'a> {
    /// The name without leading and trailing slashes; empty for the directory itself.
    pub bytes: &'a [u8],
    /// True if the path ended with a slash: it refers to a directory.
    pub is_directory: bool,
}

/// The only name with a leading dot that is served, at the top of a directory (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

impl<'a> DecodedPath<'a> {
    /// Decodes `raw`, the path of a request target. `scratch` holds the result if there is an escape.
    pub fn read(raw: &'a [u8], scratch: &'a mut Vec<u8>) -> Self {
        let Some(first) = memchr::memchr(b'%', raw) else { return Self { bytes: raw, is_unusable: false } };
        scratch.clear();
        scratch.extend_from_slice(&raw[..first]);
        let mut is_unusable = false;
        let mut rest = &raw[first..];
        while let [byte, tail @ ..] = rest {
            rest = tail;
            let mut byte = *byte;
            if byte == b'%' {
                let escaped = tail.split_first_chunk::<2>().and_then(|(digits, behind)| {
                    rest = behind;
                    Some(hex(digits[0])? << 4 | hex(digits[1])?)
                });
                byte = escaped.unwrap_or(0);
                // An escaped slash is not a separator, and no file name contains one. 0 marks NUL and malformed
                // escapes.
                is_unusable |= byte == b'/' || byte == 0;
            }
            scratch.push(byte);
        }
        Self { bytes: scratch, is_unusable }
    }

    /// Returns the part of the path below `prefix`; `None` if the path is elsewhere. `prefix` is empty, or begins with
    /// a slash and does not end with one.
    #[must_use]
    pub fn beneath(&self, prefix: &[u8]) -> Option<Beneath<'a>> {
        let rest = self.bytes.strip_prefix(prefix)?;
        Some(match rest {
            _ if self.is_unusable && matches!(rest, [] | [b'/', ..]) => Beneath::Unusable,
            [] => Beneath::Prefix,
            [b'/', name @ ..] => FileName::check(name).map_or(Beneath::Unusable, Beneath::Name),
            _ => return None,
        })
    }
}

impl<'a> FileName<'a> {
    fn check(name: &'a [u8]) -> Option<Self> {
        if name.is_empty() {
            return Some(Self { bytes: name, is_directory: true });
        }
        let (bytes, is_directory) = name.strip_suffix(b"/").map_or((name, false), |bytes| (bytes, true));
        let is_safe = bytes.split(|&b| b == b'/').enumerate().all(|(depth, segment)| is_segment(segment, depth));
        is_safe.then_some(Self { bytes, is_directory })
    }
}

fn is_segment(segment: &[u8], depth: usize) -> bool {
    let is_hidden = segment.first() == Some(&b'.') && !(depth == 0 && segment == WELL_KNOWN);
    !segment.is_empty() && !is_hidden && !segment.iter().any(|&b| b < 0x20 || b == 0x7f || b == b'\\')
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beneath(raw: &str, prefix: &str) -> Option<String> {
        let mut scratch = Vec::new();
        let path = DecodedPath::read(raw.as_bytes(), &mut scratch);
        path.beneath(prefix.as_bytes()).map(|beneath| match beneath {
            Beneath::Prefix => "prefix".to_owned(),
            Beneath::Unusable => "unusable".to_owned(),
            Beneath::Name(FileName { bytes, is_directory }) => {
                format!("{}{}", String::from_utf8_lossy(bytes), if is_directory { " directory" } else { "" })
            }
        })
    }

    #[test]
    fn a_path_beneath_the_prefix_is_a_name() {
        for (raw, expected) in [
            ("/s/a.css", "a.css"),
            ("/s/a/b/c", "a/b/c"),
            ("/s/a%20b", "a b"),
            ("/s/%e2%82%AC", "€"),
            ("/%73/a", "a"),
            ("/s/a%25b", "a%b"),
            ("/s/a%252fb", "a%2fb"),
            ("/s/a..b", "a..b"),
            ("/s/a.", "a."),
            ("/s/", " directory"),
            ("/s/a/", "a directory"),
            ("/s", "prefix"),
            ("/s/.well-known/a", ".well-known/a"),
            ("/s/a;b=c", "a;b=c"),
        ] {
            assert_eq!(beneath(raw, "/s").as_deref(), Some(expected), "{raw}");
        }
    }

    #[test]
    fn a_path_that_could_mean_another_file_is_unusable() {
        for raw in [
            "/s/../a",
            "/s/..",
            "/s/.",
            "/s/a/../b",
            "/s/a/./b",
            "/s/%2e%2e/a",
            "/s/%2E%2e%2fa",
            "/s//a",
            "/s//",
            "/s/a//",
            "/s/a%2fb",
            "/s%2fa/b/",
            "/s/a%00",
            "/s/a%0a",
            "/s/a%7f",
            "/s/a\\b",
            "/s/a%5cb",
            "/s/.hidden",
            "/s/a/.git/config",
            "/s/a/.well-known/b",
            "/s/.well-known2",
            "/s/...",
            "/s/%",
            "/s/%4",
            "/s/%zz",
            "/s/a%2",
            "/s/%%34%31",
        ] {
            let found = beneath(raw, "/s");
            assert!(matches!(found.as_deref(), Some("unusable") | None), "{raw}: {found:?}");
        }
    }

    #[test]
    fn a_prefix_ends_where_a_segment_ends() {
        for raw in ["/", "/st", "/st/a", "/S/a", "/a/s/b"] {
            assert_eq!(beneath(raw, "/s"), None, "{raw}");
        }
        assert_eq!(beneath("/a/b", "").as_deref(), Some("a/b"));
        assert_eq!(beneath("/", "").as_deref(), Some(" directory"));
    }
}
