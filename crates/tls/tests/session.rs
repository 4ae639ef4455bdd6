//! A session against rustls' own client, in memory.

use engine::{Cipher, CipherFault};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use std::io::{Read, Write};
use std::sync::Arc;
use tls::{Acceptor, HANDSHAKE_COUNTERS, Security, Session};

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
        Arc::unwrap_or_clone(self.session.take_security().expect("the handshake is over"))
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
        let name = if version == &version::TLS12 { "TLSv1.2" } else { "TLSv1.3" };
        let found = counted(&acceptor);
        assert_eq!(found[..2], [("full", name, 1), ("resumed", name, 2)]);
        let groups: Vec<_> = found.iter().filter(|(family, ..)| *family == "group").copied().collect();
        if version == &version::TLS12 {
            assert_eq!(groups, [("group", "X25519", 1), ("group", "none", 2)]);
        } else {
            let group = if cfg!(feature = "aws-lc") { "X25519MLKEM768" } else { "X25519" };
            assert_eq!(groups, [("group", group, 3)]);
        }
        assert_eq!(found.iter().filter(|(family, ..)| *family == "cipher").map(|(.., count)| count).sum::<u64>(), 3);
        assert_eq!(acceptor.handshakes(), 3);
    }
}

/// Returns the counters of an acceptor that are not 0.
fn counted(acceptor: &Acceptor) -> Vec<(&'static str, &'static str, u64)> {
    let all = HANDSHAKE_COUNTERS.into_iter().zip(acceptor.counts());
    all.filter(|(_, count)| *count > 0).map(|((family, name), count)| (family, name, count)).collect()
}

