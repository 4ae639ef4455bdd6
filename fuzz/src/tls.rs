//! The invariants of encrypted connections. An input describes how the records of a real client are changed on their way
//! to the server's transport.

use engine::{Encrypted, Moved, Received, Socket, Tcp, Transport};
use rustls::client::Resumption;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Arc, LazyLock};
use tls::{Acceptor, Session};

/// The steps of an input that are taken.
const STEPS: usize = 24;
/// The bytes that a server may have to send although its client reads nothing: its part of a handshake, tickets, new keys, and the
/// response that waits.
const UNSENT_AT_MOST: usize = 64 << 10;
/// Records that a peer on the way may insert.
const INSERTED: [&[u8]; 7] = [
    b"\x15\x03\x03\0\x02\x01\0",
    b"\x15\x03\x03\0\x02\x02\x30",
    b"\x14\x03\x03\0\x01\x01",
    b"\x16\x03\x03\0\0",
    b"\x17\x03\x03\0\x01a",
    b"\x16\x03\x01\0\x04\x01\0\xff\xff",
    b"GET / HTTP/1.1\r\n\r\n",
];

/// The server with its clients' terms, for TLS 1.3 and 1.2.
static SITES: LazyLock<[(Acceptor, Arc<ClientConfig>); 2]> = LazyLock::new(|| {
    [&TLS13, &TLS12].map(|version| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let server = ServerConfig::builder().with_no_client_auth();
        let server = server.with_single_cert(vec![made.cert.der().clone()], key).expect("the key fits");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a certificate");
        let client = ClientConfig::builder_with_protocol_versions(&[version]);
        let mut client = client.with_root_certificates(roots).with_no_client_auth();
        // An input has to mean the same whatever ran before it.
        client.resumption = Resumption::disabled();
        (Acceptor::new(server), Arc::new(client))
    })
});

/// The server's side of the way.
#[derive(Default)]
struct Way {
    input: RefCell<Vec<u8>>,
    output: RefCell<Vec<u8>>,
    /// True while the client reads nothing, and the way is full.
    is_full: Cell<bool>,
    has_ended: Cell<bool>,
}

impl Socket for &Way {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Moved> {
        let mut input = self.input.borrow_mut();
        let count = buffer.len().min(input.len());
        if count == 0 {
            return Ok(if self.has_ended.get() { Moved::Bytes(0) } else { Moved::WouldBlock });
        }
        buffer[..count].copy_from_slice(&input[..count]);
        input.drain(..count);
        Ok(Moved::Bytes(count))
    }

    fn send(&self, slices: &[IoSlice<'_>], _: bool) -> io::Result<Moved> {
        if self.is_full.get() {
            return Ok(Moved::WouldBlock);
        }
        // Part of the bytes, so that the rest waits in the transport.
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let count = all.len().div_ceil(2);
        self.output.borrow_mut().extend_from_slice(&all[..count]);
        Ok(Moved::Bytes(count))
    }

    fn send_file(&self, _: &std::fs::File, _: u64, _: u64) -> io::Result<Moved> {
        unreachable!("no file is sent")
    }

    fn end_output(&self) {}

    fn reset_on_drop(&self) {}

    fn cut(&self) {}

    fn has_peer_left(&self) -> bool {
        self.has_ended.get()
    }
}

/// A client, the server's transport, and what has passed between them.
struct World<'a> {
    /// `None` after its failure and after the end of its output: rustls asserts that no fault follows these.
    client: Option<ClientConnection>,
    server: Encrypted<&'a Way, Session>,
    way: &'a Way,
    /// The bytes that the client has written, and those that the server has opened.
    written: Vec<u8>,
    opened: usize,
    has_failed: bool,
    has_ended_output: bool,
}

