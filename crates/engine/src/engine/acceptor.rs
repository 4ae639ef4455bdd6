//! The acceptor: it watches the listeners, and decides which engine of a group accepts a new connection.

use crate::app::{AcceptPause, App};
use crate::config::{ACCEPT_PAUSE, Config, WATCHDOG_AFTER};
use crate::context::EngineContext;
use crate::deadline::{Millis, millis};
use crate::group::{Membership, PublishedState, slack};
use crate::net::{Local, Net};
use crate::statistics::Statistics;
use std::io;
use std::time::Duration;

/// A listening socket.
pub(super) struct Listener<N: Net> {
    pub(super) socket: N::Listener,
    /// True if a connection may be waiting to be accepted.
    is_ready: bool,
    /// The mode in which the listener is watched, true for turns ([`Net::relisten`]); `None` if it is not watched.
    takes_turns: Option<bool>,
    /// True if this engine has accepted a connection, or left one to another engine, since the last call of
    /// [`Net::relisten`].
    had_turn: bool,
    /// The time since which the watchdog has found a waiting connection on each of its runs.
    awaited_since: Option<Millis>,
}

/// The listeners of an engine, and the state that decides whether it accepts from them.
pub(super) struct Acceptor<N: Net> {
    /// Empty once the engine has stopped accepting.
    listeners: Vec<Listener<N>>,
    locals: Vec<Local>,
    /// The maximum number of connections: the configured one, or fewer if the limit on descriptors is lower.
    most: usize,
    /// The time until which the engine does not accept connections.
    paused_until: Option<Millis>,
    /// True if a pause has been reported to the application, and since then every listener has had a waiting
    /// connection.
    is_pause_reported: bool,
    /// The membership in the group of engines that accept from the same listeners; `None` if there are no others.
    membership: Option<Membership>,
    /// The time at which to check whether another engine has accepted the connection that was left to it. A monotonic
    /// time of the caller's clock.
    look_again_at: Option<Duration>,
}

impl<N: Net> Acceptor<N> {
    pub(super) fn new(net: &mut N, sockets: Vec<N::Listener>, config: &Config) -> io::Result<Self> {
        let watched = sockets.iter().enumerate().map(|(index, socket)| net.listen(socket, index));
        let locals = watched.collect::<io::Result<_>>()?;
        let most = config.connections.min(net.room() / config.engines.max(1));
        let listener = |socket| Listener {
            socket,
            is_ready: true,
            takes_turns: Some(false),
            had_turn: false,
            awaited_since: None,
        };
        Ok(Self {
            listeners: sockets.into_iter().map(listener).collect(),
            locals,
            most,
            paused_until: None,
            is_pause_reported: false,
            membership: None,
            look_again_at: None,
        })
    }

    /// Returns the addresses of the listeners, in the order of the listeners.
    pub(super) fn locals(&self) -> &[Local] {
        &self.locals
    }

    /// Returns true if the next poll should try to accept a connection.
    pub(super) fn is_due(&self) -> bool {
        self.paused_until.is_none() && self.is_ready()
    }

    /// Returns the end of the pause; `Millis::MAX` if accepting is not paused.
    pub(super) fn resumes_at(&self) -> Millis {
        self.paused_until.unwrap_or(Millis::MAX)
    }

    /// Returns true if there is nothing to accept until the poller reports an event, or another engine leaves a
    /// connection to this one.
    pub(super) fn is_idle(&self) -> bool {
        self.paused_until.is_none() && !self.is_ready()
    }

    /// Returns the time at which to check whether another engine has accepted the connection that was left to it.
    pub(super) fn looks_again_at(&self) -> Option<Duration> {
        self.look_again_at
    }

    /// Returns true if a connection may be waiting, even if accepting is paused.
    pub(super) fn is_ready(&self) -> bool {
        self.listeners.iter().any(|listener| listener.is_ready)
    }

    /// Records that the poller has reported the listener at `index`.
    pub(super) fn note_event(&mut self, index: usize) {
        if let Some(listener) = self.listeners.get_mut(index) {
            listener.is_ready = true;
        }
    }

