//! The waiting output of a connection or an exchange: bytes that could not be sent yet.
//!
//! The application stops producing while there is waiting output. This limits its size to one write buffer and one part
//! of a body. If a producer cannot stop ([`Reply::write`](crate::Reply::write) from within a call), the accumulated
//! output is moved to an unnamed file ([`Output::spill`]).

use crate::transport::{Moved, Transport};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The maximum size in bytes up to which successive byte slices are joined into one piece.
const JOINED_AT_MOST: usize = 64 << 10;

/// The maximum number of file bytes that one flush sends. It limits how long a client that reads fast, or a slow disk,
/// delays other connections.
const FILE_SHARE: u64 = 1 << 20;

/// The maximum length in bytes of a file that is sent in one packet with the bytes before it. For longer files these
/// bytes are sent first: if joined, the kernel needs a tenth more time for 1 MiB on loopback, and twice as much in
/// nginx (`tcp_nopush`), to save one packet in many.
const FILE_WITH_HEAD: u64 = 64 << 10;

/// Bytes that could not be sent yet, oldest first.
#[derive(Debug)]
pub(crate) struct Output<C> {
    pieces: VecDeque<Piece<C>>,
    file_shrank: bool,
    /// True if the last flush stopped although the transport would have accepted more.
    is_paused: bool,
}

#[derive(Debug)]
enum Piece<C> {
    Bytes {
        bytes: Vec<u8>,
        sent: usize,
    },
    Chunk {
        chunk: C,
        sent: usize,
        end: usize,
    },
    File {
        file: Arc<File>,
        offset: u64,
        left: u64,
    },
    /// Output that would use too much memory, in a temporary file of the server.
    Spill {
        file: Arc<File>,
        offset: u64,
        left: u64,
    },
}

