//! Following requests through their stages, for those who want to know where their time goes.

use crate::app::CallId;

/// What is done for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// It is received from the socket.
    Read,
    /// Its head and the framing of its body are understood, its body is kept.
    Parse,
    /// It is made into what the application is given.
    Environ,
    /// It is ready, and waits for a thread that calls the application; or a suspended response waits for one.
    Queue,
    /// The application works, its iterable included.
    App,
    /// The response is composed and sent.
    Write,
    /// Its peer has not sent the rest of it, or not read what it was answered.
    Peer,
    /// Everything else.
    Other,
}

impl Stage {
    /// All of them, with their names, in the order of [`Times::spent`](crate::Times::spent).
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

/// Is told what is done for each request. Its methods say what begins; each has a default that does nothing.
pub(crate) trait Observer {
    /// The request goes over to `stage`. Returns the one that it comes from; `None` without a request.
    fn switch(&mut self, call: CallId, stage: Stage) -> Option<Stage> {
        let _ = (call, stage);
        None
    }

    /// Something may be received now that belongs to a request.
    fn receive(&mut self, call: CallId) {
        let _ = call;
    }

    /// It has been, or nothing was there.
    fn received(&mut self, call: CallId, anything: bool) {
        let _ = (call, anything);
    }

    /// A head may be here. If it was received together with another request, this one begins now.
    fn parse(&mut self, call: CallId) {
        let _ = call;
    }

    /// The request has its answer, of which not all has left.
    fn answered(&mut self, call: CallId) {
        let _ = call;
    }

    /// The application was not called for the request, or did not come to an end that its client could see.
    fn give_up(&mut self, call: CallId) {
        let _ = call;
    }

    /// What is composed for the connection in `slot` is about to be sent.
    fn send(&mut self, slot: usize) {
        let _ = slot;
    }

    /// It has been; `all`: nothing of it is left.
    fn sent(&mut self, slot: usize, all: bool) {
        let _ = (slot, all);
    }

    /// The connection is gone.
    fn forget(&mut self, slot: usize) {
        let _ = slot;
    }
}

/// `None` observes nothing, at the price of a branch that is never taken.
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
