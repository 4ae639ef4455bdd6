//! A session against rustls' own client, in memory.

use engine::{Cipher, CipherFault};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use std::io::{Read, Write};
use std::sync::Arc;
use tls::{Acceptor, HandshakeCounts, Security, Session};

const BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];

/// Returns an acceptor with a certificate for `localhost`, and the terms of clients that trust it.
fn acceptor(version: &'static SupportedProtocolVersion) -> (Acceptor, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate can be made");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let mut server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("the key fits");
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("the certificate is one");
    let mut client =
        ClientConfig::builder_with_protocol_versions(&[version]).with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    (Acceptor::new(server), Arc::new(client))
}

/// A client and the server's session, with what has gone from one to the other.
struct Pair {
    client: ClientConnection,
    session: Session,
    /// The bytes that the session has decrypted.
    opened: Vec<u8>,
    /// The number of bytes that the session is given at a time.
    part: usize,
}

impl Pair {
    fn new(acceptor: &Acceptor, client: &Arc<ClientConfig>, part: usize) -> Self {
        let name = ServerName::try_from("LocalHost").expect("a name");
        Self {
            client: ClientConnection::new(Arc::clone(client), name).expect("a client"),
            session: acceptor.accept().expect("a session"),
            opened: Vec::new(),
            part,
        }
    }

    /// Gives the session bytes, and the client what the session answers.
    fn give(&mut self, bytes: &[u8]) -> Result<(), CipherFault> {
        for part in bytes.chunks(self.part) {
            let mut unsent = Vec::new();
            let result = self.session.open(&mut part.to_vec(), &mut self.opened, &mut unsent);
            self.take(&unsent);
            result?;
        }
        Ok(())
    }

    /// Gives the client records of the session.
    fn take(&mut self, records: &[u8]) {
        let mut rest = records;
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).expect("memory can be read");
            self.client.process_new_packets().expect("the session speaks TLS");
        }
    }

    /// Returns the records that the client has to send.
    fn records(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).expect("memory can be written");
        }
        bytes
    }

    /// Returns the records of a question of the client.
    fn question(&mut self) -> Vec<u8> {
        self.client.writer().write_all(b"question").expect("it has room");
        self.records()
    }

    /// Moves everything that the client has to send.
    fn turn(&mut self) -> Result<(), CipherFault> {
        let bytes = self.records();
        self.give(&bytes)
    }

    fn shake_hands(&mut self) -> Security {
        for _ in 0..4 {
            self.turn().expect("the client speaks TLS");
        }
        assert!(self.session.is_ready() && !self.client.is_handshaking());
        *self.session.take_security().expect("the handshake is over")
    }

    fn seal(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut records = Vec::new();
        self.session.seal(bytes, &mut records).expect("the handshake is over");
        records
    }

    fn received(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.client.reader().read_exact(&mut bytes).expect("the bytes are here");
        bytes
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).expect("it is less")).collect()
}

#[test]
fn bytes_pass_both_ways_however_they_are_cut() {
    for version in BOTH {
        let (acceptor, client) = acceptor(version);
        for part in [1, 2, 5, 100, 16_384, usize::MAX] {
            let mut pair = Pair::new(&acceptor, &client, part);
            let security = pair.shake_hands();
            assert_eq!(security.server_name.as_deref(), Some("localhost"));
            assert_eq!(security.version, u16::from(version.version));
            assert_eq!(pair.session.agreed_protocol(), Some(&b"http/1.1"[..]));
            for length in [1, 16_383, 16_384, 16_385, 60_000] {
                let bytes = pattern(length);
                pair.client.writer().write_all(&bytes).expect("it has room");
                pair.turn().expect("the records are right");
                assert!(std::mem::take(&mut pair.opened) == bytes, "{length} bytes in parts of {part}");
                let records = pair.seal(&bytes);
                assert!(records.len() < length + 40 * length.div_ceil(16_384) + 1);
                let mut answered = Vec::new();
                for record in records.chunks(16_000) {
                    pair.take(record);
                    let arrived = pair.client.process_new_packets().expect("right records").plaintext_bytes_to_read();
                    answered.extend(pair.received(arrived));
                }
                assert!(answered == bytes, "{length} bytes");
            }
        }
    }
}

#[test]
fn sessions_are_resumed_and_counted() {
    for version in BOTH {
        let (acceptor, client) = acceptor(version);
        for is_resumed in [false, true, true] {
            let mut pair = Pair::new(&acceptor, &client, usize::MAX);
            assert_eq!(pair.shake_hands().is_resumed, is_resumed);
            assert!(pair.session.take_work() > 100_000, "a handshake is work");
        }
        assert_eq!(acceptor.counts(), HandshakeCounts { full: 1, resumed: 2, failed: 0, plain: 0 });
    }
}

