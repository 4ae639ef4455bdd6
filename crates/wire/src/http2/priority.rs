//! Priorities (RFC 9218).

use crate::grammar::{list, trim};

/// The priority of a response. A response with lower urgency is sent first; incremental responses of equal urgency
/// alternate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The urgency, 0 to 7; 0 is the most urgent.
    pub urgency: u8,
    /// True if the client can use a part of the response before the rest arrives.
    pub is_incremental: bool,
}

impl Default for Priority {
    /// Returns the default of RFC 9218 section 4.
    fn default() -> Self {
        Self { urgency: 3, is_incremental: false }
    }
}

impl Priority {
    /// Reads the field `Priority`, or the value of a `PRIORITY_UPDATE` frame. Malformed and unknown members are ignored
    /// (RFC 9218 section 4).
    #[must_use]
    pub fn read(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in list(value) {
            // Parameters of a member are ignored.
            let member = trim(member.split(|&byte| byte == b';').next().unwrap_or_default());
            match member {
                [b'u', b'=', urgency @ b'0'..=b'7'] => priority.urgency = urgency - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_read_and_nonsense_is_ignored() {
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i=?1,u=5", 5, true),
            ("i, i=?0", 3, false),
            ("u=8", 3, false),
            ("u=-1, x=\"a\", i;p=1", 3, true),
            ("u", 3, false),
        ] {
            assert_eq!(Priority::read(value.as_bytes()), Priority { urgency, is_incremental }, "{value}");
        }
    }
}
