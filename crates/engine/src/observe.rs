//! The observer interface. An observer follows requests through their stages to measure their time.

use crate::app::CallId;

/// A stage in the processing of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// The engine receives the request from the socket.
    Read,
    /// The engine parses the head and the framing of the body, and stores the body.
    Parse,
    /// The gateway converts the request into the form that the application receives.
    Environ,
    /// The request, or a suspended response, waits for a thread that can call the application.
    Queue,
    /// The application runs, including the iterable that it has returned.
    App,
    /// The engine composes and sends the response.
    Write,
    /// The engine waits for the peer to send the rest of the request or to read the response.
    Peer,
    /// Everything else.
    Other,
}

impl Stage {
    /// All stages with their names, in the order of [`Times::spent`](crate::Times::spent).
    pub const ALL: [(Self, &str); 8] = [
        (Self::Read, "read"),
        (Self::Parse, "parse"),
        (Self::Environ, "environ"),
        (Self::Queue, "queue"),
        (Self::App, "app"),
        (Self::Write, "write"),
        (Self::Peer, "peer"),
        (Self::Other, "other"),
    ];
}

/// An observer of the processing of each request. Each method reports an event and does nothing by default.
pub(crate) trait Observer {
    /// The request enters `stage`. Returns its previous stage; `None` if there is no request.
    fn switch(&mut self, call: CallId, stage: Stage) -> Option<Stage> {
        let _ = (call, stage);
        None
    }

    /// The engine is about to receive bytes that may belong to a request.
    fn receive(&mut self, call: CallId) {
        let _ = call;
    }

    /// The engine has received bytes; `anything` is false if none had arrived.
    fn received(&mut self, call: CallId, anything: bool) {
        let _ = (call, anything);
    }

    /// The engine is about to parse a head. The time of a request that was received together with an earlier one begins
    /// now.
    fn parse(&mut self, call: CallId) {
        let _ = call;
    }

    /// The request has been answered, but not all of the response has been sent.
    fn answered(&mut self, call: CallId) {
        let _ = call;
    }

    /// The application was not called for the request, or the client did not receive a complete response.
    fn give_up(&mut self, call: CallId) {
        let _ = call;
    }

    /// The engine is about to send the output of the connection in `slot`.
    fn send(&mut self, slot: usize) {
        let _ = slot;
    }

    /// The engine has sent output of the connection. `all`: no output is left.
    fn sent(&mut self, slot: usize, all: bool) {
        let _ = (slot, all);
    }

    /// The connection is gone.
    fn forget(&mut self, slot: usize) {
        let _ = slot;
    }
}

/// `None` observes nothing. Its cost is a branch that is never taken.
impl<O: Observer> Observer for Option<Box<O>> {
    #[inline]
    fn switch(&mut self, call: CallId, stage: Stage) -> Option<Stage> {
        self.as_mut()?.switch(call, stage)
    }

    #[inline]
    fn receive(&mut self, call: CallId) {
        if let Some(observer) = self {
            observer.receive(call);
        }
    }

    #[inline]
    fn received(&mut self, call: CallId, anything: bool) {
        if let Some(observer) = self {
            observer.received(call, anything);
        }
    }

    #[inline]
    fn parse(&mut self, call: CallId) {
        if let Some(observer) = self {
            observer.parse(call);
        }
    }

    #[inline]
    fn answered(&mut self, call: CallId) {
        if let Some(observer) = self {
            observer.answered(call);
        }
    }

    #[inline]
    fn give_up(&mut self, call: CallId) {
        if let Some(observer) = self {
            observer.give_up(call);
        }
    }

    #[inline]
    fn send(&mut self, slot: usize) {
        if let Some(observer) = self {
            observer.send(slot);
        }
    }

    #[inline]
    fn sent(&mut self, slot: usize, all: bool) {
        if let Some(observer) = self {
            observer.sent(slot, all);
        }
    }

    #[inline]
    fn forget(&mut self, slot: usize) {
        if let Some(observer) = self {
            observer.forget(slot);
        }
    }
}
