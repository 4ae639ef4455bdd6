//! Which of several applications a request is for: its host and the beginning of its path say. No Python here.
//!
//! The rule is that of `kirsch.config.mounts.combine`, which calls WSGI applications alone. Here the engine is locked,
//! and has to know who serves a request before any Python runs.

use crate::text::percent_decoded;
use memchr::memrchr;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use wire::message::{Form, RequestHead};

/// Prefixes of paths, decoded, the longest first, with the indices of their applications.
type Prefixes = Vec<(Box<[u8]>, usize)>;

/// The places of all applications.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// By host; `*.example.org` is there as written.
    hosts: HashMap<Box<[u8]>, Prefixes>,
    anywhere: Prefixes,
}

impl Mounts {
    /// `places` are host (empty: any) and prefix of each application. A prefix is empty or begins with a slash, and does not
    /// end with one.
    pub(crate) fn new<'a>(places: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut mounts = Self::default();
        for (index, (host, prefix)) in places.into_iter().enumerate() {
            let prefixes = if host.is_empty() {
                &mut mounts.anywhere
            } else {
                mounts.hosts.entry(host.as_bytes().into()).or_default()
            };
            prefixes.push((prefix.as_bytes().into(), index));
        }
        for prefixes in mounts.hosts.values_mut().chain([&mut mounts.anywhere]) {
            prefixes.sort_by_key(|(prefix, _)| Reverse(prefix.len()));
        }
        mounts
    }

    /// The index of the application of a request; `None` if no place fits.
    pub(crate) fn of(&self, head: &RequestHead<'_>) -> Option<usize> {
        let path = if head.target.form == Form::Asterisk { b"*" } else { head.target.path };
        let path =
            if memchr::memchr(b'%', path).is_some() { Cow::Owned(percent_decoded(path)) } else { Cow::Borrowed(path) };
        if self.hosts.is_empty() { find(&self.anywhere, &path) } else { self.find(&host(head), &path) }
    }

    /// A host outweighs a path: its own name, then `*.` and what is behind its dots, the longest first, then any.
    fn find(&self, host: &[u8], path: &[u8]) -> Option<usize> {
        let name = without_port(host).to_ascii_lowercase();
        let name = name.strip_suffix(b".").unwrap_or(&name);
        let own = self.hosts.get(name).and_then(|prefixes| find(prefixes, path));
        let by_star = || {
            let dots = memchr::memchr_iter(b'.', name);
            dots.filter_map(|dot| self.hosts.get(&[b"*", &name[dot..]].concat()[..]))
                .find_map(|prefixes| find(prefixes, path))
        };
        own.or_else(by_star).or_else(|| find(&self.anywhere, path))
    }
}

/// The longest prefix of whole segments.
fn find(prefixes: &[(Box<[u8]>, usize)], path: &[u8]) -> Option<usize> {
    let fits = |prefix: &[u8]| {
        prefix.is_empty() || path.strip_prefix(prefix).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    };
    prefixes.iter().find(|(prefix, _)| fits(prefix)).map(|(_, index)| *index)
}

/// The host of a request: that of a trusted proxy, that of the request line, or the field's.
fn host<'a>(head: &'a RequestHead<'_>) -> Cow<'a, [u8]> {
    if let Some(host) = head.client.and_then(|client| client.host.as_deref()) {
        return Cow::Borrowed(host);
    }
    if head.target.form == Form::Absolute {
        return Cow::Borrowed(head.target.authority);
    }
    let field = head.fields.iter().find(|field| field.is(head.block, b"host"));
    Cow::Borrowed(field.map_or(&b""[..], |field| field.value(head.block)))
}

/// `host` without `:port`; an IPv6 address is in brackets.
fn without_port(host: &[u8]) -> &[u8] {
    let Some(colon) = memrchr(b':', host) else { return host };
    let (name, port) = (&host[..colon], &host[colon + 1..]);
    let is_inside = name.contains(&b'[') && !name.contains(&b']');
    if port.iter().all(u8::is_ascii_digit) && !is_inside { name } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_longest_prefix_of_whole_segments_is_found() {
        let mounts = Mounts::new([("", "/shop"), ("", "/shop/admin"), ("", "/größe"), ("", "")]);
        for (path, index) in [
            ("/", 3),
            ("/shop", 0),
            ("/shop/", 0),
            ("/shop//x", 0),
            ("/shopping", 3),
            ("//shop", 3),
            ("/shop/admin", 1),
            ("/shop/administrator", 0),
            ("/größe/x", 2),
            ("*", 3),
            ("", 3),
        ] {
            assert_eq!(mounts.find(b"", path.as_bytes()), Some(index), "{path}");
        }
        assert_eq!(Mounts::new([("", "/shop")]).find(b"", b"/shopping"), None);
    }

    #[test]
    fn test_host_outweighs_path() {
        let places = [
            ("example.org", ""),
            ("*.example.org", ""),
            ("*.eu.example.org", ""),
            ("api.example.org", "/v1"),
            ("[::1]", ""),
            ("", "/shared"),
            ("", ""),
        ];
        let mounts = Mounts::new(places);
        for (host, path, index) in [
            ("example.org", "/", 0),
            ("EXAMPLE.org:8000", "/", 0),
            ("example.org.", "/", 0),
            ("www.example.org", "/", 1),
            ("a.b.example.org:80", "/", 1),
            ("a.eu.example.org", "/", 2),
            ("notexample.org", "/", 6),
            ("api.example.org", "/v1/x", 3),
            ("api.example.org", "/v2", 1),
            ("example.org", "/shared", 0),
            ("other.net", "/shared", 5),
            ("", "/shared", 5),
            ("[::1]:8000", "/", 4),
            ("[::1]", "/", 4),
            ("[::2]", "/", 6),
        ] {
            assert_eq!(mounts.find(host.as_bytes(), path.as_bytes()), Some(index), "{host}{path}");
        }
    }
}
