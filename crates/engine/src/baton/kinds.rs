//! Which calls look alike: those will, or will not, wait alike.

use super::forecast::Kind;
use foldhash::fast::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Sorts requests by method and path, where a part of the path with a digit in it stands for all such parts: it is the
/// number of something.
#[derive(Debug, Default)]
pub struct Kinds {
    hasher: RandomState,
}

impl Kinds {
    /// The kind of a request with this method, and this path as it was sent.
    pub fn of_request(&self, method: &[u8], path: &[u8]) -> Kind {
        let mut hash = self.hasher.build_hasher();
        hash.write(method);
        if path.iter().any(u8::is_ascii_digit) {
            for part in path.split(|&byte| byte == b'/') {
                hash.write(if part.iter().any(u8::is_ascii_digit) { b"0" } else { part });
                hash.write_u8(b'/');
            }
        } else {
            hash.write(path);
        }
        Kind::of(hash.finish())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn requests_for_the_same_are_of_one_kind() {
        let kinds = Kinds::default();
        let kind = |method: &str, path: &str| kinds.of_request(method.as_bytes(), path.as_bytes());
        assert_eq!(kind("GET", "/reports"), kind("GET", "/reports"));
        assert_eq!(kind("GET", "/orders/17/items"), kind("GET", "/orders/18/items"));
        assert_eq!(kind("GET", "/u/3f2c-a1/x"), kind("GET", "/u/9/x"));
        for (method, path) in [
            ("POST", "/orders/17/items"),
            ("GET", "/orders/17"),
            ("GET", "/orders/17/items/"),
            ("GET", "/orders/17/prices"),
            ("GET", "/orders/items"),
        ] {
            assert_ne!(kind("GET", "/orders/17/items"), kind(method, path), "{method} {path}");
        }
    }
}
