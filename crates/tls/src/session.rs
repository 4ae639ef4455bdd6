//! The TLS session of one connection: an adapter from rustls to the engine's narrow interface.
//!
//! Only this file depends on how rustls transfers bytes. It uses the unbuffered interface of rustls 0.23, which
//! decrypts in the caller's memory, so that an idle connection has no buffers. The only interface of version 0.24 is
//! similar.

use crate::counters::{Counters, FailureKind};
use crate::security::Security;
use engine::{Cipher, CipherFault};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConnectionData, UnbufferedServerConnection};
use rustls::sign::CertifiedKey;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible, ServerConfig};
use std::cell::RefCell;
use std::fmt;
use std::mem::{replace, take};
use std::sync::Arc;

/// The work of a handshake step with asymmetric cryptography, in units of the engine's meter. It takes 100 µs; one unit
/// is a copied byte, which takes half a nanosecond.
const HANDSHAKE_WORK: u64 = 200 << 10;
/// The work of decrypting a record, in addition to its bytes.
const RECORD_WORK: u64 = 2 << 10;
/// The work of a record without application data, such as a key update: 8 µs.
const CONTROL_WORK: u64 = 16 << 10;
/// The first byte of a handshake record (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;
/// The bytes of a record in addition to its content: header, content type, nonce and tag.
const RECORD_OVERHEAD: usize = 5 + 1 + 8 + 16;
/// The maximum number of received bytes whose record or message is incomplete. It fits the longest handshake message
/// (64 KiB, a certificate chain of the client) in small records.
const INCOMPLETE_AT_MOST: usize = 128 << 10;
/// The initial memory for a record that rustls generates itself, enough for most.
const SMALL: usize = 256;
/// The text of rustls' error for a missing certificate, which has no variant of its own.
const NO_CERTIFICATE: &str = "no server certificate chain resolved";
/// The maximum length of a record's content.
const RECORD: usize = 16 << 10;

/// The TLS session of a connection.
pub struct Session {
    connection: UnbufferedServerConnection,
    /// Received bytes whose record is incomplete, or that belong to an incomplete handshake message.
    sealed: Vec<u8>,
    counters: Arc<Counters>,
    /// True until the first byte has arrived.
    is_new: bool,
    /// True once the handshake is complete.
    is_ready: bool,
    /// True once the result of the handshake has been counted.
    is_counted: bool,
    has_ended: bool,
    security: Option<Arc<Security>>,
    server_name: Option<Arc<str>>,
    work: u64,
}

/// The data that is kept of a client's first message.
#[derive(Debug)]
struct Hello {
    server_name: Option<Arc<str>>,
}

thread_local! {
    /// The `Hello` that rustls has just read on this thread. The unbuffered interface does not return the server name,
    /// but calls the certificate resolver while it reads.
    static HELLO: RefCell<Option<Hello>> = const { RefCell::new(None) };
}

/// A certificate resolver that records the server name.
#[derive(Debug)]
struct Noting(Arc<dyn ResolvesServerCert>);

impl ResolvesServerCert for Noting {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let server_name = hello.server_name().map(|name| Arc::from(name.to_ascii_lowercase()));
        HELLO.set(Some(Hello { server_name }));
        self.0.resolve(hello)
    }

    fn only_raw_public_keys(&self) -> bool {
        self.0.only_raw_public_keys()
    }
}

/// Returns the configuration with a certificate resolver that records the server name of each handshake.
pub(crate) fn noting_server_names(mut config: ServerConfig) -> ServerConfig {
    config.cert_resolver = Arc::new(Noting(config.cert_resolver));
    config
}

impl Session {
    pub(crate) fn new(config: Arc<ServerConfig>, counters: Arc<Counters>) -> Result<Self, Error> {
        Ok(Self {
            connection: UnbufferedServerConnection::new(config)?,
            sealed: Vec::new(),
            counters,
            is_new: true,
            is_ready: false,
            is_counted: false,
            has_ended: false,
            security: None,
            server_name: None,
            work: 0,
        })
    }

    /// Records the completion of the handshake.
    fn finish_handshake(&mut self) {
        self.is_ready = true;
        let security = Security::of(&self.connection, self.server_name.take());
        if !replace(&mut self.is_counted, true) {
            self.counters.count(&security);
        }
        self.security = Some(Arc::new(security));
    }

    /// Counts the failure of the handshake. After its completion, nothing is counted.
    fn count_failure(&mut self, kind: FailureKind) {
        if !replace(&mut self.is_counted, true) {
            self.counters.count_failure(kind);
        }
    }

