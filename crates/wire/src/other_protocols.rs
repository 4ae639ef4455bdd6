//! Detection of other protocols by their first bytes. "Malformed method" would not tell an administrator that TLS was
//! spoken, nor "malformed record" that HTTP was.

use crate::message::Fault;

/// The first bytes of a TLS handshake record of any version since SSL 3.0: type 22, major version 3 (RFC 8446 section
/// 5.1).
const TLS: &[u8] = &[22, 3];
/// The signature of PROXY protocol version 2. It begins with empty lines, so that no text-based server accepts it as a
/// request.
const PROXY_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of PROXY protocol version 1, for each of its address families.
const PROXY_V1: [&[u8]; 3] = [b"PROXY TCP4 ", b"PROXY TCP6 ", b"PROXY UNKNOWN"];
/// The first bytes that an SSH client or server sends (RFC 4253 section 4.2).
const SSH: &[u8] = b"SSH-";
/// The first line of an HTTP/2 preface (RFC 9113 section 3.4).
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n";
/// The first bytes of a FastCGI record that begins a request or asks for values (version 1, types 1 and 9).
const FASTCGI: [&[u8]; 2] = [&[1, 1], &[1, 9, 0, 0]];
/// The largest number of digits in the length of an SCGI header block. Web servers send fewer than 999,999 bytes. The
/// limit bounds how much input is awaited before bytes are called malformed.
const SCGI_LENGTH_DIGITS: usize = 6;
/// The first bytes of requests of the common methods, and of an HTTP/2 preface.
const HTTP: [&[u8; 4]; 8] = [b"GET ", b"HEAD", b"POST", b"PUT ", b"PATC", b"DELE", b"OPTI", b"PRI "];

/// Returns the fault that best describes `input` on a listener for HTTP. `fault` is the reason why it is not a request
/// line. Returns `None` if more input is needed to decide. The result does not depend on how the bytes are split: the
/// signature of a text protocol is always complete when a fault is found, and for a binary signature this function
/// waits.
pub(crate) fn on_http(input: &[u8], fault: Fault) -> Option<Fault> {
    let [begin, values] = FASTCGI;
    let signatures = [
        (TLS, Fault::TlsHandshake),
        (PROXY_V2, Fault::ProxyProtocol),
        (begin, Fault::GatewayProtocolOnHttp),
        (values, Fault::GatewayProtocolOnHttp),
    ];
    for (signature, named) in signatures {
        if input.starts_with(signature) {
            return Some(named);
        }
        if signature.starts_with(input) {
            return None;
        }
    }
    if input.first() == Some(&0) && input.len() < 4 {
        return None;
    }
    Some(if is_uwsgi(input) || is_scgi(input) == Some(true) {
        Fault::GatewayProtocolOnHttp
    } else if PROXY_V1.iter().any(|signature| input.starts_with(signature)) {
        Fault::ProxyProtocol
    } else if input.starts_with(SSH) {
        Fault::SshBanner
    } else if input.starts_with(HTTP2) {
        Fault::Http2Preface
    } else {
        fault
    })
}

/// Returns the fault that best describes `input` on a listener for FastCGI, uwsgi or SCGI. The caller has found that no
/// request of the listener's protocol begins with these bytes. Returns `None` if more input is needed to decide.
pub(crate) fn on_gateway(input: &[u8]) -> Option<Fault> {
    let http = HTTP.map(|start| (&start[..], Fault::HttpOnGatewayProtocol));
    let fastcgi = FASTCGI.map(|start| (start, Fault::GatewayProtocolMixedUp));
    let proxies = [(TLS, Fault::TlsHandshake), (PROXY_V2, Fault::ProxyProtocol), (b"PROXY ", Fault::ProxyProtocol)];
    for (signature, named) in http.into_iter().chain(fastcgi).chain(proxies) {
        if input.starts_with(signature) {
            return Some(named);
        }
        if signature.starts_with(input) {
            return None;
        }
    }
    match input {
        [0] | [0, _] | [0, _, _] => None,
        _ if is_uwsgi(input) => Some(Fault::GatewayProtocolMixedUp),
        _ => is_scgi(input).map(|is| if is { Fault::GatewayProtocolMixedUp } else { Fault::RecordMalformed }),
    }
}

/// Returns whether `input` begins like a uwsgi request for a Python application (modifiers 0 and 0).
fn is_uwsgi(input: &[u8]) -> bool {
    matches!(input, [0, _, _, 0, ..])
}

/// Returns whether `input` begins with the length of a netstring: digits and a colon. Returns `None` if more input is
/// needed to decide.
fn is_scgi(input: &[u8]) -> Option<bool> {
    let digits = input.iter().take(SCGI_LENGTH_DIGITS + 1).take_while(|byte| byte.is_ascii_digit()).count();
    match input.get(digits) {
        _ if digits > SCGI_LENGTH_DIGITS => Some(false),
        next => next.map(|&byte| digits > 0 && byte == b':'),
    }
}
