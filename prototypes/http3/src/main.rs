//! A server of HTTP/3 for small GETs, and a client that loads it: what docs/design/http3.md measures. No feature.
//!
//!     http3-prototype server CERTIFICATE KEY [--no-gso]
//!     http3-prototype load CERTIFICATE ADDRESS PATH REQUESTS CONNECTIONS STREAMS
//!
//! The server prints its address. The client opens its connections, prints `open`, waits for a line, sends the requests,
//! checks the responses, prints `done`, and waits for the end of its input.

mod driver;
mod qpack;

use std::collections::HashMap;
use std::error::Error;
use std::io::stdin;
use std::sync::Arc;

use bytes::Bytes;
use driver::{Driver, Http};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{ClientConfig, Connection, Dir, Event, ServerConfig, StreamEvent, StreamId};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BODY: &[u8] = b"My Own Hello World!";
/// The body of the path `/large`.
const LARGE: usize = 1 << 20;
/// The most connections of the client whose handshakes run at a time.
const HANDSHAKES: usize = 8;

// The types of frames, and of the stream that has the settings (RFC 9114 sections 6.2 and 7.2).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTROL: u8 = 0;
const SETTINGS: u8 = 4;

/// Appends the head of a frame. A length is an integer of QUIC, of 1 or 4 bytes (RFC 9000 section 16).
fn frame(kind: u8, length: usize, out: &mut Vec<u8>) {
    out.push(kind);
    match u8::try_from(length) {
        Ok(length @ 0..64) => out.push(length),
        _ => out.extend_from_slice(&(u32::try_from(length).expect("no longer frame") | 0x8000_0000).to_be_bytes()),
    }
}

/// Splits the first frame off, and returns its type and payload; `None` if it is not whole.
fn split_frame<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&kind, rest) = input.split_first()?;
    let size = 1 << (rest.first()? >> 6);
    let (length, rest) = rest.split_at_checked(size)?;
    let length =
        length.iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte)) & (u64::MAX >> (66 - 8 * size));
    let (payload, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *input = rest;
    Some((kind, payload))
}

/// A message: a head, and a body in one frame.
fn message(fields: &[(&str, &str)], body: &[u8]) -> Bytes {
    let (head, mut out) = (qpack::encode(fields), Vec::new());
    frame(HEADERS, head.len(), &mut out);
    out.extend(head);
    if !body.is_empty() {
        frame(DATA, body.len(), &mut out);
        out.extend_from_slice(body);
    }
    out.into()
}

/// Appends what has arrived on a stream. Returns true after its last byte.
fn read(connection: &mut Connection, id: StreamId, out: &mut Vec<u8>) -> bool {
    let mut stream = connection.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else { return false };
    let is_end = loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => out.extend_from_slice(&chunk.bytes),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    let _ = chunks.finalize();
    is_end
}

/// Opens the stream with the settings, of which there are none: no dynamic table.
fn send_settings(connection: &mut Connection) {
    let id = connection.streams().open(Dir::Uni).expect("peers allow three");
    connection.send_stream(id).write(&[CONTROL, SETTINGS, 0]).expect("three bytes");
}

/// Reads away what the peer's streams with settings have.
fn skip_settings(connection: &mut Connection) {
    while let Some(id) = connection.streams().accept(Dir::Uni) {
        read(connection, id, &mut Vec::new());
    }
}

struct Server {
    small: Bytes,
    large: Bytes,
    strings: qpack::Strings,
    input: Vec<u8>,
    /// The bytes of requests that have not arrived whole.
    partial: HashMap<(usize, StreamId), Vec<u8>>,
    /// The rests of responses that wait for the client's window.
    unsent: HashMap<(usize, StreamId), Bytes>,
}

impl Server {
    fn readable(&mut self, handle: usize, connection: &mut Connection, id: StreamId) {
        self.input.clear();
        if let Some(start) = self.partial.remove(&(handle, id)) {
            self.input.extend(start);
        }
        if !read(connection, id, &mut self.input) {
            if !self.input.is_empty() {
                self.partial.insert((handle, id), self.input.clone());
            }
            return;
        }
        let (mut is_get, mut is_large) = (false, false);
        let head = split_frame(&mut &self.input[..]).filter(|(kind, _)| *kind == HEADERS);
        let fields = head.and_then(|(_, head)| {
            qpack::decode(head, &mut self.strings, |name, value| {
                is_get |= name == b":method" && value == b"GET";
                is_large |= name == b":path" && value == b"/large";
            })
        });
        if fields.is_none() || !is_get {
            let _ = connection.send_stream(id).reset(0x010e_u32.into());
            return;
        }
        let response = if is_large { &self.large } else { &self.small };
        self.unsent.insert((handle, id), response.clone());
        self.write(handle, connection, id);
    }

    fn write(&mut self, handle: usize, connection: &mut Connection, id: StreamId) {
        let Some(mut rest) = self.unsent.remove(&(handle, id)) else { return };
        let mut stream = connection.send_stream(id);
        while !rest.is_empty() {
            if stream.write_chunks(std::slice::from_mut(&mut rest)).is_err() {
                self.unsent.insert((handle, id), rest);
                return;
            }
        }
        let _ = stream.finish();
    }
}