    /// Appends the alert that rustls has prepared to `unsent`.
    fn append_alert(&mut self, unsent: &mut Vec<u8>) {
        // rustls returns its output before it processes input. One more call would process the missing input, and
        // panic.
        while self.connection.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut encoding)) = self.connection.process_tls_records(&mut []).state
        {
            encode(&mut encoding, unsent);
        }
    }

    /// Calls `write` as soon as rustls is in the state for encrypting. Returns `None` if it cannot get there.
    fn with_traffic<R>(
        &mut self,
        unsent: &mut Vec<u8>,
        mut write: impl FnMut(&mut WriteTraffic<'_, ServerConnectionData>, &mut Vec<u8>) -> R,
    ) -> Option<R> {
        loop {
            match self.connection.process_tls_records(&mut self.sealed).state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => return Some(write(&mut traffic, unsent)),
                Ok(ConnectionState::EncodeTlsData(mut encoding)) => encode(&mut encoding, unsent),
                Ok(ConnectionState::TransmitTlsData(transmission)) => transmission.done(),
                // The peer closed its direction; the other one is still open.
                Ok(ConnectionState::PeerClosed) => self.has_ended = true,
                _ => return None,
            }
        }
    }
}

/// Appends a record that rustls generated to `unsent`.
fn encode(encoding: &mut EncodeTlsData<'_, ServerConnectionData>, unsent: &mut Vec<u8>) {
    append(unsent, SMALL, |room| match encoding.encode(room) {
        Err(EncodeError::InsufficientSize(size)) => Err(size.required_size),
        written => Ok(written.unwrap_or(0)),
    });
}

/// Returns the number of bytes written, which is 0 after an error. Returns the required size as an error if the memory
/// is too small.
fn needed(encrypted: Result<usize, EncryptError>) -> Result<usize, usize> {
    match encrypted {
        Err(EncryptError::InsufficientSize(size)) => Err(size.required_size),
        written => Ok(written.unwrap_or(0)),
    }
}

/// Calls `write` with `size` bytes of memory and appends the result to `out`. `write` returns the length that it wrote,
/// or the size that it needs as an error; then it is called again with that size.
fn append(out: &mut Vec<u8>, mut size: usize, mut write: impl FnMut(&mut [u8]) -> Result<usize, usize>) {
    let before = out.len();
    loop {
        out.resize(before + size, 0);
        match write(&mut out[before..]) {
            Ok(length) => return out.truncate(before + length),
            Err(needed) if needed > size => size = needed,
            Err(_) => return out.truncate(before),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A client that sent nothing may have been a health check.
        if !self.is_new {
            self.count_failure(FailureKind::Abandoned);
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("is_ready", &self.is_ready).finish_non_exhaustive()
    }
}

impl Cipher for Session {
    type Security = Arc<Security>;

    fn open(&mut self, received: &mut [u8], opened: &mut Vec<u8>, unsent: &mut Vec<u8>) -> Result<(), CipherFault> {
        if take(&mut self.is_new) && received.first().is_some_and(|first| *first != HANDSHAKE) {
            return Err(self.refuse_plain(received, unsent));
        }
        if self.sealed.is_empty() {
            let used = self.open_records(received, opened, unsent)?;
            self.sealed.extend_from_slice(&received[used..]);
            return Ok(());
        }
        let mut sealed = take(&mut self.sealed);
        sealed.extend_from_slice(received);
        let used = self.open_records(&mut sealed, opened, unsent)?;
        if used < sealed.len() {
            sealed.drain(..used);
            self.sealed = sealed;
        }
        if self.sealed.len() > INCOMPLETE_AT_MOST {
            return Err(CipherFault { reason: "a message of the handshake is too long".to_owned() });
        }
        Ok(())
    }

    fn seal(&mut self, bytes: &[u8], unsent: &mut Vec<u8>) -> Result<(), CipherFault> {
        let size = bytes.len() + bytes.len().div_ceil(RECORD) * RECORD_OVERHEAD;
        let is_sealed = self.with_traffic(unsent, |traffic, unsent| {
            let before = unsent.len();
            append(unsent, size, |room| needed(traffic.encrypt(bytes, room)));
            unsent.len() > before
        });
        let exhausted = || CipherFault { reason: "the keys of the connection are exhausted".to_owned() };
        is_sealed.filter(|is_sealed| *is_sealed).map(drop).ok_or_else(exhausted)
    }

    fn end(&mut self, unsent: &mut Vec<u8>) {
        self.with_traffic(unsent, |traffic, unsent| {
            append(unsent, SMALL, |room| needed(traffic.queue_close_notify(room)));
        });
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn agreed_protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    fn take_security(&mut self) -> Option<Arc<Security>> {
        self.security.take()
    }

    fn take_work(&mut self) -> u64 {
        take(&mut self.work)
    }
}

impl Session {
    /// Decrypts the complete records in `sealed`. Returns the number of bytes that are no longer needed.
    fn open_records(
        &mut self,
        sealed: &mut [u8],
        opened: &mut Vec<u8>,
        unsent: &mut Vec<u8>,
    ) -> Result<usize, CipherFault> {
        let mut used = 0;
        // rustls processes any number of records without application data in one call.
        self.work += count_records(sealed) * CONTROL_WORK;
        loop {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut sealed[used..]);
            let (mut goes_on, mut failure) = (true, None);
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                opened.extend_from_slice(record.payload);
                                self.work = self.work.saturating_sub(CONTROL_WORK - RECORD_WORK);
                            }
                            Err(error) => failure = Some(error),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut encoding)) => encode(&mut encoding, unsent),
                Ok(ConnectionState::TransmitTlsData(transmission)) => transmission.done(),
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.has_ended = true;
                    goes_on = false;
                }
                Ok(_) => goes_on = false,
                Err(error) => failure = Some(error),
            }
            used += discard;
            if let Some(hello) = HELLO.take() {
                self.server_name = hello.server_name;
                self.work += HANDSHAKE_WORK;
            }
            if let Some(error) = failure {
                self.append_alert(unsent);
                self.count_failure(kind_of(&error));
                return Err(CipherFault { reason: explain(&error) });
            }
            if !self.is_ready && !self.connection.is_handshaking() {
                self.finish_handshake();
            }
            if !goes_on {
                return Ok(used);
            }
        }
    }

    /// Handles a client that does not speak TLS: an HTTP client gets a response.
    fn refuse_plain(&mut self, received: &[u8], unsent: &mut Vec<u8>) -> CipherFault {
        if !received[0].is_ascii_uppercase() {
            self.count_failure(FailureKind::NotTls);
            return CipherFault { reason: "the client does not speak TLS".to_owned() };
        }
        self.count_failure(FailureKind::PlainHttp);
        unsent.extend_from_slice(wire::http1::TLS_EXPECTED);
        CipherFault { reason: "the client speaks HTTP without TLS".to_owned() }
    }
}

