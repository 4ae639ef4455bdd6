//! The beginning of a connection that a load balancer forwards: a header of the PROXY protocol ([`super::front`]).

use super::{Closing, Connection, Lifecycle, known};
use crate::app::{App, Rejection};
use crate::config::Config;
use crate::context::EngineContext;
use crate::observe::Observer;
use wire::proxy::ProxyFault;

impl<A: App> Connection<A> {
    /// Returns true if a header of the PROXY protocol has to arrive before anything else.
    #[inline]
    pub(super) fn awaits_proxy_header(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.awaits_header())
    }

    fn take_proxy_header(&mut self, input: &[u8], config: &Config) -> Result<usize, Rejection> {
        self.front.as_mut().map_or(Ok(0), |front| front.take_header(input, config))
    }

    /// Reads the header at the beginning of `input`. Returns the number of bytes used, 0 until the header is complete.
    /// A connection that does not begin with a header is over, and all of `input` is used.
    pub(super) fn read_proxy_header(&mut self, input: &[u8], context: &mut EngineContext<A>, app: &mut A) -> usize {
        match self.take_proxy_header(input, &context.config) {
            Ok(used) => used,
            Err(rejection) => {
                self.reject(rejection, context, app);
                input.len()
            }
        }
    }

    /// Reads the header in the kept input, without the application. Returns true if the header is complete.
    pub(super) fn take_stored_proxy_header(&mut self, context: &EngineContext<A>) -> Result<bool, Rejection> {
        let input = std::mem::take(&mut self.input.bytes);
        let taken = self.take_proxy_header(&input[self.input.used..], &context.config);
        self.input.bytes = input;
        self.input.used += *taken.as_ref().unwrap_or(&0);
        taken.map(|used| used > 0)
    }

    /// Ends a connection whose peer may not connect here. The application has just been informed of the connection.
    pub(crate) fn reject_if_forbidden(&mut self, context: &mut EngineContext<A>, app: &mut A) {
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

    /// Ends the connection without an answer, because the protocol of its client is not known.
    fn reject(&mut self, rejection: Rejection, context: &mut EngineContext<A>, app: &mut A) {
        app.rejected(rejection, known(&mut self.app));
        context.statistics.refused += 1;
        context.observer.give_up(self.next_call());
        self.input.discard();
        self.lifecycle = Lifecycle::Closing(Closing::Linger);
    }
}
