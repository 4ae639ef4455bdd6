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
    /// The caller calls it just before it polls the engine for the first time.
    pub fn join_group(&mut self, membership: Membership) {
        self.acceptor.join_group(membership);
        self.publish_state();
        self.acceptor.wake_others();
    }

    /// Chooses the processes that a new connection wakes. A thread that is about to wait for the poller calls it, while
    /// no other thread waits. `is_free`: the thread that waits can poll the engine at once when it is woken.
    ///
    /// The kernel wakes one of the processes that listen and are free, in turns. Since it then wakes no other, the
    /// woken process has to accept the connection, or tell another process to. If that is not certain, because a call
    /// may hold the GIL, or there is no room, or the end is near, the kernel wakes this process together with others
    /// instead of before them. Taking turns also avoids most of the cases in which a connection is left to another
    /// process: the process with the fewest connections stays the first in the order. A process that is alone is the
    /// only one to be woken anyway, and need not change how it watches its listeners.
    pub fn before_wait(&mut self, is_free: bool) {
        self.acceptor.before_wait(&mut self.net, &self.context, self.connections.len(), is_free);
    }

    /// Publishes the load of this engine to the other engines of the group.
    #[inline]
    pub(super) fn publish_state(&mut self) {
        self.acceptor.publish(&self.context, self.connections.len(), self.clock.latest());
    }

    /// Accepts one connection, and returns the stage at which the round continues.
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
        // Many new connections at once may each cause much work: other connections are served in between. Before a
        // listener is closed, however, the engine accepts all connections that wait there.
        let is_enough = attempt > 1 && !is_stopping && self.context.meter.is_stage_over();
        if self.acceptor.listener(index).is_none() || attempt > most || is_enough {
            return next_listener;
        }
        self.publish_state();
        // An engine that is about to stop accepts all connections that wait.
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
                // Often the first request has arrived already.
                self.drive(slot, app);
                Stage::Accept { index, attempt: attempt + 1 }
            }
            Ok(Accepted::None) => {
                self.acceptor.note_empty(index);
                next_listener
            }
            // Now and then a client leaves early; if the failures do not end, something else is wrong.
            Ok(Accepted::Failed(error)) if attempt == most => self.pause_accepting(AcceptPause::Failed(error), app),
            Ok(Accepted::Failed(_)) => Stage::Accept { index, attempt: attempt + 1 },
            // Linux requires a free descriptor before it checks whether a connection waits.
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

    /// Closes the connection that has waited longest for its client to send. Returns true if there was one. It looks at
    /// all connections, which is cheap only if their maximum number is low.
    fn evict_silent(&mut self, app: &mut A) -> bool {
        let silent = self.connections.iter().filter_map(|(slot, it)| it.silent_since().map(|since| (since, slot)));
        let Some((_, slot)) = silent.min() else { return false };
        self.cut(slot, app)
    }
}
