//! TLS on a client socket, by rustls, with the certificates that the plan trusts.
//!
//! Each connection makes a full handshake without resumption, so that all connections cost the server the same.

use crate::net::{Moved, TlsFault};
use crate::plan::{PlanError, Tls, Version};
use engine::Socket as _;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The protocol name of HTTP/2 in ALPN (RFC 7301, RFC 9113 section 3.2).
const H2: &[u8] = b"h2";

/// The TLS settings for all connections of a run.
#[derive(Clone, Debug)]
pub(crate) struct TlsTerms {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    needs_h2: bool,
}

/// The TLS state of one connection.
#[derive(Debug)]
pub(crate) struct TlsClient {
    session: ClientConnection,
    needs_h2: bool,
    is_agreed: bool,
}

impl TlsTerms {
    pub(crate) fn new(tls: &Tls, version: Version) -> Result<Self, PlanError> {
        let wrong = |place: &str, problem: String| PlanError::at(format!("tls.{place}"), problem);
        let name = ServerName::try_from(tls.name.clone()).map_err(|error| wrong("name", error.to_string()))?;
        let builder = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("roots", error.to_string()))?;
        let mut config = match &tls.roots {
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider()))),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    let certificate = certificate.map_err(|error| wrong("roots", error.to_string()))?;
                    roots.add(certificate).map_err(|error| wrong("roots", error.to_string()))?;
                }
                builder.with_root_certificates(roots)
            }
        }
        .with_no_client_auth();
        config.resumption = Resumption::disabled();
        let needs_h2 = version == Version::Http2;
        config.alpn_protocols = vec![if needs_h2 { H2.to_vec() } else { b"http/1.1".to_vec() }];
        Ok(Self { config: Arc::new(config), name, needs_h2 })
    }

    pub(crate) fn connect(&self) -> io::Result<TlsClient> {
        let session = ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(io::Error::other)?;
        Ok(TlsClient { session, needs_h2: self.needs_h2, is_agreed: false })
    }
}

fn provider() -> CryptoProvider {
    #[cfg(feature = "aws-lc")]
    return rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc"))]
    return rustls::crypto::ring::default_provider();
}

impl TlsClient {
    /// Advances the handshake as far as possible. Returns true once it is complete.
    ///
    /// # Errors
    /// An error of the socket, or a [`TlsFault`] if the handshake failed.
    pub(crate) fn shake_hands(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        loop {
            self.flush(socket)?;
            if !self.session.is_handshaking() {
                break;
            }
            match self.session.read_tls(&mut Wire(socket)) {
                Ok(0) => return Err(fault("protocol", "the server closed the connection during the TLS handshake")),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if let Err(error) = self.session.process_new_packets() {
                // Send the TLS alert, so that the server learns why the handshake failed.
                self.flush(socket).ok();
                let kind = match error {
                    Error::InvalidCertificate(_) | Error::NoCertificatesPresented => "certificate",
                    Error::AlertReceived(_) => "alert",
                    _ => "protocol",
                };
                return Err(fault(kind, &format!("TLS handshake: {error}")));
            }
        }
        if !self.is_agreed && self.needs_h2 && self.session.alpn_protocol() != Some(H2) {
            return Err(fault("alpn", "TLS handshake: the server does not offer HTTP/2 (h2)"));
        }
        self.is_agreed = true;
        Ok(true)
    }

    /// Sends the pending encrypted bytes, as far as the socket accepts them.
    fn flush(&mut self, socket: &OwnedFd) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Wire(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, socket: &OwnedFd, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        if !self.shake_hands(socket)? || self.session.wants_write() {
            return Ok(Moved::WouldBlock);
        }
        let count = self.session.writer().write_vectored(slices)?;
        self.flush(socket)?;
        Ok(Moved::Bytes(count))
    }

    /// Receives until `buffer` is full or the socket has no more data.
    pub(crate) fn receive(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Moved> {
        if !self.shake_hands(socket)? {
            return Ok(Moved::WouldBlock);
        }
        let mut count = 0;
        while count < buffer.len() {
            match self.session.reader().read(&mut buffer[count..]) {
                // The server has closed the connection properly. If `count` is not 0, the next call reports the end.
                Ok(0) => break,
                Ok(more) => {
                    count += more;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The input ended without close_notify, so the connection may have been truncated. The next call
                // reports it.
                Err(_) if count > 0 => break,
                Err(error) => return Err(error),
            }
            match self.session.read_tls(&mut Wire(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && count > 0 => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Moved::WouldBlock),
                Err(_) if count > 0 => break,
                Err(error) => return Err(error),
            }
            self.session.process_new_packets().map_err(io::Error::other)?;
            // Send replies to messages of the server, such as a key update.
            self.flush(socket)?;
        }
        Ok(Moved::Bytes(count))
    }
}

fn fault(kind: &'static str, text: &str) -> io::Error {
    io::Error::other(TlsFault { kind, text: text.to_owned() })
}

/// The socket as a reader and writer for rustls.
struct Wire<'socket>(&'socket OwnedFd);

fn moved(moved: io::Result<Moved>) -> io::Result<usize> {
    match moved? {
        Moved::Bytes(count) => Ok(count),
        Moved::WouldBlock => Err(ErrorKind::WouldBlock.into()),
    }
}

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        moved(self.0.receive(buffer))
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        moved(self.0.send(slices, false))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Accepts any certificate whose key has signed the handshake.
#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
