//! The checksum of version 2: CRC-32C (RFC 3720 appendix B.4).

/// The remainders of all bytes. Headers are short and occur once for each connection, so one table is fast enough.
static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    // The polynomial 0x1EDC6F41 with its bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut byte = 0_u8;
    loop {
        // `From` cannot be used in a constant function.
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 1 { remainder >> 1 ^ POLYNOMIAL } else { remainder >> 1 };
            bit += 1;
        }
        table[byte as usize] = remainder;
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

/// Returns the checksum of the concatenated `parts`.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().copied().flatten();
    !bytes.fold(u32::MAX, |crc, &byte| TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[&[0xff; 16], &[0xff; 16]]), 0x62a8_ab43);
    }
}
