//! What a connection waits for, and until when.

use super::{Awaited, Connection, EngineContext, NextAction, Phase};
use crate::app::{App, Refusal};
use crate::config::{IDLE_AFTER, LINGER};
use crate::deadline::{Millis, millis, transfer};
use std::time::Duration;

/// What a connection waits for; each has its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// When the next request begins.
    Idle,
    /// When a head is whole.
    Head,
    /// When more of a body comes.
    Body,
    /// When somebody can call the application.
    Queue,
    /// When the peer takes more.
    Output,
    /// When the application goes on.
    App,
    /// When the peer closes.
    Linger,
}

impl<A: App> Connection<A> {
    fn awaits(&self) -> Wait {
        match &self.phase {
            _ if self.gone => Wait::App,
            _ if !self.output.is_empty() => Wait::Output,
            Phase::Expired(_) if self.is_expired_lingering() => Wait::Linger,
            _ if self.awaits_room => Wait::Queue,
            Phase::Head if !self.has_input() && self.served => Wait::Idle,
            Phase::Head => Wait::Head,
            Phase::Body(_) => Wait::Body,
            Phase::Queued(_) => Wait::Queue,
            // While the application does not ask for more, it is not the peer who is slow.
            Phase::Running(_) if matches!(self.waiter, Some((Awaited::Input, _))) => Wait::Body,
            Phase::Running(_) | Phase::Expired(_) | Phase::Response(_) | Phase::Closing(_) => Wait::App,
            Phase::Linger(_) => Wait::Linger,
        }
    }

    /// Sets the deadline of what is waited for now.
    pub(crate) fn set_deadline(&mut self, context: &mut EngineContext<A>) {
        let now = context.now;
        let config = &context.config;
        let after =
            |timeout: Option<Duration>| timeout.map_or(Millis::MAX, |timeout| now.saturating_add(millis(timeout)));
        // Once the engine stops, one that has not sent a whole head is given less time.
        let graced = |timeout: Option<Duration>| after(timeout).min(after(context.grace));
        let wait = self.awaits();
        let before = std::mem::replace(&mut self.wait, wait);
        if before != wait {
            let passed = now.saturating_sub(self.since);
            match (before, &mut self.incoming) {
                (Wait::Body, Some(incoming)) => incoming.waited += passed,
                (Wait::Output, _) => self.waited += passed,
                _ => {}
            }
            self.since = now;
        }
        // A transfer that is interrupted goes on where it was: what was waited for earlier counts too.
        let (in_flight, transferred) = match (wait, &self.phase, &self.incoming) {
            (Wait::Body, Phase::Body(receiving), _) => (self.since, receiving.spool.length()),
            (Wait::Body, _, Some(incoming)) => (self.since.saturating_sub(incoming.waited), incoming.arrived),
            (Wait::Output, ..) => (self.since.saturating_sub(self.waited), self.moved),
            _ => (now, 0),
        };
        if before != wait || transferred != self.transferred {
            self.progressed = now;
            self.transferred = transferred;
        }
        let until = |timeout| transfer(timeout, config.min_rate, in_flight, self.progressed, transferred);
        self.deadline = match wait {
            Wait::Idle => graced(config.keep_alive),
            Wait::Head if before != wait => graced(config.header_timeout),
            Wait::Queue if before != wait => after(config.queue_timeout),
            Wait::Linger if before != wait => after(Some(LINGER)),
            Wait::Head | Wait::Queue | Wait::Linger => self.deadline,
            Wait::Body => until(config.body_timeout),
            Wait::Output => until(config.write_timeout),
            Wait::App => Millis::MAX,
        };
        let rests_at = if wait == Wait::Idle && !self.forgotten { now + millis(IDLE_AFTER) } else { Millis::MAX };
        context.sweep.note(self.deadline.min(rests_at));
    }

    /// Whether it was the peer's turn to take output when that was looked at last.
    pub(crate) fn awaits_output(&self) -> bool {
        self.wait == Wait::Output
    }

