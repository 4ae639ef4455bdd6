//! The opening of a connection: everything between the accept and the first byte of its protocol.
//!
//! In this order:
//!
//! 1. a header of the PROXY protocol, if the listener demands one;
//! 2. the handshake of an encrypted transport, which the transport does by itself;
//! 3. the choice of the protocol: by the name that the handshake has agreed on (ALPN), or by the first bytes if the
//!    listener allows several protocols.
//!
//! Until the choice, the connection has the session of its listener's own protocol, which holds its deadlines and has
//! no exchange. A connection of another protocol gets another session before that one has read anything.

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
    /// This many bytes have been used, and the opening goes on.
    Used(usize),
    /// More bytes are needed.
    NeedsMore,
    /// The input belongs to the session that the connection has.
    Ready,
    /// The input belongs to a session of this other kind.
    Other(ProtocolKind),
}

impl<A: App> Link<A> {
    /// Does one step of the opening, with the input that has arrived. A connection that may not continue is over
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

    /// As [`open`](Self::open) with the kept input, but without the application: a connection that is rejected, or that
    /// needs another session, is left to the thread that polls the engine next.
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

    /// Reads the header of the PROXY protocol at the beginning of `input`. Returns the number of bytes used, 0 until the
    /// header is complete. An encrypted transport uses all bytes behind the header.
    fn take_proxy_header(&mut self, input: &[u8], config: &Config) -> Result<usize, Rejection> {
        let used = self.front.as_mut().map_or(Ok(0), |front| front.take_header(input, config))?;
        if used == 0 || !self.transport.begin(&input[used..]) {
            return Ok(used);
        }
        // The transport has to be asked for what it makes of these bytes.
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

    /// Ends a connection whose peer may not connect here. The application has just been informed of the connection.
    pub(super) fn reject_if_forbidden(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        if let Some(rejection) = self.front.as_ref().and_then(|front| front.forbidden()) {
            self.reject(rejection, context, app);
        }
    }

    /// Ends a connection whose client has closed its side before its header was complete. A client that has sent
    /// nothing was only checking whether the server listens.
    pub(super) fn end_without_proxy_header(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        if !self.input.is_empty() {
            self.reject(Rejection::Header(ProxyFault::Truncated), context, app);
        }
    }

    /// Ends a connection whose transport cannot be understood any more: its handshake has failed, or the peer has broken
    /// the rules of the encryption. The transport has told the peer.
    pub(super) fn fail(&mut self, error: &io::Error, context: &mut EngineContext<A>, app: &mut A) {
        app.failed_to_secure(error, self.app_data());
        context.handshakes.end(self.slot());
        context.observer.give_up(self.call(0));
        self.input.discard();
        self.lifecycle.close(Closing::Linger);
    }

    /// Ends the connection without an answer, because the protocol of its client is not known.
    fn reject(&mut self, rejection: Rejection, context: &mut EngineContext<A>, app: &mut A) {
        app.rejected(rejection, self.app_data());
        context.statistics.refused += 1;
        context.observer.give_up(self.call(0));
        self.input.discard();
        self.lifecycle.close(Closing::Linger);
    }
}
