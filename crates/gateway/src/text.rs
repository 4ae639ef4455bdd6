//! Text for people and for logs: escapes and times. Uses no Python.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

/// Escapes `bytes` for use between quotes in a log line; see [`push_escaped`].
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = push_escaped(Some(bytes), &mut out);
    out
}

/// Appends a client's text with Apache's escapes, so that it can neither end the quotes or the line nor control a
/// terminal. Appends `-` for `None`.
pub(crate) fn push_escaped(bytes: Option<&[u8]>, out: &mut String) -> std::fmt::Result {
    let Some(bytes) = bytes else { return out.write_str("-") };
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b'\t' => out.push_str("\\t"),
            0x20..0x7f => out.push(char::from(byte)),
            _ => write!(out, "\\x{byte:02x}")?,
        }
    }
    Ok(())
}

/// Returns a time in the form `[20/Nov/2026:19:00:00 +0000]`. It is cut from the HTTP date `Fri, 20 Nov 2026 19:00:00
/// GMT`.
pub(crate) fn common_log_time(at: SystemTime) -> String {
    let date = httpdate::fmt_http_date(at);
    format!("[{}/{}/{}:{} +0000]", &date[5..7], &date[8..11], &date[12..16], &date[17..25])
}

/// Returns a time in the form `2026-11-20T19:00:00.123456Z`. `since` is the same time as a duration since the epoch.
pub(crate) fn rfc3339(at: SystemTime, since: Duration) -> String {
    let date = httpdate::fmt_http_date(at);
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == &date[8..11]).map_or(0, |index| index + 1);
    format!("{}-{month:02}-{}T{}.{:06}Z", &date[12..16], &date[5..7], &date[17..25], since.subsec_micros())
}

/// Returns a client's address and port as text for a message. The address of a Unix socket is empty.
pub(crate) fn client(address: &str, port: &str) -> String {
    match address {
        "" => "on a Unix socket".to_owned(),
        address if port.is_empty() => address.to_owned(),
        address if address.contains(':') => format!("[{address}]:{port}"),
        address => format!("{address}:{port}"),
    }
}

/// Decodes percent escapes. Leaves a `%` that begins no valid escape as it is.
pub(crate) fn percent_decoded(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, tail @ ..] = rest {
        let escape = match tail {
            [high, low, after @ ..] if *first == b'%' => hex(*high).zip(hex(*low)).map(|(h, l)| (h << 4 | l, after)),
            _ => None,
        };
        let (byte, after) = escape.unwrap_or((*first, tail));
        decoded.push(byte);
        rest = after;
    }
    decoded
}

fn hex(digit: u8) -> Option<u8> {
    // The value of a hexadecimal digit is below 16, so the conversion cannot fail.
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn test_escaped_text_cannot_end_its_line_or_its_quotes() {
        assert_eq!(escaped(b"a\"b\\c\td\n\x1b[2J\x7f\xc3\xa9"), r#"a\"b\\c\td\x0a\x1b[2J\x7f\xc3\xa9"#);
        assert_eq!(escaped(b""), "");
    }

    #[test]
    fn test_absent_text_is_a_dash() {
        let mut out = "x ".to_owned();
        push_escaped(None, &mut out).unwrap();
        assert_eq!(out, "x -");
    }

    #[test]
    fn test_times_have_the_form_of_their_logs() {
        let since = Duration::new(1_784_808_000, 123_456_789);
        let at = UNIX_EPOCH + since;
        assert_eq!(common_log_time(at), "[23/Jul/2026:12:00:00 +0000]");
        assert_eq!(rfc3339(at, since), "2026-07-23T12:00:00.123456Z");
    }

    #[test]
    fn test_client_shows_ipv6_in_brackets() {
        assert_eq!(client("127.0.0.1", "80"), "127.0.0.1:80");
        assert_eq!(client("::1", "80"), "[::1]:80");
        assert_eq!(client("", ""), "on a Unix socket");
        // A proxy may give only the address.
        assert_eq!(client("::1", ""), "::1");
    }
}
