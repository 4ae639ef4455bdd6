//! Responders, by which the engine answers requests without the application: health checks, requests for static files,
//! and at the edge of the network ACME challenges and clients that do not use https.

mod cache;
mod directory;
mod edge;
mod files;
#[cfg(test)]
mod tests;

pub use edge::{EdgeConfig, EdgeNames};
pub(crate) use files::{Answer, Body, FileResponder, Source};
pub use files::{StaticFiles, StaticOptions};

use crate::health::Health;
use crate::statistics::Statistics;
use wire::message::{Page, RequestHead};

/// A responder, which answers some requests instead of the application.
///
/// Such a request is never queued: the thread that polls the engine answers it.
pub(crate) trait Responder {
    /// The state, in addition to the request, on which the response depends.
    type State<'a>;

    /// Returns the path whose requests the responder answers, to be compared with the first bytes of a request; `None`
    /// if there is none.
    fn path(&self) -> Option<&[u8]>;

    /// Returns true if the responder answers the request.
    fn answers(&self, head: &RequestHead<'_>) -> bool;

    /// Creates the page and passes it to `send`.
    fn answer<R>(&self, state: Self::State<'_>, send: impl FnOnce(&Page<'_>) -> R) -> R;
}

/// The responder that answers requests for the health path with the state of the server.
#[derive(Debug)]
pub(crate) struct HealthResponder {
    path: Box<[u8]>,
}

impl HealthResponder {
    /// Creates a responder for `path`. If it is empty, there are no health checks.
    pub(crate) fn new(path: &str) -> Self {
        Self { path: path.as_bytes().into() }
    }
}

impl Responder for HealthResponder {
    type State<'a> = (Health, &'a Statistics, usize);

    #[inline]
    fn path(&self) -> Option<&[u8]> {
        (!self.path.is_empty()).then_some(&*self.path)
    }

    #[inline]
    fn answers(&self, head: &RequestHead<'_>) -> bool {
        !self.path.is_empty() && *head.target.path == *self.path && matches!(head.method, b"GET" | b"HEAD")
    }

    fn answer<R>(&self, state: Self::State<'_>, send: impl FnOnce(&Page<'_>) -> R) -> R {
        let (health, &Statistics { running, connections, .. }, queued) = state;
        let json = format!(
            "{{\"status\":\"{}\",\"running\":{running},\"queued\":{queued},\"connections\":{connections}}}\n",
            health.name(),
        );
        let retry_after = (health.status() == 503).then_some(1);
        send(&Page::status_report(health.status(), &json, retry_after))
    }
}
