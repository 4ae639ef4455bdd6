//! Responses of the server itself: to certificate authorities that validate a name, and to clients without https.

use crate::files::text_response;
use crate::message::{Draft, Form, RequestHead};

/// The path below which an authority requests challenges (RFC 8555 section 8.3).
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// The maximum length of a token in characters. Tokens of authorities have 43; the RFC demands at least 22.
const TOKEN_MAX: usize = 256;

/// Returns the token of an HTTP-01 challenge; `None` if `path` is not the path of a challenge.
#[must_use]
pub fn challenge_token(path: &[u8]) -> Option<&str> {
    let token = path.strip_prefix(CHALLENGES)?;
    let is_token = (1..=TOKEN_MAX).contains(&token.len()) && token.iter().all(|&byte| is_base64url(byte));
    std::str::from_utf8(token).ok().filter(|_| is_token)
}

/// Returns the response to a challenge: the token and the thumbprint of the account's key (RFC 8555 section 8.1). The
/// token has only letters, digits, `-` and `_`, and the media type keeps browsers from rendering the body as a page.
#[must_use]
pub fn challenge_response(token: &str, thumbprint: &str) -> (Draft, String) {
    let body = format!("{token}.{thumbprint}");
    let mut draft = Draft::default();
    let written = draft
        .start_code(200)
        .and_then(|()| draft.field(b"Content-Type", b"application/octet-stream"))
        .and_then(|()| draft.field(b"X-Content-Type-Options", b"nosniff"))
        .and_then(|()| draft.field(b"Cache-Control", b"no-store"))
        .and_then(|()| draft.field(b"Content-Length", body.len().to_string().as_bytes()));
    debug_assert_eq!(written, Ok(()), "the server's own head is well-formed");
    (draft, body)
}

/// Returns the host that a request is sent to, without port and in lower case: the host that a trusted proxy gives,
/// else that of an absolute request target, else that of the field Host. Returns `None` if none of them gives a host.
/// An IPv6 address has no brackets.
#[must_use]
pub fn host_name(head: &RequestHead<'_>) -> Option<String> {
    let named = head.client.and_then(|client| client.host.as_deref());
    let host = match (named, head.target.form) {
        (Some(host), _) => host,
        (None, Form::Absolute) => head.target.authority,
        (None, _) => head.field(b"host")?,
    };
    let host = std::str::from_utf8(host).ok()?;
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    (!name.is_empty()).then(|| name.to_ascii_lowercase())
}

/// Returns the redirect to the same path by https. Its status is 308, so that the client repeats the method and the
/// body (RFC 9110 section 15.4.9). `host` comes from [`host_name`], and the caller has checked that it is a host of
/// this server.
#[must_use]
pub fn redirect_to_https(host: &str, port: u16, head: &RequestHead<'_>) -> (Draft, String) {
    let (mut draft, body) = text_response(308, "This server is at https://.");
    let mut location = b"https://".to_vec();
    let is_ipv6 = host.contains(':');
    location.extend_from_slice(if is_ipv6 { b"[" } else { b"" });
    location.extend_from_slice(host.as_bytes());
    location.extend_from_slice(if is_ipv6 { b"]" } else { b"" });
    if port != 443 {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    // The target `*` has no path.
    location.extend_from_slice(if head.target.path.is_empty() { b"/" } else { head.target.path });
    if let Some(query) = head.target.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let written = draft.field(b"Location", &location);
    debug_assert_eq!(written, Ok(()), "the parts of a request have no control characters");
    (draft, body)
}

/// Returns the response to a request that cannot be redirected to https: 421 if the request names a host for which this
/// server has no certificate (`is_named`), 400 if it names no host.
#[must_use]
pub fn refuse_redirect(is_named: bool) -> (Draft, String) {
    if is_named {
        return text_response(
            421,
            "This server has no certificate for the host of this request, so https cannot reach it.",
        );
    }
    text_response(400, "This server is at https://, and the request does not say for which host it is.")
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_is_a_challenge() {
        assert_eq!(challenge_token(b"/.well-known/acme-challenge/aZ09-_"), Some("aZ09-_"));
        for path in ["", "a/b", "a.b", "../x", "a%20", "<b>", "a+b"] {
            let path = format!("/.well-known/acme-challenge/{path}");
            assert_eq!(challenge_token(path.as_bytes()), None, "{path}");
        }
        assert_eq!(challenge_token(format!("/.well-known/acme-challenge/{}", "a".repeat(257)).as_bytes()), None);
        assert_eq!(challenge_token(b"/well-known/acme-challenge/a"), None);
    }

    #[test]
    fn an_answer_is_the_token_and_the_thumbprint() {
        let (draft, body) = challenge_response("token", "thumb");
        assert_eq!((draft.status(), &*body, draft.content_length()), (200, "token.thumb", Some(11)));
    }
}