    /// Whether nothing is in flight that a stop has to wait for: no request has begun, or its head is not whole.
    ///
    /// A head that is not whole is no request yet: nothing can be done about it, and its client, which has not sent all
    /// of it, cannot take it for done. When its time is up it gets 408, which says that it was not processed and may be
    /// sent again (RFC 9110 section 15.5.9). A request whose head is whole is in flight although its body is not: a
    /// client that has sent its POST must not repeat it by itself (RFC 9110 section 9.2.2). What bounds it are the time
    /// limits on a body that stands still or is too slow, and the time for the stop as a whole.
    ///
    /// What lies here and was not looked at, or is kept from being read, may be a whole request.
    pub(crate) fn has_no_request(&self) -> bool {
        let is_looked_at = !self.has_input() || self.exhausted;
        matches!(self.phase, Phase::Head) && is_looked_at && self.output.is_empty() && !self.awaits_room
    }

    /// Whether no request is under way and none has begun.
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.phase, Phase::Head) && !self.has_input() && self.output.is_empty() && !self.awaits_room
    }

    /// Since when the client has sent nothing that is waited for; `None` where it is not the client's turn to send, or
    /// where a call is out.
    pub(crate) fn silent_since(&self) -> Option<Millis> {
        let is_silent = match self.wait {
            Wait::Idle | Wait::Head | Wait::Linger => true,
            Wait::Body => !self.is_running(),
            Wait::Queue | Wait::Output | Wait::App => false,
        };
        is_silent.then_some(self.since)
    }

    /// A request may be there that cannot even wait now, or has been read after all.
    pub(crate) fn hold_back(&mut self, awaits_room: bool, context: &mut EngineContext<A>) {
        self.awaits_room = awaits_room;
        self.set_deadline(context);
    }

    /// When what is waited for must have come.
    pub(crate) fn deadline(&self) -> Millis {
        self.deadline
    }

    /// Brings the deadline forward.
    pub(crate) fn hurry(&mut self, deadline: Millis, context: &mut EngineContext<A>) {
        self.deadline = self.deadline.min(deadline);
        context.sweep.note(self.deadline);
    }

    /// Looks at the clock: whether the time of what is waited for is up.
    pub(crate) fn is_late(&self, now: Millis) -> bool {
        self.deadline <= now
    }

    /// Gives back what is kept for speed, if the connection has been idle for a while; otherwise says when to look
    /// again.
    pub(crate) fn rest(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        if self.wait != Wait::Idle || self.forgotten {
            return;
        }
        let rests_at = self.touched + millis(IDLE_AFTER);
        if rests_at <= context.now {
            self.receiver.forget();
            app.idle(super::known(&mut self.app));
            self.forgotten = true;
        } else {
            // Not at once when it may rest: with many busy connections that would be at every moment.
            context.sweep.note(context.now + millis(IDLE_AFTER));
        }
    }

    /// Says when the sweep has to look again.
    pub(crate) fn note_deadline(&self, context: &mut EngineContext<A>) {
        context.sweep.note(self.deadline);
    }

    /// Time is up.
    pub(crate) fn expire(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        self.deadline = Millis::MAX;
        if self.is_expired_lingering() && self.wait == Wait::Linger {
            self.let_expired_go();
            return NextAction::Wait;
        }
        match self.wait {
            Wait::Idle | Wait::Linger | Wait::App => NextAction::Close(self.finish(context, app)),
            Wait::Head if !self.has_input() => NextAction::Close(self.finish(context, app)),
            Wait::Head => {
                context.statistics.timeouts += 1;
                self.refuse_stored(Refusal { status: 408, fault: None }, context, app);
                NextAction::Again
            }
            Wait::Body => {
                context.statistics.timeouts += 1;
                let refusal = Refusal { status: 408, fault: None };
                if self.is_running() {
                    self.break_incoming(refusal, app);
                } else {
                    self.refuse_request(refusal, context, app);
                }
                NextAction::Again
            }
            Wait::Queue => {
                context.statistics.queue_timeouts += 1;
                let refusal = Refusal { status: 503, fault: None };
                if self.is_queued() {
                    self.refuse_request(refusal, context, app);
                } else {
                    self.awaits_room = false;
                    self.refuse_stored(refusal, context, app);
                }
                NextAction::Again
            }
            Wait::Output => {
                context.statistics.timeouts += 1;
                match self.abort(app) {
                    NextAction::Close(_) => NextAction::Close(self.finish(context, app)),
                    action => action,
                }
            }
        }
    }
}
