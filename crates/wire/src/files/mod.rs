//! The decisions of a file server, made without file access: the file name for a request path, the encoded
//! representation that the client accepts, the result of the preconditions, and the byte ranges to send.
//!
//! ```text
//!  path ──▶ DecodedPath ──▶ FileName          the caller opens it, and knows length, entity tag and time
//!  head ──▶ Conditions ──▶ AcceptedCodings::choose ──▶ a Representation
//!                     └──▶ Conditions::select ──▶ Selected ──▶ a Draft and the byte ranges of the body
//! ```
//!
//! The caller owns files, clocks and random numbers: lengths, times and the boundary of a multipart body are arguments.

mod codings;
mod conditions;
mod media_types;
mod names;
mod path;
mod ranges;
mod response;

pub use codings::{AcceptedCodings, Coding};
pub use conditions::{Conditions, Selected, Validators};
pub use media_types::media_type;
pub use names::{has_content_hash, matches};
pub use path::{Beneath, DecodedPath, FileName};
pub use ranges::{ByteRange, RANGES_MAX, Ranges};
pub use response::{Multipart, Representation, method_response, redirect, text_response};
