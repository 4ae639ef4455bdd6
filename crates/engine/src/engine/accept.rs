//! The stage of a round that accepts connections from the listeners.

use super::connections::Connections;
use super::round::RoundStage;
use crate::app::{AcceptPause, App, Report};
use crate::config::{ACCEPTS_AT_STOP, ACCEPTS_PER_POLL};
use crate::meter;
use crate::net::{Accepted, Net, Peer};
use std::time::Duration;

impl<A: App> Connections<A> {
    /// Publishes the load of the engine to the other engines of its group.
    #[inline]
    pub(super) fn publish(&mut self, told: Duration) {
        self.acceptor.publish(&self.context, self.slab.len(), told);
    }

    /// Accepts connection number `attempt` of this round from the listener at `index`. Returns the stage at which the
    /// round continues. `told` is the time that was passed to the engine last.
    pub(super) fn accept(
        &mut self,
        (index, attempt): (usize, usize),
        is_stopping: bool,
        told: Duration,
        app: &mut A,
    ) -> RoundStage {
        if self.acceptor.is_paused(self.context.time.now) {
            return RoundStage::Deadlines;
        }
        self.acceptor.resume();
        if !self.acceptor.has_listener(index) {
            self.acceptor.note_round(told);
            return RoundStage::Deadlines;
        }
        let next_listener = RoundStage::Accept { index: index + 1, attempt: 1 };
        // A stopping engine empties its listeners, up to a maximum number: new connections may keep arriving.
        let most = if is_stopping { ACCEPTS_AT_STOP } else { ACCEPTS_PER_POLL };
        // Many new connections may each cause much work, so other connections are served in between. Before a listener
        // is closed, however, the engine accepts all connections that wait there.
        let is_enough = attempt > 1 && !is_stopping && self.context.meter.is_stage_over();
        if self.acceptor.listener(index).is_none() || attempt > most || is_enough {
            return next_listener;
        }
        self.publish(told);
        // An engine that is about to stop accepts all connections that wait.
        if !is_stopping && self.acceptor.leaves_to_another(index, &self.net, &self.context, told) {
            return next_listener;
        }
        let socket = self.acceptor.socket(index);
        if !self.acceptor.has_room_beside(self.slab.len()) {
            if !self.net.is_awaited(socket) {
                self.acceptor.note_empty(index);
                return next_listener;
            }
            if self.context.config.evicts_silent && self.evict_silent(app) {
                return RoundStage::Accept { index, attempt };
            }
            return self.pause_accepting(self.acceptor.full(&self.context.config), told, app);
        }
        match self.net.accept(socket) {
            Ok(Accepted::Connection(transport, address)) => {
                self.acceptor.note_accepted(index, told);
                let peer = Peer { address, listener: index };
                let data = app.connect(&peer);
                let slot = self.admit(transport, &peer);
                self.context.meter.charge(meter::ACCEPT);
                self.slab[slot].introduce(data, &mut self.context, app);
                self.close_surplus_handshakes(app);
                // Often the first request has already arrived.
                self.drive(slot, app);
                RoundStage::Accept { index, attempt: attempt + 1 }
            }
            Ok(Accepted::None) => {
                self.acceptor.note_empty(index);
                next_listener
            }
            // A client that leaves early fails one accept. If all attempts of a round fail, something else is wrong.
            Ok(Accepted::Failed(error)) if attempt == most => {
                self.pause_accepting(AcceptPause::Failed(error), told, app)
            }
            Ok(Accepted::Failed(_)) => RoundStage::Accept { index, attempt: attempt + 1 },
            // Linux checks for a free descriptor before it checks for a waiting connection, so this error may come
            // without one.
            Ok(Accepted::Exhausted(_)) if !self.net.is_awaited(socket) => {
                self.acceptor.note_empty(index);
                next_listener
            }
            Ok(Accepted::Exhausted(error)) | Err(error) => self.pause_accepting(AcceptPause::Failed(error), told, app),
        }
    }

    fn pause_accepting(&mut self, pause: AcceptPause, told: Duration, app: &mut A) -> RoundStage {
        if self.acceptor.pause(&mut self.context, self.slab.len(), told) {
            app.report(Report::AcceptPaused(pause));
        }
        RoundStage::Deadlines
    }
}
