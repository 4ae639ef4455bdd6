//! The interface between an encrypted transport and the code that encrypts, such as TLS.

/// The reason why an encrypted connection has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CipherFault {
    /// One sentence for the operator, without a full stop.
    pub reason: String,
}

/// A cipher, which encrypts and decrypts the bytes of one connection, after a handshake with the peer. It does no input
/// or output.
///
/// It appends everything that it has to send itself, such as its part of the handshake or an alert, to `unsent`.
pub trait Cipher {
    /// The result of the handshake: the identity of the peer, and the terms of the encryption.
    type Security;

    /// Decrypts `received`, the bytes that follow those of the previous call, and appends the content of complete
    /// records to `opened`. The cipher keeps the bytes of an incomplete record.
    ///
    /// # Errors
    /// If the peer has broken the protocol, or the handshake has failed. The connection has then ended, and `unsent`
    /// ends with the alert for the peer.
    fn open(&mut self, received: &mut [u8], opened: &mut Vec<u8>, unsent: &mut Vec<u8>) -> Result<(), CipherFault>;

    /// Encrypts `bytes`, and appends the records to `unsent`. The handshake must have ended
    /// ([`is_ready`](Self::is_ready)).
    ///
    /// # Errors
    /// If nothing more may be encrypted.
    fn seal(&mut self, bytes: &[u8], unsent: &mut Vec<u8>) -> Result<(), CipherFault>;

    /// Appends the message that tells the peer that nothing more follows (TLS: `close_notify`).
    fn end(&mut self, unsent: &mut Vec<u8>);

    /// Returns true if the handshake has ended, so that bytes can be encrypted.
    fn is_ready(&self) -> bool;

    /// Returns true if the peer has announced that it sends nothing more.
    fn has_ended(&self) -> bool;

    /// See [`Transport::agreed_protocol`](super::Transport::agreed_protocol).
    fn agreed_protocol(&self) -> Option<&[u8]>;

    /// See [`Transport::take_security`](super::Transport::take_security).
    fn take_security(&mut self) -> Option<Self::Security>;

    /// See [`Transport::take_work`](super::Transport::take_work).
    fn take_work(&mut self) -> u64;
}
