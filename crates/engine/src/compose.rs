//! The composition of output: protocol bytes and small parts are copied into one buffer, large parts are not copied,
//! and one system call sends everything.

use crate::config::{COPY_AT_MOST, FRAME, WRITE_BUFFER};
use crate::output::Output;
use crate::transport::{Moved, Transport};
use std::io::{self, IoSlice};

/// The maximum number of large parts that one call sends.
const CHUNKS: usize = 32;

/// The output that one connection will send next. A connection has a composer only while there is output; the engine
/// keeps unused composers.
#[derive(Debug)]
pub(crate) struct Composer<C> {
    /// Bytes of the protocol and small parts. Bytes appended here follow all chunks so far.
    pub(crate) bytes: Vec<u8>,
    chunks: Vec<Chunk<C>>,
    chunk_bytes: usize,
    /// The number of bytes that have been sent. Sending drops no chunk; only [`clear`](Self::clear) and
    /// [`move_to`](Self::move_to) do.
    sent: usize,
    /// True if sending has failed, because the peer is gone.
    pub(crate) failed: bool,
    /// The number of the tick at which output was held back; `None` if it is not. The tick after this one sends it, if
    /// nothing has sent it before.
    pub(crate) deferred: Option<u64>,
}

/// A position in the composed output. See [`Composer::mark`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    bytes: usize,
    chunks: usize,
    chunk_bytes: usize,
}

/// A large part: the first `end` bytes of `content`. It is sent after the first `at` bytes of `bytes`.
#[derive(Debug)]
struct Chunk<C> {
    at: usize,
    content: C,
    end: usize,
}

