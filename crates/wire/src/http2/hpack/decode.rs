//! The decoder of HPACK.

use super::TABLE_SIZE;
use super::huffman;
use super::integer::{self, Integer};
use super::table::{DynamicTable, Place, STATIC};

/// The maximum number of table size updates at the start of a block. An encoder that shrinks its table and enlarges it
/// again sends two: the smallest and the final size (RFC 7541 section 4.2).
const RESIZES: usize = 2;

/// A rule of HPACK that a block breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    /// The block ends within a field.
    BlockTruncated,
    /// An index that is 0 or not in any table (RFC 7541 sections 2.3.3 and 6.1).
    IndexInvalid,
    /// An integer that exceeds every valid value (RFC 7541 section 5.1).
    IntegerTooLarge,
    /// A string whose Huffman code is malformed (RFC 7541 section 5.2).
    HuffmanInvalid,
    /// A table size update after a field, or too many of them (RFC 7541 section 4.2).
    ResizeMisplaced,
    /// A table size that exceeds the offered maximum (RFC 7541 section 6.3).
    ResizeTooLarge,
}

/// The result of decoding one fragment of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEnd {
    /// The number of bytes used. The bytes after them are the start of a field that continues in the next fragment.
    pub used: usize,
    /// True if the fragment did not change the dynamic table.
    pub is_table_unchanged: bool,
}

/// Scratch memory for a Huffman-encoded name and value. Several decoders may use it one after the other.
#[derive(Debug, Default)]
pub struct Literals {
    name: Vec<u8>,
    value: Vec<u8>,
}

/// A decoder of the header blocks of one direction of a connection.
#[derive(Debug, Default)]
pub struct Decoder {
    table: DynamicTable,
    /// True if a field of the block has been read.
    is_in_block: bool,
    resizes: usize,
}

/// A string in a literal field.
enum Literal<'a> {
    Plain(&'a [u8]),
    /// The string has been decoded into the scratch memory.
    Decoded,
}

/// The name of a literal field: a reference to a table entry, or a string.
enum Name<'a> {
    Indexed(Place),
    Literal(Literal<'a>),
}

/// A representation of a field (RFC 7541 section 6).
enum FieldRepresentation<'a> {
    Indexed(Place),
    Literal { name: Name<'a>, value: Literal<'a>, is_inserted: bool },
    Resize(usize),
}