#[test]
fn ends_are_told_both_ways() {
    let (acceptor, client) = acceptor(&version::TLS13);
    let mut pair = Pair::new(&acceptor, &client, 7);
    pair.shake_hands();
    pair.client.send_close_notify();
    pair.turn().expect("an end is no fault");
    assert!(pair.session.has_ended());
    // The client has ended its side alone.
    let records = pair.seal(b"the answer");
    pair.take(&records);
    assert_eq!(pair.received(10), b"the answer");
    let mut records = Vec::new();
    pair.session.end(&mut records);
    pair.take(&records);
    assert_eq!(pair.client.reader().read(&mut [0; 1]).expect("an orderly end"), 0);
}

#[test]
fn record_of_a_message_that_is_not_complete_does_not_hinder_output() {
    let (acceptor, client) = acceptor(&version::TLS13);
    let mut pair = Pair::new(&acceptor, &client, usize::MAX);
    pair.shake_hands();
    let bytes = pair.question();
    pair.give(&bytes[..9]).expect("the beginning of a record");
    let records = pair.seal(b"an answer before");
    pair.take(&records);
    assert_eq!(pair.received(16), b"an answer before");
    pair.give(&bytes[9..]).expect("the rest");
    assert_eq!(pair.opened, b"question");
    // New keys in both directions, between two answers.
    pair.client.refresh_traffic_keys().expect("TLS 1.3 has them");
    pair.turn().expect("new keys are no fault");
    let records = pair.seal(b"with new keys");
    pair.take(&records);
    assert_eq!(pair.received(13), b"with new keys");
}

#[test]
fn clients_that_speak_something_else_are_told_so() {
    let (acceptor, _) = acceptor(&version::TLS13);
    let open = |bytes: &[u8]| {
        let (mut opened, mut unsent) = (Vec::new(), Vec::new());
        let fault = acceptor.accept().expect("a session").open(&mut bytes.to_vec(), &mut opened, &mut unsent);
        assert_eq!(opened, b"");
        (fault.expect_err("it is no TLS").reason, unsent)
    };
    let (reason, answer) = open(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(reason, "the client speaks HTTP without TLS");
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
    let (reason, answer) = open(b"\0\x01\x02");
    assert_eq!((reason.as_str(), answer.len()), ("the client does not speak TLS", 0));
    // A record of a handshake that is none: the alert "decode_error" or "unexpected_message" follows.
    let (_, answer) = open(b"\x16\x03\x01\x00\x05\x63\x00\x00\x01\x00");
    assert_eq!((answer[0], answer.len()), (21, 7));
    assert_eq!(acceptor.counts(), HandshakeCounts { full: 0, resumed: 0, failed: 2, plain: 1 });
}

#[test]
fn changed_record_ends_the_connection_with_an_alert() {
    let (acceptor, client) = acceptor(&version::TLS13);
    let mut pair = Pair::new(&acceptor, &client, usize::MAX);
    pair.shake_hands();
    let mut bytes = pair.question();
    *bytes.last_mut().expect("there is one") ^= 1;
    let (mut opened, mut unsent) = (Vec::new(), Vec::new());
    assert!(pair.session.open(&mut bytes, &mut opened, &mut unsent).is_err());
    assert_eq!(opened, b"");
    let mut records = &unsent[..];
    pair.client.read_tls(&mut records).expect("memory can be read");
    let error = pair.client.process_new_packets().expect_err("an alert");
    assert_eq!(error.to_string(), "received fatal alert: BadRecordMac");
}

#[test]
fn new_configuration_is_for_new_connections() {
    let (acceptor, client) = acceptor(&version::TLS13);
    let mut old = Pair::new(&acceptor, &client, usize::MAX);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate can be made");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    acceptor.replace(config.expect("the key fits"));
    assert_eq!(old.shake_hands().version_name(), "TLSv1.3");
    let mut new = Pair::new(&acceptor, &client, usize::MAX);
    let (mut hello, mut opened, mut unsent) = (new.records(), Vec::new(), Vec::new());
    new.session.open(&mut hello, &mut opened, &mut unsent).expect("it is a hello");
    let mut records = &unsent[..];
    new.client.read_tls(&mut records).expect("memory can be read");
    let error = new.client.process_new_packets().expect_err("its client does not know this certificate");
    assert!(error.to_string().starts_with("invalid peer certificate"), "{error}");
}
