//! The answering of health checks on a connection while no thread polls the engine. This code neither uses nor drops
//! objects of the application.

use super::exchanging::{Exchanging, Service};
use super::lifecycle::{Closing, LinkState};
use super::link::{History, Link};
use super::opening::OpeningStep;
use super::step::Serviced;
use crate::app::App;
use crate::config::GLANCE;
use crate::context::EngineContext;
use crate::health::Health;
use crate::transport::{Received, Transport};

/// The maximum number of steps for one connection at a time. Each step reads at most [`GLANCE`] bytes.
const STEPS: usize = 16;

/// Answers a new connection, if it sends a health check. Other requests stay in the input, unchanged.
pub(super) fn service<A: App>(
    session: &mut impl Exchanging<A>,
    health: Health,
    link: &mut Link<A>,
    context: &mut EngineContext<A>,
    buffer: &mut [u8],
) -> Serviced {
    for _ in 0..STEPS {
        if !session.flush(link, context) {
            return Serviced::Over;
        }
        if link.has_output() {
            return Serviced::Stays;
        }
        match link.lifecycle.state() {
            // The watchdog has refused its requests. The thread that polls the engine next reads further ones.
            LinkState::Open if link.history() != History::New => return Serviced::Stays,
            LinkState::Open if !link.input.is_empty() => match link.open_stored(context) {
                Ok(OpeningStep::Ready) => match session.service(health, link, context) {
                    Service::Unclear => {}
                    Service::Answered => continue,
                    Service::Done(serviced) => return serviced,
                },
                Ok(OpeningStep::Used(_) | OpeningStep::NeedsMore) => {}
                // The thread that polls the engine next ends this connection and logs why, or gives it another session.
                Ok(OpeningStep::Other(_)) | Err(_) => return Serviced::Waits,
            },
            LinkState::Closing(Closing::Linger) => {
                link.transport.end_output();
                link.lifecycle.linger();
            }
            _ => {}
        }
        // The first bytes show the kind of request. Input for the application is not read further.
        let room = buffer.len().min(GLANCE);
        let count = match link.transport.receive(&mut buffer[..room]) {
            // The head ends early. A thread that can log the refusal has to refuse it.
            Ok(Received::End) if !link.input.is_empty() => return Serviced::Waits,
            Ok(Received::End) | Err(_) => return Serviced::Over,
            Ok(Received::Bytes { count, .. }) => count,
            Ok(Received::WouldBlock) if matches!(link.lifecycle.state(), LinkState::Closing(_)) => {
                return Serviced::Over;
            }
            Ok(Received::WouldBlock) => return Serviced::Stays,
        };
        context.statistics.bytes_in += count as u64;
        if link.lifecycle.is_open() {
            link.input.append_unseen(&buffer[..count]);
        } else {
            // If the client has sent more, closing the socket now could destroy the response on its way.
            link.lifecycle.discard(count as u64);
            if !matches!(link.lifecycle.state(), LinkState::Closing(Closing::Linger) | LinkState::Linger(_)) {
                link.transport.reset_on_drop();
                return Serviced::Over;
            }
        }
    }
    Serviced::Stays
}
