//! The acceptor of a listener: makes the sessions of its connections.

use crate::counters::{Counters, HandshakeCounts};
use crate::session::{Session, noting_server_names};
use rustls::ServerConfig;
use std::sync::{Arc, PoisonError, RwLock};

/// Makes the sessions of a listener's connections.
#[derive(Debug)]
pub struct Acceptor {
    config: RwLock<Arc<ServerConfig>>,
    counters: Arc<Counters>,
}

impl Acceptor {
    /// Creates an acceptor with this configuration.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self { config: RwLock::new(Arc::new(noting_server_names(config))), counters: Arc::default() }
    }

    /// Replaces the configuration. Connections that exist keep theirs; handshakes that begin from now on get this one.
    pub fn replace(&self, config: ServerConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(noting_server_names(config));
    }

    /// Returns the session of a new connection.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub fn accept(&self) -> Result<Session, rustls::Error> {
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        Session::new(config, Arc::clone(&self.counters))
    }

    /// Returns the number of handshakes so far, whatever their result.
    pub fn handshakes(&self) -> u64 {
        self.counters.total()
    }

    /// Returns the numbers of handshakes so far, by their results.
    pub fn counts(&self) -> HandshakeCounts {
        self.counters.counts()
    }
}
