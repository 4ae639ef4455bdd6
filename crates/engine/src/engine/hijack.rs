//! The methods for an application that takes a connection over ([`connection/hijack.rs`](crate::connection)).
//!
//! The call continues, counts, and is completed as any other: with [`Progress::Done`](crate::Progress::Done) the
//! application has some seconds left to close its socket, with [`Progress::Cut`](crate::Progress::Cut) the connection
//! ends at once.

use super::Engine;
use crate::app::{App, Ticket};
use crate::connection::{HijackId, HijackRefusal, Hijacked};
use crate::deadline::Now;

impl<A: App> Engine<A> {
    /// Gives the application the connection of a call whose request asks for a WebSocket. From now on the engine
    /// discards the response that the call writes.
    ///
    /// # Errors
    /// [`HijackRefusal`]. The request can still be answered then, if its client is there.
    pub fn hijack(&mut self, ticket: &Ticket, now: Now, app: &mut A) -> Result<Hijacked, HijackRefusal> {
        self.clock.set(now, &mut self.context);
        let call = ticket.call;
        let connection = &mut self.connections[call.slot];
        let hijacked = connection.hijack(call.exchange, &mut self.context, app);
        if hijacked.is_ok() {
            connection.unwatch(&mut self.net);
        }
        self.drive(call.slot, app);
        hijacked
    }

    /// Records that the application has closed its socket: the connection is over when the call is.
    pub fn end_hijack(&mut self, id: HijackId, now: Now, app: &mut A) {
        let Some(connection) = self.connections.get_mut(id.slot) else { return };
        self.clock.set(now, &mut self.context);
        connection.end_hijack(id);
        self.drive(id.slot, app);
    }
}
