//! The field `Forwarded` (RFC 7239).
//!
//! ```text
//! Forwarded: for=192.0.2.60;proto=http, for="[2001:db8::1]:4711";host="example.org"
//! ```
//!
//! The elements are parsed from the right, in the order of the search. If they were parsed from the left, a client
//! could send an open quotation mark to hide what the proxy appends.

use super::{Found, Lines, Node, Trust, is_https};
use crate::grammar::{is_token, trim};
use crate::message::{Fault, is_host};
use std::borrow::Cow;

/// One element of the list, written by one proxy.
#[derive(Debug, Default)]
struct Element<'a> {
    node: Option<Node>,
    is_https: Option<bool>,
    host: Option<&'a [u8]>,
}

/// Reads the field of a request that a trusted proxy sent.
pub(super) fn read<'a>(trust: &Trust, lines: Lines<'a>) -> Result<Found<'a>, Fault> {
    let mut found = Found::default();
    for value in lines.values_from_the_right(b"forwarded") {
        let mut rest = Some(value);
        while let Some(value) = rest {
            let (before, text) = last_element(value)?;
            rest = before;
            if text.is_empty() {
                continue;
            }
            let element = element(text)?;
            let node = element.node.unwrap_or(Node::Hidden);
            if node != Node::Hidden {
                found.client = Some(node);
            }
            // The scheme and the host come from the element at which the search ends.
            found.is_https = element.is_https;
            found.host = element.host;
            if !trust.passes(node) {
                return checked(found, trust);
            }
        }
    }
    checked(found, trust)
}

fn checked<'a>(found: Found<'a>, trust: &Trust) -> Result<Found<'a>, Fault> {
    match found.host {
        Some(host) if trust.host && (host.is_empty() || !is_host(host)) => Err(Fault::ForwardedInvalid),
        _ => Ok(found),
    }
}

/// Returns the last element of a list, and the bytes before its comma.
fn last_element(value: &[u8]) -> Result<(Option<&[u8]>, &[u8]), Fault> {
    let mut at = value.len();
    while at > 0 {
        at -= 1;
        match value[at] {
            b',' => return Ok((Some(&value[..at]), trim(&value[at + 1..]))),
            b'"' => at = opening_quote(&value[..at]).ok_or(Fault::ForwardedInvalid)?,
            _ => {}
        }
    }
    Ok((None, trim(value)))
}

/// Returns the position of the opening quote. `text` ends with the content of the quoted string.
fn opening_quote(text: &[u8]) -> Option<usize> {
    let mut end = text.len();
    loop {
        let at = memchr::memrchr(b'"', &text[..end])?;
        let backslashes = text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
        if backslashes % 2 == 0 {
            return Some(at);
        }
        end = at - backslashes;
    }
}

/// Reads forwarded-element = [ forwarded-pair ] *( ";" [ forwarded-pair ] ).
fn element(text: &[u8]) -> Result<Element<'_>, Fault> {
    let mut element = Element::default();
    let (mut has_for, mut has_proto, mut has_host) = (false, false, false);
    let mut rest = text;
    loop {
        let (pair, after) = first_pair(rest)?;
        if let Some((name, value)) = pair {
            let seen = if name.eq_ignore_ascii_case(b"for") {
                element.node = Some(Node::read_rfc7239(&unquoted(value)?));
                &mut has_for
            } else if name.eq_ignore_ascii_case(b"proto") {
                element.is_https = Some(is_https(&unquoted(value)?)?);
                &mut has_proto
            } else if name.eq_ignore_ascii_case(b"host") {
                // A valid host contains no character that needs an escape.
                element.host = Some(match unquoted(value)? {
                    Cow::Borrowed(host) => host,
                    Cow::Owned(_) => return Err(Fault::ForwardedInvalid),
                });
                &mut has_host
            } else {
                unquoted(value)?;
                &mut false
            };
            // "Each parameter MUST NOT occur more than once per field-value" (section 4).
            if std::mem::replace(seen, true) {
                return Err(Fault::ForwardedContradictory);
            }
        }
        match after {
            Some(after) => rest = after,
            None => return Ok(element),
        }
    }
}

type Pair<'a> = (&'a [u8], &'a [u8]);

/// Returns the first pair of an element (`None` if it is empty), and the bytes after its semicolon.
fn first_pair(text: &[u8]) -> Result<(Option<Pair<'_>>, Option<&[u8]>), Fault> {
    let mut is_quoted = false;
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'\\' if is_quoted => at += 1,
            b'"' => is_quoted = !is_quoted,
            b';' if !is_quoted => break,
            _ => {}
        }
        at += 1;
    }
    let end = at.min(text.len());
    let after = text.get(end + 1..).filter(|_| end < text.len());
    let pair = trim(&text[..end]);
    if pair.is_empty() {
        return Ok((None, after));
    }
    let equals = memchr::memchr(b'=', pair).ok_or(Fault::ForwardedInvalid)?;
    let (name, value) = (&pair[..equals], &pair[equals + 1..]);
    if is_token(name) { Ok((Some((name, value)), after)) } else { Err(Fault::ForwardedInvalid) }
}

/// Returns the content of a token or a quoted string. A value with a colon or brackets that should be quoted, but is
/// not, is accepted, because it is unambiguous.
fn unquoted(value: &[u8]) -> Result<Cow<'_, [u8]>, Fault> {
    let Some(inner) = value.strip_prefix(b"\"") else {
        let is_plain = |&byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=');
        let is_valid = !value.is_empty() && value.iter().all(is_plain);
        return if is_valid { Ok(Cow::Borrowed(value)) } else { Err(Fault::ForwardedInvalid) };
    };
    let inner = inner.strip_suffix(b"\"").ok_or(Fault::ForwardedInvalid)?;
    if memchr::memchr2(b'\\', b'"', inner).is_none() {
        return Ok(Cow::Borrowed(inner));
    }
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => text.push(*bytes.next().ok_or(Fault::ForwardedInvalid)?),
            b'"' => return Err(Fault::ForwardedInvalid),
            _ => text.push(byte),
        }
    }
    Ok(Cow::Owned(text))
}
