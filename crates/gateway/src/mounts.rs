//! The places of several applications: the host of a request and the beginning of its path select the application. No
//! Python here: the engine is locked, and has to know who serves a request before any Python runs.
//!
//! A request goes to the place that fits best: one for its host before one for `*.host`, and that before one for any
//! host; among those, the one with the longest prefix of whole segments. The path is compared as it is,
//! percent-decoded: `//` differs from `/`.

use crate::text::percent_decoded;
use memchr::memrchr;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use wire::message::{Form, RequestHead};

/// A place of an application, within those of its host.
#[derive(Debug)]
struct MountPoint {
    /// The prefix of the path, decoded.
    prefix: Box<[u8]>,
    /// The index of the application.
    index: usize,
}

/// The places of all applications.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// The places of each host, the longest prefix first; `*.example.org` is there as written.
    hosts: HashMap<Box<[u8]>, Vec<MountPoint>>,
    anywhere: Vec<MountPoint>,
}

impl Mounts {
    /// `places` are host (empty: any) and prefix of each application. A prefix is empty or begins with a slash, and
    /// does not end with one.
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

    /// Returns the index of the application of an HTTP request; `None` if no place fits.
    pub(crate) fn of(&self, head: &RequestHead<'_>) -> Option<usize> {
        let path = if head.target.form == Form::Asterisk { b"*" } else { head.target.path };
        let path =
            if memchr::memchr(b'%', path).is_some() { Cow::Owned(percent_decoded(path)) } else { Cow::Borrowed(path) };
        let place = if self.hosts.is_empty() { longest(&self.anywhere, &path) } else { self.find(&host(head), &path) };
        place.map(|place| place.index)
    }

    /// Returns the index of the application of a request with CGI variables, whose `SCRIPT_NAME` and `PATH_INFO` are
    /// these; `None` if no place fits.
    ///
    /// The web server may have moved the prefix of a place to `SCRIPT_NAME` by itself. So if no place with a prefix
    /// fits `PATH_INFO`, both together are looked up, if they are the path that the client has asked for.
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

    /// Returns the index of the application of a decoded path at a host.
    pub(crate) fn at(&self, host: &str, path: &str) -> Option<usize> {
        self.find(host.as_bytes(), path.as_bytes()).map(|place| place.index)
    }

    /// Finds the place of a path. A host outweighs a path: first the host's own name, then `*.` and the rest behind one
    /// of its dots, the longest first, then any host.
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

/// Finds the longest prefix of whole segments.
fn longest<'a>(places: &'a [MountPoint], path: &[u8]) -> Option<&'a MountPoint> {
    places.iter().find(|place| is_at(&place.prefix, path))
}

/// Returns true if `prefix` is empty, or the path or whole segments at its beginning.
pub(crate) fn is_at(prefix: &[u8], path: &[u8]) -> bool {
    prefix.is_empty() || path.strip_prefix(prefix).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
}

/// Returns the host of a request: the one that a trusted proxy names, the one of the request line, or that of the
/// field.
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

/// Returns `host` without `:port`; an IPv6 address is in brackets.
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
