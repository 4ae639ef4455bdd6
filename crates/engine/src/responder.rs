//! Answers that the engine gives without the application: to health checks with a page, to requests for static files with
//! what is in a directory.

mod cache;
mod directory;
mod files;
#[cfg(test)]
mod tests;

pub(crate) use files::{Answer, Body, FileResponder, Source};
pub use files::{StaticFiles, StaticOptions};

use crate::health::Health;
use crate::statistics::Statistics;
use wire::message::{Page, RequestHead};

/// Gives the answers to some requests in the application's stead.
///
/// A request that is for a responder is never queued, and no thread is needed to answer it but the one that polls the
/// engine.
pub(crate) trait Responder {
    /// What the answer depends on besides the request.
    type State<'a>;

    /// The path whose requests it answers, for a look at the first bytes of a request; `None` if there is none.
    fn path(&self) -> Option<&[u8]>;

    /// Whether the request is for it.
    fn answers(&self, head: &RequestHead<'_>) -> bool;

    /// Has `send` send the answer.
    fn answer<R>(&self, state: Self::State<'_>, send: impl FnOnce(&Page<'_>) -> R) -> R;
}

/// Tells those who ask at the health path how the server is.
#[derive(Debug)]
pub(crate) struct HealthResponder {
    path: Box<[u8]>,
}

impl HealthResponder {
    /// `path`: empty for no health checks.
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
