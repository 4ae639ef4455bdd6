//! A request body on its way in: in memory first, then in a file without a name.

use std::fs::File;
use std::io::{self, Seek, Write};

/// A request's body, decoded and whole.
#[derive(Debug)]
pub enum Body<'a> {
    /// No bytes.
    Empty,
    /// It lies in the read buffer: what the application wants to keep it copies.
    Borrowed(&'a [u8]),
    /// It came in parts.
    Memory(Vec<u8>),
    /// It was too long for memory: a file without a name, at its start, and its length.
    File(File, u64),
}

/// Collects a body. Invariant: `file` is `None` or `memory` is empty.
#[derive(Debug, Default)]
pub(crate) struct Spool {
    memory: Vec<u8>,
    file: Option<File>,
    length: u64,
}

impl Spool {
    pub(crate) fn push(&mut self, data: &[u8], memory_at_most: usize) -> io::Result<()> {
        self.length += data.len() as u64;
        if self.file.is_none() && self.memory.len() + data.len() > memory_at_most {
            let mut file = tempfile::tempfile()?;
            file.write_all(&std::mem::take(&mut self.memory))?;
            self.file = Some(file);
        }
        if let Some(file) = &mut self.file {
            return file.write_all(data);
        }
        self.memory.extend_from_slice(data);
        Ok(())
    }

    /// Whether what comes is written to a file.
    pub(crate) fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn finish(self) -> io::Result<Body<'static>> {
        match self.file {
            Some(mut file) => {
                file.rewind()?;
                Ok(Body::File(file, self.length))
            }
            None if self.memory.is_empty() => Ok(Body::Empty),
            None => Ok(Body::Memory(self.memory)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_body_moves_to_a_file_when_memory_is_full() {
        let mut spool = Spool::default();
        spool.push(b"hello ", 8).unwrap();
        assert!(spool.file.is_none());
        spool.push(b"world", 8).unwrap();
        assert!(spool.file.is_some() && spool.memory.is_empty());
        let Body::File(mut file, 11) = spool.finish().unwrap() else { panic!("expected a file of 11 bytes") };
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello world");
    }

    #[test]
    fn a_body_that_fits_stays_in_memory() {
        let mut spool = Spool::default();
        spool.push(b"12345678", 8).unwrap();
        assert!(matches!(spool.finish().unwrap(), Body::Memory(bytes) if bytes == b"12345678"));
    }
}
