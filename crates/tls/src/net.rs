//! The operating system's network, with listeners that may use TLS.

use crate::acceptor::Acceptor;
use crate::session::Session;
use engine::{Accepted, ClearOrEncrypted, Encrypted, EngineSocket, Local, Net, Os, Tcp};
use std::io;
use std::sync::Arc;

/// A listening socket.
#[derive(Debug)]
pub struct TlsListener {
    /// The socket.
    pub socket: EngineSocket,
    /// The creator of TLS sessions for its connections; `None` if they are not encrypted.
    pub acceptor: Option<Arc<Acceptor>>,
    /// True if each connection begins with an unencrypted PROXY protocol header.
    pub has_proxy_header: bool,
}

impl TlsListener {
    /// Creates a listener for unencrypted connections.
    #[must_use]
    pub fn clear(socket: EngineSocket) -> Self {
        Self { socket, acceptor: None, has_proxy_header: false }
    }
}

/// The operating system's network with [`TlsListener`]s.
#[derive(Debug)]
pub struct TlsNet(pub Os);

impl Net for TlsNet {
    type Listener = TlsListener;
    type Transport = ClearOrEncrypted<EngineSocket, Session>;

    fn listen(&mut self, listener: &TlsListener, index: usize) -> io::Result<Local> {
        self.0.listen(&listener.socket, index)
    }

    fn relisten(&mut self, listener: &TlsListener, index: usize, takes_turns: bool) -> io::Result<()> {
        self.0.relisten(&listener.socket, index, takes_turns)
    }

    fn unlisten(&mut self, listener: &TlsListener) {
        self.0.unlisten(&listener.socket);
    }

    fn accept(&mut self, listener: &TlsListener) -> io::Result<Accepted<Self::Transport>> {
        let encrypted = |transport: Tcp<EngineSocket>| -> io::Result<Self::Transport> {
            let Some(acceptor) = &listener.acceptor else { return Ok(ClearOrEncrypted::Clear(transport)) };
            let session = acceptor.accept().map_err(io::Error::other)?;
            let encrypted = Encrypted::new(transport, session, listener.has_proxy_header);
            Ok(ClearOrEncrypted::Encrypted(Box::new(encrypted)))
        };
        Ok(match self.0.accept(&listener.socket)? {
            Accepted::Connection(transport, address) => match encrypted(transport) {
                Ok(transport) => Accepted::Connection(transport, address),
                Err(error) => Accepted::Failed(error),
            },
            Accepted::None => Accepted::None,
            Accepted::Failed(error) => Accepted::Failed(error),
            Accepted::Exhausted(error) => Accepted::Exhausted(error),
        })
    }

    fn is_awaited(&self, listener: &TlsListener) -> bool {
        self.0.is_awaited(&listener.socket)
    }

    fn watch(&mut self, transport: &Self::Transport, slot: usize, output: bool, again: bool) -> io::Result<()> {
        self.0.watch_descriptor(transport.socket(), slot, output, again)
    }

    fn unwatch(&mut self, transport: &Self::Transport) {
        if let ClearOrEncrypted::Clear(transport) = transport {
            self.0.unwatch(transport);
        }
    }

    fn room(&self) -> usize {
        self.0.room()
    }

    fn drain_wakes(&mut self) {
        self.0.drain_wakes();
    }
}
