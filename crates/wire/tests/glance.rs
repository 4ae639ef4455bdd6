//! What the first bytes of a request tell of whom it is for.

use wire::http1::glance;

#[test]
fn a_glance_tells_as_soon_as_it_can() {
    for whole in ["GET /healthz HTTP/1.1", "HEAD /healthz HTTP/1.0", "GET /healthz?full=1 HTTP/1.1", "GET /healthz? "] {
        let mark = whole.find("/healthz").unwrap() + "/healthz".len();
        for length in 0..=whole.len() {
            let expected = (length > mark).then_some(true);
            assert_eq!(glance(&whole.as_bytes()[..length], b"/healthz"), expected, "{}", &whole[..length]);
        }
    }
}

#[test]
fn what_is_for_others_is_known_from_the_byte_on_that_differs() {
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
fn the_shortest_path_is_one() {
    assert_eq!(glance(b"GET /", b"/"), None);
    assert_eq!(glance(b"GET / ", b"/"), Some(true));
    assert_eq!(glance(b"GET /?", b"/"), Some(true));
    assert_eq!(glance(b"GET /a", b"/"), Some(false));
}
