//! Names of files whose content never changes, because the build put a hash of the content into the name.

/// The minimum length of a hash. Vite, webpack, Parcel and Rollup write 8 digits, Django 12, esbuild 8 (not
/// hexadecimal).
const HASH_MIN: usize = 8;

/// Returns true if the last component of `name` contains a hash between dots, dashes or underscores, as in
/// `app.55e7cbb9ba48.css`. A hash has at least eight hexadecimal digits, among them a letter and a decimal digit. So a
/// date or a number is not a hash.
///
/// A hash of other characters (`index-BZxK3d2a.js`) cannot be distinguished from a word. If a word were mistaken for a
/// hash, browsers would not request the file again for a year. For such names, the user gives a pattern ([`matches`]).
#[must_use]
pub fn has_content_hash(name: &[u8]) -> bool {
    let file = &name[memchr::memrchr(b'/', name).map_or(0, |slash| slash + 1)..];
    // The first piece is the actual name and the last one the extension. The hash must be between them.
    let pieces: Option<&[u8]> = memchr::memchr3(b'.', b'-', b'_', file)
        .zip(memchr::memrchr(b'.', file))
        .and_then(|(first, last)| file.get(first + 1..last));
    pieces.is_some_and(|pieces| pieces.split(|b| matches!(b, b'.' | b'-' | b'_')).any(is_hash))
}

fn is_hash(piece: &[u8]) -> bool {
    piece.len() >= HASH_MIN
        && piece.iter().all(u8::is_ascii_hexdigit)
        && piece.iter().any(u8::is_ascii_digit)
        && piece.iter().any(u8::is_ascii_alphabetic)
}

/// Returns true if `name` matches `pattern`, in which `*` stands for any characters except slashes, `**` for any
/// characters, and `?` for one character except a slash. The work grows like the length of `name` to the power of the
/// number of stars.
#[must_use]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [] => name.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=name.len()).any(|at| matches(rest, &name[at..])),
        [b'*', rest @ ..] => {
            let end = memchr::memchr(b'/', name).unwrap_or(name.len());
            (0..=end).any(|at| matches(rest, &name[at..]))
        }
        [b'?', rest @ ..] => name.split_first().is_some_and(|(&first, name)| first != b'/' && matches(rest, name)),
        [byte, rest @ ..] => name.split_first().is_some_and(|(first, name)| first == byte && matches(rest, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_stands_between_name_and_extension() {
        for name in [
            "app.55e7cbb9ba48.css",
            "css/main.8f3c2a1b.chunk.js",
            "index-1a2b3c4d5e6f7a8b.js",
            "logo_0123abcd.svg",
            "app.55E7CBB9.css.map",
        ] {
            assert!(has_content_hash(name.as_bytes()), "{name}");
        }
        for name in [
            "app.css",
            "report-20261122.pdf",
            "deadbeef.css",
            "a.deadbeef.css",
            "a.1234abc.js",
            "55e7cbb9ba48.css",
            "a.55e7cbb9ba48",
            "55e7cbb9ba48/app.css",
            "a.55e7cbb9ba48/app.css",
            "index-BZxK3d2a.js",
            "",
            ".",
            "-.",
        ] {
            assert!(!has_content_hash(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn stars_stop_at_slashes_and_double_stars_do_not() {
        for (pattern, name) in [
            ("assets/*", "assets/a.js"),
            ("**/*.woff2", "a/b/c.woff2"),
            ("**.js", "a/b.js"),
            ("a?c", "abc"),
            ("*-????????.js", "index-BZxK3d2a.js"),
            ("**", ""),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in
            [("assets/*", "assets/a/b.js"), ("*.js", "a/b.js"), ("a?c", "a/c"), ("a", "ab"), ("", "a")]
        {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }
}
