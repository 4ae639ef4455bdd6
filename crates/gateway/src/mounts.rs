//! The mounts of several applications: the host and the path prefix of a request select the application. Uses no
//! Python, because the selection happens while the engine is locked, before any Python runs.
//!
//! A request goes to the mount with the best match. An exact host precedes `*.host`, which precedes any host; among the
//! mounts of one host, the longest prefix of whole segments wins. The path is percent-decoded but not normalized: `//`
//! differs from `/`.

use crate::text::percent_decoded;
use memchr::memrchr;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use wire::message::{Form, RequestHead};

/// A mount of an application below one host.
#[derive(Debug)]
struct MountPoint {
    /// The path prefix, percent-decoded.
    prefix: Box<[u8]>,
    /// The index of the application.
    index: usize,
}

/// The mounts of all applications.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// The mounts of each host, the longest prefix first. The key of `*.example.org` is written just so.
    hosts: HashMap<Box<[u8]>, Vec<MountPoint>>,
    anywhere: Vec<MountPoint>,
}

impl Mounts {
    /// Creates the mounts. `places` are the host (empty: any) and the prefix of each application. A prefix is empty, or
    /// begins with a slash and does not end with one.
    pub(crate) fn new<'a>(places: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut mounts = Self::default();
        for (index, (host, prefix)) in places.into_iter().enumerate() {
            let of_host = if host.is_empty() {
                &mut mounts.anywhere
            } else {
                mounts.hosts.entry(host.as_bytes().into()).or_default()
            };
            of_host.push(MountPoint { prefix: prefix.as_bytes().into(), index });
        }
        for of_host in mounts.hosts.values_mut().chain([&mut mounts.anywhere]) {
            of_host.sort_by_key(|place| Reverse(place.prefix.len()));
        }
        mounts
    }

    /// Returns the index of the application of an HTTP request; `None` if no mount matches.
    pub(crate) fn of(&self, head: &RequestHead<'_>) -> Option<usize> {
        let path = if head.target.form == Form::Asterisk { b"*" } else { head.target.path };
        let path =
            if memchr::memchr(b'%', path).is_some() { Cow::Owned(percent_decoded(path)) } else { Cow::Borrowed(path) };
        let place = if self.hosts.is_empty() { longest(&self.anywhere, &path) } else { self.find(&host(head), &path) };
        place.map(|place| place.index)
    }

    /// Returns the index of the application of a request with CGI variables, which has this `SCRIPT_NAME` and
    /// `PATH_INFO`; `None` if no mount matches.
    ///     ///
    /// The web server may have moved the prefix of a mount to `SCRIPT_NAME` already. So if no mount with a prefix
    /// matches `PATH_INFO`, this looks up the concatenation of both, if it is the path that the client requested.
    pub(crate) fn of_cgi(&self, head: &RequestHead<'_>, script_name: &[u8], path_info: &[u8]) -> Option<usize> {
        let host = host(head);
        let place = self.find(&host, path_info);
        let has_prefix = |place: &&MountPoint| !place.prefix.is_empty();
        let whole = || {
            let whole = [script_name, path_info].concat();
            let is_requested = !script_name.is_empty() && whole == percent_decoded(head.target.path);
            if is_requested { self.find(&host, &whole).filter(has_prefix) } else { None }
        };
        place.filter(has_prefix).or_else(whole).or(place).map(|place| place.index)
    }

    /// Returns the index of the application for a host and a decoded path.
    pub(crate) fn at(&self, host: &str, path: &str) -> Option<usize> {
        self.find(host.as_bytes(), path.as_bytes()).map(|place| place.index)
    }

    /// Finds the mount of a path. The host takes precedence over the path: first the exact name, then `*.` with each
    /// parent domain, the longest first, then any host.
    fn find(&self, host: &[u8], path: &[u8]) -> Option<&MountPoint> {
        let name = without_port(host).to_ascii_lowercase();
        let name = name.strip_suffix(b".").unwrap_or(&name);
        let own = self.hosts.get(name).and_then(|places| longest(places, path));
        let by_star = || {
            let dots = memchr::memchr_iter(b'.', name);
            dots.filter_map(|dot| self.hosts.get(&[b"*", &name[dot..]].concat()[..]))
                .find_map(|places| longest(places, path))
        };
        own.or_else(by_star).or_else(|| longest(&self.anywhere, path))
    }
}

/// Finds the mount with the longest matching prefix. `places` are sorted, the longest prefix first.
fn longest<'a>(places: &'a [MountPoint], path: &[u8]) -> Option<&'a MountPoint> {
    places.iter().find(|place| is_at(&place.prefix, path))
}

/// Returns true if `prefix` is empty, equals the path, or consists of its first whole segments.
pub(crate) fn is_at(prefix: &[u8], path: &[u8]) -> bool {
    prefix.is_empty() || path.strip_prefix(prefix).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
}

/// Returns the host of a request: from a trusted proxy's field, else from an absolute request target, else from the
/// `Host` field.
fn host<'a>(head: &'a RequestHead<'_>) -> Cow<'a, [u8]> {
    if let Some(host) = head.client.and_then(|client| client.host.as_deref()) {
        return Cow::Borrowed(host);
    }
    if head.target.form == Form::Absolute {
        return Cow::Borrowed(head.target.authority);
    }
    let value = if head.is_cgi {
        head.variable(b"HTTP_HOST")
    } else {
        head.fields.iter().find(|field| field.is(head.block, b"host")).map(|field| field.value(head.block))
    };
    Cow::Borrowed(value.unwrap_or_default())
}

/// Returns `host` without its `:port`. The colons in a bracketed IPv6 address are no port separators.
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
            assert_eq!(mounts.at("", path), Some(index), "{path}");
        }
        assert_eq!(Mounts::new([("", "/shop")]).at("", "/shopping"), None);
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
            assert_eq!(mounts.at(host, path), Some(index), "{host}{path}");
        }
    }
}