    /// Makes the next round check all listeners, and ends a pause.
    pub(super) fn look_at_all(&mut self) {
        self.paused_until = None;
        self.set_all_ready();
    }

    fn set_all_ready(&mut self) {
        for listener in &mut self.listeners {
            listener.is_ready = true;
        }
    }

    /// Ends a pause, because a connection has closed and there is room again.
    pub(super) fn resume(&mut self) {
        self.paused_until = None;
    }

    /// Returns true if accepting pauses at `now`.
    pub(super) fn is_paused(&self, now: Millis) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Returns true if there is room for a connection in addition to `connections` existing ones.
    pub(super) fn has_room_beside(&self, connections: usize) -> bool {
        connections < self.most
    }

    pub(super) fn listener(&self, index: usize) -> Option<&Listener<N>> {
        self.listeners.get(index).filter(|listener| listener.is_ready)
    }

    pub(super) fn has_listener(&self, index: usize) -> bool {
        index < self.listeners.len()
    }

    /// Closes the listeners: the engine accepts no more connections.
    pub(super) fn close(&mut self, net: &mut N) {
        for listener in self.listeners.drain(..) {
            net.unlisten(&listener.socket);
        }
    }

    /// Records that a connection was accepted.
    pub(super) fn note_accepted(&mut self, index: usize, told: Duration) {
        self.listeners[index].had_turn = true;
        if let Some(membership) = &mut self.membership {
            membership.has_accepted(told);
        }
    }

    /// Records that this round has tried all listeners.
    pub(super) fn note_round(&mut self, told: Duration) {
        if let Some(membership) = &mut self.membership {
            membership.has_found_none(told);
        }
    }

    /// Records that no connection waits at this listener.
    pub(super) fn note_empty(&mut self, index: usize) {
        self.listeners[index].is_ready = false;
        self.note_pause(false);
    }

    /// Records whether a connection waits for which there is no room. Returns true if that had been recorded before.
    fn note_pause(&mut self, is_pausing: bool) -> bool {
        let was_known = std::mem::replace(&mut self.is_pause_reported, is_pausing);
        match &self.membership {
            Some(membership) if was_known != is_pausing => membership.note_pause(is_pausing),
            _ => was_known,
        }
    }

    /// Pauses accepting until a connection has closed, or for [`ACCEPT_PAUSE`]. Returns true if the caller has to
    /// report the pause.
    pub(super) fn pause<A: App>(&mut self, context: &mut EngineContext<A>, connections: usize, told: Duration) -> bool {
        self.paused_until = Some(context.time.now + millis(ACCEPT_PAUSE));
        context.statistics.accept_pauses += 1;
        self.publish(context, connections, told);
        !self.note_pause(true)
    }

    /// Returns the reason for a pause when there is no room.
    pub(super) fn full(&self, config: &Config) -> AcceptPause {
        let most = self.membership.as_ref().map_or(self.most, Membership::room_of_all);
        if self.most == config.connections { AcceptPause::Connections(most) } else { AcceptPause::Descriptors(most) }
    }

    // -------------------------------------------------------------------------------------------------- engine group

    pub(super) fn join_group(&mut self, membership: Membership) {
        membership.has_room_for(self.most);
        self.membership = Some(membership);
    }

    /// Wakes the other engines of the group.
    pub(super) fn wake_others(&self) {
        self.membership.iter().for_each(Membership::wake_others);
    }

