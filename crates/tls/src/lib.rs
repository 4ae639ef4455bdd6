//! TLS for the engine's connections, by rustls.
//!
//! [`Session`] is the [cipher](engine::Cipher) of one connection. An [`Acceptor`] makes the sessions of a listener, by a
//! configuration that can be replaced while connections are open: those that exist go on with theirs. [`TlsNet`] is the
//! operating system's network with listeners that have an acceptor.
//!
//! [`Terms`] decide with what a session encrypts: they are the settings, with the contents of the files that they name.
//! They become a configuration of rustls, or mistakes in words that their owner understands ([`Terms::agree`]).
#![forbid(unsafe_code)]

mod acceptor;
mod cipher_suites;
mod client_certificate;
mod clients;
mod counters;
mod description;
mod distinguished_name;
mod identity;
mod net;
mod pem;
mod resolver;
mod security;
mod session;
mod source;
mod terms;
mod tickets;

pub use acceptor::Acceptor;
pub use cipher_suites::choose_cipher_suites;
pub use client_certificate::{ClientCertificate, certificate_pem};
pub use clients::{ClientCertificates, ClientTerms};
pub use counters::{HANDSHAKE_COUNTERS, HandshakeCounts};
pub use description::Description;
pub use distinguished_name::DistinguishedName;
pub use identity::{CertificateFiles, Identity};
pub use net::{TlsListener, TlsNet};
pub use security::Security;
pub use session::Session;
pub use source::{Mistake, Source};
pub use terms::{Agreed, MinimumVersion, Terms};
pub use tickets::{LIFETIME_SECONDS, SECRET, TicketSecrets};
