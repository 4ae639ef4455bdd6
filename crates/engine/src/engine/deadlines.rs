//! The connections whose deadlines the next poll has to set.

use crate::app::App;
use crate::connection::Connection;
use crate::context::EngineContext;
use slab::Slab;

/// Connections for which a call has left unsent output. Setting a deadline needs the time, which the methods that write
/// a part of a response do not get.
///
/// Invariant: a slot is in this list if and only if its connection has recorded so (`Schedule::note_stale_deadline`).
pub(super) struct StaleDeadlines {
    slots: Vec<usize>,
}

impl StaleDeadlines {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn add<A: App>(&mut self, slot: usize, connection: &mut Connection<A>) {
        if connection.link_mut().schedule.note_stale_deadline() {
            self.slots.push(slot);
        }
    }

    /// Sets the deadlines of all connections in the list.
    pub(super) fn set<A: App>(
        &mut self,
        connections: &mut Slab<Connection<A>>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        for slot in self.slots.drain(..) {
            if let Some(connection) = connections.get_mut(slot) {
                connection.link_mut().schedule.clear_stale_deadline();
                connection.set_deadlines(context);
                connection.rest_in_crowd(context, app);
            }
        }
    }
}
