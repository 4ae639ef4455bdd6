//! The encrypted transport: the bytes of the protocol are the content of records on the socket.
//!
//! It keeps decrypted bytes only until the engine takes them, and records only until the socket accepts them. The
//! cipher keeps received bytes until their record is complete. An idle connection keeps no bytes.

use super::cipher::{Cipher, CipherFault};
use super::{Moved, Received, Socket, Tcp, Transport};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::take;
use std::os::unix::fs::FileExt;

/// The maximum number of bytes that are encrypted before the records are sent.
const SEALED_AT_ONCE: usize = 64 << 10;
/// The maximum length of a record's content in bytes. Slices are joined up to this length, so that a head and a small
/// body are sent in one record.
const RECORD: usize = 16 << 10;
/// The number of bytes received at once if the engine's buffer is smaller: a record with its header and tag.
const RECEIVED_AT_ONCE: usize = RECORD + 512;

/// The work per received byte above which the next bytes are received in small parts: one turn of the connection must
/// not include the work of 64 KiB of short records.
const WORK_OF_SHORT_RECORDS: u64 = 64;
/// The number of bytes received at once in that case.
const RECEIVED_OF_SHORT_RECORDS: usize = 4 << 10;
/// The maximum number of unsent bytes of the cipher's own messages while the socket accepts nothing. At this limit
/// nothing more is received: otherwise a peer could request answers without end, and read none.
const ANSWERS_AT_MOST: usize = 4 << 10;

/// The state of the end of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputEnd {
    /// The output continues.
    None,
    /// The end of output has to follow the unsent bytes.
    Due,
    /// The end of output has been sent.
    Sent,
    /// The peer must not see an orderly end.
    Forbidden,
}

/// The encrypted transport of a socket.
#[derive(Debug)]
pub struct Encrypted<S, C> {
    /// Moves the records.
    plain: Tcp<S>,
    cipher: C,
    /// Bytes received together with a header of the PROXY protocol, which the cipher has not processed yet.
    early: Vec<u8>,
    /// Decrypted bytes, of which the engine has taken the first `taken`.
    opened: Vec<u8>,
    taken: usize,
    /// Unsent records, of which the socket has accepted the first `sent` bytes.
    unsent: Vec<u8>,
    sent: usize,
    /// The number of bytes of the cipher's own messages in `unsent`, counted since `unsent` was last empty.
    answered: usize,
    ending: OutputEnd,
    /// True until the header of the PROXY protocol, which is not encrypted, has been read.
    is_clear: bool,
    has_begun: bool,
    /// The work of the cipher that has not been reported ([`Transport::take_work`]).
    work: u64,
    /// True if decrypting the last received bytes took much work per byte.
    is_laborious: bool,
    /// True if the handshake has failed or the peer has broken the protocol, so that its bytes are no longer decrypted.
    has_failed: bool,
}

thread_local! {
    /// Reusable memory for records and for slices that are joined for them.
    static SEAL_SCRATCH: RefCell<SealScratch> = RefCell::default();
}

#[derive(Default)]
struct SealScratch {
    sealed: Vec<u8>,
    gathered: Vec<u8>,
}

fn failed(fault: CipherFault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault.reason)
}

impl<S: Socket, C: Cipher> Encrypted<S, C> {
    /// Creates an encrypted transport on top of a plain one. `after_header`: the peer sends a header of the PROXY
    /// protocol first.
    pub fn new(plain: Tcp<S>, cipher: C, after_header: bool) -> Self {
        Self {
            plain,
            cipher,
            early: Vec::new(),
            opened: Vec::new(),
            taken: 0,
            unsent: Vec::new(),
            sent: 0,
            answered: 0,
            ending: OutputEnd::None,
            is_clear: after_header,
            has_begun: false,
            work: 0,
            is_laborious: false,
            has_failed: false,
        }
    }

    /// Returns the socket.
    pub fn socket(&self) -> &S {
        self.plain.socket()
    }

    /// Decrypts `received`, and sends the cipher's answers.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the handshake has failed or the peer has broken the protocol.
    fn decrypt_and_answer(&mut self, received: &mut [u8]) -> io::Result<()> {
        self.has_begun = true;
        let before = self.unsent.len();
        let decrypted = self.cipher.open(received, &mut self.opened, &mut self.unsent);
        self.has_failed |= decrypted.is_err();
        let work = self.cipher.take_work();
        self.is_laborious = work > received.len() as u64 * WORK_OF_SHORT_RECORDS;
        self.work += work;
        self.answered += self.unsent.len() - before;
        self.flush()?;
        decrypted.map_err(failed)
    }

