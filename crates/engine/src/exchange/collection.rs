//! The exchanges of a connection with a multiplexed protocol.

use super::{Exchange, Index};
use crate::app::App;
use crate::deadline::Millis;
use crate::protocol::StreamId;
use slab::Slab;

/// The exchanges of one connection. The first one is stored in place, so that a connection with one exchange at a time
/// allocates no memory for others.
pub(crate) struct Exchanges<A: App> {
    first: Exchange<A>,
    /// The exchanges at index 1 and above.
    others: Slab<Exchange<A>>,
}

impl<A: App> Exchanges<A> {
    pub(crate) fn new(now: Millis) -> Self {
        Self { first: Exchange::new(now), others: Slab::new() }
    }

    /// Returns the exchange at `index`, which must be under way, to change it: its deadline may be another one then. To
    /// look at it, use [`get`](Self::get), since each deadline that is set again costs time.
    pub(crate) fn at(&mut self, index: Index) -> &mut Exchange<A> {
        let exchange = if index == 0 { &mut self.first } else { &mut self.others[index as usize - 1] };
        exchange.is_changed = true;
        exchange
    }

    pub(crate) fn get(&self, index: Index) -> Option<&Exchange<A>> {
        if index == 0 { Some(&self.first) } else { self.others.get(index as usize - 1) }
    }

    /// Returns the exchanges that are under way, with their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Index, &Exchange<A>)> {
        // The configuration limits the number of exchanges to far below 2^32.
        let index = |at: usize| u32::try_from(at + 1).unwrap_or(u32::MAX);
        let others = self.others.iter().map(move |(at, exchange)| (index(at), exchange));
        std::iter::once((0, &self.first)).chain(others).filter(|(_, exchange)| !exchange.is_free())
    }

    /// Returns the indices of the exchanges that are under way now.
    pub(crate) fn indices(&self) -> impl Iterator<Item = Index> + use<A> {
        self.indices_where(|_| true)
    }

    /// Returns the indices of the exchanges for which `is` returns true. Allocates no memory if there is at most one.
    fn indices_where<F: Fn(&Exchange<A>) -> bool>(&self, is: F) -> impl Iterator<Item = Index> + use<A, F> {
        let mut found = self.iter().filter(|(_, exchange)| is(exchange)).map(|(index, _)| index);
        let first = found.next();
        let others: Vec<Index> = found.collect();
        first.into_iter().chain(others)
    }

    /// Returns the indices of the exchanges whose deadlines may have to be set again: those that have changed since the
    /// last time, and those whose deadlines depend on other exchanges. With `all`, returns the indices of all
    /// exchanges.
    pub(crate) fn unsettled(&self, all: bool) -> impl Iterator<Item = Index> + use<A> {
        self.indices_where(move |it| all || it.is_changed || it.has_backlog() || it.has_websocket())
    }

    /// Returns the exchange at `index`, so that the caller sets its deadline. The deadline stays valid until the
    /// exchange changes.
    pub(crate) fn settle(&mut self, index: Index) -> &mut Exchange<A> {
        let exchange = self.at(index);
        exchange.is_changed = false;
        exchange
    }

    pub(crate) fn any(&self, mut is: impl FnMut(&Exchange<A>) -> bool) -> bool {
        self.iter().any(|(_, exchange)| is(exchange))
    }

    /// Returns true if no exchange is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_free() && self.others.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(!self.first.is_free()) + self.others.len()
    }

    /// Returns the index of the next exchange to be inserted.
    pub(crate) fn next_index(&self) -> Index {
        if self.first.is_free() { 0 } else { u32::try_from(self.others.vacant_key() + 1).unwrap_or(u32::MAX) }
    }

    /// Inserts an exchange at [`next_index`](Self::next_index) and returns that index. The state of the exchange is
    /// still `Free`.
    pub(crate) fn insert(&mut self, stream: StreamId, now: Millis) -> Index {
        let index = self.next_index();
        if index == 0 {
            self.at(index).stream = stream;
        } else {
            self.others.insert(Exchange { stream, ..Exchange::new(now) });
        }
        index
    }

    /// Removes the exchange at `index`.
    pub(crate) fn remove(&mut self, index: Index) {
        if index == 0 {
            self.first.state.end();
            self.first.clear();
        } else {
            self.others.try_remove(index as usize - 1);
            if self.others.is_empty() {
                // An idle connection keeps no memory for exchanges.
                self.others = Slab::new();
            }
        }
    }

    /// Returns the index of the exchange that the protocol identifies by `stream`.
    pub(crate) fn find(&self, stream: StreamId) -> Option<Index> {
        self.iter().find(|(_, exchange)| exchange.stream == stream).map(|(index, _)| index)
    }
}
