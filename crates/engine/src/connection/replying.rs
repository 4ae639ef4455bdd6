//! The creation of a [`Reply`], which borrows parts of a connection and of the engine.

use super::link::Link;
use super::sending::Lent;
use crate::app::{App, CallId, SenderOf, TermsOf};
use crate::coalescing::DeferredOutput;
use crate::compression::Offer;
use crate::context::EngineContext;
use crate::in_flight::{Ending, InFlight};
use crate::observe::{Observer, Stage};
use crate::output::Output;
use crate::protocol::ResponseTerms;
use crate::reply::{Channel, Loss, Reply};
use crate::statistics::Statistics;

/// Calls `write` with a `Reply` whose output goes to the link. Returns also which part of the connection the writing
/// has lost.
#[inline]
pub(super) fn reply<A: App, R>(
    channel: Channel<'_, A>,
    in_flight: &mut Option<InFlight<SenderOf<A>>>,
    (call, terms, offer): (CallId, TermsOf<A>, Offer),
    link: &mut Link<A>,
    context: &mut EngineContext<A>,
    write: impl FnOnce(&mut Reply<'_, A>) -> R,
) -> (R, Loss) {
    let stage = context.observer.switch(call, Stage::Write);
    let (mut loss, is_encrypted) = (Loss::Nothing, link.is_encrypted());
    let Lent { composer, waiting, moved, ending } = link.sending.lend(&mut context.scratch);
    let result = write(&mut Reply {
        slot: call.slot,
        out: composer,
        output: waiting,
        deferred: &mut context.coalescing.deferred,
        channel,
        in_flight,
        scratch: &mut context.scratch.chunks,
        statistics: &mut context.statistics,
        transport: &mut link.transport,
        stamp: context.time.stamp(is_encrypted),
        now: context.time.now,
        terms,
        moved,
        loss: &mut loss,
        is_upgraded: false,
        parts_come_fast: &mut context.coalescing.parts_come_fast,
        ending,
        compression: context.compression.as_deref_mut(),
        offer,
    });
    if let Some(compression) = &mut context.compression {
        context.meter.charge(compression.take_work());
    }
    if let Some(stage) = stage {
        context.observer.switch(call, stage);
    }
    (result, loss)
}

/// Calls `write` with a `Reply` whose output is discarded. `channel` has a protocol value of its own, so that the
/// output does not change the state of the connection's protocol. `is_upgraded`: see [`Reply`].
pub(super) fn reply_to_none<A: App, R>(
    channel: Channel<'_, A>,
    (in_flight, is_upgraded): (&mut Option<InFlight<SenderOf<A>>>, bool),
    terms: TermsOf<A>,
    link: &mut Link<A>,
    context: &mut EngineContext<A>,
    write: impl FnOnce(&mut Reply<'_, A>) -> R,
) -> R {
    let (mut out, is_encrypted) = (context.scratch.composer(), link.is_encrypted());
    let result = write(&mut Reply {
        slot: link.slot(),
        out: &mut out,
        output: &mut Output::new(),
        deferred: &mut DeferredOutput::default(),
        channel,
        in_flight,
        scratch: &mut Vec::new(),
        statistics: &mut Statistics::default(),
        transport: &mut link.transport,
        stamp: context.time.stamp(is_encrypted),
        now: context.time.now,
        terms: terms.ending(),
        moved: &mut 0,
        loss: &mut Loss::Connection,
        is_upgraded,
        parts_come_fast: &mut false,
        ending: &mut Ending::default(),
        compression: None,
        offer: Offer::default(),
    });
    out.clear();
    context.scratch.composers.push(out);
    result
}
