//! The client's side of an encrypted connection, between the bytes of its protocol and the pipes.
//!
//! The client uses the scripted [`cipher`]. It sends a hello first. Some clients wait for the server's hello, others
//! send data at once; some announce their end, others close without a word. Occasionally a client sends an empty
//! record, or asks for an echo, which the server has to answer in any state.

use crate::cipher::{self, ALERT, CLOSE, DATA, ECHO, HELLO, RECORD, record};
use crate::clock::Shared;
use std::collections::VecDeque;

/// The client's side of the encryption.
#[derive(Debug)]
pub(super) struct ClientRecords {
    number: usize,
    /// Encrypted bytes that are not in the pipe yet.
    pub(super) unsent: Vec<u8>,
    /// Received bytes of an incomplete record.
    sealed: Vec<u8>,
    /// Decrypted bytes that the client has not read.
    opened: VecDeque<u8>,
    waits_for_hello: bool,
    tells_end: bool,
    has_hello: bool,
    /// The payloads of the echos that the server still has to send.
    echos: VecDeque<Vec<u8>>,
    /// True if the server has announced its end.
    pub(super) has_ended: bool,
    /// True if the client ends its side once everything has been sent.
    pub(super) is_ending: bool,
}

impl ClientRecords {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            unsent: record(HELLO, b"http/1.1"),
            sealed: Vec::new(),
            opened: VecDeque::new(),
            waits_for_hello: number.is_multiple_of(2),
            tells_end: number.is_multiple_of(3),
            has_hello: false,
            echos: VecDeque::new(),
            has_ended: false,
            is_ending: false,
        }
    }

    /// Returns true if data may be encrypted now.
    pub(super) fn may_seal(&self) -> bool {
        self.unsent.is_empty() && (self.has_hello || !self.waits_for_hello)
    }

    /// Encrypts the first bytes of `bytes`. Returns how many.
    pub(super) fn seal(&mut self, bytes: &[u8], shared: &Shared) -> usize {
        let count = bytes.len().min(if shared.one_in(4) { 1 + shared.index(100) } else { RECORD });
        if shared.one_in(10) {
            self.unsent.extend(record(DATA, b""));
        }
        if shared.one_in(20) {
            let text = b"echo"[..shared.index(5)].to_vec();
            self.unsent.extend(record(ECHO, &text));
            self.echos.push_back(text);
        }
        self.unsent.extend(record(DATA, &bytes[..count]));
        count
    }

    /// Encrypts the announcement of the client's end, if it is a client that announces it.
    pub(super) fn end(&mut self) {
        if self.tells_end && !self.is_ending {
            self.unsent.extend(record(CLOSE, b""));
        }
        self.is_ending = true;
    }

    /// Returns the number of bytes to take from `arrived` while the server's hello is missing.
    pub(super) fn hello_length(&self, arrived: &[u8]) -> usize {
        if self.has_hello || !self.sealed.is_empty() {
            return 0;
        }
        cipher::read(arrived).map_or(0, |(.., length)| length)
    }

    /// Decrypts received bytes.
    pub(super) fn open(&mut self, bytes: &[u8], shared: &Shared) {
        self.sealed.extend_from_slice(bytes);
        let mut used = 0;
        while let Some((kind, payload, length)) = cipher::read(&self.sealed[used..]) {
            used += length;
            match kind {
                _ if self.has_ended => shared.fail(|| format!("c{} gets a record after the end", self.number)),
                HELLO if !self.has_hello => self.has_hello = true,
                DATA if self.has_hello => self.opened.extend(payload),
                ECHO if self.echos.front() == Some(&payload) => drop(self.echos.pop_front()),
                CLOSE if self.has_hello => self.has_ended = true,
                ALERT => shared.fail(|| format!("c{} gets an alert", self.number)),
                other => shared.fail(|| format!("c{} gets a record of kind {other} out of place", self.number)),
            }
        }
        self.sealed.drain(..used);
    }

    /// Removes and returns at most `most` decrypted bytes.
    pub(super) fn take(&mut self, most: usize) -> Vec<u8> {
        let count = most.min(self.opened.len());
        self.opened.drain(..count).collect()
    }

    pub(super) fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }
}
