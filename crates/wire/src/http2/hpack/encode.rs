//! The encoder of HPACK.

use super::TABLE_SIZE;
use super::huffman;
use super::integer;
use super::table::{DynamicTable, OVERHEAD};

/// How a field is encoded (RFC 7541 section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// The field is added to the dynamic table, so that its next occurrence takes one byte.
    Incremental,
    /// The field is not added, because its value changes with each message.
    Without,
    /// The field is not added, and intermediaries must not add it to their tables either (RFC 7541 section 7.1.3).
    Never,
}

/// An encoder of the header blocks of one direction of a connection.
#[derive(Debug, Default)]
pub struct Encoder {
    table: DynamicTable,
    /// The smallest and the final table size of which the peer has not been informed.
    resize: Option<(usize, usize)>,
}

impl Encoder {
    /// Sets the table size that the peer allows (`SETTINGS_HEADER_TABLE_SIZE`). The next block announces the size that
    /// is used (RFC 7541 section 4.2).
    pub fn allow(&mut self, size: usize) {
        let size = size.min(TABLE_SIZE);
        if size == self.table.limit() && self.resize.is_none() {
            return;
        }
        let least = self.resize.map_or(size, |(least, _)| least.min(size));
        self.resize = Some((least, size));
    }

    /// Returns the number of changes to the table so far. As long as it stays the same, equal fields are encoded
    /// equally.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.table.version()
    }

    /// Returns true if the next block begins with a table size update.
    #[must_use]
    pub fn is_resizing(&self) -> bool {
        self.resize.is_some()
    }

    /// Starts a block.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        let Some((least, last)) = self.resize.take() else { return };
        for size in [least, last].into_iter().skip(usize::from(least == last)) {
            self.table.resize(size);
            integer::write(size, 5, 0x20, out);
        }
    }

    /// Writes a field. `name` must be in lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let place = self.table.find(name, value);
        if let (Some((place, true)), Indexing::Incremental | Indexing::Without) = (place, indexing) {
            return integer::write(place.index(), 7, 0x80, out);
        }
        let index = place.map_or(0, |(place, _)| place.index());
        // A field that fills much of the table would evict fields that repeat.
        let is_inserted =
            indexing == Indexing::Incremental && name.len() + value.len() + OVERHEAD <= self.table.limit() / 2;
        match indexing {
            _ if is_inserted => integer::write(index, 6, 0x40, out),
            Indexing::Never => integer::write(index, 4, 0x10, out),
            Indexing::Incremental | Indexing::Without => integer::write(index, 4, 0, out),
        }
        if index == 0 {
            text(name, out);
        }
        text(value, out);
        if is_inserted {
            self.table.insert(name, value);
        }
    }
}

/// Writes a string (RFC 7541 section 5.2), plain or Huffman-encoded, whichever is shorter.
fn text(text: &[u8], out: &mut Vec<u8>) {
    let length = huffman::encoded_length(text);
    if length < text.len() {
        integer::write(length, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        integer::write(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Decoder, Literals};
    use super::*;

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let sink = |name: &[u8], value: &[u8]| found.push((name.to_vec(), value.to_vec()));
        let end = decoder.decode(block, &mut Literals::default(), sink).expect("valid");
        decoder.end_block(block.len() - end.used).expect("whole");
        found
    }

    /// Returns a small pseudo-random number (xorshift).
    fn random(state: &mut u64) -> usize {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        usize::try_from(*state >> 33).expect("31 bits")
    }

    #[test]
    fn decoder_reads_what_the_encoder_writes() {
        let (mut encoder, mut decoder, mut state) = (Encoder::default(), Decoder::default(), 0x1234_5678_9abc_def1_u64);
        for round in 0..2000 {
            let (mut block, mut expected) = (Vec::new(), Vec::new());
            if random(&mut state).is_multiple_of(20) {
                for _ in 0..random(&mut state) % 4 {
                    encoder.allow(random(&mut state) % 6000);
                }
            }
            encoder.begin(&mut block);
            for _ in 0..random(&mut state) % 8 {
                let name = [&b":status"[..], b"server", b"x-a", b"x-b", b"set-cookie"][random(&mut state) % 5];
                let value: Vec<u8> =
                    (0..random(&mut state) % 40).map(|_| b"01ab\xff\0"[random(&mut state) % 6]).collect();
                let indexing = [Indexing::Incremental, Indexing::Without, Indexing::Never][random(&mut state) % 3];
                encoder.field(name, &value, indexing, &mut block);
                expected.push((name.to_vec(), value));
            }
            assert_eq!(decoded(&mut decoder, &block), expected, "round {round}");
        }
    }

    #[test]
    fn repeated_field_is_one_byte() {
        let mut encoder = Encoder::default();
        let mut block = Vec::new();
        encoder.field(b"server", b"kirsch", Indexing::Incremental, &mut block);
        block.clear();
        encoder.field(b"server", b"kirsch", Indexing::Incremental, &mut block);
        encoder.field(b":status", b"200", Indexing::Incremental, &mut block);
        assert_eq!(block, [0xbe, 0x88]);
    }

    #[test]
    fn sensitive_field_is_never_indexed() {
        let mut encoder = Encoder::default();
        let mut block = Vec::new();
        encoder.field(b"set-cookie", b"!!!", Indexing::Never, &mut block);
        assert_eq!(block[..2], [0x1f, 55 - 15]);
        let version = encoder.version();
        assert_eq!(version, 0);
    }

    #[test]
    fn new_sizes_are_announced_with_the_smallest_one() {
        let mut encoder = Encoder::default();
        let mut block = Vec::new();
        encoder.allow(TABLE_SIZE);
        encoder.begin(&mut block);
        assert_eq!(block, []);
        encoder.allow(0);
        encoder.allow(100);
        encoder.begin(&mut block);
        assert_eq!(block, [0x20, 0x3f, 69]);
        block.clear();
        encoder.allow(1 << 20);
        encoder.begin(&mut block);
        assert_eq!(block, [0x3f, 0xe1, 0x1f]);
    }
}