impl Decoder {
    /// Returns the number of changes to the table so far. As long as it stays the same, equal blocks have equal fields.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.table.version()
    }

    /// Decodes the fields in `input`, which is a fragment of a block, and passes the name and value of each to `sink`.
    /// The bytes of an incomplete field are not used: the caller passes them again, followed by the next fragment.
    ///
    /// # Errors
    /// The rule that the block breaks.
    pub fn decode(
        &mut self,
        input: &[u8],
        literals: &mut Literals,
        mut sink: impl FnMut(&[u8], &[u8]),
    ) -> Result<BlockEnd, HpackError> {
        let (mut used, version) = (0, self.table.version());
        while used < input.len() {
            let Some((step, count)) = self.step(&input[used..], literals)? else { break };
            match step {
                FieldRepresentation::Resize(size) => {
                    self.resizes += 1;
                    if self.is_in_block || self.resizes > RESIZES {
                        return Err(HpackError::ResizeMisplaced);
                    }
                    self.table.resize(size);
                }
                FieldRepresentation::Indexed(place) => {
                    self.is_in_block = true;
                    let (name, value) = lookup(&self.table, place)?;
                    sink(name, value);
                }
                FieldRepresentation::Literal { name, value, is_inserted } => {
                    self.is_in_block = true;
                    self.literal(&name, &value, is_inserted, literals, &mut sink)?;
                }
            }
            used += count;
        }
        Ok(BlockEnd { used, is_table_unchanged: version == self.table.version() })
    }

    /// Ends a block. `rest` is the number of its bytes that were not used.
    ///
    /// # Errors
    /// [`HpackError::BlockTruncated`] if `rest` is not 0.
    pub fn end_block(&mut self, rest: usize) -> Result<(), HpackError> {
        self.is_in_block = false;
        self.resizes = 0;
        if rest == 0 { Ok(()) } else { Err(HpackError::BlockTruncated) }
    }

    /// Releases memory that only saves work.
    pub fn shrink(&mut self) {
        self.table.shrink();
    }

    /// Reads one representation. Returns `None` if it is incomplete.
    fn step<'i>(
        &self,
        input: &'i [u8],
        literals: &mut Literals,
    ) -> Result<Option<(FieldRepresentation<'i>, usize)>, HpackError> {
        let Some(&first) = input.first() else { return Ok(None) };
        if first & 0x80 != 0 {
            let Some((index, count)) = whole(integer::read(input, 7))? else { return Ok(None) };
            return Ok(Some((
                FieldRepresentation::Indexed(Place::of_index(index).ok_or(HpackError::IndexInvalid)?),
                count,
            )));
        }
        if first & 0xe0 == 0x20 {
            let Some((size, count)) = whole(integer::read(input, 5))? else { return Ok(None) };
            return if size > TABLE_SIZE {
                Err(HpackError::ResizeTooLarge)
            } else {
                Ok(Some((FieldRepresentation::Resize(size), count)))
            };
        }
        // A literal field with incremental indexing, without indexing, or never indexed.
        let is_inserted = first & 0x40 != 0;
        let Some((index, mut used)) = whole(integer::read(input, if is_inserted { 6 } else { 4 }))? else {
            return Ok(None);
        };
        let name = if let Some(place) = Place::of_index(index) {
            lookup(&self.table, place)?;
            Name::Indexed(place)
        } else {
            let Some((text, count)) = text(&input[used..], &mut literals.name)? else { return Ok(None) };
            used += count;
            Name::Literal(text)
        };
        let Some((value, count)) = text(&input[used..], &mut literals.value)? else { return Ok(None) };
        Ok(Some((FieldRepresentation::Literal { name, value, is_inserted }, used + count)))
    }

    /// Passes a literal field to `sink`, and adds it to the table if `is_inserted` is true.
    fn literal(
        &mut self,
        name: &Name<'_>,
        value: &Literal<'_>,
        is_inserted: bool,
        literals: &mut Literals,
        sink: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let (table, Literals { name: scratch, value: decoded }) = (&mut self.table, literals);
        let value = match value {
            Literal::Plain(bytes) => bytes,
            Literal::Decoded => &decoded[..],
        };
        if let (Name::Indexed(place @ Place::Dynamic(_)), true) = (name, is_inserted) {
            // Adding the field may evict the entry that holds its name.
            scratch.clear();
            scratch.extend_from_slice(lookup(table, *place)?.0);
        }
        let name = match name {
            Name::Indexed(Place::Static(index)) => STATIC[*index].0,
            Name::Indexed(place) if !is_inserted => {
                sink(lookup(table, *place)?.0, value);
                return Ok(());
            }
            Name::Literal(Literal::Plain(bytes)) => bytes,
            Name::Indexed(_) | Name::Literal(Literal::Decoded) => &scratch[..],
        };
        sink(name, value);
        if is_inserted {
            table.insert(name, value);
        }
        Ok(())
    }
}

/// Returns the field at a place of the tables.
fn lookup(table: &DynamicTable, place: Place) -> Result<(&[u8], &[u8]), HpackError> {
    match place {
        Place::Static(index) => Ok(STATIC[index]),
        Place::Dynamic(index) => table.get(index).ok_or(HpackError::IndexInvalid),
    }
}

/// Returns an integer and the number of its bytes; `None` if it is incomplete.
fn whole(integer: Integer) -> Result<Option<(usize, usize)>, HpackError> {
    match integer {
        Integer::Whole(value, count) => Ok(Some((value, count))),
        Integer::Partial => Ok(None),
        Integer::TooLarge => Err(HpackError::IntegerTooLarge),
    }
}

