//! The null server over real sockets.
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// Sends the parts one by one, and returns the received bytes, up to `expected` of them or up to the end.
fn ask(parts: &[&[u8]], answer: Vec<u8>, last: Vec<u8>, expected: Option<usize>) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let goes_on = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&goes_on);
    let server = std::thread::spawn(move || {
        load::serve_null(&OwnedFd::from(listener).into(), &answer, &last, || flag.load(Ordering::Relaxed)).unwrap();
    });
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    peer.set_nodelay(true).unwrap();
    for part in parts {
        peer.write_all(part).unwrap();
        std::thread::yield_now();
    }
    let mut got = Vec::new();
    match expected {
        Some(count) => {
            got.resize(count, 0);
            peer.read_exact(&mut got).unwrap();
        }
        None => drop(peer.read_to_end(&mut got).unwrap()),
    }
    goes_on.store(false, Ordering::Relaxed);
    drop(peer);
    server.join().unwrap();
    got
}

#[test]
fn every_request_gets_the_answer_and_the_last_one_gets_the_last_answer() {
    let requests =
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nConnection: close\r\n\r\n";
    let expected = [ANSWER, ANSWER, LAST].concat();
    assert_eq!(ask(&[requests], ANSWER.into(), LAST.into(), None), expected);
}

#[test]
fn request_with_a_body_is_read_in_pieces() {
    let request: &[u8] = b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n";
    let bytes: Vec<&[u8]> = request.chunks(1).collect();
    assert_eq!(ask(&bytes, ANSWER.into(), LAST.into(), None), [ANSWER, LAST].concat());
}

#[test]
fn http10_client_with_keep_alive_stays_connected() {
    let request: &[u8] = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
    assert_eq!(ask(&[request, request], ANSWER.into(), LAST.into(), Some(2 * ANSWER.len())), [ANSWER, ANSWER].concat());
}

#[test]
fn answer_larger_than_the_socket_buffers_arrives_whole() {
    let large = vec![b'x'; 20_000_000];
    let got = ask(&[b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"], ANSWER.into(), large.clone(), None);
    assert!(got == large);
}