/// Returns the number of complete records.
fn count_records(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let [_, _, _, high, low, rest @ ..] = bytes
        && let Some(following) = rest.get(usize::from(u16::from_be_bytes([*high, *low]))..)
    {
        bytes = following;
        count += 1;
    }
    count
}

/// Returns the counter for a failure.
fn kind_of(error: &Error) -> FailureKind {
    match error {
        Error::NoCertificatesPresented | Error::InvalidCertificate(_) => FailureKind::ClientCertificate,
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::BadCertificate,
        ) => FailureKind::CertificateRefused,
        Error::AlertReceived(_) => FailureKind::Alert,
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls13RequiredForQuic,
        ) => FailureKind::NoCommonVersion,
        Error::PeerIncompatible(
            PeerIncompatible::NoCipherSuitesInCommon
            | PeerIncompatible::NoKxGroupsInCommon
            | PeerIncompatible::NoSignatureSchemesInCommon,
        ) => FailureKind::NoCommonCipher,
        Error::NoApplicationProtocol => FailureKind::NoCommonProtocol,
        Error::General(text) if text == NO_CERTIFICATE => FailureKind::NoCertificate,
        _ => FailureKind::Other,
    }
}

/// Explains a failure in one sentence, in terms that an administrator knows.
fn explain(error: &Error) -> String {
    match error {
        Error::NoCertificatesPresented => "the client has presented no certificate, and one is required".to_owned(),
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the client's certificate has expired".to_owned()
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the client's certificate is of an authority that --ca-certs does not name".to_owned()
        }
        Error::InvalidCertificate(CertificateError::Revoked) => "the client's certificate has been revoked".to_owned(),
        Error::InvalidCertificate(reason) => format!("the client's certificate is not valid: {reason:?}"),
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::CertificateUnknown) => {
            "the client does not trust the authority of the server's certificate".to_owned()
        }
        Error::AlertReceived(AlertDescription::BadCertificate) => {
            "the client refuses the server's certificate".to_owned()
        }
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOfferedOrEnabled | PeerIncompatible::Tls13RequiredForQuic,
        ) => "the client offers no version of TLS that is enabled".to_owned(),
        Error::General(text) if text == NO_CERTIFICATE => {
            "there is no certificate for the name that the client asks for".to_owned()
        }
        Error::NoApplicationProtocol => "the client offers no protocol (ALPN) that the server speaks".to_owned(),
        other => other.to_string(),
    }
}