    /// Receives from the socket and decrypts, until there are decrypted bytes. Returns `None` if the input has ended;
    /// otherwise returns true if the socket is drained.
    ///
    /// The loop ends because a cipher accepts only a limited number of successive records without content.
    fn receive_records(&mut self, buffer: &mut [u8]) -> io::Result<Option<bool>> {
        if !self.early.is_empty() {
            let mut early = take(&mut self.early);
            self.decrypt_and_answer(&mut early)?;
        }
        let mut own = Vec::new();
        // If the buffer is shorter than a record, each record would cost several system calls.
        let buffer = if buffer.len() < RECEIVED_AT_ONCE {
            own.resize(RECEIVED_AT_ONCE, 0);
            &mut own[..]
        } else {
            buffer
        };
        let mut is_drained = false;
        while !is_drained && self.opened.is_empty() && !self.cipher.has_ended() && self.answered < ANSWERS_AT_MOST {
            let most = if self.is_laborious { RECEIVED_OF_SHORT_RECORDS } else { buffer.len() };
            match self.plain.receive(&mut buffer[..most])? {
                Received::End => return Ok(None),
                Received::WouldBlock => is_drained = true,
                Received::Bytes { count, is_drained: last } => {
                    is_drained = last;
                    self.decrypt_and_answer(&mut buffer[..count])?;
                }
            }
        }
        Ok(Some(is_drained))
    }

    /// Moves decrypted bytes into `buffer`. Returns the number of bytes.
    fn take_opened(&mut self, buffer: &mut [u8]) -> usize {
        let count = buffer.len().min(self.opened.len() - self.taken);
        buffer[..count].copy_from_slice(&self.opened[self.taken..self.taken + count]);
        self.taken += count;
        if self.taken == self.opened.len() {
            (self.opened, self.taken) = (Vec::new(), 0);
        }
        count
    }

    /// Sends the records in `sealed`, and keeps those that the socket does not accept.
    fn send_records(&mut self, sealed: &[u8], more: bool) -> io::Result<()> {
        debug_assert!(self.unsent.is_empty(), "records leave in order");
        match self.plain.send(&[IoSlice::new(sealed)], more)? {
            Moved::Bytes(count) => self.unsent.extend_from_slice(&sealed[count..]),
            Moved::WouldBlock => self.unsent.extend_from_slice(sealed),
        }
        Ok(())
    }

