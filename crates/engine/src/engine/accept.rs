//! The acceptor: which listeners are watched and how, and which engine of a group accepts a new connection.

use super::{Engine, Stage};
use crate::app::{AcceptPause, App, Report};
use crate::config::{ACCEPT_PAUSE, ACCEPTS_AT_STOP, ACCEPTS_PER_POLL};
use crate::connection::Connection;
use crate::deadline::{Millis, millis};
use crate::group::{Membership, PublishedState, slack};
use crate::net::{Accepted, Net, Peer};
use crate::statistics::Statistics;

pub(super) struct Listener<N: Net> {
    pub(super) socket: N::Listener,
    /// A connection may be waiting to be accepted.
    pub(super) ready: bool,
    /// How it is watched ([`Net::relisten`]), if it is.
    takes_turns: Option<bool>,
    /// This engine has accepted, or left a connection to another, since it was watched anew.
    had_turn: bool,
    /// Since when a connection was waiting, each time that a thread looked which does not turn the engine.
    pub(super) awaited_since: Option<Millis>,
}

impl<N: Net> Listener<N> {
    pub(super) fn new(socket: N::Listener) -> Self {
        Self { socket, ready: true, takes_turns: Some(false), had_turn: false, awaited_since: None }
    }
}

impl<A: App> Engine<A> {
    /// Other engines accept from the same listeners: new connections are shared with them (see [`crate::EngineGroup`]).
    /// The engine is about to be turned.
    pub fn join_group(&mut self, membership: Membership) {
        membership.has_room_for(self.most_connections);
        self.membership = Some(membership);
        self.show_group();
        self.membership.iter().for_each(Membership::wake_others);
    }

