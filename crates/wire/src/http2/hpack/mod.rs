//! HPACK, the compression of field lines in HTTP/2 (RFC 7541).
//!
//! * [`Decoder`] reads the fields of a header block, fragment by fragment.
//! * [`Encoder`] writes a header block. The size of its dynamic table is bounded.
//! * [`huffman`] and [`integer`] encode strings and integers; [`table`] has the static and the dynamic table.
//!
//! If a block cannot be decoded, the content of the dynamic table is unknown and the connection cannot be read any
//! further. So every error is a connection error of the type `COMPRESSION_ERROR` (RFC 9113 section 4.3).

mod decode;
mod encode;
mod huffman;
mod integer;
mod table;

pub use decode::{BlockEnd, Decoder, HpackError, Literals};
pub use encode::{Encoder, Indexing};

/// The maximum size of the dynamic table in bytes: the default for both peers (RFC 9113 section 6.5.2), and the most
/// that this crate uses.
pub const TABLE_SIZE: usize = 4096;
