//! The state that all connections of an engine share. A connection may use it while the engine drives the connection.
//!
//! It has one part per purpose, so that a function borrows only the part that it needs.

use crate::app::{App, Refusal, RefusalCause, Report};
use crate::coalescing::DeferredOutput;
use crate::compose::Composer;
use crate::compression::CompressionState;
use crate::config::Config;
use crate::deadline::{Millis, Sweep};
use crate::handshakes::Handshakes;
use crate::health::Health;
use crate::meter::Meter;
use crate::responder::{FileResponder, HealthResponder, Responder};
use crate::stages::Stages;
use crate::statistics::Statistics;
use std::time::Duration;
use wire::http2::HeadScratch;
use wire::message::{Field, Stamp};
use wire::websocket::{CloseCode, Compression};

/// The phase of the engine's life, which determines how it serves connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// Each response is the last one of its connection.
    Draining,
    /// The engine drains, and closes a connection without a request after `grace`.
    Stopping {
        grace: Duration,
    },
}

impl Phase {
    pub(crate) fn is_stopping(self) -> bool {
        matches!(self, Self::Stopping { .. })
    }

    /// Returns the time that a connection may be without a request; `None` if the engine does not stop.
    pub(crate) fn grace(self) -> Option<Duration> {
        match self {
            Self::Stopping { grace } => Some(grace),
            Self::Serving | Self::Draining => None,
        }
    }

    pub(crate) fn drain(&mut self) {
        if *self == Self::Serving {
            *self = Self::Draining;
        }
    }

    /// Begins to stop, or shortens the grace period. Returns true if connections have less time than before.
    pub(crate) fn stop(&mut self, grace: Duration) -> bool {
        let is_less = self.grace().is_none_or(|earlier| grace < earlier);
        if is_less {
            *self = Self::Stopping { grace };
        }
        is_less
    }
}

/// The state that all connections of an engine share.
pub(crate) struct EngineContext<A: App> {
    pub(crate) config: Config,
    pub(crate) time: Time,
    pub(crate) statistics: Statistics,
    pub(crate) meter: Meter,
    pub(crate) handshakes: Handshakes,
    /// The measurement of requests' stages; `None` if no profile is taken.
    pub(crate) observer: Option<Box<Stages>>,
    pub(crate) load: Load,
    pub(crate) scratch: Scratch<A::Chunk>,
    pub(crate) coalescing: Coalescing,
    pub(crate) responders: Responders,
    pub(crate) websockets: WebSockets,
    /// The encoders of bodies; `None` if the server has no compression.
    pub(crate) compression: Option<Box<CompressionState>>,
    /// The suspended responses that cannot continue. The application has to drop them.
    pub(crate) abandoned: Vec<A::Response>,
}

/// Returns true if `reported` is not within the last minute, and then sets it to `now`.
fn is_first_in_a_minute(reported: &mut Option<Millis>, now: Millis) -> bool {
    const INTERVAL: Millis = 60_000;
    let is_first = reported.is_none_or(|reported| now >= reported.saturating_add(INTERVAL));
    if is_first {
        *reported = Some(now);
    }
    is_first
}

impl<A: App> EngineContext<A> {
    pub(crate) fn new(config: Config, stamp: Stamp) -> Self {
        let health = HealthResponder::new(&config.health_path);
        let files = config.static_files.clone().map(|files| Box::new(FileResponder::new(files)));
        let compression = config.compression.clone().map(|config| Box::new(CompressionState::new(config)));
        Self {
            config,
            compression,
            time: Time { now: 0, wall: 0, stamp, encrypted_stamp: None, sweep: Sweep::new(), round: 0 },
            statistics: Statistics::default(),
            meter: Meter::default(),
            handshakes: Handshakes::default(),
            observer: None,
            load: Load { phase: Phase::Serving, queued: 0, may_call: true, is_full: false, brief_in_a_row: 0, warm: 0 },
            scratch: Scratch { composers: Vec::new(), fields: Vec::new(), head: None, chunks: Vec::new() },
            coalescing: Coalescing { deferred: DeferredOutput::default(), parts_come_fast: false },
            responders: Responders { health, files },
            websockets: WebSockets {
                compression: Compression::new(COMPRESSION_LEVEL),
                serial: 0,
                overload_reported: None,
                end: None,
            },
            abandoned: Vec::new(),
        }
    }

    /// Reports that a WebSocket was closed because memory was exhausted, at most once a minute, because a client can
    /// cause this with a few bytes.
    pub(crate) fn report_overload(&mut self, app: &mut A) {
        if let Some(config) = &self.config.websocket
            && is_first_in_a_minute(&mut self.websockets.overload_reported, self.time.now)
        {
            app.report(Report::MessageMemoryFull(config.memory.most()));
        }
    }

    /// Reports that a handshake was given up for a newer one, at most once a minute.
    pub(crate) fn report_handshakes(&mut self, app: &mut A) {
        if is_first_in_a_minute(&mut self.handshakes.reported, self.time.now) {
            app.report(Report::HandshakesFull(self.config.handshakes));
        }
    }

    /// Returns true if each response is the last one of its connection.
    pub(crate) fn is_draining(&self) -> bool {
        self.load.phase != Phase::Serving
    }

