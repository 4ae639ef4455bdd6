//! The storage of a request body while it is received: first in memory, then in an unnamed file.

use crate::memory::Reservation;
use std::fs::File;
use std::io::{self, Seek, Write};

/// A complete and decoded request body.
#[derive(Debug)]
pub enum Body<'a> {
    /// An empty body.
    Empty,
    /// The body in the read buffer. The application copies the bytes that it keeps.
    Borrowed(&'a [u8]),
    /// A body that arrived in several parts.
    Memory(Vec<u8>),
    /// A body that was too long for memory: an unnamed file, positioned at its start, and the length in bytes.
    File(File, u64),
}

/// The number of bytes that are written to a file at a time, if they arrive in shorter parts: a body of 1 MiB in frames
/// of 16 KiB takes 17 writes then, and took 61.
const WRITTEN_AT_A_TIME: usize = 64 << 10;

/// A spool, which collects the body of one request.
///
/// Invariants: if there is a `file`, `memory` holds its end, which has not been written, shorter than
/// [`WRITTEN_AT_A_TIME`]; `reserved` covers the capacity of `memory`.
#[derive(Debug)]
pub(crate) struct Spool {
    memory: Vec<u8>,
    reserved: Reservation,
    file: Option<File>,
    length: u64,
    /// The value of Content-Length, if it fits a `usize`.
    expected: usize,
}

impl Spool {
    /// Creates an empty spool for a body of `expected` bytes; `None` if the length is unknown. Reserves no memory
    /// before bytes arrive.
    pub(crate) fn new(reserved: Reservation, expected: Option<u64>) -> Self {
        let expected = expected.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
        Self { memory: Vec::new(), reserved, file: None, length: 0, expected }
    }

    /// Appends a part of the body. Keeps at most `most` bytes in memory, and no more than can be reserved; otherwise
    /// moves the body to a file. Returns true if it has written to the file.
    pub(crate) fn push(&mut self, data: &[u8], most: usize) -> io::Result<bool> {
        self.length += data.len() as u64;
        if self.file.is_none() {
            if self.has_room_for(data.len(), most) {
                self.memory.extend_from_slice(data);
                return Ok(false);
            }
            self.file = Some(tempfile::tempfile()?);
            self.write(data)?;
            return Ok(true);
        }
        let count = data.len().min(WRITTEN_AT_A_TIME - self.memory.len());
        if data.len() >= WRITTEN_AT_A_TIME || !self.has_room_for(count, WRITTEN_AT_A_TIME) {
            self.write(data)?;
            return Ok(true);
        }
        self.memory.extend_from_slice(&data[..count]);
        if self.memory.len() < WRITTEN_AT_A_TIME {
            return Ok(false);
        }
        if let Some(file) = &mut self.file {
            file.write_all(&self.memory)?;
        }
        self.memory.clear();
        self.memory.extend_from_slice(&data[count..]);
        Ok(true)
    }

