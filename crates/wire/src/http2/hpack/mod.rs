//! HPACK, the compression of field lines in HTTP/2 (RFC 7541).
//!
//! * [`Decoder`] reads the fields of a block, piece by piece as its fragments arrive.
//! * [`Encoder`] writes them, with a dynamic table whose size is bounded.
//! * [`huffman`] and [`integer`] are the two encodings of literals and numbers; [`table`] has the static and the dynamic
//!   table.
//!
//! A block that cannot be decoded leaves the dynamic table unknown, so the connection cannot be read any further: every
//! error is a connection error of the type `COMPRESSION_ERROR` (RFC 9113 section 4.3).

mod decode;
mod encode;
mod huffman;
mod integer;
mod table;

pub use decode::{BlockEnd, Decoder, HpackError, Literals};
pub use encode::{Encoder, Indexing};

/// The size of the dynamic table that each side may use unless the other one says otherwise (RFC 9113 section 6.5.2),
/// and the most that either side of a connection of ours uses.
pub const TABLE_SIZE: usize = 4096;
