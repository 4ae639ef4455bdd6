//! Masking (RFC 6455 section 5.3), and the two roles, of which only the client masks.

/// The role of one end. The client masks its frames, the server does not (RFC 6455 section 5.1).
#[derive(Clone, Debug)]
pub enum Role {
    /// The server.
    Server,
    /// The client, with its masking keys.
    Client(Keys),
}

impl Role {
    /// Returns the masking key of the next frame to send; `None` if frames are not masked.
    pub(super) fn next_key(&mut self) -> Option<[u8; 4]> {
        match self {
            Role::Server => None,
            Role::Client(keys) => Some(keys.next_key()),
        }
    }
}

/// The masking keys of a client, derived from a seed (`SplitMix64`).
///
/// RFC 6455 section 10.3 demands unpredictable keys from a client that runs untrusted code, such as a browser. Load
/// generators and tests do not, so a seed suffices.
#[derive(Clone, Debug)]
pub struct Keys(u64);

impl Keys {
    /// Creates the keys for `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next_key(&mut self) -> [u8; 4] {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let [a, b, c, d, ..] = (mixed ^ mixed >> 31).to_le_bytes();
        [a, b, c, d]
    }
}

/// Masks or unmasks `bytes`, which begin at `offset` of the payload.
///
/// The loop handles eight bytes at a time. The compiler turns it into vector instructions.
pub(super) fn apply(bytes: &mut [u8], key: [u8; 4], offset: u64) {
    let mut turned = key;
    turned.rotate_left((offset % 4) as usize);
    let [a, b, c, d] = turned;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for eight in words {
        *eight = (u64::from_ne_bytes(*eight) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(turned.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masking_in_pieces_equals_masking_byte_by_byte() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        let plain: Vec<u8> = (0..100u8).collect();
        let masked: Vec<u8> = plain.iter().enumerate().map(|(at, byte)| byte ^ key[at % 4]).collect();
        for length in 0..plain.len() {
            for cut in 0..=length {
                let mut bytes = plain[..length].to_vec();
                apply(&mut bytes[..cut], key, 0);
                apply(&mut bytes[cut..], key, cut as u64);
                assert_eq!(bytes, masked[..length], "{length} bytes cut at {cut}");
            }
        }
    }
}