    /// See [`Engine::before_wait`](crate::Engine::before_wait).
    pub(super) fn before_wait<A: App<Net = N>>(
        &mut self,
        net: &mut N,
        context: &EngineContext<A>,
        connections: usize,
        is_free: bool,
    ) {
        let has_room = self.has_room_beside(connections) && self.paused_until.is_none();
        let has_others = self.membership.as_ref().is_none_or(Membership::has_others);
        let takes_turns = is_free && has_room && has_others && !context.load.phase.is_stopping();
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let is_to_go_last = takes_turns && listener.had_turn;
            if listener.takes_turns == Some(takes_turns)
                && (!is_to_go_last || self.membership.as_ref().is_some_and(Membership::has_fewest))
            {
                continue;
            }
            listener.had_turn = false;
            listener.takes_turns = Some(takes_turns);
            if net.relisten(&listener.socket, index, takes_turns).is_err() {
                // The system is out of memory. Until the listener is watched again, the engine tries to accept at
                // intervals.
                listener.takes_turns = None;
                listener.is_ready = true;
                self.paused_until = Some(context.time.now + millis(ACCEPT_PAUSE));
            }
        }
    }

    /// Makes this round check the listeners if another engine has asked for it, or if it is time to check whether
    /// another engine has accepted the connections that were left to it.
    #[inline]
    pub(super) fn look_if_due(&mut self, told: Duration) {
        let Some(membership) = &self.membership else { return };
        let is_notified = membership.take_notification();
        let is_due = self.look_again_at.take_if(|at| *at <= told).is_some();
        if is_notified || is_due {
            self.set_all_ready();
        }
    }

    /// Publishes the number of connections, and whether threads are free, to the other engines of the group. Threads
    /// that suspended responses will need do not count as free.
    #[inline]
    pub(super) fn publish<A: App>(&mut self, context: &EngineContext<A>, connections: usize, told: Duration) {
        if self.membership.is_none() {
            return;
        }
        let has_room = self.has_room_beside(connections) && !self.is_paused(context.time.now);
        let Some(membership) = &mut self.membership else { return };
        let Statistics { requests, running, suspended, accepted, .. } = context.statistics;
        let state = PublishedState {
            calls: running + suspended,
            begun: requests,
            queued: context.load.queued,
            connections,
            accepted,
            is_accepting: has_room && !context.is_draining(),
        };
        membership.publish(state, told);
    }

    /// Returns true if nothing should be accepted from this listener now: another engine was asked to accept, or no
    /// connection waits there.
    pub(super) fn leaves_to_another<A: App<Net = N>>(
        &mut self,
        index: usize,
        net: &N,
        context: &EngineContext<A>,
        told: Duration,
    ) -> bool {
        let Some(membership) = &mut self.membership else { return false };
        let Some(other) = membership.better(told, slack(context.load.brief_in_a_row)) else { return false };
        if net.is_awaited(&self.listeners[index].socket) {
            let due = membership.notify(other, told);
            self.look_again_at = Some(self.look_again_at.map_or(due, |earlier| earlier.min(due)));
            self.listeners[index].had_turn = true;
            self.listeners[index].is_ready = false;
        } else {
            self.note_empty(index);
        }
        true
    }

    // ------------------------------------------------------------------------------------------------------ watchdog

    /// Resets the times since which connections have waited, because the engine was polled.
    pub(super) fn forget_waiting(&mut self) {
        for listener in &mut self.listeners {
            listener.awaited_since = None;
        }
    }

    /// Records the listeners at which a connection waits while no thread polls. Returns true if there is one.
    pub(super) fn note_waiting(&mut self, net: &N, now: Millis) -> bool {
        for listener in &mut self.listeners {
            let is_awaited = net.is_awaited(&listener.socket);
            listener.awaited_since = listener.awaited_since.or(Some(now)).filter(|_| is_awaited);
        }
        self.listeners.iter().any(|listener| listener.awaited_since.is_some())
    }

    /// Returns the listeners at which a connection has waited longer than another process would have needed to accept
    /// it.
    pub(super) fn neglected(&self, now: Millis) -> Vec<usize> {
        let is_neglected = |listener: &Listener<N>| has_waited_in_vain(listener.awaited_since, now);
        let listeners = self.listeners.iter().enumerate();
        listeners.filter(|(_, listener)| is_neglected(listener)).map(|(index, _)| index).collect()
    }

    pub(super) fn socket(&self, index: usize) -> &N::Listener {
        &self.listeners[index].socket
    }
}

/// Returns true if something has waited since `since`, longer than another process would have needed to serve it.
pub(super) fn has_waited_in_vain(since: Option<Millis>, now: Millis) -> bool {
    since.is_some_and(|since| now >= since + millis(WATCHDOG_AFTER))
}
