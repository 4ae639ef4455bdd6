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
}

#[derive(Debug)]
enum Piece<C> {
    Bytes { bytes: Vec<u8>, sent: usize },
    Chunk { chunk: C, sent: usize, end: usize },
    File { file: File, offset: u64, left: u64 },
}

impl<C: AsRef<[u8]>> Output<C> {
    pub(crate) fn new() -> Self {
        Self { pieces: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
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

    /// Queues `composed` and then a part of a file.
    pub(crate) fn push_file(&mut self, composed: &mut Vec<u8>, file: File, offset: u64, length: u64) {
        self.queue(composed);
        if length > 0 {
            self.pieces.push_back(Piece::File { file, offset, left: length });
        }
    }

    /// Sends `composed` and then the first `end` bytes of `chunk`; what the socket does not take is queued, the chunk
    /// by reference. Returns the bytes sent. An error means that the peer is gone.
    pub(crate) fn send_chunk(
        &mut self,
        composed: &mut Vec<u8>,
        chunk: C,
        end: usize,
        socket: impl AsFd,
    ) -> io::Result<u64> {
        let mut sent = 0;
        if self.is_empty() {
            let slices = [IoSlice::new(composed), IoSlice::new(&chunk.as_ref()[..end])];
            if let Moved::Bytes(count) = net::send(socket, &slices, false)? {
                sent = count;
            }
        }
        let of_composed = sent.min(composed.len());
        composed.drain(..of_composed);
        self.queue(composed);
        let of_chunk = sent - of_composed;
        if of_chunk < end {
            self.pieces.push_back(Piece::Chunk { chunk, sent: of_chunk, end });
        }
        Ok(sent as u64)
    }

    /// Sends what waits and then `composed`, which is empty afterwards; what the socket does not take is queued.
    /// Returns the bytes sent. An error means that the peer is gone, or that a file is shorter than it was said to be.
    pub(crate) fn flush(&mut self, composed: &mut Vec<u8>, socket: impl AsFd) -> io::Result<u64> {
        if self.is_empty() {
            if composed.is_empty() {
                return Ok(0);
            }
            let sent = match net::send(socket, &[IoSlice::new(composed)], false)? {
                Moved::Bytes(count) => count,
                Moved::WouldBlock => 0,
            };
            composed.drain(..sent);
            self.queue(composed);
            return Ok(sent as u64);
        }
        self.queue(composed);
        self.flush_queued(socket)
    }

    /// Puts `composed` behind what waits already.
    fn queue(&mut self, composed: &mut Vec<u8>) {
        if !composed.is_empty() {
            self.pieces.push_back(Piece::Bytes { bytes: composed.as_slice().into(), sent: 0 });
            composed.clear();
        }
    }

    fn flush_queued(&mut self, socket: impl AsFd) -> io::Result<u64> {
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
            if piece.advance(count)? {
                self.pieces.pop_front();
            }
        }
        Ok(total)
    }
}

impl<C> Piece<C> {
    /// Takes note of `count` bytes sent; whether the piece is through.
    fn advance(&mut self, count: usize) -> io::Result<bool> {
        match self {
            Piece::Bytes { bytes, sent } => {
                *sent += count;
                Ok(*sent == bytes.len())
            }
            Piece::Chunk { sent, end, .. } => {
                *sent += count;
                Ok(sent == end)
            }
            Piece::File { .. } if count == 0 => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter than announced"))
            }
            Piece::File { offset, left, .. } => {
                *offset += count as u64;
                *left -= count as u64;
                Ok(*left == 0)
            }
        }
    }
}