impl World<'_> {
    /// Lets the server receive all there is.
    fn receive(&mut self, room: usize) {
        let mut buffer = vec![0; room];
        loop {
            match self.server.receive(&mut buffer) {
                // The engine discards what it receives then.
                Ok(Received::Bytes { .. }) if self.has_failed || self.has_ended_output => {}
                Ok(Received::Bytes { count, .. }) => {
                    let expected = self.written.get(self.opened..self.opened + count);
                    assert!(expected == Some(&buffer[..count]), "bytes that the client has not written are opened");
                    self.opened += count;
                }
                Ok(Received::WouldBlock | Received::End) => break,
                Err(_) => {
                    assert!(!self.has_failed, "a connection fails once");
                    self.has_failed = true;
                }
            }
            assert!(self.server.unsent_bytes() <= UNSENT_AT_MOST, "{} bytes wait", self.server.unsent_bytes());
        }
    }

    /// Has the server send `length` bytes, as far as it can.
    fn answer(&mut self, length: usize) {
        let bytes = vec![b'r'; length];
        let sent = self.server.send(&[IoSlice::new(&bytes)], false);
        assert!(sent.is_err() || !(self.has_failed || self.has_ended_output), "something follows the end of output");
        let flushed = self.server.flush();
        assert!(flushed.is_ok());
    }

    /// Does what the first byte of a step asks of the client. Returns the records that it sends.
    fn act(&mut self, act: u8, place: u8, value: u8) -> Vec<u8> {
        let mut records = Vec::new();
        let Some(client) = &mut self.client else { return records };
        if act & 1 != 0 && !client.is_handshaking() {
            let bytes = vec![value; usize::from(place) * 97];
            // A client that has received an alert writes nothing more.
            let count = client.writer().write(&bytes).unwrap_or(0);
            self.written.extend_from_slice(&bytes[..count]);
        }
        match act >> 1 & 7 {
            1 => client.refresh_traffic_keys().unwrap_or_default(),
            2 => client.send_close_notify(),
            _ => {}
        }
        while client.wants_write() {
            client.write_tls(&mut records).expect("memory can be written");
        }
        if act >> 1 & 7 == 2 {
            self.client = None;
        }
        records
    }

    /// Gives the client the records that have arrived. Drops a client that refuses them: its own records may have been
    /// changed.
    fn give(&mut self) {
        let records = std::mem::take(&mut *self.way.output.borrow_mut());
        let mut rest = &records[..];
        while let (Some(client), false) = (&mut self.client, rest.is_empty()) {
            if client.read_tls(&mut rest).is_err() || client.process_new_packets().is_err() {
                self.client = None;
                return;
            }
            while client.reader().read(&mut [0; 16_384]).is_ok_and(|count| count > 0) {}
        }
    }
}

/// Changes `records` in the way that three bytes of the input say.
fn change(records: &mut Vec<u8>, kind: u8, place: u8, value: u8) {
    let at = if records.is_empty() { 0 } else { usize::from(place) * records.len() / 256 };
    match kind % 6 {
        0 if !records.is_empty() => records[at] ^= value.max(1),
        1 => records.truncate(at),
        2 => drop(records.drain(at..(at + usize::from(value)).min(records.len()))),
        3 => drop(records.splice(at..at, INSERTED[usize::from(value) % INSERTED.len()].iter().copied())),
        // The same records again, as in a replay.
        4 => records.extend(records.clone()),
        _ => records.insert(at, value),
    }
}

/// Checks that nothing is opened that the client has not written, that what waits is bounded, and that nothing panics.
/// The first byte of an input chooses the version; the others are steps of four bytes.
pub fn check_tls(data: &[u8]) {
    let Some((first, steps)) = data.split_first() else { return };
    let (acceptor, terms) = &SITES[usize::from(first & 1)];
    let way = Way::default();
    let client = ClientConnection::new(Arc::clone(terms), ServerName::try_from("localhost").expect("a name"));
    let session = acceptor.accept().expect("a session");
    let mut world = World {
        client: Some(client.expect("a client")),
        server: Encrypted::new(Tcp::new(&way), session, false),
        way: &way,
        written: Vec::new(),
        opened: 0,
        has_failed: false,
        has_ended_output: false,
    };
    for step in steps.chunks_exact(4).take(STEPS) {
        let [act, kind, place, value] = *step else { unreachable!("steps have four bytes") };
        let mut records = world.act(act, place, value);
        match act >> 1 & 7 {
            3 => way.is_full.set(!way.is_full.get()),
            4 => way.has_ended.set(true),
            5 => world.answer(usize::from(place) * 211),
            6 => {
                world.server.end_output();
                world.has_ended_output = true;
            }
            _ => {}
        }
        if act & 16 != 0 {
            change(&mut records, kind, place, value);
        }
        let part = if act & 32 != 0 { usize::from(value).max(1) } else { usize::MAX };
        for part in records.chunks(part) {
            way.input.borrow_mut().extend_from_slice(part);
            world.receive(if act & 64 != 0 { 7 } else { 20_000 });
        }
        world.server.flush().expect("the way does not fail");
        world.give();
    }
}