    /// To be called by a thread that is about to wait for the poller, while no other does: chooses which processes are
    /// woken by a new connection. `is_free`: the thread that waits can turn the engine at once when it is woken.
    ///
    /// Of the processes that listen and are free one is woken, in turns. Since no other is woken then, it has to accept
    /// the connection, or tell another. So where that is not certain, because a call may hold the GIL, or there is no
    /// room, or the end is near, this process is woken besides others instead of before them. To take turns also saves
    /// most of the connections that would have to be left to another process: the one that has the fewest stays the
    /// first in the row. A process that is alone is the only one to be woken anyway, and need not watch anything anew.
    pub fn before_wait(&mut self, is_free: bool) {
        let has_room = self.connections.len() < self.most_connections && self.paused_until == 0;
        let has_others = self.membership.as_ref().is_none_or(Membership::has_others);
        let takes_turns = is_free && has_room && has_others && self.stop_at.is_none();
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let is_to_go_last = takes_turns && listener.had_turn;
            if listener.takes_turns == Some(takes_turns)
                && (!is_to_go_last || self.membership.as_ref().is_some_and(Membership::has_fewest))
            {
                continue;
            }
            listener.had_turn = false;
            listener.takes_turns = Some(takes_turns);
            if self.net.relisten(&listener.socket, index, takes_turns).is_err() {
                // Out of memory. Until it is watched again the engine looks there every now and then.
                listener.takes_turns = None;
                listener.ready = true;
                self.paused_until = self.context.now + millis(ACCEPT_PAUSE);
            }
        }
    }

    /// Sees to it that this round looks at the listeners if another engine has asked for it, or if it is time to see
    /// what became of connections that were left to another.
    pub(super) fn look_at_listeners_if_due(&mut self) {
        let Some(membership) = &self.membership else { return };
        let is_notified = membership.take_notification();
        let is_due = self.look_again_at.take_if(|at| *at <= self.told).is_some();
        if is_notified || is_due {
            for listener in &mut self.listeners {
                listener.ready = true;
            }
        }
    }

    /// Accepts one connection, and returns where the round goes on.
    pub(super) fn accept(&mut self, index: usize, attempt: usize, app: &mut A) -> Stage {
        if self.context.now < self.paused_until {
            return Stage::Clock;
        }
        self.paused_until = 0;
        // A listener that is about to be closed is emptied, but not for as long as more keep coming.
        let most = if self.stop_at.is_some() { ACCEPTS_AT_STOP } else { ACCEPTS_PER_POLL };
        let Some(listener) = self.listeners.get(index) else {
            if let Some(membership) = &mut self.membership {
                membership.has_found_none(self.told);
            }
            return Stage::Clock;
        };
        let next_listener = Stage::Accept { index: index + 1, attempt: 1 };
        // Many that come at once may each have much to do: others are looked at in between, but all who have come are let
        // in before a listener is closed.
        let is_enough = attempt > 1 && self.stop_at.is_none() && self.context.meter.is_stage_over();
        if !listener.ready || attempt > most || is_enough {
            return next_listener;
        }
        if self.leaves_connection_to_another(index) {
            return next_listener;
        }
        let listener = &self.listeners[index];
        if self.connections.len() >= self.most_connections {
            if !self.net.is_awaited(&listener.socket) {
                self.found_none(index);
                return next_listener;
            }
            if self.context.config.evicts_silent && self.evict_silent(app) {
                return Stage::Accept { index, attempt };
            }
            let most = self.membership.as_ref().map_or(self.most_connections, Membership::room_of_all);
            let pause = if self.most_connections == self.context.config.connections {
                AcceptPause::Connections(most)
            } else {
                AcceptPause::Descriptors(most)
            };
            return self.pause_accepting(pause, app);
        }
        match self.net.accept(&listener.socket) {
            Ok(Accepted::Connection(transport, address)) => {
                self.listeners[index].had_turn = true;
                if let Some(membership) = &mut self.membership {
                    membership.has_accepted(self.told);
                }
                let app_connection = app.connect(&Peer { address, listener: index });
                let slot = self.admit(transport, Some(app_connection));
                // Often the first request is here already.
                self.drive(slot, app);
                Stage::Accept { index, attempt: attempt + 1 }
            }
            Ok(Accepted::None) => {
                self.found_none(index);
                next_listener
            }
            // Now and then a peer leaves early; when it never ends, something else is wrong.
            Ok(Accepted::Failed(error)) if attempt == most => self.pause_accepting(AcceptPause::Failed(error), app),
            Ok(Accepted::Failed(_)) => Stage::Accept { index, attempt: attempt + 1 },
            // Linux wants a descriptor before it looks whether a connection waits.
            Ok(Accepted::Exhausted(_)) if !self.net.is_awaited(&listener.socket) => {
                self.found_none(index);
                next_listener
            }
            Ok(Accepted::Exhausted(error)) | Err(error) => self.pause_accepting(AcceptPause::Failed(error), app),
        }
    }

    /// Shows the other engines of the group how many connections there are, and whether there are threads left. Those
    /// that suspended responses will need are not.
    pub(super) fn show_group(&mut self) {
        if let Some(membership) = &mut self.membership {
            let Statistics { requests, running, suspended, accepted, .. } = self.context.statistics;
            let has_room = self.connections.len() < self.most_connections && self.context.now >= self.paused_until;
            let state = PublishedState {
                calls: running + suspended,
                begun: requests,
                queued: self.context.queued,
                connections: self.connections.len(),
                accepted,
                is_accepting: has_room && self.stop_at.is_none() && !self.context.draining,
            };
            membership.publish(state, self.told);
        }
    }

    /// Whether nothing is to be accepted from this listener now, because another engine was told to do so, or because no
    /// connection waits there. An engine that is about to stop accepts all that wait.
    fn leaves_connection_to_another(&mut self, index: usize) -> bool {
        self.show_group();
        if self.stop_at.is_some() {
            return false;
        }
        let Some(membership) = &mut self.membership else { return false };
        let Some(other) = membership.better(self.told, slack(self.context.brief_in_a_row)) else { return false };
        if self.net.is_awaited(&self.listeners[index].socket) {
            let due = membership.notify(other, self.told);
            self.look_again_at = Some(self.look_again_at.map_or(due, |earlier| earlier.min(due)));
            self.listeners[index].had_turn = true;
            self.listeners[index].ready = false;
        } else {
            self.found_none(index);
        }
        true
    }

    pub(super) fn admit(&mut self, transport: <A::Net as Net>::Transport, app: Option<A::Connection>) -> usize {
        let vacancy = self.connections.vacant_entry();
        let slot = vacancy.key();
        vacancy.insert(Connection::new(transport, slot, app, &self.context));
        self.context.statistics.accepted += 1;
        self.context.statistics.connections += 1;
        slot
    }

    fn found_none(&mut self, index: usize) {
        self.listeners[index].ready = false;
        self.note_pause(false);
    }

    /// Notes whether a connection waits for which there is no room. Returns whether that was known.
    fn note_pause(&mut self, is_pausing: bool) -> bool {
        let was_known = std::mem::replace(&mut self.pause_reported, is_pausing);
        match &self.membership {
            Some(membership) if was_known != is_pausing => membership.note_pause(is_pausing),
            _ => was_known,
        }
    }

    /// Accepting goes on when a connection has closed, or after a while.
    fn pause_accepting(&mut self, pause: AcceptPause, app: &mut A) -> Stage {
        self.paused_until = self.context.now + millis(ACCEPT_PAUSE);
        self.context.statistics.accept_pauses += 1;
        self.show_group();
        if !self.note_pause(true) {
            app.report(Report::AcceptPaused(pause));
        }
        Stage::Clock
    }
}
