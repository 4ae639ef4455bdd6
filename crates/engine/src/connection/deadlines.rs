//! The wait of a connection as a whole, and its deadline. In addition, each exchange has its own wait
//! ([`Exchange::set_deadline`](crate::exchange::Exchange::set_deadline)).
//!
//! A connection waits for request heads, for its peer to read output, or for its end. While output waits for the peer,
//! only that wait has a deadline: everything that must follow the output is delayed by it, and is not late.

use super::front::HEADER_TIMEOUT_LEAST;
use super::lifecycle::{Holder, LinkState};
use super::link::{History, Link};
use crate::app::App;
use crate::config::{Config, HIJACK_LINGER, IDLE_AFTER, LINGER, UNUSED_GRACE};
use crate::context::{EngineContext, Time};
use crate::deadline::{Millis, Wait, millis};
use crate::transport::Transport as _;
use std::time::Duration;

impl<A: App> Link<A> {
    /// Returns the wait of the connection; `None` if the connection is open and its session determines the wait.
    pub(super) fn awaits(&self) -> Option<Wait> {
        match self.lifecycle.state() {
            LinkState::Gone | LinkState::Hijacked { holder: Holder::Call, .. } => Some(Wait::App),
            LinkState::Hijacked { holder: Holder::Socket, .. } => Some(Wait::Hijacker),
            _ if self.has_output() => Some(Wait::Output),
            LinkState::Linger(_) => Some(Wait::Linger),
            LinkState::Closing(_) => Some(Wait::App),
            LinkState::Open => None,
        }
    }

    /// Returns the wait for room in the queue or for a header of the PROXY protocol; `None` if there is no such wait.
    pub(super) fn awaits_before_request(&self) -> Option<Wait> {
        if self.schedule.awaits_room() {
            Some(Wait::Queue)
        } else if self.awaits_proxy_header() {
            Some(Wait::ProxyHeader)
        } else {
            None
        }
    }

    /// Returns the wait of an open connection without a request.
    pub(super) fn awaits_request(&self) -> Wait {
        if self.input.is_empty() && self.history() != History::New { Wait::Idle } else { Wait::Head }
    }

    /// Sets the deadline of the connection's current wait. `is_unused`: nothing has ever arrived on the connection.
    /// `websocket`: the deadline of its WebSocket, if it is one.
    pub(super) fn set_deadline(
        &mut self,
        wait: Wait,
        is_unused: bool,
        websocket: Millis,
        context: &mut EngineContext<A>,
    ) {
        let (now, config) = (context.time.now, &context.config);
        let after =
            |timeout: Option<Duration>| timeout.map_or(Millis::MAX, |timeout| now.saturating_add(millis(timeout)));
        // While the engine stops, a client that has not sent a complete head has less time.
        let grace = context.load.phase.grace();
        let graced = |timeout: Option<Duration>| after(timeout).min(after(grace));
        let has_short_grace = self.history() == History::New && grace.is_some_and(|grace| grace > UNUSED_GRACE);
        let before = self.timer.turn_to(wait, now);
        if let Some((Wait::Output, passed)) = before {
            self.sending.note_waited(passed);
        }
        let is_new = before.is_some();
        let since = self.timer.since;
        self.timer.deadline = match wait {
            Wait::Idle => graced(config.keep_alive),
            Wait::Head if is_new && is_unused => graced(config.header_timeout).min(unused_until(now, grace)),
            Wait::Head if is_new => graced(config.header_timeout),
            // The first bytes have arrived, so the shorter grace of an unused connection no longer applies.
            Wait::Head if has_short_grace && !is_unused => {
                let limit = config.header_timeout.map_or(Millis::MAX, |limit| since.saturating_add(millis(limit)));
                limit.min(after(grace))
            }
            Wait::ProxyHeader if is_new => {
                graced(config.header_timeout.map(|timeout| timeout.max(HEADER_TIMEOUT_LEAST)))
            }
            Wait::Queue if is_new => after(config.queue_timeout),
            Wait::Linger if is_new => after(Some(LINGER)),
            Wait::Hijacker if is_new => after(Some(HIJACK_LINGER)),
            Wait::Head | Wait::ProxyHeader | Wait::Queue | Wait::Linger | Wait::Hijacker => self.timer.deadline,
            Wait::Output => self.transfer_deadline(is_new, config, now),
            Wait::WebSocket => websocket,
            Wait::App | Wait::Body => Millis::MAX,
        };
        let rests_at = if self.may_rest_since().is_some() { now + millis(IDLE_AFTER) } else { Millis::MAX };
        context.time.sweep.note(self.timer.deadline.min(rests_at));
    }

    /// Returns the deadline of output that the peer has to read. An interrupted transfer continues its measurement: the
    /// time that it waited before counts, too.
    fn transfer_deadline(&mut self, is_new: bool, config: &Config, now: Millis) -> Millis {
        let (moved, waited) = self.sending.measured();
        // Bytes that the transport has accepted but not written to the socket have not moved.
        let moved = moved.saturating_sub(self.transport.unsent_bytes() as u64);
        let begun = self.timer.since.saturating_sub(waited);
        self.timer.transfer((config.write_timeout, config.min_rate), begun, moved, is_new, now)
    }

    /// Returns true if the connection delays all its exchanges: output waits, or no more requests are served.
    pub(super) fn is_blocked(&self) -> bool {
        self.awaits_output() || !self.lifecycle.is_open()
    }

    /// Returns true if the connection waited for its peer to read output when its wait was last determined.
    pub(super) fn awaits_output(&self) -> bool {
        self.timer.wait == Wait::Output
    }

    /// Returns the deadline of the connection's wait.
    pub(crate) fn deadline(&self) -> Millis {
        self.timer.deadline
    }

    /// Moves the deadline forward to `deadline`, if that is earlier.
    pub(super) fn hurry(&mut self, deadline: Millis, time: &mut Time) {
        self.timer.deadline = self.timer.deadline.min(deadline);
        time.sweep.note(self.timer.deadline);
    }
}

/// Returns the time at which a stopping engine closes a connection on which nothing has arrived. `grace` is the grace
/// of the stop; `None` if the engine does not stop.
pub(super) fn unused_until(now: Millis, grace: Option<Duration>) -> Millis {
    grace.map_or(Millis::MAX, |grace| now.saturating_add(millis(grace.min(UNUSED_GRACE))))
}