#[test]
fn handshakes_that_fail_are_counted_by_their_reason() {
    let fails = |reason, records: &[&[u8]]| {
        let (acceptor, client) = acceptor(&version::TLS13);
        let mut pair = Pair::new(&acceptor, &client, usize::MAX);
        let hello = pair.records();
        for part in records {
            // An empty part stands for the first message of a client.
            let mut part = if part.is_empty() { hello.clone() } else { part.to_vec() };
            if pair.session.open(&mut part, &mut Vec::new(), &mut Vec::new()).is_err() {
                break;
            }
        }
        drop(pair);
        assert_eq!(counted(&acceptor), [("failed", reason, 1)]);
    };
    fails("plain_http", &[b"GET / HTTP/1.1\r\n\r\n"]);
    fails("not_tls", &[b"\0\0\0"]);
    fails("abandoned", &[b"\x16\x03\x01"]);
    fails("abandoned", &[b""]);
    fails("other", &[b"\x16\x03\x01\x00\x05\x63\x00\x00\x01\x00"]);
    // Alerts (RFC 8446 section 6): unknown_ca and internal_error.
    fails("certificate_refused", &[b"", b"\x15\x03\x03\x00\x02\x02\x30"]);
    fails("alert", &[b"", b"\x15\x03\x03\x00\x02\x02\x50"]);
    // A connection on which nothing has arrived is no handshake.
    let (acceptor, client) = acceptor(&version::TLS13);
    drop(Pair::new(&acceptor, &client, usize::MAX));
    assert_eq!(counted(&acceptor), []);
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
    assert_eq!(counted(&acceptor), [("failed", "not_tls", 1), ("failed", "other", 1), ("failed", "plain_http", 1)]);
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

/// Returns the header and the content of each record, which must be well formed and no longer than records may be.
fn split(mut records: &[u8]) -> Vec<(u8, usize)> {
    let mut found = Vec::new();
    while !records.is_empty() {
        let [kind, 3, 1 | 3, high, low] = records[..5] else { panic!("no record: {:?}", &records[..5]) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        assert!((20..=23).contains(&kind) && length <= 16_384 + 256, "a record of kind {kind} with {length} bytes");
        found.push((kind, length));
        records = &records[5 + length..];
    }
    found
}

/// Opens records of a client in a session, and returns what the session sends.
fn open(session: &mut Session, records: &[u8]) -> (Result<(), CipherFault>, Vec<u8>) {
    let (mut opened, mut unsent) = (Vec::new(), Vec::new());
    let result = session.open(&mut records.to_vec(), &mut opened, &mut unsent);
    assert_eq!(opened, b"");
    (result, unsent)
}

#[test]
fn records_that_break_rules_end_the_connection() {
    for version in BOTH {
        let (acceptor, client) = acceptor(version);
        // An alert, a change of the cipher, and data that nobody has encrypted, before the first message.
        for early in [&b"\x15\x03\x01\0\x02\x01\0"[..], b"\x14\x03\x01\0\x01\x01", b"\x17\x03\x03\0\x01a"] {
            let (result, unsent) = open(&mut acceptor.accept().expect("a session"), early);
            assert_eq!(
                (result.expect_err("no hello").reason.as_str(), unsent.len()),
                ("the client does not speak TLS", 0)
            );
        }
        let hello = Pair::new(&acceptor, &client, usize::MAX).records();
        let after_hello: [(&str, &[u8]); 5] = [
            ("an alert", b"\x15\x03\x03\0\x02\x02\x28"),
            ("data in clear", b"\x17\x03\x03\0\x01a"),
            ("a longer record than there may be", b"\x17\x03\x03\x48\x01"),
            ("a message of the handshake without content", b"\x16\x03\x03\0\0"),
            ("a record of unknown kind", b"\x63\x03\x03\0\x01a"),
        ];
        for (what, bytes) in after_hello {
            let mut session = acceptor.accept().expect("a session");
            assert_eq!(open(&mut session, &hello).0, Ok(()));
            let (result, unsent) = open(&mut session, bytes);
            assert!(result.is_err(), "{what}, {version:?}");
            // Nothing but alerts answers. None answers an alert.
            assert!(split(&unsent).iter().all(|(kind, _)| [21, 23].contains(kind)), "{what}: {unsent:?}");
        }
        let mut session = acceptor.accept().expect("a session");
        assert_eq!(open(&mut session, &hello).0, Ok(()));
        // An end before the handshake is over. Nobody has signed it, so that it counts for no end in TLS 1.2:
        // the end of TCP follows, or the deadline of a head.
        let (result, unsent) = open(&mut session, b"\x15\x03\x03\0\x02\x01\0");
        assert_eq!(result.is_err(), version.version == rustls::ProtocolVersion::TLSv1_3);
        assert!(!session.is_ready() && !session.has_ended() && split(&unsent).len() < 2);
    }
}

#[test]
fn floods_that_carry_nothing_are_ended_soon() {
    // New keys, each with the question for new keys of the server.
    let (acceptor, client) = acceptor(&version::TLS13);
    let mut pair = Pair::new(&acceptor, &client, usize::MAX);
    pair.shake_hands();
    let mut answered = 0;
    let ends = (0..1000).find(|_| {
        pair.client.refresh_traffic_keys().expect("TLS 1.3 has them");
        let records = pair.records();
        let (result, unsent) = open(&mut pair.session, &records);
        answered += unsent.len();
        result.is_err()
    });
    assert!(ends.is_some_and(|count| count < 100) && answered < 10_000, "{ends:?}, {answered} bytes");
    // Changes of the cipher that mean nothing in TLS 1.3, and alerts that only warn.
    for (flood, version) in
        [(&b"\x14\x03\x03\0\x01\x01"[..], &version::TLS13), (b"\x15\x03\x03\0\x02\x01\x5a", &version::TLS12)]
    {
        let (acceptor, client) = self::acceptor(version);
        let mut session = acceptor.accept().expect("a session");
        let hello = Pair::new(&acceptor, &client, usize::MAX).records();
        assert_eq!(open(&mut session, &hello).0, Ok(()));
        let ends = (0..1000).find(|_| open(&mut session, flood).0.is_err());
        assert!(ends.is_some_and(|count| count < 100), "{ends:?}");
    }
    // A message that never ends, in records of one byte.
    let mut session = acceptor.accept().expect("a session");
    assert_eq!(open(&mut session, b"\x16\x03\x01\0\x04\x01\0\xff\xff").0, Ok(()));
    let ends = (0..200_000).find(|_| open(&mut session, b"\x16\x03\x01\0\x01a").0.is_err());
    assert!(ends.is_some(), "the message grows without end");
}

#[test]
fn changes_of_keys_are_charged_as_the_work_that_they_are() {
    let (acceptor, client) = acceptor(&version::TLS13);
    let mut pair = Pair::new(&acceptor, &client, usize::MAX);
    pair.shake_hands();
    pair.session.take_work();
    let question = pair.question();
    pair.give(&question).expect("a question is no fault");
    let of_question = pair.session.take_work();
    for _ in 0..30 {
        pair.client.refresh_traffic_keys().expect("TLS 1.3 has them");
    }
    let records = [pair.records(), pair.question()].concat();
    // All of them in one call.
    pair.give(&records).expect("so many changes are no fault");
    let work = pair.session.take_work();
    assert!(work > 30 * 5 * of_question, "{work} for 30 changes, {of_question} for a question");
}

/// Changes `records` in one way.
fn spoil(records: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    if records.is_empty() {
        return;
    }
    let at = rng.usize(..records.len());
    let inserted: [&[u8]; 5] = [
        b"\x15\x03\x03\0\x02\x01\0",
        b"\x14\x03\x03\0\x01\x01",
        b"\x16\x03\x03\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff",
    ];
    match rng.u8(0..6) {
        0 => records[at] ^= 1 << rng.u8(0..8),
        1 => records.truncate(at),
        2 => drop(records.drain(at..(at + rng.usize(1..40)).min(records.len()))),
        3 => drop(records.splice(at..at, inserted[rng.usize(..inserted.len())].iter().copied())),
        // The same records again, as in a replay.
        4 => records.extend(records.clone()),
        _ => drop(records.splice(0..0, inserted[rng.usize(..inserted.len())].iter().copied())),
    }
}

/// Gives a client records. Returns false if it does not understand them.
fn is_understood(client: &mut ClientConnection, mut records: &[u8]) -> bool {
    while !records.is_empty() {
        if client.read_tls(&mut records).is_err() || client.process_new_packets().is_err() {
            return false;
        }
        while client.reader().read(&mut [0; 16_384]).is_ok_and(|count| count > 0) {}
    }
    true
}

/// Changes the bytes of a client at random. The session must not fail in another way than by a fault, must not open
/// anything that the client has not written, and must send well-formed records.
#[test]
fn nothing_that_a_client_has_not_written_is_opened_however_its_records_are_changed() {
    let seed = std::env::var("TLS_SEED").ok().and_then(|seed| seed.parse().ok());
    let cases = std::env::var("TLS_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1500);
    let acceptors = BOTH.map(acceptor);
    for seed in seed.map_or(0..cases, |seed| seed..seed + 1) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (acceptor, client) = &acceptors[rng.usize(..2)];
        let mut pair = Pair::new(acceptor, client, usize::MAX);
        let (mut written, mut opened) = (Vec::new(), Vec::new());
        let spoiled_at = rng.usize(0..8);
        'turns: for turn in 0..8 {
            let mut records = pair.records();
            if turn == spoiled_at {
                spoil(&mut records, &mut rng);
            }
            for part in records.chunks(rng.usize(1..3000)) {
                let mut unsent = Vec::new();
                let result = pair.session.open(&mut part.to_vec(), &mut opened, &mut unsent);
                // A client that speaks HTTP gets an answer in clear.
                if !unsent.starts_with(b"HTTP/1.1 400 ") {
                    split(&unsent);
                }
                assert!(written.starts_with(&opened), "seed {seed}: other bytes than those written are opened");
                assert!(opened.is_empty() || pair.session.is_ready(), "seed {seed}: bytes before the handshake's end");
                if result.is_err() || pair.session.has_ended() || !is_understood(&mut pair.client, &unsent) {
                    break 'turns;
                }
            }
            if pair.session.is_ready() {
                let mut sealed = Vec::new();
                pair.session.seal(&pattern(rng.usize(1..40_000)), &mut sealed).expect("the handshake is over");
                split(&sealed);
                if !is_understood(&mut pair.client, &sealed) {
                    break 'turns;
                }
            }
            if !pair.client.is_handshaking() {
                let bytes = pattern(rng.usize(1..20_000));
                let count = pair.client.writer().write(&bytes).expect("memory can be written");
                written.extend_from_slice(&bytes[..count]);
                match rng.u8(0..8) {
                    0 => pair.client.refresh_traffic_keys().unwrap_or_default(),
                    1 => pair.client.send_close_notify(),
                    _ => {}
                }
            }
        }
    }
}
