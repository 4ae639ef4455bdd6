//! Compression of long body parts. The engine is locked for one slice at a time, so that other connections are served
//! in between.

use super::exchange::{Exchange, Part};
use super::job::Mismatch;
use super::threads::Host;
use crate::interface::Interface;
use crate::object::Chunk;
use engine::ENCODE_AT_ONCE;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::borrow::Cow;
use std::os::unix::fs::FileExt;

/// Compresses a block of a response body in slices, if the response is encoded and the block is long. Returns the last
/// bytes, which the caller writes, or the unchanged block. `is_whole` is true if the block is the whole body.
///
/// # Errors
/// The outer error means that this thread cannot use the engine.
#[inline]
pub(super) fn encode_most<I: Interface>(
    host: &Host<I>,
    py: Python<'_>,
    exchange: &Exchange,
    chunk: Chunk,
    is_whole: bool,
) -> PyResult<Result<Chunk, Mismatch>> {
    if !host.compresses || chunk.as_ref().len() <= ENCODE_AT_ONCE {
        return Ok(Ok(chunk));
    }
    let rest = encode_slices(host, py, exchange, Part::Chunk(chunk), is_whole)?;
    Ok(rest.map(|rest| match rest {
        Part::Chunk(chunk) => chunk,
        Part::File { .. } => unreachable!("a block has a block as its rest"),
    }))
}

/// Does the same as [`encode_most`], for any kind of part.
#[cold]
pub(super) fn encode_slices<I: Interface>(
    host: &Host<I>,
    py: Python<'_>,
    exchange: &Exchange,
    part: Part,
    is_whole: bool,
) -> PyResult<Result<Part, Mismatch>> {
    let length = match &part {
        Part::Chunk(chunk) => chunk.as_ref().len(),
        Part::File { length, .. } => usize::try_from(*length).unwrap_or(usize::MAX),
    };
    if length <= ENCODE_AT_ONCE {
        return Ok(Ok(part));
    }
    let is_file = matches!(part, Part::File { .. });
    let is_encoded = host.with(py, |state| {
        exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return Ok(false) };
            let draft = &exchange.draft;
            let is_encoded = state.engine.reply(ticket, |reply| {
                // The engine sends a file at the beginning of a response unencoded.
                if reply.is_begun() || draft.is_empty() || is_file {
                    return Ok(reply.is_encoded());
                }
                let known = is_whole.then_some(length as u64);
                if let Some(known) = known {
                    reply.check_length(draft, known).map_err(|misuse| Mismatch::of(misuse, draft, known))?;
                }
                Ok(reply.begin_encoded(draft, known))
            });
            exchange.begun |= matches!(is_encoded, Ok(true));
            is_encoded
        })
    })?;
    match is_encoded {
        Ok(true) => {}
        Ok(false) => return Ok(Ok(part)),
        Err(mismatch) => return Ok(Err(mismatch)),
    }
    let mut at = 0;
    while length - at > ENCODE_AT_ONCE {
        let slice = slice_of(&part, at)?;
        let written = host.with(py, |state| {
            exchange.with(py, |exchange| {
                let ticket = exchange.ticket.as_ref()?;
                let draft = &exchange.draft;
                state.engine.reply(ticket, |reply| {
                    let written = reply.write_slice(&slice);
                    let misuse = written.map_err(|misuse| Mismatch::of(misuse, draft, reply.offered_bytes()));
                    (!reply.is_gone()).then_some(misuse)
                })
            })
        })?;
        match written {
            // The client has left. The caller's next write reports that.
            None => break,
            Some(Err(mismatch)) => return Ok(Err(mismatch)),
            Some(Ok(())) => at += slice.len(),
        }
        // Releases the GIL for a moment, so that another thread can run.
        py.detach(|| ());
    }
    let from = length - (length - at).min(ENCODE_AT_ONCE);
    Ok(Ok(match part {
        Part::Chunk(chunk) => {
            let rest = PyBytes::new(py, &chunk.as_ref()[from..]);
            Part::Chunk(Chunk::of(py, rest.into_any().unbind().into())?)
        }
        Part::File { file, offset, is_whole, .. } => {
            Part::File { file, offset: offset + from as u64, length: (length - from) as u64, is_whole }
        }
    }))
}

/// Returns [`ENCODE_AT_ONCE`] bytes of `part`, from the offset `at`.
fn slice_of(part: &Part, at: usize) -> PyResult<Cow<'_, [u8]>> {
    match part {
        Part::Chunk(chunk) => Ok(Cow::Borrowed(&chunk.as_ref()[at..at + ENCODE_AT_ONCE])),
        Part::File { file, offset, .. } => {
            let mut bytes = vec![0; ENCODE_AT_ONCE];
            file.read_exact_at(&mut bytes, offset + at as u64)?;
            Ok(Cow::Owned(bytes))
        }
    }
}