impl Http for Server {
    fn event(&mut self, handle: usize, connection: &mut Connection, event: Event) {
        match event {
            Event::Connected => send_settings(connection),
            Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => skip_settings(connection),
            Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                while let Some(id) = connection.streams().accept(Dir::Bi) {
                    self.readable(handle, connection, id);
                }
            }
            Event::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Bi => self.readable(handle, connection, id),
            Event::Stream(StreamEvent::Writable { id }) => self.write(handle, connection, id),
            Event::ConnectionLost { .. } => {
                self.partial.retain(|(of, _), _| *of != handle);
                self.unsent.retain(|(of, _), _| *of != handle);
            }
            _ => {}
        }
    }
}

struct Client {
    request: Bytes,
    response: Bytes,
    streams: usize,
    /// The requests that are not sent, and the responses that have not arrived.
    unsent: usize,
    missing: usize,
    connected: usize,
    open: HashMap<(usize, StreamId), Vec<u8>>,
    open_of: Vec<usize>,
}

impl Http for Client {
    fn event(&mut self, handle: usize, connection: &mut Connection, event: Event) {
        match event {
            Event::Connected => {
                send_settings(connection);
                self.connected += 1;
            }
            Event::ConnectionLost { reason } => panic!("a connection is lost: {reason}"),
            Event::Stream(StreamEvent::Opened { .. }) => skip_settings(connection),
            Event::Stream(StreamEvent::Readable { id }) => {
                let Some(input) = self.open.get_mut(&(handle, id)) else { return };
                if read(connection, id, input) {
                    assert!(*input == self.response, "the response is not the one expected");
                    self.open.remove(&(handle, id));
                    self.open_of[handle] -= 1;
                    self.missing -= 1;
                }
            }
            _ => {}
        }
    }

    fn fill(&mut self, handle: usize, connection: &mut Connection) {
        self.open_of.resize(self.open_of.len().max(handle + 1), 0);
        while self.unsent > 0 && self.open_of[handle] < self.streams && !connection.is_handshaking() {
            let Some(id) = connection.streams().open(Dir::Bi) else { return };
            connection.send_stream(id).write(&self.request).expect("a small request");
            connection.send_stream(id).finish().expect("a new stream");
            self.open.insert((handle, id), Vec::new());
            self.open_of[handle] += 1;
            self.unsent -= 1;
        }
    }
}

fn responses() -> (Bytes, Bytes) {
    let response = |body: &[u8]| {
        let length = body.len().to_string();
        let date = "Sat, 28 Nov 2026 12:00:00 GMT";
        message(
            &[(":status", "200"), ("content-type", "text/plain"), ("content-length", &length), ("date", date)],
            body,
        )
    };
    (response(BODY), response(&vec![b'x'; LARGE]))
}

fn serve(certificate: &str, key: &str, has_gso: bool) -> Outcome<()> {
    let certificate = CertificateDer::from_pem_file(certificate)?;
    let mut tls = rustls::ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let mut driver = Driver::new("127.0.0.1:0".parse()?, Some(config), has_gso)?;
    println!("{}", driver.address()?);
    let (small, large) = responses();
    let (partial, unsent) = Default::default();
    let mut server = Server { small, large, strings: qpack::Strings::default(), input: Vec::new(), partial, unsent };
    loop {
        driver.turn(&mut server)?;
    }
}

fn load(certificate: &str, address: &str, path: &str, [requests, connections, streams]: [usize; 3]) -> Outcome<()> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let mut tls = rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    // Each handshake is whole.
    tls.resumption = rustls::client::Resumption::disabled();
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let agent = ("user-agent", "http3-prototype");
    let fields = [(":method", "GET"), (":scheme", "https"), (":authority", address), (":path", path), agent];
    let (small, large) = responses();
    let mut client = Client {
        request: message(&fields, &[]),
        response: if path == "/large" { large } else { small },
        streams,
        unsent: 0,
        missing: requests,
        connected: 0,
        open: HashMap::new(),
        open_of: Vec::new(),
    };
    let mut driver = Driver::new("127.0.0.1:0".parse()?, None, true)?;
    let mut begun = 0;
    while client.connected < connections {
        while begun < connections.min(client.connected + HANDSHAKES) {
            driver.connect(config.clone(), address.parse()?);
            begun += 1;
        }
        driver.turn(&mut client)?;
    }
    println!("open");
    stdin().read_line(&mut String::new())?;
    client.unsent = requests;
    driver.wake_all();
    while client.missing > 0 {
        driver.turn(&mut client)?;
    }
    println!("done");
    stdin().read_line(&mut String::new())?;
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", certificate, key] => serve(certificate, key, true),
        ["server", certificate, key, "--no-gso"] => serve(certificate, key, false),
        ["load", certificate, address, path, requests, connections, streams] => {
            load(certificate, address, path, [requests.parse()?, connections.parse()?, streams.parse()?])
        }
        _ => Err("see src/main.rs for the arguments".into()),
    }
}
