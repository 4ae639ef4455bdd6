//! The invariants of static files: the name that a path gives is beneath its directory, and no two paths that are
//! written differently after decoding give one name; ranges lie in the representation.

use wire::files::{Beneath, ByteRange, DecodedPath, Ranges};

/// Checks the path of a request in `data`, for no prefix and for one.
pub fn check_path(data: &[u8]) {
    let (mut scratch, mut again) = (Vec::new(), Vec::new());
    for prefix in [&b""[..], b"/static", b"/a/b"] {
        let Some(Beneath::Name(name)) = DecodedPath::read(data, &mut scratch).beneath(prefix) else { continue };
        let segments: Vec<_> = name.bytes.split(|&byte| byte == b'/').collect();
        assert!(!name.bytes.starts_with(b"/") && !name.bytes.ends_with(b"/"));
        assert!(name.is_directory || !name.bytes.is_empty());
        for (depth, segment) in segments.iter().enumerate().filter(|_| !name.bytes.is_empty()) {
            let is_well_known = depth == 0 && *segment == b".well-known";
            assert!(!segment.is_empty() && (is_well_known || !segment.starts_with(b".")), "{segment:?} is hidden");
            assert!(!segment.iter().any(|&byte| byte < 0x20 || byte == 0x7f || byte == b'\\'));
        }
        // The decoded path is the prefix and the name, and nothing else: encoded in full, it gives the same name.
        let mut decoded = [prefix, b"/", name.bytes].concat();
        if name.is_directory && !name.bytes.is_empty() {
            decoded.push(b'/');
        }
        let mut encoded = Vec::with_capacity(3 * decoded.len());
        for &byte in &decoded {
            match byte {
                b'/' => encoded.push(byte),
                _ => encoded.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]),
            }
        }
        let found = DecodedPath::read(&encoded, &mut again).beneath(prefix);
        assert_eq!(found, Some(Beneath::Name(name)), "{}", encoded.escape_ascii());
    }
}

/// Returns the hexadecimal digit of a number below 16.
fn digit(number: u8) -> u8 {
    b"0123456789abcdef"[usize::from(number)]
}

/// Checks the value of a Range field in `data`, for representations of several lengths.
pub fn check_ranges(data: &[u8]) {
    for length in [0, 1, 100, u64::from(u32::MAX), u64::MAX] {
        if let Ranges::Some(count, ranges) = Ranges::read(data, length) {
            let ranges = &ranges[..count];
            assert!(!ranges.is_empty(), "a range is asked for");
            for ByteRange { first, last } in ranges {
                assert!(first <= last && *last < length, "{first}-{last} of {length}");
            }
        }
    }
}
