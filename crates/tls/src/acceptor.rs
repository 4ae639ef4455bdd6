//! The TLS acceptor of a listener.

use crate::counters::{Counters, HandshakeCounts};
use crate::session::{Session, noting_server_names};
use rustls::ServerConfig;
use std::sync::{Arc, PoisonError, RwLock};

/// The creator of the TLS sessions for a listener's connections.
#[derive(Debug)]
pub struct Acceptor {
    config: RwLock<Arc<ServerConfig>>,
    counters: Arc<Counters>,
}

impl Acceptor {
    /// Creates an acceptor with a configuration.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self { config: RwLock::new(Arc::new(noting_server_names(config))), counters: Arc::default() }
    }

    /// Replaces the configuration. Existing connections keep theirs; new handshakes use `config`.
    pub fn replace(&self, config: ServerConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(noting_server_names(config));
    }

    /// Creates the session of a new connection.
    ///
    /// # Errors
    /// If rustls rejects the configuration.
    pub fn accept(&self) -> Result<Session, rustls::Error> {
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        Session::new(config, Arc::clone(&self.counters))
    }

    /// Returns the number of handshakes so far, successful or not.
    pub fn handshakes(&self) -> u64 {
        self.counters.total()
    }

    /// Returns the numbers of handshakes so far by result, in the order of the counters.
    pub fn counts(&self) -> HandshakeCounts {
        self.counters.counts()
    }
}
