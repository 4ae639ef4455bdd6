//! Integers with a prefix (RFC 7541 section 5.1).

/// The maximum number of bytes after the prefix. Five bytes carry 35 bits, and no length or index needs more than 32.
const BYTES: usize = 5;

/// The result of reading an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Integer {
    /// The value, and the number of its bytes.
    Whole(usize, usize),
    /// More bytes are needed.
    Partial,
    /// The integer exceeds every valid value.
    TooLarge,
}

/// Reads an integer. Its prefix is the lower `prefix` bits of the first byte.
pub(super) fn read(input: &[u8], prefix: u32) -> Integer {
    let Some(&first) = input.first() else { return Integer::Partial };
    let most = (1u64 << prefix) - 1;
    let mut value = u64::from(first) & most;
    if value < most {
        return Integer::Whole(to_size(value), 1);
    }
    for index in 0..BYTES {
        let Some(&byte) = input.get(1 + index) else { return Integer::Partial };
        value += u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return match u32::try_from(value) {
                Ok(_) => Integer::Whole(to_size(value), 2 + index),
                Err(_) => Integer::TooLarge,
            };
        }
    }
    Integer::TooLarge
}

/// Writes an integer. Its first byte begins with the bits `flags`.
pub(super) fn write(value: usize, prefix: u32, flags: u8, out: &mut Vec<u8>) {
    let most = (1usize << prefix) - 1;
    if value < most {
        out.push(flags | low_byte(value));
        return;
    }
    out.push(flags | low_byte(most));
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(low_byte(rest) | 0x80);
        rest >>= 7;
    }
    out.push(low_byte(rest));
}

fn low_byte(value: usize) -> u8 {
    value.to_le_bytes()[0]
}

/// Converts a value of at most 32 bits.
fn to_size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7541 appendix C.1.
    #[test]
    fn examples_of_the_rfc_are_read_and_written() {
        for (value, prefix, bytes) in
            [(10, 5, &[0b01010][..]), (1337, 5, &[0b11111, 0b1001_1010, 0b1010]), (42, 8, &[0b10_1010])]
        {
            let mut out = Vec::new();
            write(value, prefix, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(read(bytes, prefix), Integer::Whole(value, bytes.len()));
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end], prefix), Integer::Partial);
            }
        }
    }

    #[test]
    fn integers_have_bounds() {
        assert_eq!(read(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], 7), Integer::TooLarge);
        assert_eq!(read(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0x7f], 7), Integer::TooLarge);
        // Leading zeros are allowed (section 5.1 does not forbid them) up to the maximum length.
        assert_eq!(read(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x00], 7), Integer::Whole(127, 6));
    }

    #[test]
    fn integers_of_all_prefixes_return() {
        for prefix in 1..=8 {
            for value in [0, 1, 2, 30, 31, 126, 127, 128, 254, 255, 256, 16_383, 16_384, 1 << 20, u32::MAX as usize] {
                let mut out = Vec::new();
                write(value, prefix, 0, &mut out);
                assert_eq!(read(&out, prefix), Integer::Whole(value, out.len()));
            }
        }
    }
}
