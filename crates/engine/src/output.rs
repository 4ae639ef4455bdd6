//! What a connection has still to send.

use crate::net::{self, Moved};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

/// Bytes that could not be sent yet, oldest first. While it is not empty nothing else of its connection is produced,
/// which is what bounds it: one write buffer and one part of a body.
#[derive(Debug)]
pub(crate) struct Output<C> {
    pieces: VecDeque<Piece<C>>,
    file_shrank: bool,
}

#[derive(Debug)]
enum Piece<C> {
    Bytes { bytes: Box<[u8]>, sent: usize },
    Chunk { chunk: C, sent: usize, end: usize },
    File { file: File, offset: u64, left: u64 },
}

impl<C: AsRef<[u8]>> Output<C> {
    pub(crate) fn new() -> Self {
        Self { pieces: VecDeque::new(), file_shrank: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether a file was shorter than it was said to be, so that the response cannot go on.
    pub(crate) fn has_file_shrunk(&self) -> bool {
        self.file_shrank
    }

    /// Bytes that wait in memory.
    pub(crate) fn length(&self) -> u64 {
        let of = |piece: &Piece<C>| match piece {
            Piece::Bytes { bytes, sent } => bytes.len() - sent,
            Piece::Chunk { sent, end, .. } => end - sent,
            Piece::File { .. } => 0,
        };
        self.pieces.iter().map(of).sum::<usize>() as u64
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.pieces.push_back(Piece::Bytes { bytes: bytes.into(), sent: 0 });
        }
    }

    /// Queues the part of `chunk` from `sent` to `end`, by reference.
    pub(crate) fn push_chunk(&mut self, chunk: C, sent: usize, end: usize) {
        if sent < end {
            self.pieces.push_back(Piece::Chunk { chunk, sent, end });
        }
    }

    pub(crate) fn push_file(&mut self, file: File, offset: u64, length: u64) {
        if length > 0 {
            self.pieces.push_back(Piece::File { file, offset, left: length });
        }
    }

    /// Sends as much as the socket takes and returns how much that was. An error means that the peer is gone, or that
    /// a file is shorter than it was said to be.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> io::Result<u64> {
        let mut total = 0;
        loop {
            let file_follows = matches!(self.pieces.get(1), Some(Piece::File { .. }));
            let Some(piece) = self.pieces.front_mut() else { break };
            let moved = match piece {
                Piece::Bytes { bytes, sent } => net::send(&socket, &[IoSlice::new(&bytes[*sent..])], file_follows)?,
                Piece::Chunk { chunk, sent, end } => {
                    net::send(&socket, &[IoSlice::new(&chunk.as_ref()[*sent..*end])], false)?
                }
                Piece::File { file, offset, left } => net::send_file(&socket, &*file, *offset, *left)?,
            };
            let Moved::Bytes(count) = moved else { break };
            total += count as u64;
            if count == 0 {
                self.file_shrank = true;
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if piece.advance(count) {
                self.pieces.pop_front();
            }
        }
        Ok(total)
    }
}

impl<C> Piece<C> {
    /// Takes note of `count` bytes sent; whether the piece is through.
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
            Piece::File { offset, left, .. } => {
                *offset += count as u64;
                *left -= count as u64;
                *left == 0
            }
        }
    }
}
