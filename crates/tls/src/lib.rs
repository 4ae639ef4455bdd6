//! TLS for the engine's connections, based on rustls.
//!
//! [`Session`] is the [cipher](engine::Cipher) of one connection. An [`Acceptor`] creates the sessions of a listener.
//! Its configuration can be replaced while connections are open: these keep their own. [`TlsNet`] is the operating
//! system's network with listeners that may have an acceptor.
//!
//! [`Terms`] are the settings of TLS, with the contents of the files that they name. [`Terms::agree`] converts them to
//! a configuration of rustls, or returns the mistakes in words that an administrator understands.
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