    /// Returns the number of seconds after which the client may repeat a refused request.
    pub(crate) fn retry_after(&self, refusal: Refusal) -> Option<u64> {
        let timeout = self.config.queue_timeout;
        if let Some(RefusalCause::Quarantine(seconds) | RefusalCause::RateLimit(seconds)) = refusal.cause {
            return Some(u64::from(seconds));
        }
        (refusal.status == 503).then(|| timeout.map_or(1, |timeout| timeout.as_secs().max(1)))
    }
}

/// The engine's time, and the state that depends on it.
pub(crate) struct Time {
    pub(crate) now: Millis,
    /// The wall-clock time in the stamp, in seconds since 1970.
    pub(crate) wall: u64,
    pub(crate) stamp: Stamp,
    /// The stamp of encrypted connections; `None` if it is the same.
    pub(crate) encrypted_stamp: Option<Stamp>,
    pub(crate) sweep: Sweep,
    /// The number of polls so far that ended because nothing was left to do.
    pub(crate) round: u64,
}

impl Time {
    /// Returns the stamp (the fields Server and Date) for responses of a connection.
    #[inline]
    pub(crate) fn stamp(&self, is_encrypted: bool) -> &Stamp {
        match &self.encrypted_stamp {
            Some(stamp) if is_encrypted => stamp,
            _ => &self.stamp,
        }
    }

    /// Sets the time in the stamps, in seconds since 1970.
    pub(crate) fn set_wall(&mut self, second: u64) {
        self.wall = second;
        self.stamp.set_time(second);
        if let Some(stamp) = &mut self.encrypted_stamp {
            stamp.set_time(second);
        }
    }
}

/// The phase of the engine, and its capacity for more requests.
pub(crate) struct Load {
    pub(crate) phase: Phase,
    /// The number of requests that wait for a thread that can call the application.
    pub(crate) queued: usize,
    /// True if the thread that polls the engine may call the application.
    pub(crate) may_call: bool,
    /// True if no thread can call the application now and the queue of requests is full. The engine then reads no
    /// further request.
    pub(crate) is_full: bool,
    /// The number of consecutive connections whose client asked in the first request to close the connection after the
    /// response.
    pub(crate) brief_in_a_row: u32,
    /// The number of idle connections that keep memory for speed.
    pub(crate) warm: usize,
}

impl Load {
    /// Returns the state of the server for a health check, while a thread polls the engine.
    pub(crate) fn health(&self) -> Health {
        if self.phase != Phase::Serving {
            Health::Draining
        } else if !self.may_call && (self.queued > 0 || self.is_full) {
            Health::Saturated
        } else {
            Health::Alive
        }
    }
}

/// Reusable buffers that connections use one after the other.
pub(crate) struct Scratch<C> {
    /// Composers that no connection needs now.
    #[allow(clippy::vec_box, reason = "connections take them and give them back as they are")]
    pub(crate) composers: Vec<Box<Composer<C>>>,
    /// The fields of a head.
    pub(crate) fields: Vec<Field>,
    /// The head that a multiplexed protocol read last; `None` before the first one.
    pub(crate) head: Option<Box<HeadScratch>>,
    /// A buffer for chunks of a body that were received together, or for frames.
    pub(crate) chunks: Vec<u8>,
}

impl<C: AsRef<[u8]>> Scratch<C> {
    #[allow(clippy::unnecessary_box_returns, reason = "a connection keeps it so, since most have none")]
    pub(crate) fn composer(&mut self) -> Box<Composer<C>> {
        self.composers.pop().unwrap_or_else(|| Box::new(Composer::new()))
    }
}

/// The state that decides when small parts of responses are sent ([`crate::coalescing`]).
pub(crate) struct Coalescing {
    pub(crate) deferred: DeferredOutput,
    /// True if the last response that had several parts was produced without pauses.
    pub(crate) parts_come_fast: bool,
}

/// The responders, which answer requests without the application.
pub(crate) struct Responders {
    /// Answers health checks.
    pub(crate) health: HealthResponder,
    /// Answers requests for static files.
    pub(crate) files: Option<Box<FileResponder>>,
}

impl Responders {
    /// Returns true if a responder answers requests for a certain path, which the first bytes of a request show.
    pub(crate) fn answers_by_path(&self) -> bool {
        self.health.path().is_some()
    }

    /// Returns true if a responder may answer a request. `glance` compares the request with a path, and returns `None`
    /// if too few bytes have arrived, which this method then returns as well.
    pub(crate) fn may_answer(&self, glance: impl FnOnce(&[u8]) -> Option<bool>) -> Option<bool> {
        self.health.path().map_or(Some(false), glance)
    }
}

/// The state that all WebSockets of an engine share.
pub(crate) struct WebSockets {
    pub(crate) compression: Compression,
    /// The serial number of the newest WebSocket.
    serial: u64,
    /// The time of the last report of a WebSocket that was closed because memory was exhausted.
    overload_reported: Option<Millis>,
    /// The code with which a draining or stopping engine closes WebSockets; `None` while it serves.
    pub(crate) end: Option<CloseCode>,
}

impl WebSockets {
    /// Returns the serial number of a new WebSocket or hijacked connection.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

/// The compression level of messages, from 1 (fast) to 9 (small).
const COMPRESSION_LEVEL: u8 = 6;
