//! Recognises other protocols by their first bytes, because "malformed method" does not make a reader think of TLS.

use crate::message::Fault;

/// The header of a TLS record with a handshake, of any version since SSL 3.0: type 22, major version 3
/// (RFC 8446 section 5.1).
const TLS: &[u8] = &[22, 3];
/// Version 2 of the PROXY protocol begins with empty lines, so that no text-based server takes it for a request.
const PROXY_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 1 of the PROXY protocol, for each of its address families.
const PROXY_V1: [&[u8]; 3] = [b"PROXY TCP4 ", b"PROXY TCP6 ", b"PROXY UNKNOWN"];
/// SSH: client and server send it first (RFC 4253 section 4.2).
const SSH: &[u8] = b"SSH-";
/// The first line of an HTTP/2 preface (RFC 9113 section 3.4).
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n";

/// The fault that describes `input` best, given that it is no request line because of `fault`; `None` if more input is
/// needed to decide. The result does not depend on how the bytes are cut: the text protocols are complete when a fault
/// is found, and for the binary ones more input is awaited.
pub(super) fn name(input: &[u8], fault: Fault) -> Option<Fault> {
    for (signature, named) in [(TLS, Fault::TlsHandshake), (PROXY_V2, Fault::ProxyProtocol)] {
        if input.starts_with(signature) {
            return Some(named);
        }
        if signature.starts_with(input) {
            return None;
        }
    }
    Some(if PROXY_V1.iter().any(|signature| input.starts_with(signature)) {
        Fault::ProxyProtocol
    } else if input.starts_with(SSH) {
        Fault::SshBanner
    } else if input.starts_with(HTTP2) {
        Fault::Http2Preface
    } else {
        fault
    })
}
