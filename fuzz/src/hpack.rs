//! The invariants of HPACK: a block means the same to the decoder and to another one, the crate `fluke-hpack`, and what
//! the encoder writes of its fields, both read back.

use fluke_hpack::Decoder as Other;
use fluke_hpack::decoder::DecoderError;
use wire::http2::hpack::{Decoder, Encoder, HpackError, Indexing, Literals};

/// The most fields of a block that are kept: a bomb of indexed fields is the business of the limits of HTTP/2.
const FIELDS: usize = 1000;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Checks the blocks of one direction of a connection, each behind a byte with its length.
pub fn check_hpack(mut data: &[u8]) {
    let (mut ours, mut other, mut encoder) = (Decoder::default(), Other::new(), Encoder::default());
    let (mut back, mut other_back) = (Decoder::default(), Other::new());
    other.set_max_allowed_table_size(4096);
    other_back.set_max_allowed_table_size(4096);
    while let Some((&length, rest)) = data.split_first() {
        let (block, behind) = rest.split_at(rest.len().min(usize::from(length)));
        data = behind;
        let found = decode(&mut ours, block);
        // The other one panics at some changes of the table's size that are malformed, and takes others.
        if !matches!(found, Ok(_) | Err(HpackError::IndexInvalid | HpackError::HuffmanInvalid)) {
            return;
        }
        let Some(expected) = agree(found, other.decode(block), block) else { return };
        if expected.len() > FIELDS {
            return;
        }
        let mut written = Vec::new();
        encoder.begin(&mut written);
        for (at, (name, value)) in expected.iter().enumerate() {
            let how = [Indexing::Incremental, Indexing::Without, Indexing::Never][(at + value.len()) % 3];
            encoder.field(&name.to_ascii_lowercase(), value, how, &mut written);
        }
        let lower: Fields = expected.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        assert_eq!(decode(&mut back, &written).as_ref(), Ok(&lower), "our decoder reads what our encoder writes");
        assert_eq!(other_back.decode(&written).ok().as_ref(), Some(&lower), "and so does the other one");
    }
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Fields::new();
    let end =
        decoder.decode(block, &mut Literals::default(), |name, value| fields.push((name.to_vec(), value.to_vec())))?;
    decoder.end_block(block.len() - end.used)?;
    Ok(fields)
}

/// Asserts that both have found the same, except for what is listed here. Returns the fields if the tables of both are
/// the same behind the block.
fn agree(ours: Result<Fields, HpackError>, other: Result<Fields, DecoderError>, block: &[u8]) -> Option<Fields> {
    match (ours, other) {
        (Ok(ours), Ok(other)) => {
            assert_eq!(ours, other, "the fields of {block:02x?}");
            Some(ours)
        }
        // It has a lower limit for long integers, as RFC 7541 section 5.1 allows, and refuses a block that only changes
        // the table's size.
        (Ok(_), Err(DecoderError::IntegerDecodingError(_) | DecoderError::SizeUpdateAtEnd)) => None,
        (Err(_), Err(_)) => None,
        (ours, other) => panic!("ours: {ours:?}, the other: {other:?}, of {block:02x?}"),
    }
}
