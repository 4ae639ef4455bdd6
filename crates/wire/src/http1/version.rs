//! The version in request lines and status lines.

use crate::message::{Fault, Version};

/// Reads HTTP-version (RFC 9112 section 2.3) of a request line or a status line.
pub(super) fn version(text: &[u8]) -> Result<Version, Fault> {
    match text {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            match (major, minor) {
                (b'1', b'0') => Ok(Version::Http10),
                (b'1', _) => Ok(Version::Http11),
                _ => Err(Fault::VersionUnsupported),
            }
        }
        _ => Err(Fault::VersionMalformed),
    }
}
