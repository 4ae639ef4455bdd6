//! Character classes of RFC 9110 section 5.6 and RFC 3986, and functions that scan for them.

const fn class(members: &[u8], alphanumeric: bool) -> [bool; 256] {
    let mut table = [false; 256];
    let mut i = 0;
    while i < members.len() {
        table[members[i] as usize] = true;
        i += 1;
    }
    let mut byte = 0u8;
    while alphanumeric && byte < 128 {
        if byte.is_ascii_alphanumeric() {
            table[byte as usize] = true;
        }
        byte += 1;
    }
    table
}

/// tchar (RFC 9110 section 5.6.2).
static TOKEN: [bool; 256] = class(b"!#$%&'*+-.^_`|~", true);
/// reg-name without percent escapes (RFC 3986 section 3.2.2).
static REG_NAME: [bool; 256] = class(b"-._~!$&'()*+,;=", true);

pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| is_token_byte(b))
}

/// Returns the index of the first byte at or after `at` that is not allowed in a token, or the length.
pub(crate) fn token_end(bytes: &[u8], at: usize) -> usize {
    scan(bytes, at, |b| !is_token_byte(b))
}

pub(crate) fn is_reg_name_byte(byte: u8) -> bool {
    REG_NAME[usize::from(byte)]
}

/// Returns true for a byte that is not allowed in a field value: a control character other than HTAB (RFC 9110 section
/// 5.5).
fn breaks_value(byte: u8) -> bool {
    ((byte < 0x20) & (byte != b'\t')) | (byte == 0x7f)
}

/// Returns the index of the first byte at or after `at` that is not allowed in a field value, or the length.
pub(crate) fn value_end(bytes: &[u8], at: usize) -> usize {
    scan_wide(bytes, at, breaks_value)
}

/// Returns true if no byte of a field value or a reason phrase is a control character other than HTAB.
///
/// Values of applications are short, so eight bytes are tested at a time; the last eight may overlap the eight before.
/// If that test suspects a control character, the exact test decides.
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let last = bytes.last_chunk::<8>().filter(|_| !rest.is_empty());
    let is_clean = match (words, last) {
        ([], None) => !rest.iter().fold(false, |found, &byte| found | (byte < 0x20) | (byte == 0x7f)),
        (words, last) => !words.iter().chain(last).any(|&word| has_control(word)),
    };
    #[cfg(test)]
    examined::add(bytes.len());
    is_clean || value_end(bytes, 0) == bytes.len()
}

/// Returns true if one of the eight bytes may be a control character; HTAB counts as one. The subtraction may borrow
/// from the byte after a control character, so the result is right for the whole word, not for each byte.
fn has_control(bytes: [u8; 8]) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x80 * EACH;
    let word = u64::from_ne_bytes(bytes);
    let below_space = word.wrapping_sub(0x20 * EACH) & !word;
    let deletes = word ^ (0x7f * EACH);
    let is_delete = deletes.wrapping_sub(EACH) & !deletes;
    (below_space | is_delete) & TOPS != 0
}

/// Returns true for a byte that ends a request target: space, control, DEL, or `#`, which would introduce a fragment
/// (not allowed in requests, RFC 9112 section 3.2). Characters that browsers send raw although RFC 3986 demands an
/// escape are accepted.
fn breaks_target(byte: u8) -> bool {
    (byte <= 0x20) | (byte == 0x7f) | (byte == b'#')
}

/// Returns the index of the first byte at or after `at` that is not allowed in a request target, or the length.
pub(crate) fn target_end(bytes: &[u8], at: usize) -> usize {
    scan_wide(bytes, at, breaks_target)
}

/// Returns the index of the first line feed; `None` if there is none.
pub(crate) fn line_feed(bytes: &[u8]) -> Option<usize> {
    let found = memchr::memchr(b'\n', bytes);
    #[cfg(test)]
    examined::add(found.map_or(bytes.len(), |at| at + 1));
    found
}

fn scan(bytes: &[u8], at: usize, stop: impl Fn(u8) -> bool) -> usize {
    let end =
        bytes.get(at..).and_then(|rest| rest.iter().position(|&b| stop(b))).map_or(bytes.len(), |found| at + found);
    #[cfg(test)]
    examined::add((end + 1).saturating_sub(at));
    end
}

/// Like [`scan`], but in blocks of 16 bytes. Each block is tested without branches, which the compiler turns into
/// vector comparisons.
fn scan_wide(bytes: &[u8], mut at: usize, stop: impl Fn(u8) -> bool) -> usize {
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        if block.iter().fold(false, |found, &b| found | stop(b)) {
            break;
        }
        #[cfg(test)]
        examined::add(16);
        at += 16;
    }
    scan(bytes, at, stop)
}

pub(crate) fn is_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Removes optional white space at both ends (RFC 9110 section 5.6.3).
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|&b| !is_space(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|&b| !is_space(b)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// Returns the members of a comma-separated list, trimmed. Empty members are skipped (RFC 9110 section 5.6.1.2).
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim).filter(|member| !member.is_empty())
}

/// Reads a decimal number (1*DIGIT). Returns `None` for other text, and for a number that does not fit a signed 64-bit
/// integer, the type of file offsets.
pub(crate) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit).filter(|&n| i64::try_from(n).is_ok())
    })
}

/// The number of bytes that the functions above have examined. Tests use it to demand linear work.
#[cfg(test)]
pub(crate) mod examined {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn add(bytes: usize) {
        COUNT.set(COUNT.get() + bytes as u64);
    }

    /// Returns the count and resets it to 0.
    pub(crate) fn take() -> u64 {
        COUNT.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_scans_stop_where_the_narrow_ones_do() {
        for length in 0..if cfg!(miri) { 34 } else { 70 } {
            let mut bytes = vec![b'a'; length];
            assert_eq!(value_end(&bytes, 0), length);
            for stop in 0..length {
                bytes[stop] = 0x7f;
                for at in 0..=stop {
                    assert_eq!(value_end(&bytes, at), stop);
                    assert_eq!(target_end(&bytes, at), stop);
                }
                bytes[stop] = b'a';
            }
        }
    }

    #[test]
    fn classes_are_the_grammar_s() {
        let tokens: Vec<u8> = (0..=255).filter(|&b| is_token_byte(b)).collect();
        assert_eq!(tokens.len(), 15 + 62);
        assert!((0..=255u8).all(|b| is_value(&[b]) == (b == b'\t' || (b >= 0x20 && b != 0x7f))));
    }

    #[test]
    fn control_character_is_found_in_a_value_of_any_length_at_any_place() {
        for length in 1..if cfg!(miri) { 18 } else { 40 } {
            for filling in [b'a', b'\t', 0x20, 0x80, 0xff] {
                let mut bytes = vec![filling; length];
                for at in 0..length {
                    for byte in 0..=255 {
                        bytes[at] = byte;
                        let is_allowed = byte == b'\t' || (byte >= 0x20 && byte != 0x7f);
                        assert_eq!(is_value(&bytes), is_allowed, "{bytes:?}");
                    }
                    bytes[at] = filling;
                }
            }
        }
    }

    #[test]
    fn decimals_are_digits_that_fit() {
        assert_eq!(decimal(b"007"), Some(7));
        assert_eq!(decimal(b"9223372036854775807"), Some(i64::MAX as u64));
        for bad in [&b""[..], b"9223372036854775808", b"99999999999999999999999", b"+1", b"-1", b"1_0", b"0x1", b" 1"] {
            assert_eq!(decimal(bad), None, "{bad:?}");
        }
    }
}
