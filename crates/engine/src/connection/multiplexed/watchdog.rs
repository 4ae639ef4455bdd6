//! The watchdog's work for a multiplexed connection while no thread can poll the engine.

use super::Multiplexed;
use crate::app::App;
use crate::connection::exchanging::Service;
use crate::connection::lifecycle::Closing;
use crate::connection::link::Link;
use crate::connection::opening::OpeningStep;
use crate::connection::step::{BUSY, Serviced};
use crate::context::EngineContext;
use crate::health::Health;
use crate::protocol::{MultiplexedProtocol, StreamEvent};
use crate::responder::Responder;

/// Checks whether the first request in the stored input of a new connection is a health check. Returns `None` if it is.
/// A separate protocol value parses the input.
pub(super) fn asks_first<A: App>(
    session: &Multiplexed<A>,
    link: &Link<A>,
    context: &mut EngineContext<A>,
) -> Option<Service> {
    let input = link.input.unused();
    let mut protocol = session.protocol.fresh();
    protocol.open(context.config.exchanges, &context.config.limits);
    let EngineContext { scratch, config, responders, .. } = context;
    let mut used = 0;
    loop {
        match protocol.next(&input[used..], scratch.head.get_or_insert_default(), &config.limits) {
            Ok((_, StreamEvent::More)) => return Some(Service::Unclear),
            Ok((_, StreamEvent::Head { head, .. })) if responders.health.answers(&head) => return None,
            // Frames without a request, such as SETTINGS, may come first.
            Ok((count @ 1.., StreamEvent::Nothing | StreamEvent::Credit { .. } | StreamEvent::Reset { .. })) => {
                used += count;
            }
            _ => return Some(Service::Done(Serviced::Waits)),
        }
    }
}

/// Answers the health check at the beginning of the input of a new connection, while no thread polls the engine, and
/// ends the connection: the watchdog can read only the first request of a connection. Returns true if the response is
/// complete; otherwise a thread that polls the engine has to write the rest.
pub(super) fn answer_first<A: App>(
    session: &mut Multiplexed<A>,
    health: Health,
    link: &mut Link<A>,
    context: &mut EngineContext<A>,
) -> bool {
    let (stream, terms) = loop {
        let unused = link.input.unused();
        match session.protocol.next(unused, context.scratch.head.get_or_insert_default(), &context.config.limits) {
            Ok((count, StreamEvent::Head { stream, terms, .. })) => {
                link.input.advance(count);
                break (stream, terms);
            }
            Ok((count @ 1.., _)) => link.input.advance(count),
            Ok((0, _)) | Err(_) => return false,
        }
    };
    session.announce_end(link, context);
    session.answer_health_check(stream, health, terms, link, context);
    if !session.exchanges.is_empty() {
        return false;
    }
    link.input.discard();
    link.lifecycle.close(Closing::Linger);
    true
}

/// Refuses the requests that have arrived on a connection with no exchange under way. Returns true if input was read.
pub(super) fn refuse_unread_exchanges<A: App>(
    session: &mut Multiplexed<A>,
    link: &mut Link<A>,
    context: &mut EngineContext<A>,
    buffer: &mut [u8],
) -> bool {
    link.receive_unread(context, buffer);
    if link.input.is_empty() {
        return false;
    }
    if link.open_stored(context) != Ok(OpeningStep::Ready) {
        return true;
    }
    // The thread that polls the engine next handles errors in the rest.
    let input = link.input.take();
    let mut used = 0;
    while let Ok((count @ 1.., event)) = session.protocol.next(
        &input.unused()[used..],
        context.scratch.head.get_or_insert_default(),
        &context.config.limits,
    ) {
        used += count;
        // All exchanges here are refused ones, so they hold no objects of the application.
        match event {
            StreamEvent::Head { stream, terms, .. } => {
                let index = session.note_begin(stream, link, context);
                session.refuse_exchange(index, BUSY, terms, link, context);
            }
            StreamEvent::Data { stream, bytes, .. } => {
                let length = bytes.len();
                session.grant(stream, length, link, context);
            }
            StreamEvent::Reset { stream } => {
                session.protocol.forget_stream(stream);
                if let Some(index) = session.exchanges.find(stream) {
                    session.exchanges.remove(index);
                }
            }
            StreamEvent::Credit { stream } => {
                if let Some(index) = session.exchanges.find(stream) {
                    session.pump(index, link, context);
                }
            }
            StreamEvent::Broken { stream, fault } if session.exchanges.find(stream).is_none() => {
                let index = session.note_begin(stream, link, context);
                let terms = session.protocol.unread_terms();
                session.refuse_exchange(index, fault.into(), terms, link, context);
            }
            StreamEvent::Broken { .. } | StreamEvent::End { .. } | StreamEvent::More | StreamEvent::Nothing => {}
        }
    }
    link.input.keep(input, used);
    true
}