impl<C: AsRef<[u8]>> Output<C> {
    pub(crate) fn new() -> Self {
        Self { pieces: VecDeque::new(), file_shrank: false, is_paused: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.is_paused = false;
    }

    /// Returns true if a file was shorter than declared, so that the response cannot continue.
    pub(crate) fn has_file_shrunk(&self) -> bool {
        self.file_shrank
    }

    /// Returns true if the last flush stopped although the transport would have accepted more. The poller then reports
    /// no readiness for the rest.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns the number of waiting bytes in memory.
    pub(crate) fn length(&self) -> u64 {
        let of = |piece: &Piece<C>| match piece {
            Piece::Bytes { bytes, sent } => bytes.len() - sent,
            Piece::Chunk { sent, end, .. } => end - sent,
            Piece::File { .. } | Piece::Spill { .. } => 0,
        };
        self.pieces.iter().map(of).sum::<usize>() as u64
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        // An application may write byte by byte. One piece per byte would cost one system call per byte.
        match self.pieces.back_mut() {
            Some(Piece::Bytes { bytes: last, .. }) if last.len() + bytes.len() <= JOINED_AT_MOST => {
                last.extend_from_slice(bytes);
            }
            _ if bytes.is_empty() => {}
            _ => self.pieces.push_back(Piece::Bytes { bytes: bytes.into(), sent: 0 }),
        }
    }

    /// Appends the bytes of `chunk` from `sent` to `end`, without copying them.
    pub(crate) fn push_chunk(&mut self, chunk: C, sent: usize, end: usize) {
        if sent < end {
            self.pieces.push_back(Piece::Chunk { chunk, sent, end });
        }
    }

    pub(crate) fn push_file(&mut self, file: Arc<File>, offset: u64, length: u64) {
        if length > 0 {
            self.pieces.push_back(Piece::File { file, offset, left: length });
        }
    }

    /// Moves the output in memory to an unnamed file. Appends to the file of the previous call if that is still the
    /// last piece.
    ///
    /// If this fails, the output is unchanged and remains in memory.
    pub(crate) fn spill(&mut self) -> io::Result<()> {
        let behind = self.pieces.iter().rposition(|piece| matches!(piece, Piece::File { .. } | Piece::Spill { .. }));
        let first = behind.map_or(0, |last| last + 1);
        let grows = behind.is_some_and(|last| matches!(self.pieces[last], Piece::Spill { .. }));
        let new = if grows { None } else { Some(tempfile::tempfile()?) };
        let (file, end) = match (&new, behind.map(|last| &self.pieces[last])) {
            (None, Some(Piece::Spill { file, offset, left })) => (&**file, offset + left),
            (Some(file), _) => (file, 0),
            (None, _) => return Ok(()),
        };
        let mut written = 0;
        for piece in self.pieces.range(first..) {
            let bytes = match piece {
                Piece::Bytes { bytes, sent } => &bytes[*sent..],
                Piece::Chunk { chunk, sent, end } => &chunk.as_ref()[*sent..*end],
                Piece::File { .. } | Piece::Spill { .. } => &[],
            };
            file.write_all_at(bytes, end + written)?;
            written += bytes.len() as u64;
        }
        self.pieces.truncate(first);
        match (new, self.pieces.back_mut()) {
            (Some(file), _) => self.pieces.push_back(Piece::Spill { file: file.into(), offset: 0, left: written }),
            (None, Some(Piece::Spill { left, .. })) => *left += written,
            (None, _) => {}
        }
        Ok(())
    }

    /// Returns the bytes of the first piece, if it is in memory.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        match self.pieces.front()? {
            Piece::Bytes { bytes, sent } => Some(&bytes[*sent..]),
            Piece::Chunk { chunk, sent, end } => Some(&chunk.as_ref()[*sent..*end]),
            Piece::File { .. } | Piece::Spill { .. } => None,
        }
    }

    /// Removes the first `count` bytes of the first piece.
    pub(crate) fn advance(&mut self, count: usize) {
        if self.pieces.front_mut().is_some_and(|piece| piece.advance(count)) {
            self.pieces.pop_front();
        }
    }

    /// Moves at most `most` bytes from the front to the end of `bytes`.
    ///
    /// # Errors
    /// If a file cannot be read or is shorter than declared.
    pub(crate) fn take(&mut self, most: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
        let mut left = most;
        while left > 0
            && let Some(piece) = self.pieces.front_mut()
        {
            let count = match piece {
                Piece::Bytes { bytes: from, sent } => copy(&from[*sent..], left, bytes),
                Piece::Chunk { chunk, sent, end } => copy(&chunk.as_ref()[*sent..*end], left, bytes),
                Piece::File { file, offset, left: of_file } | Piece::Spill { file, offset, left: of_file } => {
                    let wanted = usize::try_from(*of_file).map_or(left, |of_file| of_file.min(left));
                    let start = bytes.len();
                    bytes.resize(start + wanted, 0);
                    let read = file.read_at(&mut bytes[start..], *offset)?;
                    bytes.truncate(start + read);
                    read
                }
            };
            if count == 0 {
                self.file_shrank = true;
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= count;
            self.advance(count);
        }
        Ok(())
    }

    /// Sends as much as the transport accepts, but at most [`FILE_SHARE`] bytes of files. Adds the number of bytes sent
    /// to `moved`. An error means that the peer is gone, or that a file is shorter than declared; some bytes may have
    /// been sent before.
    pub(crate) fn flush(&mut self, transport: &mut impl Transport, moved: &mut u64) -> io::Result<()> {
        self.is_paused = false;
        let mut share = FILE_SHARE;
        loop {
            let file_follows = match self.pieces.get(1) {
                Some(Piece::File { left, .. } | Piece::Spill { left, .. }) => *left <= FILE_WITH_HEAD,
                _ => false,
            };
            let Some(piece) = self.pieces.front_mut() else { break };
            let outcome = match piece {
                Piece::Bytes { bytes, sent } => transport.send(&[IoSlice::new(&bytes[*sent..])], file_follows)?,
                Piece::Chunk { chunk, sent, end } => {
                    transport.send(&[IoSlice::new(&chunk.as_ref()[*sent..*end])], false)?
                }
                Piece::File { .. } | Piece::Spill { .. } if share == 0 => {
                    self.is_paused = true;
                    break;
                }
                Piece::File { file, offset, left } | Piece::Spill { file, offset, left } => {
                    let outcome = transport.send_file(file, *offset, share.min(*left))?;
                    if let Moved::Bytes(count) = outcome {
                        share = share.saturating_sub(count as u64);
                    }
                    outcome
                }
            };
            let Moved::Bytes(count) = outcome else { break };
            *moved += count as u64;
            if count == 0 {
                self.file_shrank = true;
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if piece.advance(count) {
                self.pieces.pop_front();
            }
        }
        Ok(())
    }
}

fn copy(from: &[u8], most: usize, to: &mut Vec<u8>) -> usize {
    let count = from.len().min(most);
    to.extend_from_slice(&from[..count]);
    count
}

impl<C> Piece<C> {
    /// Records that `count` bytes have been sent. Returns true if the piece has been sent completely.
    fn advance(&mut self, count: usize) -> bool {
        match self {
            Piece::Bytes { bytes, sent } => {
                *sent += count;
                *sent == bytes.len()
            }
            Piece::Chunk { sent, end, .. } => {
                *sent += count;
                sent == end
            }
            Piece::File { offset, left, .. } | Piece::Spill { offset, left, .. } => {
                *offset += count as u64;
                *left -= count as u64;
                *left == 0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Tcp;
    use rustix::net::sockopt;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    /// Returns a non-blocking connection with a small send buffer.
    fn narrow() -> (Tcp<OwnedFd>, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        sockopt::set_socket_send_buffer_size(&near, 4096).unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        (Tcp::new(near.into()), far)
    }

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn letters(first: u8, count: usize) -> Vec<u8> {
        (b'a'..=b'z').cycle().skip(usize::from(first - b'a')).take(count).collect()
    }

    #[test]
    fn what_the_socket_does_not_take_waits_in_order() {
        let (mut near, mut far) = narrow();
        let mut output = Output::new();
        output.push_bytes(b"head");
        output.push_chunk(letters(b'a', 30_000), 10, 29_000);
        output.push_bytes(b"between");
        output.push_file(file(&letters(b'b', 50_000)).into(), 100, 40_000);
        output.push_file(file(&letters(b'c', 10)).into(), 0, 10);
        output.push_chunk(letters(b'd', 20_000), 0, 20_000);
        output.push_bytes(b"end");
        let parts: [&[u8]; 7] = [
            b"head",
            &letters(b'a', 29_000)[10..],
            b"between",
            &letters(b'b', 40_100)[100..],
            &letters(b'c', 10),
            &letters(b'd', 20_000),
            b"end",
        ];
        let in_memory = parts[0].len() + parts[1].len() + parts[2].len() + parts[5].len() + parts[6].len();
        assert_eq!(output.length(), in_memory as u64);

        let mut received = Vec::new();
        let mut sent = 0;
        let mut rounds = 0;
        while !output.is_empty() {
            output.flush(&mut near, &mut sent).unwrap();
            rounds += 1;
            // The flush stops because the far end does not read. Reading makes room.
            let error = far.read_to_end(&mut received).unwrap_err();
            assert_eq!((error.kind(), received.len() as u64), (io::ErrorKind::WouldBlock, sent));
        }
        assert!(rounds > 2, "all of it fitted in {rounds} rounds");
        assert!(received == parts.concat());
        assert_eq!(output.length(), 0);
    }

    #[test]
    fn nothing_is_queued_for_nothing() {
        let mut output = Output::new();
        output.push_bytes(b"");
        output.push_chunk(letters(b'a', 10), 5, 5);
        output.push_file(file(b"x").into(), 0, 0);
        assert!(output.is_empty());
    }

    #[test]
    fn bytes_that_come_one_by_one_are_few_pieces() {
        let (mut near, mut far) = narrow();
        let mut output: Output<Vec<u8>> = Output::new();
        let expected = letters(b'a', 200_000);
        for byte in &expected {
            output.push_bytes(&[*byte]);
        }
        assert_eq!((output.pieces.len(), output.length()), (200_000usize.div_ceil(JOINED_AT_MOST), 200_000));
        let mut received = Vec::new();
        while !output.is_empty() {
            output.flush(&mut near, &mut 0).unwrap();
            far.read_to_end(&mut received).unwrap_err();
        }
        assert!(received == expected);
    }

    #[test]
    fn a_file_that_has_shrunk_is_not_a_peer_that_is_gone() {
        let (mut near, mut far) = narrow();
        let mut output: Output<Vec<u8>> = Output::new();
        output.push_bytes(b"head");
        output.push_file(file(b"short").into(), 2, 4);
        let mut sent = 0;
        assert_eq!(output.flush(&mut near, &mut sent).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(sent, 7);
        assert!(output.has_file_shrunk());
        let mut received = [0; 20];
        let count = far.read(&mut received).unwrap();
        assert_eq!(received[..count], *b"headort");

        let (mut near, far) = narrow();
        drop(far);
        let mut output: Output<Vec<u8>> = Output::new();
        output.push_bytes(b"head");
        assert_eq!(output.flush(&mut near, &mut sent).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(sent, 7);
        assert!(!output.has_file_shrunk());
    }

    #[test]
    fn what_is_spilled_keeps_its_order() {
        let (mut near, mut far) = narrow();
        let mut output: Output<Vec<u8>> = Output::new();
        let mut expected = Vec::new();
        let mut received = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        for round in 0..40usize {
            let bytes = letters(b'a' + u8::try_from(round % 26).unwrap(), 3000 + round * 500);
            expected.extend_from_slice(&bytes);
            if round % 3 == 0 {
                let length = bytes.len();
                output.push_chunk(bytes, 0, length);
            } else {
                output.push_bytes(&bytes);
            }
            if round % 4 == 1 {
                output.flush(&mut near, &mut 0).unwrap();
            }
            if round % 5 == 2 {
                output.spill().unwrap();
                assert_eq!(output.length(), 0);
            }
            if round % 7 == 3
                && let Ok(count) = far.read(&mut buffer)
            {
                received.extend_from_slice(&buffer[..count]);
            }
        }
        while received.len() < expected.len() {
            output.flush(&mut near, &mut 0).unwrap();
            if let Ok(count) = far.read(&mut buffer) {
                received.extend_from_slice(&buffer[..count]);
            }
        }
        assert!(output.is_empty());
        assert_eq!(received, expected);
    }
}
