//! Accepting: the stage of a round that takes connections from the listeners.

use super::Engine;
use super::round::Stage;
use crate::app::{AcceptPause, App, Report};
use crate::config::{ACCEPTS_AT_STOP, ACCEPTS_PER_POLL};
use crate::connection::Connection;
use crate::group::Membership;
use crate::meter;
use crate::net::{Accepted, Net, Peer};

impl<A: App> Engine<A> {
    /// Shares new connections with the other engines that accept from the same listeners (see [`crate::EngineGroup`]).
    /// To be called just before the engine is polled for the first time.
    pub fn join_group(&mut self, membership: Membership) {
        self.acceptor.join_group(membership);
        self.publish_state();
        self.acceptor.wake_others();
    }

    /// Chooses which processes are woken by a new connection. To be called by a thread that is about to wait for the
    /// poller, while no other does. `is_free`: the thread that waits can poll the engine at once when it is woken.
    ///
    /// Of the processes that listen and are free one is woken, in turns. Since no other is woken then, it has to accept
    /// the connection, or tell another. So where that is not certain, because a call may hold the GIL, or there is no
    /// room, or the end is near, this process is woken besides others instead of before them. To take turns also saves
    /// most of the connections that would have to be left to another process: the one that has the fewest stays the
    /// first in the row. A process that is alone is the only one to be woken anyway, and need not watch anything anew.
    pub fn before_wait(&mut self, is_free: bool) {
        self.acceptor.before_wait(&mut self.net, &self.context, self.connections.len(), is_free);
    }

    /// Shows the other engines of the group how much there is to do here.
    #[inline]
    pub(super) fn publish_state(&mut self) {
        self.acceptor.publish(&self.context, self.connections.len(), self.clock.latest());
    }

    /// Accepts one connection, and returns where the round goes on.
    pub(super) fn accept(&mut self, index: usize, attempt: usize, app: &mut A) -> Stage {
        if self.acceptor.is_paused(self.context.now) {
            return Stage::Deadlines;
        }
        self.acceptor.resume();
        let told = self.clock.latest();
        if !self.acceptor.has_listener(index) {
            self.acceptor.note_round(told);
            return Stage::Deadlines;
        }
        let next_listener = Stage::Accept { index: index + 1, attempt: 1 };
        let is_stopping = self.stopping.is_stopping();
        // A listener that is about to be closed is emptied, but not for as long as more connections keep coming.
        let most = if is_stopping { ACCEPTS_AT_STOP } else { ACCEPTS_PER_POLL };
        // Many that come at once may each have much to do: other connections are served in between, but all that have
        // come are accepted before a listener is closed.
        let is_enough = attempt > 1 && !is_stopping && self.context.meter.is_stage_over();
        if self.acceptor.listener(index).is_none() || attempt > most || is_enough {
            return next_listener;
        }
        self.publish_state();
        // An engine that is about to stop accepts all that wait.
        if !is_stopping && self.acceptor.leaves_to_another(index, &self.net, &self.context, told) {
            return next_listener;
        }
        let socket = self.acceptor.socket(index);
        if !self.acceptor.has_room_beside(self.connections.len()) {
            if !self.net.is_awaited(socket) {
                self.acceptor.note_empty(index);
                return next_listener;
            }
            if self.context.config.evicts_silent && self.evict_silent(app) {
                return Stage::Accept { index, attempt };
            }
            return self.pause_accepting(self.acceptor.full(&self.context.config), app);
        }
        match self.net.accept(socket) {
            Ok(Accepted::Connection(transport, address)) => {
                self.acceptor.note_accepted(index, told);
                let peer = Peer { address, listener: index };
                let app_connection = app.connect(&peer);
                let slot = self.admit(transport, &peer, Some(app_connection));
                self.context.meter.charge(meter::ACCEPT);
                self.connections[slot].reject_if_forbidden(&mut self.context, app);
                // Often the first request is here already.
                self.drive(slot, app);
                Stage::Accept { index, attempt: attempt + 1 }
            }
            Ok(Accepted::None) => {
                self.acceptor.note_empty(index);
                next_listener
            }
            // Now and then a client leaves early; when it never ends, something else is wrong.
            Ok(Accepted::Failed(error)) if attempt == most => self.pause_accepting(AcceptPause::Failed(error), app),
            Ok(Accepted::Failed(_)) => Stage::Accept { index, attempt: attempt + 1 },
            // Linux wants a descriptor before it looks whether a connection waits.
            Ok(Accepted::Exhausted(_)) if !self.net.is_awaited(socket) => {
                self.acceptor.note_empty(index);
                next_listener
            }
            Ok(Accepted::Exhausted(error)) | Err(error) => self.pause_accepting(AcceptPause::Failed(error), app),
        }
    }

    pub(super) fn admit(
        &mut self,
        transport: <A::Net as Net>::Transport,
        peer: &Peer,
        app: Option<A::Connection>,
    ) -> usize {
        let vacancy = self.connections.vacant_entry();
        let slot = vacancy.key();
        vacancy.insert(Connection::new(transport, slot, peer, app, &self.context));
        self.context.statistics.accepted += 1;
        self.context.statistics.connections += 1;
        slot
    }

    fn pause_accepting(&mut self, pause: AcceptPause, app: &mut A) -> Stage {
        if self.acceptor.pause(&mut self.context, self.connections.len(), self.clock.latest()) {
            app.report(Report::AcceptPaused(pause));
        }
        Stage::Deadlines
    }

    /// Closes the connection that has waited longest for its client to send; whether there was one. It looks at all
    /// connections, which is cheap only where the bound on them is low.
    fn evict_silent(&mut self, app: &mut A) -> bool {
        let silent = self.connections.iter().filter_map(|(slot, it)| it.silent_since().map(|since| (since, slot)));
        let Some((_, slot)) = silent.min() else { return false };
        self.cut(slot, app)
    }
}
