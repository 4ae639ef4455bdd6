//! Tests of `glance`, which recognises a path from the first bytes of a request.

use wire::http1::glance;

#[test]
fn glance_decides_as_soon_as_possible() {
    for whole in ["GET /healthz HTTP/1.1", "HEAD /healthz HTTP/1.0", "GET /healthz?full=1 HTTP/1.1", "GET /healthz? "] {
        let mark = whole.find("/healthz").unwrap() + "/healthz".len();
        for length in 0..=whole.len() {
            let expected = (length > mark).then_some(true);
            assert_eq!(glance(&whole.as_bytes()[..length], b"/healthz"), expected, "{}", &whole[..length]);
        }
    }
}

#[test]
fn other_targets_are_recognised_from_the_first_different_byte() {
    for (whole, differs) in [
        ("POST /healthz HTTP/1.1", 0),
        ("get /healthz HTTP/1.1", 0),
        ("GEX /healthz HTTP/1.1", 2),
        ("GET  /healthz HTTP/1.1", 4),
        ("GET /health HTTP/1.1", 11),
        ("GET /healthz/ HTTP/1.1", 12),
        ("GET /healthzz HTTP/1.1", 12),
        ("GET /healthz\r\n", 12),
        ("HEAD /Healthz HTTP/1.1", 6),
        ("HEAD http://a/healthz HTTP/1.1", 5),
        ("\r\nGET /healthz HTTP/1.1", 0),
        ("\u{0}", 0),
    ] {
        for length in 0..=whole.len() {
            let expected = (length > differs).then_some(false);
            assert_eq!(glance(&whole.as_bytes()[..length], b"/healthz"), expected, "{:?}", &whole[..length]);
        }
    }
}

#[test]
fn glance_matches_the_root_path() {
    assert_eq!(glance(b"GET /", b"/"), None);
    assert_eq!(glance(b"GET / ", b"/"), Some(true));
    assert_eq!(glance(b"GET /?", b"/"), Some(true));
    assert_eq!(glance(b"GET /a", b"/"), Some(false));
}
