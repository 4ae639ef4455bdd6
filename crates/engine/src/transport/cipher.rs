//! The interface between an encrypted transport and the code that encrypts.

/// The reason why an encrypted connection has ended, and what is still to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CipherFault {
    /// One sentence for the operator, without a full stop.
    pub reason: String,
}

/// Turns the bytes of a protocol into records and back, on one connection, after a handshake with the peer. A cipher
/// does no input or output.
///
/// Everything that it has to send itself, such as its part of the handshake or an alert, it appends to `unsent`.
pub trait Cipher {
    /// The result of the handshake: the peer, and the terms of the encryption.
    type Security;

    /// Decrypts `received`, which follows the bytes received before, and appends the content of the records that are
    /// complete to `opened`. The cipher keeps the beginning of a record that is not complete.
    ///
    /// # Errors
    /// If the peer has broken the rules, or the handshake has failed. Then the connection is over, and `unsent` ends
    /// with the alert for the peer.
    fn open(&mut self, received: &mut [u8], opened: &mut Vec<u8>, unsent: &mut Vec<u8>) -> Result<(), CipherFault>;

    /// Encrypts `bytes`, and appends the records to `unsent`. The handshake is over ([`is_ready`](Self::is_ready)).
    ///
    /// # Errors
    /// If nothing more may be encrypted.
    fn seal(&mut self, bytes: &[u8], unsent: &mut Vec<u8>) -> Result<(), CipherFault>;

    /// Tells the peer that nothing more follows (TLS: `close_notify`).
    fn end(&mut self, unsent: &mut Vec<u8>);

    /// Returns true if the handshake is over, so that bytes can be encrypted.
    fn is_ready(&self) -> bool;

    /// Returns true if the peer has told that it sends nothing more.
    fn has_ended(&self) -> bool;

    /// As [`Transport::agreed_protocol`](super::Transport::agreed_protocol).
    fn agreed_protocol(&self) -> Option<&[u8]>;

    /// As [`Transport::take_security`](super::Transport::take_security).
    fn take_security(&mut self) -> Option<Self::Security>;

    /// As [`Transport::take_work`](super::Transport::take_work).
    fn take_work(&mut self) -> u64;
}
