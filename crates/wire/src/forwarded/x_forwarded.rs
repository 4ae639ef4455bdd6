//! The fields `X-Forwarded-*`. No standard defines them; this code follows what proxies write.

use super::{Found, Lines, Node, Trust, is_https};
use crate::grammar::trim;
use crate::message::{Fault, is_host};

/// Returns the members of all fields called `name` (in lower case) from the last to the first. The fields form one
/// list.
fn from_the_right<'a>(lines: Lines<'a>, name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    let members = |value: &'a [u8]| value.rsplit(|&byte| byte == b',').map(trim);
    lines.values_from_the_right(name).flat_map(members).filter(|member| !member.is_empty())
}

/// Reads the X-Forwarded fields of a request that a trusted proxy sent.
pub(super) fn read<'a>(trust: &Trust, lines: Lines<'a>) -> Result<Found<'a>, Fault> {
    let mut found = Found::default();
    // The index, counted from the right, of the entry at which the search ended, and the number of entries.
    let (mut hop, mut hops) = (0, 0);
    let mut is_over = false;
    for entry in from_the_right(lines, b"x-forwarded-for") {
        if !is_over {
            hop = hops;
            let node = Node::read(entry);
            if node != Node::Hidden {
                found.client = Some(node);
            }
            is_over = !trust.passes(node);
        }
        hops += 1;
    }
    found.is_https = scheme(lines, hop, hops)?;
    if trust.host
        && let Some(host) = own_entry(|| from_the_right(lines, b"x-forwarded-host"), hop, hops)?
    {
        found.host = Some(Some(host).filter(|host| !host.is_empty() && is_host(host)).ok_or(Fault::ForwardedInvalid)?);
    }
    if trust.prefix {
        found.prefix = prefix(from_the_right(lines, b"x-forwarded-prefix"))?;
    }
    Ok(found)
}

/// Returns the entry of a list for the hop `hop` of `hops`, counted from the right; `None` if the list is empty.
///
/// A proxy appends one entry to each list, or replaces the list by one entry. So a list of one entry applies to all
/// hops, and a list that is not longer than the address list has one entry for each hop from the right. In any other
/// list it is unknown which hop an entry belongs to; then all entries must be equal.
fn own_entry<'a, I: Iterator<Item = &'a [u8]>>(
    list: impl Fn() -> I,
    hop: usize,
    hops: usize,
) -> Result<Option<&'a [u8]>, Fault> {
    let Some(last) = list().next() else { return Ok(None) };
    if hop == 0 && list().nth(1).is_none() {
        return Ok(Some(last));
    }
    let length = list().count();
    if length == 1 || list().all(|entry| entry.eq_ignore_ascii_case(last)) {
        return Ok(Some(last));
    }
    if length > hops {
        return Err(Fault::ForwardedContradictory);
    }
    list().nth(hop).map(Some).ok_or(Fault::ForwardedContradictory)
}

/// A function that reads a field value as a scheme: true for https.
type ReadScheme = dyn Fn(&[u8]) -> Result<bool, Fault>;

/// Returns true if the client used https; `None` if no field reports it. Proxies use three fields for this, which must
/// not contradict each other.
fn scheme(lines: Lines<'_>, hop: usize, hops: usize) -> Result<Option<bool>, Fault> {
    let mut scheme = own_entry(|| from_the_right(lines, b"x-forwarded-proto"), hop, hops)?.map(is_https).transpose()?;
    let protocol = |value: &[u8]| if value.eq_ignore_ascii_case(b"ssl") { Ok(true) } else { is_https(value) };
    let ssl = |value: &[u8]| match value {
        b"on" | b"On" | b"ON" => Ok(true),
        b"off" | b"Off" | b"OFF" => Ok(false),
        _ => Err(Fault::ForwardedInvalid),
    };
    let others: [(&'static [u8], &ReadScheme); 2] = [(b"x-forwarded-protocol", &protocol), (b"x-forwarded-ssl", &ssl)];
    for (name, read) in others {
        if !lines.has(name) {
            continue;
        }
        if let Some(entry) = own_entry(|| from_the_right(lines, name), hop, hops)? {
            let other = read(entry)?;
            if *scheme.get_or_insert(other) != other {
                return Err(Fault::ForwardedContradictory);
            }
        }
    }
    Ok(scheme)
}

/// Returns the prefix of the application's paths. If there are several entries, they must be equal.
fn prefix<'a>(mut entries: impl Iterator<Item = &'a [u8]>) -> Result<Option<&'a [u8]>, Fault> {
    let Some(prefix) = entries.next() else { return Ok(None) };
    if entries.any(|other| other != prefix) {
        return Err(Fault::ForwardedContradictory);
    }
    let is_plain = |&byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'\\' | b'"' | b'<' | b'>');
    // A link that begins with two slashes leads to another host.
    let has_double_slash = prefix.windows(2).any(|pair| pair == b"//");
    if prefix[0] != b'/' || has_double_slash || !prefix.iter().all(is_plain) {
        return Err(Fault::ForwardedInvalid);
    }
    Ok(Some(prefix.strip_suffix(b"/").unwrap_or(prefix)))
}
