//! Request targets (RFC 9112 section 3.2) and hosts (RFC 9110 section 7.2).

use super::fault::Fault;
use crate::grammar::is_reg_name_byte;

/// The form of a target. The authority form is missing, because only CONNECT has it, which is refused earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `*`, only with OPTIONS
    Asterisk,
}

/// A request target and its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The target as received.
    pub raw: &'a [u8],
    /// The form.
    pub form: Form,
    /// The host and port of an absolute URI, which take precedence over Host (RFC 9112 section 3.2.2); empty in the
    /// other forms.
    pub authority: &'a [u8],
    /// The path with its percent escapes; empty only in the asterisk form, which has none.
    pub path: &'a [u8],
    /// The bytes after the first `?`, if there is one.
    pub query: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// Parses a target. [`target_end`](crate::grammar::target_end) must have accepted its bytes.
    pub(crate) fn read(raw: &'a [u8], method: &[u8]) -> Result<Self, Fault> {
        if raw.first() == Some(&b'/') {
            return Ok(Self::with(raw, Form::Origin, b"", raw));
        }
        if raw == b"*" {
            return if method == b"OPTIONS" {
                Ok(Self { raw, form: Form::Asterisk, authority: b"", path: b"", query: None })
            } else {
                Err(Fault::AsteriskWithoutOptions)
            };
        }
        let rest = scheme_stripped(raw).ok_or(Fault::TargetFormInvalid)?;
        let end = rest.iter().position(|&b| b == b'/' || b == b'?').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // An absolute URI without a host is malformed: RFC 9110 section 4.2.1.
        if matches!(authority, [] | [b':', ..]) || !is_host(authority) {
            return Err(Fault::TargetFormInvalid);
        }
        Ok(Self::with(raw, Form::Absolute, authority, path))
    }

    fn with(raw: &'a [u8], form: Form, authority: &'a [u8], path_and_query: &'a [u8]) -> Self {
        let (path, query) = match memchr::memchr(b'?', path_and_query) {
            Some(mark) => (&path_and_query[..mark], Some(&path_and_query[mark + 1..])),
            None => (path_and_query, None),
        };
        // An absolute URI may omit its path, which means "/" (RFC 9112 section 3.2.1).
        Self { raw, form, authority, path: if path.is_empty() { b"/" } else { path }, query }
    }
}

fn scheme_stripped(raw: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| {
        let (start, rest) = raw.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// Returns true if `value` is uri-host [ ":" port ] (RFC 9110 section 7.2, RFC 3986 section 3.2.2). An empty value is
/// valid, because a reg-name may be empty. A port may have any number of digits: the grammar does not limit them, and
/// this server does not connect to it.
pub(crate) fn is_host(value: &[u8]) -> bool {
    let (host_valid, rest) = if value.first() == Some(&b'[') {
        let Some(end) = value.iter().position(|&b| b == b']') else { return false };
        (is_ip_literal(&value[1..end]), &value[end + 1..])
    } else {
        let end = value.iter().position(|&b| b == b':').unwrap_or(value.len());
        (is_reg_name(&value[..end]), &value[end..])
    };
    host_valid
        && match rest {
            [] => true,
            [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
            _ => false,
        }
}

fn is_ip_literal(inside: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(inside) else { return false };
    text.parse::<core::net::Ipv6Addr>().is_ok() || is_ip_future(inside)
}

/// Returns true if `inside` is "v" 1*HEXDIG "." 1*( unreserved / sub-delims / ":" ).
fn is_ip_future(inside: &[u8]) -> bool {
    let Some(dot) = inside.iter().position(|&b| b == b'.') else { return false };
    let (version, address) = (&inside[..dot], &inside[dot + 1..]);
    matches!(version, [b'v' | b'V', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit))
        && !address.is_empty()
        && address.iter().all(|&b| is_reg_name_byte(b) || b == b':')
}

fn is_reg_name(name: &[u8]) -> bool {
    let mut rest = name;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => after,
            (&byte, _) if is_reg_name_byte(byte) => tail,
            _ => return false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_follow_the_grammar() {
        for good in [
            "",
            "a",
            "a.b:80",
            "a:",
            "1.2.3.4:1",
            "[::1]",
            "[::1]:80",
            "[v1.a:b]",
            "H%4fSt",
            "a_b-c~d",
            "a:000080",
            "a:99999999999",
        ] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in
            ["a b", "a/b", "a@b", "::1", "[::1", "[::1]x", "[]", "a:b", "a:1:2", "%4", "%zz", "{", "a:+80", "a:8 0"]
        {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn an_absolute_uri_may_leave_its_path_out() {
        let target = Target::read(b"http://a.b?q=1", b"GET").expect("valid");
        assert_eq!((target.authority, target.path, target.query), (&b"a.b"[..], &b"/"[..], Some(&b"q=1"[..])));
    }
}
