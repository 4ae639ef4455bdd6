//! Which requests look alike: those will, or will not, keep the application waiting alike.

use engine::baton::Kind;
use foldhash::fast::RandomState;
use std::hash::{BuildHasher, Hasher};
use wire::http1::Head;

/// Sorts requests by method and path, where a part of the path with a digit in it stands for all such parts: it is the
/// number of something.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    hasher: RandomState,
}

impl Kinds {
    pub(super) fn of(&self, head: &Head<'_>) -> Kind {
        let path = head.target.path;
        let mut hash = self.hasher.build_hasher();
        hash.write(head.method);
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
