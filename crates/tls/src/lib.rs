//! TLS for the engine's connections, by rustls.
//!
//! [`Session`] is the [cipher](engine::Cipher) of one connection. An [`Acceptor`] makes the sessions of a listener, by a
//! configuration that can be replaced while connections are open: those that exist go on with theirs. [`TlsNet`] is the
//! operating system's network with listeners that have an acceptor.
#![forbid(unsafe_code)]

mod acceptor;
mod counters;
mod net;
mod security;
mod session;

pub use acceptor::Acceptor;
pub use counters::HandshakeCounts;
pub use net::{TlsListener, TlsNet};
pub use security::Security;
pub use session::Session;
