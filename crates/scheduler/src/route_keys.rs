//! Route keys of requests. Requests with the same key are expected to block alike.

use crate::predictor::RouteKey;
use foldhash::fast::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A function from method and path to a route key. It treats every path segment that contains a digit as the same
/// segment, because such segments are usually identifiers.
#[derive(Debug, Default)]
pub struct RouteKeys {
    hasher: RandomState,
}

impl RouteKeys {
    /// Returns the key of a request with this method and this path. The path is as the client sent it.
    pub fn of_request(&self, method: &[u8], path: &[u8]) -> RouteKey {
        let mut hash = self.hasher.build_hasher();
        hash_route(method, path, &mut hash);
        RouteKey::of(hash.finish())
    }
}

/// Hashes method and path so that paths that differ only in segments with digits have the same hash.
pub fn hash_route(method: &[u8], path: &[u8], hash: &mut impl Hasher) {
    hash.write(method);
    if path.iter().any(u8::is_ascii_digit) {
        for part in path.split(|&byte| byte == b'/') {
            hash.write(if part.iter().any(u8::is_ascii_digit) { b"0" } else { part });
            hash.write_u8(b'/');
        }
    } else {
        hash.write(path);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn requests_that_differ_in_numbers_share_a_route_key() {
        let route_keys = RouteKeys::default();
        let route_key = |method: &str, path: &str| route_keys.of_request(method.as_bytes(), path.as_bytes());
        assert_eq!(route_key("GET", "/reports"), route_key("GET", "/reports"));
        assert_eq!(route_key("GET", "/orders/17/items"), route_key("GET", "/orders/18/items"));
        assert_eq!(route_key("GET", "/u/3f2c-a1/x"), route_key("GET", "/u/9/x"));
        for (method, path) in [
            ("POST", "/orders/17/items"),
            ("GET", "/orders/17"),
            ("GET", "/orders/17/items/"),
            ("GET", "/orders/17/prices"),
            ("GET", "/orders/items"),
        ] {
            assert_ne!(route_key("GET", "/orders/17/items"), route_key(method, path), "{method} {path}");
        }
    }
}
