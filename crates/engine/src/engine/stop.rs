//! Draining and stopping the engine.

use super::{Engine, Stopping};
use crate::app::App;
use crate::connection::Connection;
use crate::context::Phase;
use crate::deadline::{Millis, Now, millis};
use crate::protocol::Protocol;
use std::time::Duration;
use wire::websocket::CloseCode;

impl<A: App> Engine<A> {
    /// Makes each response from now on the last one of its connection, so that clients send their next request
    /// elsewhere. Nothing else changes: the engine accepts and serves clients, and idle connections stay until their
    /// clients send a request. If the protocol can announce the end, the engine does so now, and closes idle
    /// connections. It closes WebSockets with 1012 (service restart).
    pub fn drain(&mut self) {
        self.context.phase.drain();
        self.context.websocket_end.get_or_insert(CloseCode::SERVICE_RESTART);
        self.drive_told();
    }

    /// Has the next poll drive all connections whose protocol can announce to the client that the engine drains.
    fn drive_told(&mut self) {
        for (_, connection) in &mut self.connections {
            if <A::Protocol as Protocol>::MULTIPLEXED || connection.is_upgraded() {
                connection.come_back(&mut self.round.again);
            }
        }
    }

    /// Stops the engine. It accepts the connections that the kernel has already established, then no more; it finishes
    /// the requests under way, and cuts the remaining connections after `timeout` (`None`: never). On a connection
    /// without a request under way the client may send one more request within `grace`, counted from now or from the
    /// end of its last response; if only a part of a request's head has arrived, the rest has to arrive within the same
    /// time. A connection on which nothing has ever arrived is closed after [`UNUSED_GRACE`](crate::UNUSED_GRACE), if
    /// that is less; with a grace of zero it is closed in the next poll. A further call can only shorten both times.
    /// WebSockets are closed with 1001 (going away), unless the engine drains.
    pub fn stop(&mut self, now: Now, timeout: Option<Duration>, grace: Duration) {
        let now = self.clock.millis(now.monotonic);
        let cut_at = timeout.map_or(Millis::MAX, |timeout| now.saturating_add(millis(timeout)));
        let is_hastier = self.context.phase.stop(grace);
        self.stopping.request(cut_at, is_hastier);
        self.acceptor.look_at_all();
        self.context.websocket_end.get_or_insert(CloseCode::GOING_AWAY);
        self.drive_told();
    }

    /// Returns true if each response is the last one of its connection, because the engine drains or stops.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.context.is_draining()
    }

    /// Returns true if the engine has stopped and nothing is left, except perhaps calls that have not returned in the
    /// time that was left to them: they may still be completed.
    #[must_use]
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopping.has_stopped_accepting() && self.has_nothing_left()
    }

    #[cold]
    fn has_nothing_left(&self) -> bool {
        let is_cut = self.stopping.is_cut();
        let is_over = |connection: &Connection<A>| connection.is_written_off() || is_cut && connection.is_left_over();
        !self.has_ready() && self.connections.iter().all(|(_, connection)| is_over(connection))
    }

    /// Does the work of a stop at the end of a round.
    pub(super) fn go_on_stopping(&mut self, app: &mut A) {
        let (cut_at, must_hurry) = match self.stopping {
            Stopping::Emptying { cut_at } => {
                self.acceptor.close(&mut self.net);
                (cut_at, true)
            }
            Stopping::Finishing { cut_at, must_hurry } => (cut_at, must_hurry),
            Stopping::Running | Stopping::Requested { .. } | Stopping::Cut => return,
        };
        self.stopping = Stopping::Finishing { cut_at, must_hurry: false };
        if must_hurry && let Phase::Stopping { grace } = self.context.phase {
            self.hurry_idle(grace, app);
        }
        if self.context.now >= cut_at {
            // The connections that are left are cut. Their calls are left to the application.
            self.stopping = Stopping::Cut;
            let slots: Vec<_> = self.connections.iter().map(|(slot, _)| slot).collect();
            for slot in slots {
                self.cut(slot, app);
            }
        }
    }

    /// Gives connections without a request no more than `grace` to send one.
    fn hurry_idle(&mut self, grace: Duration, app: &mut A) {
        let until = self.context.now.saturating_add(millis(grace));
        let mut idle = Vec::new();
        for (slot, connection) in &mut self.connections {
            if connection.has_no_request() {
                let until = if connection.is_unused() { Connection::unused_until(&self.context) } else { until };
                connection.hurry(until, &mut self.context);
                idle.push(slot);
            }
        }
        if !grace.is_zero() {
            return;
        }
        // Connections on which nothing has arrived are closed now, because the next sweep would be later.
        for slot in idle {
            self.connections[slot].note_readiness(true, false);
            self.drive(slot, app);
            if self.connections.get(slot).is_some_and(Connection::is_between_requests) {
                self.cut(slot, app);
            }
        }
    }
}
