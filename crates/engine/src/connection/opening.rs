//! The opening of a connection: all steps between its acceptance and the first byte of its protocol.
//!
//! The steps, in this order:
//!
//! 1. a header of the PROXY protocol, if the listener requires one;
//! 2. the handshake of an encrypted transport, which the transport does by itself;
//! 3. the choice of the protocol: by the name negotiated in the handshake (ALPN), or by the first bytes if the listener
//!    allows several protocols.
//!
//! Until the choice, the connection has a session for the protocol of its listener. That session holds its deadlines
//! and has no exchange. A connection with another protocol gets another session before the first one has read anything.

use super::lifecycle::Closing;
use super::link::{Link, Opening};
use crate::app::{App, Rejection};
use crate::config::Config;
use crate::context::EngineContext;
use crate::observe::Observer;
use crate::protocol::{Negotiation, ProtocolKind, Protocols};
use crate::transport::Transport;
use std::io;
use wire::proxy::ProxyFault;

/// The result of one step of the opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpeningStep {
    /// This many bytes have been used, and the opening continues.
    Used(usize),
    /// More bytes are needed.
    NeedsMore,
    /// The input belongs to the current session.
    Ready,
    /// The input belongs to a session of this other kind.
    Other(ProtocolKind),
}

impl<A: App> Link<A> {
    /// Runs one step of the opening, with the input that has arrived. A connection that may not continue has ended
    /// afterwards.
    #[cold]
    pub(super) fn open(&mut self, input: &[u8], context: &mut EngineContext<A>, app: &mut A) -> OpeningStep {
        if self.awaits_proxy_header() {
            return match self.take_proxy_header(input, &context.config) {
                Ok(0) => OpeningStep::NeedsMore,
                Ok(used) => OpeningStep::Used(used),
                Err(rejection) => {
                    self.reject(rejection, context, app);
                    OpeningStep::Used(input.len())
                }
            };
        }
        let opened = self.choose(input);
        if matches!(opened, OpeningStep::Ready | OpeningStep::Other(_)) {
            self.opening = Opening::Over;
            if self.transport.is_encrypted() {
                context.handshakes.end(self.slot());
            }
            if let Some(security) = self.transport.take_security() {
                app.secured(security, self.app_data());
            }
        }
        opened
    }

    /// Runs one step with the stored input like [`open`](Self::open), but without the application: a connection that is
    /// rejected, or that needs another session, is left to the thread that polls the engine next.
    pub(super) fn open_stored(&mut self, context: &EngineContext<A>) -> Result<OpeningStep, Rejection> {
        if self.awaits_proxy_header() {
            let input = self.input.take();
            let taken = self.take_proxy_header(input.unused(), &context.config);
            self.input.put_back(input, taken.unwrap_or(0));
            if taken? == 0 || self.input.is_empty() {
                return Ok(OpeningStep::NeedsMore);
            }
        }
        Ok(if self.is_opening() { self.choose(self.input.unused()) } else { OpeningStep::Ready })
    }

    /// Reads the header of the PROXY protocol at the beginning of `input`. Returns the number of bytes used; 0 if the
    /// header is incomplete. An encrypted transport uses all bytes after the header.
    fn take_proxy_header(&mut self, input: &[u8], config: &Config) -> Result<usize, Rejection> {
        let used = self.front.as_mut().map_or(Ok(0), |front| front.take_header(input, config))?;
        if used == 0 || !self.transport.begin(&input[used..]) {
            return Ok(used);
        }
        // These bytes may contain input for the protocol, which only a read from the transport returns.
        self.input.note_readable();
        Ok(input.len())
    }

    /// Chooses the protocol of a connection that begins with `input`.
    fn choose(&self, input: &[u8]) -> OpeningStep {
        let Opening::UnderWay(listener) = self.opening else { return OpeningStep::Ready };
        let negotiation = if self.transport.is_encrypted() {
            Negotiation::Encrypted { agreed: self.transport.agreed_protocol() }
        } else {
            Negotiation::Clear
        };
        match A::Protocols::choose(listener, negotiation, input) {
            None => OpeningStep::NeedsMore,
            Some(kind) if kind == listener => OpeningStep::Ready,
            Some(kind) => OpeningStep::Other(kind),
        }
    }

    /// Returns true if a header of the PROXY protocol has to arrive before anything else.
    #[inline]
    pub(super) fn awaits_proxy_header(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.awaits_header())
    }

    /// Returns true if the peer is a trusted proxy, which passes on the requests of many clients.
    pub(super) fn is_of_proxy(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.forwarding.is_trusted())
    }

    /// Ends a connection whose peer may not connect here. The application already knows the connection.
    pub(super) fn reject_if_forbidden(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        if let Some(rejection) = self.front.as_ref().and_then(|front| front.forbidden()) {
            self.reject(rejection, context, app);
        }
    }

    /// Ends a connection whose client has closed its side before its PROXY header was complete. A client that has sent
    /// nothing only checked whether the server listens, and is not reported.
    pub(super) fn end_without_proxy_header(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        if !self.input.is_empty() {
            self.reject(Rejection::Header(ProxyFault::Truncated), context, app);
        }
    }

    /// Ends a connection whose transport has failed: the handshake failed, or the peer broke the encryption protocol.
    /// The transport has sent an alert to the peer.
    pub(super) fn fail(&mut self, error: &io::Error, context: &mut EngineContext<A>, app: &mut A) {
        app.failed_to_secure(error, self.app_data());
        context.handshakes.end(self.slot());
        context.observer.give_up(self.call(0));
        self.input.discard();
        self.lifecycle.close(Closing::Linger);
    }

    /// Ends the connection without a response, because the protocol of its client is not known.
    fn reject(&mut self, rejection: Rejection, context: &mut EngineContext<A>, app: &mut A) {
        app.rejected(rejection, self.app_data());
        context.statistics.refused += 1;
        context.observer.give_up(self.call(0));
        self.input.discard();
        self.lifecycle.close(Closing::Linger);
    }
}
