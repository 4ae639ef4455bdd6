//! What all connections of an engine share while one of them is driven.

use crate::app::{App, Refusal, Report};
use crate::coalescing::DeferredOutput;
use crate::compose::Composer;
use crate::config::Config;
use crate::deadline::{Millis, Sweep};
use crate::health::Health;
use crate::meter::Meter;
use crate::responder::{FileResponder, HealthResponder};
use crate::stages::Stages;
use crate::statistics::Statistics;
use std::time::Duration;
use wire::message::{Field, Stamp};
use wire::websocket::{CloseCode, Compression};

/// How the engine serves connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// Each response is the last one of its connection.
    Draining,
    /// The same, and a connection without a request has no longer than `grace` for one.
    Stopping {
        grace: Duration,
    },
}

impl Phase {
    pub(crate) fn is_stopping(self) -> bool {
        matches!(self, Self::Stopping { .. })
    }

    /// How long a connection may be without a request, if the engine stops.
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

    /// Returns whether connections have less time than before.
    pub(crate) fn stop(&mut self, grace: Duration) -> bool {
        let is_less = self.grace().is_none_or(|earlier| grace < earlier);
        if is_less {
            *self = Self::Stopping { grace };
        }
        is_less
    }
}

/// The state of an engine that its connections see.
pub(crate) struct EngineContext<A: App> {
    pub(crate) config: Config,
    pub(crate) now: Millis,
    /// Seconds since 1970, which the stamp shows.
    pub(crate) wall: u64,
    pub(crate) stamp: Stamp,
    pub(crate) statistics: Statistics,
    pub(crate) sweep: Sweep,
    /// Composers that no connection needs now.
    #[allow(clippy::vec_box, reason = "connections take them and give them back as they are")]
    pub(crate) spare: Vec<Box<Composer<A::Chunk>>>,
    pub(crate) deferred: DeferredOutput,
    /// Whether the application produces the parts of a response without pauses, as far as is known.
    pub(crate) parts_come_fast: bool,
    /// Scratch for heads.
    pub(crate) fields: Vec<Field>,
    /// Scratch for the chunks of a body that were received together, and for frames.
    pub(crate) chunks: Vec<u8>,
    pub(crate) meter: Meter,
    pub(crate) phase: Phase,
    /// Requests that wait for a thread that calls the application.
    pub(crate) queued: usize,
    /// Whether the thread that polls the engine may call the application.
    pub(crate) may_call: bool,
    /// No thread can call the application now, and as many requests wait as may: no further one is read.
    pub(crate) is_full: bool,
    /// Connections in a row whose client asked with the first request for them to be closed after it.
    pub(crate) brief_in_a_row: u32,
    /// Counts how often there was nothing more to do.
    pub(crate) round: u64,
    /// Times the stages of requests, while a profile is taken.
    pub(crate) observer: Option<Box<Stages>>,
    /// Answers what asks for the server's health.
    pub(crate) responder: HealthResponder,
    /// Answers what asks for a static file.
    pub(crate) files: Option<Box<FileResponder>>,
    /// Responses that cannot go on, for the application to let go of.
    pub(crate) abandoned: Vec<A::Response>,
    /// Compressors that all WebSockets share.
    pub(crate) compression: Compression,
    /// The last number that a WebSocket was given.
    pub(crate) websocket_serial: u64,
    /// When a WebSocket was last reported that was closed for want of memory.
    overload_reported: Option<Millis>,
    /// WebSockets are closed with this code: the engine drains or stops.
    pub(crate) websocket_end: Option<CloseCode>,
}

/// How much work compressing a message is, from 1 to 9.
const COMPRESSION_LEVEL: u8 = 6;

impl<A: App> EngineContext<A> {
    pub(crate) fn new(config: Config, stamp: Stamp) -> Self {
        let responder = HealthResponder::new(&config.health_path);
        let files = config.static_files.clone().map(|files| Box::new(FileResponder::new(files)));
        Self {
            config,
            now: 0,
            wall: 0,
            stamp,
            statistics: Statistics::default(),
            sweep: Sweep::new(),
            spare: Vec::new(),
            deferred: DeferredOutput::default(),
            parts_come_fast: false,
            fields: Vec::new(),
            chunks: Vec::new(),
            meter: Meter::default(),
            phase: Phase::Serving,
            queued: 0,
            may_call: true,
            is_full: false,
            brief_in_a_row: 0,
            round: 0,
            observer: None,
            responder,
            files,
            abandoned: Vec::new(),
            compression: Compression::new(COMPRESSION_LEVEL),
            websocket_serial: 0,
            overload_reported: None,
            websocket_end: None,
        }
    }

    /// Reports that a WebSocket was closed for want of memory, unless another one was in the last minute: each costs its
    /// client a few bytes.
    pub(crate) fn report_overload(&mut self, app: &mut A) {
        const INTERVAL: Millis = 60_000;
        let is_new = self.overload_reported.is_none_or(|reported| self.now >= reported.saturating_add(INTERVAL));
        if let Some(config) = &self.config.websocket
            && is_new
        {
            self.overload_reported = Some(self.now);
            app.report(Report::MessageMemoryFull(config.memory.most()));
        }
    }

    #[allow(clippy::unnecessary_box_returns, reason = "a connection keeps it so, since most have none")]
    pub(crate) fn composer(&mut self) -> Box<Composer<A::Chunk>> {
        self.spare.pop().unwrap_or_else(|| Box::new(Composer::new()))
    }

    /// Whether each response is the last one of its connection.
    pub(crate) fn is_draining(&self) -> bool {
        self.phase != Phase::Serving
    }

    /// How the server is while it is polled.
    pub(crate) fn health(&self) -> Health {
        if self.is_draining() {
            Health::Draining
        } else if !self.may_call && (self.queued > 0 || self.is_full) {
            Health::Saturated
        } else {
            Health::Alive
        }
    }

    /// Seconds after which a refused request may be tried again.
    pub(crate) fn retry_after(&self, refusal: Refusal) -> Option<u64> {
        let timeout = self.config.queue_timeout;
        if let Some(seconds) = refusal.quarantine {
            return Some(u64::from(seconds));
        }
        (refusal.status == 503).then(|| timeout.map_or(1, |timeout| timeout.as_secs().max(1)))
    }
}