    /// Sends the waiting records. Returns false if encrypting has to wait until they have been sent.
    fn may_seal(&mut self) -> io::Result<bool> {
        if self.has_failed || self.ending != OutputEnd::None || !self.cipher.is_ready() {
            // Nothing can be sealed: the handshake has not ended, or the transport has failed or ended its output.
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.flush()?;
        Ok(self.unsent.is_empty())
    }

    /// Discards all waiting bytes, because the peer must not see an orderly end and the engine must not continue to
    /// send to a socket that is cut.
    fn forbid_output(&mut self) {
        self.ending = OutputEnd::Forbidden;
        (self.unsent, self.sent) = (Vec::new(), 0);
        (self.opened, self.taken) = (Vec::new(), 0);
    }

    /// Writes the end of the encrypted output, unless the peer must not see one.
    fn end_records(&mut self) {
        if self.ending != OutputEnd::None {
            return;
        }
        self.ending = OutputEnd::Due;
        if self.cipher.is_ready() && !self.has_failed {
            self.cipher.end(&mut self.unsent);
        }
    }
}

/// Encrypts at most [`SEALED_AT_ONCE`] bytes of `slices` after the first `skipped` bytes. Returns the number of bytes.
fn seal_slices<C: Cipher>(
    cipher: &mut C,
    slices: &[IoSlice<'_>],
    mut skipped: usize,
    SealScratch { sealed, gathered }: &mut SealScratch,
) -> io::Result<usize> {
    let mut count = 0;
    sealed.clear();
    gathered.clear();
    for slice in slices {
        let begin = skipped.min(slice.len());
        skipped -= begin;
        let mut rest = &slice[begin..];
        rest = &rest[..rest.len().min(SEALED_AT_ONCE - count)];
        count += rest.len();
        while !rest.is_empty() {
            if gathered.is_empty() && rest.len() >= RECORD {
                // Whole records are encrypted without a copy.
                let whole = rest.len() / RECORD * RECORD;
                cipher.seal(&rest[..whole], sealed).map_err(failed)?;
                rest = &rest[whole..];
                continue;
            }
            let part = rest.len().min(RECORD - gathered.len());
            gathered.extend_from_slice(&rest[..part]);
            rest = &rest[part..];
            if gathered.len() == RECORD {
                cipher.seal(gathered, sealed).map_err(failed)?;
                gathered.clear();
            }
        }
    }
    if !gathered.is_empty() {
        cipher.seal(gathered, sealed).map_err(failed)?;
    }
    Ok(count)
}

// Not inlined, so that the code of plain connections, which makes the same calls, stays as small as without encryption.
impl<S: Socket, C: Cipher> Transport for Encrypted<S, C> {
    type Security = C::Security;

    fn note_read_closed(&mut self) {
        self.plain.note_read_closed();
    }

    #[inline(never)]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        // After a failure, and after the end of its own output, the engine discards received bytes without decrypting
        // them. Otherwise the cipher might answer after that end, and the socket would refuse the answer as if the peer
        // were gone.
        if self.has_failed || self.is_clear || self.ending != OutputEnd::None {
            return self.plain.receive(buffer);
        }
        let mut is_drained = false;
        if self.opened.is_empty() {
            match self.receive_records(buffer)? {
                // A client may close without announcing it (RFC 9112 section 9.8). A body that is shorter than declared
                // is incomplete in any case.
                None => return Ok(Received::End),
                Some(drained) => is_drained = drained,
            }
        }
        let count = self.take_opened(buffer);
        let has_ended = self.opened.is_empty() && self.cipher.has_ended();
        Ok(match count {
            0 if has_ended => Received::End,
            0 => Received::WouldBlock,
            count => Received::Bytes { count, is_drained: is_drained && self.opened.is_empty() && !has_ended },
        })
    }

    #[inline(never)]
    fn begin(&mut self, received: &[u8]) -> bool {
        if !take(&mut self.is_clear) {
            return false;
        }
        self.early = received.to_vec();
        true
    }

    #[inline(never)]
    fn send(&mut self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved> {
        if !self.may_seal()? {
            return Ok(Moved::WouldBlock);
        }
        SEAL_SCRATCH.with_borrow_mut(|scratch| {
            let length: usize = slices.iter().map(|slice| slice.len()).sum();
            let mut count = 0;
            // Like a socket, accept a part only if there is no room for the rest.
            while count < length && self.unsent.is_empty() {
                count += seal_slices(&mut self.cipher, slices, count, scratch)?;
                self.send_records(&scratch.sealed, more || count < length)?;
            }
            Ok(Moved::Bytes(count))
        })
    }

    #[inline(never)]
    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<Moved> {
        if !self.may_seal()? {
            return Ok(Moved::WouldBlock);
        }
        SEAL_SCRATCH.with_borrow_mut(|SealScratch { sealed, gathered }| {
            gathered.resize(usize::try_from(count).unwrap_or(SEALED_AT_ONCE).min(SEALED_AT_ONCE), 0);
            let read = file.read_at(gathered, offset)?;
            if read > 0 {
                sealed.clear();
                self.cipher.seal(&gathered[..read], sealed).map_err(failed)?;
                self.send_records(sealed, false)?;
            }
            Ok(Moved::Bytes(read))
        })
    }

    fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.sent
    }

    #[inline(never)]
    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.plain.send(&[IoSlice::new(&self.unsent[self.sent..])], false)? {
                Moved::Bytes(count) => self.sent += count,
                Moved::WouldBlock => return Ok(()),
            }
            if self.sent == self.unsent.len() {
                (self.unsent, self.sent, self.answered) = (Vec::new(), 0, 0);
            }
        }
        if self.ending == OutputEnd::Due {
            self.ending = OutputEnd::Sent;
            self.plain.end_output();
        }
        Ok(())
    }

    #[inline(never)]
    fn end_output(&mut self) {
        self.end_records();
        // If the peer is gone, there is nobody to inform.
        self.flush().ok();
    }

    #[inline(never)]
    fn end_held_output(&mut self) {
        if self.ending == OutputEnd::None {
            self.end_output();
        }
    }

    #[inline(never)]
    fn reset_on_drop(&mut self) {
        self.forbid_output();
        self.plain.reset_on_drop();
    }

    #[inline(never)]
    fn cut(&mut self) {
        self.forbid_output();
        self.plain.cut();
    }

    #[inline(never)]
    fn shut_down(&mut self) {
        self.forbid_output();
        self.plain.shut_down();
    }

    fn has_peer_left(&self) -> bool {
        self.cipher.has_ended() || self.plain.has_peer_left()
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn is_encrypted(&self) -> bool {
        true
    }

    fn is_shaking_hands(&self) -> bool {
        !self.cipher.is_ready()
    }

    fn agreed_protocol(&self) -> Option<&[u8]> {
        self.cipher.agreed_protocol()
    }

    fn take_security(&mut self) -> Option<C::Security> {
        self.cipher.take_security()
    }

    fn take_work(&mut self) -> u64 {
        take(&mut self.work)
    }
}