impl<C: AsRef<[u8]>> Composer<C> {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), chunks: Vec::new(), chunk_bytes: 0, sent: 0, failed: false, deferred: None }
    }

    /// Returns true if the composer holds no output, sent or unsent.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.chunks.is_empty()
    }

    /// Returns true if all output has been sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent == self.length()
    }

    /// Returns true if some output has been sent or sending has failed. Nothing may be added then before the rest is
    /// moved or cleared.
    pub(crate) fn is_begun(&self) -> bool {
        self.sent > 0 || self.failed
    }

    /// Returns the position after the output composed so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), chunks: self.chunks.len(), chunk_bytes: self.chunk_bytes }
    }

    /// Drops the output after the mark. None of that output may have been sent.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        if mark.bytes == 0 && mark.chunks == 0 {
            return self.clear();
        }
        self.bytes.truncate(mark.bytes);
        self.chunks.truncate(mark.chunks);
        self.chunk_bytes = mark.chunk_bytes;
    }

    /// Returns true if there is so much output that it has to be sent now.
    pub(crate) fn is_full(&self) -> bool {
        self.length() > WRITE_BUFFER || self.chunks.len() == CHUNKS
    }

    /// Returns the number of bytes that have not been sent.
    pub(crate) fn unsent(&self) -> usize {
        self.length() - self.sent
    }

    /// Returns the number of composed bytes.
    fn length(&self) -> usize {
        self.bytes.len() + self.chunk_bytes
    }

    /// Appends the first `end` bytes of `chunk`.
    pub(crate) fn push(&mut self, chunk: C, end: usize) {
        if end <= COPY_AT_MOST {
            self.bytes.extend_from_slice(&chunk.as_ref()[..end]);
        } else {
            self.chunks.push(Chunk { at: self.bytes.len(), content: chunk, end });
            self.chunk_bytes += end;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.chunks.clear();
        self.chunk_bytes = 0;
        self.sent = 0;
        self.failed = false;
        self.deferred = None;
    }

    /// Sends as many unsent bytes as the transport accepts, in one call. Returns the number of bytes sent. `ends`: the
    /// end of output follows at once, so the transport sends it with the last bytes if it can.
    pub(crate) fn send(&mut self, transport: &mut impl Transport, ends: bool) -> io::Result<usize> {
        let moved = if self.chunks.is_empty() {
            transport.send(&[IoSlice::new(&self.bytes[self.sent..])], ends)
        } else {
            let mut slices = [IoSlice::new(&[]); 2 * CHUNKS + 1];
            let mut count = 0;
            let mut skip = self.sent;
            for part in self.parts() {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if skipped < part.len() {
                    slices[count] = IoSlice::new(&part[skipped..]);
                    count += 1;
                }
            }
            transport.send(&slices[..count], ends)
        };
        match moved {
            Ok(Moved::Bytes(count)) => {
                self.sent += count;
                Ok(count)
            }
            Ok(Moved::WouldBlock) => Ok(0),
            Err(error) => {
                self.failed = true;
                Err(error)
            }
        }
    }

    /// Sends `body` in frames of [`FRAME`] bytes, without copying it, behind the composed output. The heads of the
    /// frames are the end of that output: `heads` has the positions at which each of them ends. Moves to `waiting` what
    /// the transport does not accept, also if sending fails: then the next attempt fails, too. Returns the number of
    /// bytes sent. Only for output without chunks of its own, of which nothing has been sent.
    pub(crate) fn send_frames(
        &mut self,
        heads: &[usize],
        body: &[u8],
        transport: &mut impl Transport,
        waiting: &mut Output<C>,
    ) -> usize {
        debug_assert!(self.chunks.is_empty() && !self.is_begun() && heads.len() <= CHUNKS, "frames are not copied");
        let (mut slices, mut from) = ([IoSlice::new(&[]); 2 * CHUNKS], 0);
        for (pair, (frame, &end)) in slices.chunks_exact_mut(2).zip(body.chunks(FRAME).zip(heads)) {
            pair.copy_from_slice(&[IoSlice::new(&self.bytes[from..end]), IoSlice::new(frame)]);
            from = end;
        }
        let slices = &slices[..2 * heads.len()];
        let count = match transport.send(slices, false) {
            Ok(Moved::Bytes(count)) => count,
            Ok(Moved::WouldBlock) | Err(_) => 0,
        };
        let mut skip = count;
        for slice in slices {
            let skipped = skip.min(slice.len());
            skip -= skipped;
            waiting.push_bytes(&slice[skipped..]);
        }
        self.clear();
        count
    }

    /// Returns the composed output in order: at most two slices for each chunk, and one after the last chunk.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        let behind_chunks = self.chunks.last().map_or(0, |last| last.at);
        let with_chunks = self.chunks.iter().flat_map(move |chunk| {
            let before = &self.bytes[std::mem::replace(&mut from, chunk.at)..chunk.at];
            [before, &chunk.content.as_ref()[..chunk.end]]
        });
        with_chunks.chain(std::iter::once(&self.bytes[behind_chunks..]))
    }

    /// Appends the unsent output to `output`, and removes it here.
    pub(crate) fn move_to(&mut self, output: &mut Output<C>) {
        let mut skip = self.sent;
        let mut from = 0;
        let mut skipped = |length: usize| {
            let skipped = skip.min(length);
            skip -= skipped;
            skipped
        };
        for Chunk { at, content, end } in self.chunks.drain(..) {
            let before = &self.bytes[std::mem::replace(&mut from, at)..at];
            output.push_bytes(&before[skipped(before.len())..]);
            output.push_chunk(content, skipped(end), end);
        }
        let rest = &self.bytes[from..];
        output.push_bytes(&rest[skipped(rest.len())..]);
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Tcp;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    fn composed() -> (Composer<Vec<u8>>, Vec<u8>) {
        let mut composer = Composer::new();
        let mut expected = Vec::new();
        for (index, length) in [10, COPY_AT_MOST + 1, 0, COPY_AT_MOST + 7, COPY_AT_MOST].into_iter().enumerate() {
            let text = format!("<{index}>");
            composer.bytes.extend_from_slice(text.as_bytes());
            expected.extend_from_slice(text.as_bytes());
            let chunk = vec![b'a' + u8::try_from(index).unwrap(); length + 5];
            expected.extend_from_slice(&chunk[..length]);
            composer.push(chunk, length);
        }
        composer.bytes.extend_from_slice(b"end");
        expected.extend_from_slice(b"end");
        (composer, expected)
    }

    #[test]
    fn all_parts_leave_in_their_order_from_any_place() {
        let (mut composer, expected) = composed();
        assert_eq!(composer.length(), expected.len());
        for sent in [0, 1, 5, 13, 14, 3000, COPY_AT_MOST, expected.len() - 3, expected.len() - 1] {
            let (near, mut far) = UnixStream::pair().unwrap();
            composer.sent = sent;
            let mut near = Tcp::new(OwnedFd::from(near));
            let count = composer.send(&mut near, false).unwrap();
            drop(near);
            let mut received = Vec::new();
            far.read_to_end(&mut received).unwrap();
            assert_eq!(received, expected[sent..sent + count]);
        }
    }

    #[test]
    fn what_was_not_sent_waits_in_its_order() {
        for sent in [0, 2, 3, 14, 4000, COPY_AT_MOST + 20] {
            let (mut composer, expected) = composed();
            let mut output = Output::new();
            composer.sent = sent;
            composer.move_to(&mut output);
            assert!(composer.is_empty());
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut near = Tcp::new(OwnedFd::from(near));
            let mut count = 0;
            output.flush(&mut near, &mut count).unwrap();
            assert!(output.is_empty());
            assert_eq!(count, (expected.len() - sent) as u64);
            drop(near);
            let mut received = Vec::new();
            far.read_to_end(&mut received).unwrap();
            assert_eq!(received, expected[sent..]);
        }
    }

    #[test]
    fn frames_that_the_transport_does_not_accept_wait_in_their_order() {
        let body: Vec<u8> = (0..7 * FRAME / 2).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (mut composer, mut expected) = (Composer::<Vec<u8>>::new(), b"before".to_vec());
        composer.bytes.extend_from_slice(b"before");
        let mut heads = Vec::new();
        for (at, frame) in body.chunks(FRAME).enumerate() {
            let head = format!("<{at}>");
            composer.bytes.extend_from_slice(head.as_bytes());
            heads.push(composer.bytes.len());
            expected.extend([head.as_bytes(), frame].concat());
        }
        let (near, mut far) = UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&near, 4096).unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let (mut near, mut waiting, mut received) = (Tcp::new(OwnedFd::from(near)), Output::new(), Vec::new());
        let mut sent = composer.send_frames(&heads, &body, &mut near, &mut waiting) as u64;
        assert!(
            composer.is_empty() && sent > 0 && sent + waiting.length() == expected.len() as u64,
            "{sent} were sent"
        );
        while !waiting.is_empty() {
            far.read_to_end(&mut received).unwrap_err();
            waiting.flush(&mut near, &mut sent).unwrap();
        }
        drop(near);
        far.read_to_end(&mut received).unwrap();
        assert_eq!(received, expected);

        // If the peer is gone, the next attempt to send shows it.
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let mut near = Tcp::new(OwnedFd::from(near));
        composer.bytes.extend_from_slice(b"head");
        assert_eq!(composer.send_frames(&[4], b"body", &mut near, &mut waiting), 0);
        assert_eq!(waiting.length(), 8);
        waiting.flush(&mut near, &mut sent).unwrap_err();
    }
}
