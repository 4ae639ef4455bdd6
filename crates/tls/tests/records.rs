//! Records that no ordinary client sends, encrypted with the keys of a real one (TLS 1.3).

use ::aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use engine::{Cipher, CipherFault};
use rustls::crypto::CryptoProvider;
#[cfg(feature = "aws-lc")]
use rustls::crypto::aws_lc_rs as provider;
#[cfg(not(feature = "aws-lc"))]
use rustls::crypto::ring as provider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets, RootCertStore, ServerConfig};
use std::sync::Arc;
use tls::{Acceptor, Session};

/// The types of content (RFC 8446 section 5.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Encrypts records as a client does.
struct Forger {
    key: LessSafeKey,
    iv: [u8; 12],
    /// The number of the next record.
    number: u64,
}

impl Forger {
    /// Returns the record of this content (RFC 8446 section 5.2), with `padding` zero bytes.
    fn record(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut sealed = [content, &[kind], &vec![0; padding]].concat();
        let [high, low] = u16::try_from(sealed.len() + 16).expect("a record is short").to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        self.number += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).expect("it can be encrypted");
        [&header, &sealed[..]].concat()
    }
}

/// Returns an acceptor with a certificate for `localhost`, and the certificates that its clients trust.
fn acceptor() -> (Acceptor, RootCertStore) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate can be made");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![made.cert.der().clone()], key).expect("the key fits");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("the certificate is one");
    (Acceptor::new(server), roots)
}

/// Returns a session whose handshake is over, and its client's keys.
fn session() -> (Session, Forger) {
    let (acceptor, roots) = acceptor();
    let suites = vec![provider::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let provider = CryptoProvider { cipher_suites: suites, ..provider::default_provider() };
    let client = ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    let mut client = client.expect("TLS 1.3").with_root_certificates(roots).with_no_client_auth();
    client.enable_secret_extraction = true;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::new(client), name).expect("a client");
    let mut session = acceptor.accept().expect("a session");
    while !session.is_ready() {
        let mut sent = Vec::new();
        client.write_tls(&mut sent).expect("memory can be written");
        let answer = opened(&mut session, &sent).expect("the client speaks TLS").1;
        let mut rest = &answer[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory can be read");
            client.process_new_packets().expect("the session speaks TLS");
        }
    }
    let secrets = client.dangerous_extract_secrets().expect("the handshake is over");
    let (number, ConnectionTrafficSecrets::Aes128Gcm { key, iv }) = secrets.tx else { panic!("another cipher") };
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).expect("a key"));
    (session, Forger { key, iv: iv.as_ref().try_into().expect("12 bytes"), number })
}

/// Returns the bytes that a session opens of these records, and those that it sends.
fn opened(session: &mut Session, records: &[u8]) -> Result<(Vec<u8>, Vec<u8>), CipherFault> {
    let (mut opened, mut unsent) = (Vec::new(), Vec::new());
    session.open(&mut records.to_vec(), &mut opened, &mut unsent)?;
    Ok((opened, unsent))
}

#[test]
fn records_of_every_length_are_opened_and_longer_ones_are_not() {
    for (length, padding) in [(0, 0), (1, 0), (16_383, 0), (16_384, 0), (0, 16_384), (10_000, 6_384)] {
        let (mut session, mut client) = session();
        let content = vec![b'a'; length];
        let stream = [client.record(DATA, &content, padding), client.record(DATA, b"next", 0)].concat();
        assert_eq!(opened(&mut session, &stream).expect("a record").0, [&content[..], b"next"].concat());
    }
    for (length, padding) in [(16_385, 0), (16_000, 385), (16_640 - 17, 0), (20_000, 0)] {
        let (mut session, mut client) = session();
        let record = client.record(DATA, &vec![b'a'; length], padding);
        let (mut opened, mut unsent) = (Vec::new(), Vec::new());
        let result = session.open(&mut record.clone(), &mut opened, &mut unsent);
        assert!(result.is_err() && opened.is_empty(), "{length} bytes and {padding}");
        assert!(!unsent.is_empty(), "an alert answers");
    }
}

#[test]
fn part_of_a_record_is_not_opened_and_its_loss_is_no_end() {
    let (mut session, mut client) = session();
    let record = client.record(DATA, b"question", 0);
    for byte in &record[..record.len() - 1] {
        assert_eq!(opened(&mut session, &[*byte]).expect("a part"), (Vec::new(), Vec::new()));
    }
    assert!(!session.has_ended(), "nobody has said that nothing follows");
    assert_eq!(opened(&mut session, &record[record.len() - 1..]).expect("the rest").0, b"question");
    let end = client.record(ALERT, &[1, 0], 0);
    opened(&mut session, &end).expect("an end");
    assert!(session.has_ended());
    // Data behind an end are not opened.
    let late = client.record(DATA, b"late", 0);
    assert!(opened(&mut session, &late).map_or(true, |(opened, _)| opened.is_empty()));
}

#[test]
fn floods_of_encrypted_records_without_content_end_the_connection() {
    let new_keys = [24, 0, 0, 1, 0];
    let floods: [(&str, u8, &[u8], usize); 4] = [
        ("empty data", DATA, b"", 0),
        ("padding", DATA, b"", 1000),
        ("warnings", ALERT, &[1, 90], 0),
        ("a message of the handshake without content", HANDSHAKE, b"", 0),
    ];
    for (what, kind, content, padding) in floods {
        let (mut session, mut client) = session();
        let ends = (0..10_000).find(|_| {
            let record = client.record(kind, content, padding);
            opened(&mut session, &record).is_err()
        });
        assert!(ends.is_some_and(|count| count < 100), "{what}: {ends:?}");
    }
    // Data in between does not make a flood of others: an ordinary client may hide its lengths.
    let (mut session, mut client) = session();
    for _ in 0..1000 {
        let stream = [client.record(DATA, b"", 10), client.record(DATA, b"a", 0)].concat();
        assert_eq!(opened(&mut session, &stream).expect("records").0, b"a");
    }
    // A change of keys between two halves of a message is none: the second half has other keys.
    let (mut session, mut client) = self::session();
    let halves = [client.record(HANDSHAKE, &new_keys[..3], 0), client.record(DATA, b"a", 0)].concat();
    assert!(opened(&mut session, &halves).is_err());
}

#[test]
fn fault_behind_a_part_of_a_message_ends_the_connection() {
    let in_clear = b"\x17\x03\x03\0\x01a";
    // The beginning of a client's first message in a record, then data that nobody has encrypted.
    let mut new = acceptor().0.accept().expect("a session");
    opened(&mut new, b"\x16\x03\x01\0\x05\x01\0\x01\0\x03").expect("a part");
    assert!(opened(&mut new, in_clear).is_err());
    let (mut session, mut client) = session();
    opened(&mut session, &client.record(HANDSHAKE, &[24, 0], 0)).expect("a part");
    let mut unsent = Vec::new();
    let result = session.open(&mut in_clear.to_vec(), &mut Vec::new(), &mut unsent);
    assert!(result.is_err() && !unsent.is_empty(), "an alert answers");
}
