//! A scripted cipher without cryptography, for tests of encrypted transports.
//!
//! A record is its kind (1 byte), the length of its payload (2 bytes) and the payload with each bit inverted. The
//! client begins with a hello, whose payload lists the protocols that it offers, each followed by a line feed; the
//! server's hello names the first of them. After that, both may send data. A record that asks for an echo is answered
//! in any state of the connection.

use engine::{Cipher, CipherFault};

/// The first record of each side.
pub const HELLO: u8 = b'h';
/// Bytes of the protocol.
pub const DATA: u8 = b'd';
/// A request for an echo, or the echo.
pub const ECHO: u8 = b'e';
/// The end of one side's data.
pub const CLOSE: u8 = b'c';
/// A record by which the server reports an error.
pub const ALERT: u8 = b'a';

/// The maximum number of bytes in a record's payload.
pub const RECORD: usize = 16 << 10;
/// The work of a handshake in units of the engine's meter, the same as of the real cipher.
const HANDSHAKE_WORK: u64 = 200 << 10;
/// The number of bytes before the payload.
const HEADER: usize = 3;

/// Returns a record of this kind with this payload.
///
/// # Panics
/// If `payload` is longer than [`RECORD`].
#[must_use]
pub fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= RECORD, "a record is short");
    let [high, low] = u16::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [kind, high, low].into_iter().chain(payload.iter().map(|byte| !byte)).collect()
}

/// Returns the kind, the payload and the total length of the first record in `bytes`; `None` if it is incomplete.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<(u8, Vec<u8>, usize)> {
    let [kind, high, low] = *bytes.first_chunk::<HEADER>()?;
    let length = HEADER + usize::from(u16::from_be_bytes([high, low]));
    let payload = bytes.get(HEADER..length)?.iter().map(|byte| !byte).collect();
    Some((kind, payload, length))
}

/// The server's side of the cipher, for one connection.
#[derive(Debug, Default)]
pub struct RecordCipher {
    sealed: Vec<u8>,
    agreed: Vec<u8>,
    is_ready: bool,
    has_ended: bool,
    security: Option<()>,
    work: u64,
}

impl Cipher for RecordCipher {
    type Security = ();

    fn open(&mut self, received: &mut [u8], opened: &mut Vec<u8>, unsent: &mut Vec<u8>) -> Result<(), CipherFault> {
        self.sealed.extend_from_slice(received);
        let mut used = 0;
        while let Some((kind, payload, length)) = read(&self.sealed[used..]) {
            used += length;
            self.work += 1;
            match kind {
                HELLO if !self.is_ready => {
                    self.work += HANDSHAKE_WORK;
                    self.agreed = payload.split(|&byte| byte == b'\n').next().unwrap_or_default().to_vec();
                    unsent.extend(record(HELLO, &self.agreed));
                    (self.is_ready, self.security) = (true, Some(()));
                }
                DATA if self.is_ready => opened.extend_from_slice(&payload),
                ECHO if self.is_ready => unsent.extend(record(ECHO, &payload)),
                CLOSE if self.is_ready => {
                    self.has_ended = true;
                    break;
                }
                other => {
                    unsent.extend(record(ALERT, &[other]));
                    return Err(CipherFault { reason: format!("a record of kind {other} out of place") });
                }
            }
        }
        self.sealed.drain(..used);
        Ok(())
    }

    fn seal(&mut self, bytes: &[u8], unsent: &mut Vec<u8>) -> Result<(), CipherFault> {
        bytes.chunks(RECORD).for_each(|part| unsent.extend(record(DATA, part)));
        Ok(())
    }

    fn end(&mut self, unsent: &mut Vec<u8>) {
        unsent.extend(record(CLOSE, b""));
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn agreed_protocol(&self) -> Option<&[u8]> {
        (!self.agreed.is_empty()).then_some(&self.agreed)
    }

    fn take_security(&mut self) -> Option<()> {
        self.security.take()
    }

    fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }
}
