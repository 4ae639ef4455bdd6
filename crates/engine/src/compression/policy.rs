//! The decision whether a response is encoded.

use crate::memory::BodyMemory;
use wire::files::{AcceptedCodings, Coding};
use wire::message::{COMPRESS_FIELD, Draft, Field, RequestHead};

/// The settings of content codings.
#[derive(Clone, Debug)]
pub struct CompressionConfig {
    /// The enabled codings, the preferred one first. The order decides between codings to which the client gives the
    /// same weight.
    pub codings: Vec<Coding>,
    /// Patterns of the media types that are encoded, in lower case: `text/html`, `text/*` or `*+json`.
    pub types: Vec<String>,
    /// The minimum length in bytes of a body that is encoded, if its length is known.
    pub min_size: u64,
    /// True if responses that may contain a secret of the client are encoded, too: responses with Set-Cookie, and
    /// responses to requests with Cookie or Authorization. An attacker who can make a client repeat a request could
    /// find out the secret from the length of the encrypted responses (BREACH).
    pub encodes_private: bool,
    /// The memory that all encoders together may use. Engines with clones of this value share the limit. A response for
    /// which there is no memory is not encoded.
    pub memory: BodyMemory,
}

/// The coding that the client of a request accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The enabled coding that the client prefers; `None` for none.
    coding: Option<Coding>,
    /// True if the request has credentials.
    is_private: bool,
}

/// The decision whether a response is encoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The response does not depend on Accept-Encoding.
    Independent,
    /// The response does not depend on Accept-Encoding, but the application's field about the encoding must be removed.
    Marked,
    /// The body is not encoded, but could be for another client.
    Plain,
    /// The body is encoded.
    Encoded(Coding),
    /// The response has no body, and confirms an earlier one that was encoded (304).
    Confirmed,
}

/// The rules that decide which responses are encoded.
pub(super) struct Policy {
    config: CompressionConfig,
}

/// The fields of a response that determine whether it is encoded.
#[derive(Default)]
struct Found<'a> {
    content_type: Option<&'a [u8]>,
    mark: Option<&'a [u8]>,
    has_cookie: bool,
    /// True if the response has a field that is valid only for the unencoded body.
    is_fixed: bool,
}

impl Policy {
    pub(super) fn new(config: CompressionConfig) -> Self {
        Self { config }
    }

    pub(super) fn memory(&self) -> &BodyMemory {
        &self.config.memory
    }

    /// Returns the coding that the client of a request accepts.
    pub(super) fn offer(&self, head: &RequestHead<'_>) -> Offer {
        let is_named = |name: &[u8]| head.field(name).is_some();
        if !is_named(b"accept-encoding") {
            return Offer::default();
        }
        let is_it = |field: &&Field| {
            let name = b"accept-encoding";
            if head.is_cgi { field.is_variable_of(head.block, name) } else { field.is(head.block, name) }
        };
        let all = head.fields.iter().filter(is_it);
        let accepted = AcceptedCodings::read(all.map(|field| field.value(head.block)));
        // Of codings with the same weight, the one with the lowest rank is chosen.
        let codings = self.config.codings.iter().zip(0u64..).map(|(&coding, rank)| (coding, rank));
        let coding = accepted.choose(codings.chain([(Coding::Identity, u64::MAX)]));
        Offer {
            coding: (coding != Coding::Identity).then_some(coding),
            is_private: is_named(b"cookie") || is_named(b"authorization"),
        }
    }

    /// Decides whether a response with the head `draft` to a request with `offer` is encoded. `length` is the length of
    /// the body, if it is known even though the application did not declare it.
    pub(super) fn decide(&self, draft: &Draft, length: Option<u64>, offer: Offer) -> Decision {
        let found = Found::of(draft);
        let unencoded = if found.mark.is_some() { Decision::Marked } else { Decision::Independent };
        if draft.status() == 304 && !found.is_fixed {
            return if offer.coding.is_some() { Decision::Confirmed } else { unencoded };
        }
        let has_no_coding = matches!(draft.status(), 204..=206 | 304);
        let is_off = found.mark.is_some_and(|mark| mark.eq_ignore_ascii_case(b"off"));
        let is_short = draft.content_length().or(length).is_some_and(|length| length < self.config.min_size);
        if has_no_coding || is_off || is_short || found.is_fixed || !found.content_type.is_some_and(|it| self.has(it)) {
            return unencoded;
        }
        let is_on = found.mark.is_some_and(|mark| mark.eq_ignore_ascii_case(b"on"));
        let is_private = offer.is_private || found.has_cookie;
        match offer.coding {
            Some(coding) if !is_private || is_on || self.config.encodes_private => Decision::Encoded(coding),
            _ => Decision::Plain,
        }
    }

    /// Returns true if bodies with this Content-Type are encoded.
    fn has(&self, content_type: &[u8]) -> bool {
        let end = content_type.iter().position(|&b| b == b';').unwrap_or(content_type.len());
        let media_type = content_type[..end].trim_ascii();
        self.config.types.iter().any(|pattern| {
            let pattern = pattern.as_bytes();
            let (part, rest) = match (pattern.strip_suffix(b"*"), pattern.strip_prefix(b"*")) {
                (Some(beginning), _) => (beginning, media_type.get(..beginning.len())),
                (_, Some(end)) => (end, media_type.len().checked_sub(end.len()).map(|at| &media_type[at..])),
                (None, None) => (pattern, Some(media_type)),
            };
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(part))
        })
    }
}

impl<'a> Found<'a> {
    fn of(draft: &'a Draft) -> Self {
        let mut found = Self::default();
        for (name, value) in draft.fields() {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            match name.len() {
                12 if is(b"content-type") => found.content_type = Some(value),
                15 if is(COMPRESS_FIELD) => found.mark = Some(value),
                10 => found.has_cookie |= is(b"set-cookie"),
                // The body is already encoded, or is a part.
                16 if is(b"content-encoding") => found.is_fixed |= !value.eq_ignore_ascii_case(b"identity"),
                13 if is(b"content-range") => found.is_fixed = true,
                // Digests of the unencoded body (RFC 9530, and its predecessors).
                6 | 11 | 14 if is(b"digest") || is(b"content-md5") || is(b"content-digest") => found.is_fixed = true,
                13 if is(b"cache-control") => found.is_fixed |= forbids_transformation(value),
                _ => {}
            }
        }
        found
    }
}

/// Returns true if a Cache-Control field has `no-transform` (RFC 9111 section 5.2.2.6).
fn forbids_transformation(value: &[u8]) -> bool {
    value.split(|&b| b == b',').any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}