/// Reads a string (RFC 7541 section 5.2). Returns it with the number of its bytes; `None` if it is incomplete. A
/// Huffman-encoded string is decoded into `scratch`.
fn text<'i>(input: &'i [u8], scratch: &mut Vec<u8>) -> Result<Option<(Literal<'i>, usize)>, HpackError> {
    let Some((length, count)) = whole(integer::read(input, 7))? else { return Ok(None) };
    let Some(bytes) = input[count..].get(..length) else { return Ok(None) };
    if input[0] & 0x80 == 0 {
        return Ok(Some((Literal::Plain(bytes), count + length)));
    }
    scratch.clear();
    if !huffman::decode(bytes, scratch) {
        return Err(HpackError::HuffmanInvalid);
    }
    Ok(Some((Literal::Decoded, count + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    /// Decodes a block that arrives in pieces of `step` bytes.
    fn fields(decoder: &mut Decoder, block: &[u8], step: usize) -> Result<String, HpackError> {
        let (mut found, mut kept) = (String::new(), Vec::new());
        for piece in block.chunks(step) {
            kept.extend_from_slice(piece);
            let end = decoder.decode(&kept, &mut Literals::default(), |name, value| {
                let line = [name, b": ", value, b"\n"].concat();
                found.push_str(&String::from_utf8_lossy(&line));
            })?;
            kept.drain(..end.used);
        }
        decoder.end_block(kept.len())?;
        Ok(found)
    }

    /// RFC 7541 appendices C.3 (plain) and C.4 (Huffman): three requests on one connection.
    #[test]
    fn requests_of_the_rfc_are_decoded_however_they_are_cut() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let huffman = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        let expected = [
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n",
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache\n",
            ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
             custom-key: custom-value\n",
        ];
        for blocks in [plain, huffman] {
            for step in 1..=20 {
                let mut decoder = Decoder::default();
                for (block, expected) in blocks.iter().zip(expected) {
                    assert_eq!(fields(&mut decoder, &hex(block), step).as_deref(), Ok(expected), "{step}");
                }
                assert_eq!(decoder.table.get(0), Some((&b"custom-key"[..], &b"custom-value"[..])));
                assert_eq!(decoder.table.get(2), Some((&b":authority"[..], &b"www.example.com"[..])));
            }
        }
    }

    #[test]
    fn each_error_is_reached() {
        for (block, error) in [
            ("80", HpackError::IndexInvalid),
            ("be", HpackError::IndexInvalid),
            ("7f00 0161", HpackError::IndexInvalid),
            ("ffff ffff ffff ff", HpackError::IntegerTooLarge),
            ("0001 61 81 ff", HpackError::HuffmanInvalid),
            ("0081 ff 01 61", HpackError::HuffmanInvalid),
            ("8220", HpackError::ResizeMisplaced),
            ("202020", HpackError::ResizeMisplaced),
            ("3fe2 1f", HpackError::ResizeTooLarge),
            ("0001 6102 61", HpackError::BlockTruncated),
            ("41", HpackError::BlockTruncated),
        ] {
            for step in [1, 2, 100] {
                assert_eq!(fields(&mut Decoder::default(), &hex(block), step), Err(error), "{block}");
            }
        }
        assert_eq!(fields(&mut Decoder::default(), &hex("203fe11f 82"), 100).as_deref(), Ok(":method: GET\n"));
    }

    #[test]
    fn name_of_an_entry_outlives_its_eviction() {
        let mut decoder = Decoder::default();
        // The table holds one entry. A field that takes its name from this entry replaces it.
        let block = hex("3f04 40 0161 0162 7e 0163 be");
        assert_eq!(fields(&mut decoder, &block, 100).as_deref(), Ok("a: b\na: c\na: c\n"));
    }

    #[test]
    fn version_changes_with_the_table() {
        let mut decoder = Decoder::default();
        let mut is_unchanged = |block: &str| {
            let end = decoder.decode(&hex(block), &mut Literals::default(), |_, _| {});
            end.unwrap().is_table_unchanged
        };
        assert!(is_unchanged("8286 0001 6101 62 1001 6101 62"));
        assert!(!is_unchanged("4001 6101 62"));
    }
}
