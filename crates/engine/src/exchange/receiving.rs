//! A request whose body is received as a whole before the application is called.

use crate::app::{App, RequestOf};
use crate::memory::BodyMemory;
use crate::spool::Spool;
use wire::message::BodyLength;

/// A request whose body has not arrived yet.
pub(crate) struct Receiving<A: App> {
    pub(crate) request: A::Request,
    pub(crate) facts: RequestOf<A>,
    pub(crate) spool: Spool,
}

impl<A: App> Receiving<A> {
    pub(crate) fn new(request: A::Request, facts: RequestOf<A>, length: BodyLength, memory: &BodyMemory) -> Self {
        let expected = if let BodyLength::Known(length) = length { Some(length) } else { None };
        Self { request, facts, spool: Spool::new(memory.reservation(), expected) }
    }
}