    /// Writes the bytes in memory to the file, and `data` behind them. Frees the memory.
    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.write_all(&std::mem::take(&mut self.memory))?;
            file.write_all(data)?;
        }
        self.reserved.resize(0);
        Ok(())
    }

    /// Allocates memory for `more` further bytes. Returns false if they would exceed a limit.
    fn has_room_for(&mut self, more: usize, most: usize) -> bool {
        let needed = self.memory.len() + more;
        if needed > most {
            return false;
        }
        if needed <= self.memory.capacity() {
            return true;
        }
        // The capacity doubles, so that copying stays linear, but never exceeds the expected length.
        let wanted = (2 * self.memory.capacity()).min(most).min(self.expected).max(needed);
        let Some(given) = [wanted, needed].into_iter().find(|&bytes| self.reserved.resize(bytes)) else { return false };
        self.memory.reserve_exact(given - self.memory.len());
        true
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the complete body and its reservation.
    pub(crate) fn finish(mut self) -> io::Result<(Body<'static>, Reservation)> {
        if self.file.is_some() {
            self.write(&[])?;
        }
        let body = match self.file {
            Some(mut file) => {
                file.rewind()?;
                Body::File(file, self.length)
            }
            None if self.memory.is_empty() => Body::Empty,
            None => {
                // The application copies exactly this many bytes, so more need not stay reserved.
                self.reserved.resize(self.memory.len());
                Body::Memory(self.memory)
            }
        };
        Ok((body, self.reserved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::BodyMemory;
    use std::io::Read;

    fn text(file: &mut File) -> String {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn body_moves_to_a_file_when_its_memory_is_full() {
        let memory = BodyMemory::new(usize::MAX);
        let mut spool = Spool::new(memory.reservation(), None);
        spool.push(b"hello ", 8).unwrap();
        assert!(spool.file.is_none() && memory.used() == 6);
        spool.push(b"world", 8).unwrap();
        assert!(spool.file.is_some() && spool.memory.is_empty() && memory.used() == 0);
        let (Body::File(mut file, 11), _) = spool.finish().unwrap() else { panic!("expected a file of 11 bytes") };
        assert_eq!(text(&mut file), "hello world");
    }

    #[test]
    fn body_that_fits_stays_in_memory() {
        let memory = BodyMemory::new(8);
        let mut spool = Spool::new(memory.reservation(), None);
        spool.push(b"12345678", 8).unwrap();
        let (body, reserved) = spool.finish().unwrap();
        assert!(matches!(body, Body::Memory(bytes) if bytes == b"12345678"));
        assert_eq!(memory.used(), 8, "bytes stay in use while the application has them");
        drop(reserved);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn body_moves_to_a_file_when_all_bodies_together_take_too_much() {
        let memory = BodyMemory::new(10);
        let mut first = Spool::new(memory.reservation(), None);
        first.push(b"12345678", 100).unwrap();
        let mut second = Spool::new(memory.reservation(), None);
        second.push(b"ab", 100).unwrap();
        second.push(b"c", 100).unwrap();
        assert!(first.file.is_none() && second.file.is_some());
        assert_eq!(memory.used(), 8);
        // Once there is room again, the next body stays in memory.
        drop(first);
        let mut third = Spool::new(memory.reservation(), None);
        third.push(b"12345678", 100).unwrap();
        assert!(third.file.is_none());
        let (Body::File(mut file, 3), _) = second.finish().unwrap() else { panic!("expected a file of 3 bytes") };
        assert_eq!(text(&mut file), "abc");
    }

    #[test]
    fn memory_grows_with_received_bytes_up_to_the_content_length() {
        let memory = BodyMemory::new(usize::MAX);
        let mut spool = Spool::new(memory.reservation(), Some(250_000));
        spool.push(&[0; 1000], 1 << 20).unwrap();
        assert_eq!(memory.used(), 1000);
        for _ in 0..249 {
            spool.push(&[0; 1000], 1 << 20).unwrap();
            assert!(spool.memory.capacity() <= memory.used() && memory.used() <= 2 * spool.memory.len());
        }
        assert_eq!(memory.used(), 250_000);
    }

    #[test]
    fn short_parts_are_written_to_the_file_together() {
        let memory = BodyMemory::new(80_000);
        let mut spool = Spool::new(memory.reservation(), None);
        let parts: Vec<[u8; 16_384]> = (0..9).map(|at| [b'a' + at; 16_384]).collect();
        let written: Vec<bool> = parts.iter().map(|part| spool.push(part, 10).unwrap()).collect();
        assert_eq!(written, [true, false, false, false, true, false, false, false, true]);
        spool.push(b"end", 10).unwrap();
        // Without memory to reserve, each part is written at once.
        let rest = memory.reserve(80_000 - memory.used()).unwrap();
        let mut other = Spool::new(memory.reservation(), None);
        assert!(other.push(b"a", 1).unwrap() && other.push(b"b", 1).unwrap());
        let (Body::File(mut file, 147_459), _) = spool.finish().unwrap() else { panic!("expected a file") };
        assert_eq!(memory.used(), rest.bytes(), "a body in a file takes no memory");
        assert_eq!(text(&mut file).as_bytes(), [parts.as_flattened(), b"end"].concat());
    }
}
