//! The responder of a server at the edge of the network: it answers ACME challenges (HTTP-01), and redirects clients to
//! https.

use super::files::Answer;
use std::sync::{Arc, PoisonError, RwLock};
use wire::edge::{challenge_response, challenge_token, host_name, redirect_to_https, refuse_redirect};
use wire::message::RequestHead;

/// The names that have certificates, and the key thumbprint for challenges. They change while the server runs, and all
/// engines share them.
#[derive(Debug, Default)]
pub struct EdgeNames(RwLock<Arc<Names>>);

#[derive(Debug, Default)]
struct Names {
    hosts: Vec<String>,
    thumbprint: Option<String>,
}

/// The settings of the edge responder.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// The names that have certificates.
    pub names: Arc<EdgeNames>,
    /// For each listener, true if it redirects clients to https; false for listeners beyond the end of the list.
    pub redirects: Vec<bool>,
    /// The port for https.
    pub https_port: u16,
}

impl EdgeNames {
    /// Replaces the names. `hosts` are in lower case, with `*.example.org` for all names directly below `example.org`.
    /// `thumbprint` is that of the key of the ACME account, if there is one.
    pub fn replace(&self, hosts: Vec<String>, thumbprint: Option<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Names { hosts, thumbprint });
    }

    fn current(&self) -> Arc<Names> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Names {
    fn has(&self, host: &str) -> bool {
        // A wildcard stands for exactly one label (RFC 9525 section 6.3).
        let rest = host.split_once('.').map(|(_, rest)| rest);
        let is_it = |known: &String| known == host || known.strip_prefix("*.").is_some_and(|known| Some(known) == rest);
        self.hosts.iter().any(is_it)
    }
}

impl EdgeConfig {
    /// Returns true if a listener redirects clients to https.
    pub(crate) fn redirects(&self, listener: usize) -> bool {
        self.redirects.get(listener).copied().unwrap_or(false)
    }

    /// Returns the response to a request; `None` if this responder does not answer it. `redirects`: the listener of the
    /// connection redirects clients to https.
    #[inline]
    pub(crate) fn answer(&self, head: &RequestHead<'_>, redirects: bool) -> Option<Answer> {
        if !redirects && !head.target.path.starts_with(b"/.well-known/") {
            return None;
        }
        self.answer_seldom(head, redirects)
    }

    #[cold]
    fn answer_seldom(&self, head: &RequestHead<'_>, redirects: bool) -> Option<Answer> {
        let names = self.names.current();
        if let (Some(token), Some(thumbprint)) = (challenge_token(head.target.path), &names.thumbprint)
            && matches!(head.method, b"GET" | b"HEAD")
        {
            return Some(Answer::other(challenge_response(token, thumbprint)));
        }
        // A trusted proxy has said that the client already uses https.
        if !redirects || head.client.is_some_and(|client| client.is_https == Some(true)) {
            return None;
        }
        let host = host_name(head);
        let known = host.as_ref().filter(|host| names.has(host));
        Some(Answer::other(match known {
            Some(host) => redirect_to_https(host, self.https_port, head),
            None => refuse_redirect(host.is_some()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label() {
        let names = Names { hosts: vec!["example.org".into(), "*.example.net".into(), "::1".into()], thumbprint: None };
        for host in ["example.org", "a.example.net", "::1"] {
            assert!(names.has(host), "{host}");
        }
        for host in ["www.example.org", "example.net", "a.b.example.net", "xexample.org", "net", "*.example.org"] {
            assert!(!names.has(host), "{host}");
        }
    }
}
