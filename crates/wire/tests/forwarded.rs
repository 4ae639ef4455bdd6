//! The corpus of `tests/corpus/forwarded`: the client of each request, read whole and byte by byte; and what is kept
//! from one request of a connection to the next.
#![cfg(not(miri))]

use serde::Deserialize;
use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use wire::forwarded::{Family, Forwarding, Trust, Trusted};
use wire::http1::Receiver;
use wire::message::{Client, Fault, Limits};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "rule")]
    _rule: String,
    trusted: String,
    peer: String,
    family: Option<String>,
    #[serde(default)]
    use_host: bool,
    #[serde(default)]
    use_prefix: bool,
    address: Option<String>,
    port: Option<u16>,
    https: Option<bool>,
    host: Option<String>,
    prefix: Option<String>,
    fault: Option<String>,
    #[serde(default)]
    removed: Vec<String>,
}

/// The port of every peer.
const PORT: u16 = 4000;

impl Case {
    fn peer(&self) -> Client {
        Client::at((self.peer != "unix").then(|| SocketAddr::new(self.peer.parse().unwrap(), PORT)))
    }

    fn trust(&self) -> Trust {
        Trust {
            proxies: Trusted::read(&self.trusted).unwrap(),
            family: match self.family.as_deref() {
                None => Family::X,
                Some("rfc7239") => Family::Rfc7239,
                Some(other) => panic!("there is no family {other}"),
            },
            host: self.use_host,
            prefix: self.use_prefix,
        }
    }

    fn client(&self) -> Result<Client, Fault> {
        if let Some(fault) = &self.fault {
            return Err(*Fault::ALL.iter().find(|known| known.name() == fault).expect("the fault exists"));
        }
        let peer = self.peer();
        let address = self.address.as_deref().map(|address| address.parse().unwrap());
        Ok(Client {
            address,
            port: self.port.or(peer.port.filter(|_| address == peer.address)),
            is_https: self.https,
            host: self.host.as_ref().map(|host| host.as_bytes().into()),
            prefix: self.prefix.as_ref().map(|prefix| prefix.as_bytes().into()),
            connection: None,
        })
    }
}

fn cases() -> Vec<(String, Vec<u8>, Case)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/forwarded");
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).expect("the corpus is in the source tree") {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "http") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let said = fs::read(path.with_extension("json")).unwrap_or_else(|error| panic!("{name}.json: {error}"));
            let case = serde_json::from_slice(&said).unwrap_or_else(|error| panic!("{name}.json: {error}"));
            cases.push((name, fs::read(&path).unwrap(), case));
        }
    }
    assert!(cases.len() >= 100, "only {} cases", cases.len());
    cases.sort_by(|one, other| one.0.cmp(&other.0));
    cases
}

/// The names of the fields that are left, and the client.
type Outcome = Result<(Vec<String>, Client), Fault>;

/// Reads one head of `input`, in pieces of `step` bytes, and applies `forwarding` to it.
fn read(
    receiver: &mut Receiver,
    forwarding: &mut Forwarding,
    trust: Option<&Trust>,
    input: &[u8],
    step: usize,
) -> Outcome {
    let mut fields = Vec::new();
    let mut end = 0;
    loop {
        end = (end + step).min(input.len());
        if let Some(head) = receiver.head(&input[..end], &mut fields, &Limits::default()).expect("a valid head") {
            let mut head = head.request;
            forwarding.apply(&mut head, trust)?;
            let name = |field: &wire::message::Field| String::from_utf8(field.name(head.block).to_vec()).unwrap();
            let names = head.fields.iter().map(name).collect();
            return Ok((names, head.client.expect("a client is set").clone()));
        }
        assert!(end < input.len(), "the head is whole");
    }
}

fn names(input: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(input);
    let lines = text.split("\r\n").skip(1).take_while(|line| !line.is_empty());
    lines.map(|line| line.split(':').next().unwrap().to_owned()).collect()
}

#[test]
fn client_is_that_of_each_case() {
    let mut reached = HashSet::new();
    for (name, input, case) in cases() {
        let trust = case.trust();
        let expected = case.client().map(|client| {
            let mut left = names(&input);
            left.retain(|name| !case.removed.contains(name));
            (left, client)
        });
        reached.extend(expected.as_ref().err().copied());
        for step in [input.len(), 1] {
            let (mut receiver, mut forwarding) = (Receiver::default(), Forwarding::new(case.peer(), Some(&trust)));
            let found = read(&mut receiver, &mut forwarding, Some(&trust), &input, step);
            assert_eq!(found, expected, "{name}, {step} bytes at a time");
            // The same head again, which the reader keeps and then recognises, and what comes between.
            if expected.is_ok() {
                for other in [&input[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &input, &input, &input] {
                    let found = read(&mut receiver, &mut forwarding, Some(&trust), other, step);
                    if other == input {
                        assert_eq!(found, expected, "{name} again, {step} bytes at a time");
                    } else {
                        assert_eq!(found.unwrap().1, case.peer(), "{name}: nothing of it is left");
                    }
                }
            }
        }
        // Without proxies nothing is read and nothing is removed.
        let mut forwarding = Forwarding::new(case.peer(), None);
        let found = read(&mut Receiver::default(), &mut forwarding, None, &input, input.len());
        assert_eq!(found, Ok((names(&input), case.peer())), "{name} without proxies");
    }
    assert_eq!(reached, HashSet::from([Fault::ForwardedContradictory, Fault::ForwardedInvalid]));
}

/// The reader says which lines of a head differ from the one that it keeps. Heads with any change between them must
/// give what each gives on a connection of its own.
#[test]
fn client_of_a_head_does_not_depend_on_the_heads_before() {
    let trust = Trust { proxies: Trusted::read("10.0.0.0/8").unwrap(), host: true, prefix: true, ..Trust::default() };
    let heads: Vec<String> = ["192.0.2.7", "192.0.2.8", "192.0.2.7, 10.0.0.3", "unknown"]
        .iter()
        .flat_map(|address| {
            ["http", "https"].iter().flat_map(move |scheme| {
                ["a", "b"].iter().flat_map(move |cookie| {
                    ["", "Forwarded: for=6.6.6.6\r\n"].iter().map(move |extra| {
                        format!(
                            "GET /{cookie} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\nCookie: {cookie}\r\n\
                             X-Forwarded-Proto: {scheme}\r\n{extra}X-Forwarded-Host: {cookie}.example\r\n\r\n"
                        )
                    })
                })
            })
        })
        .collect();
    for peer in ["10.0.0.1", "192.0.2.1"] {
        let peer = Client::at(Some(SocketAddr::new(peer.parse().unwrap(), PORT)));
        let fresh = |head: &str| {
            let mut forwarding = Forwarding::new(peer.clone(), Some(&trust));
            read(&mut Receiver::default(), &mut forwarding, Some(&trust), head.as_bytes(), head.len())
        };
        let (mut receiver, mut forwarding) = (Receiver::default(), Forwarding::new(peer.clone(), Some(&trust)));
        let mut at = 7_usize;
        for turn in 0..4000 {
            // Runs of similar heads, so that some are kept.
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let head = &heads[if turn % 3 == 0 { (at >> 33) % heads.len() } else { turn / 50 % heads.len() }];
            let found = read(&mut receiver, &mut forwarding, Some(&trust), head.as_bytes(), head.len());
            assert_eq!(found, fresh(head), "turn {turn}: {head}");
        }
    }
}

#[test]
fn list_of_trusted_addresses_is_read_strictly() {
    for (text, address, is_trusted) in [
        ("10.0.0.0/8", "10.255.0.1", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("10.0.0.0/8", "::ffff:10.0.0.1", true),
        ("::ffff:10.0.0.0/104", "10.2.3.4", true),
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.2", false),
        ("192.0.2.0/31", "192.0.2.1", true),
        ("192.0.2.0/31", "192.0.2.2", false),
        ("2001:db8::/32", "2001:db8:ffff::1", true),
        ("2001:db8::/32", "2001:db9::1", false),
        ("::1", "::1", true),
        ("::1", "127.0.0.1", false),
        (" 10.0.0.1 ,, ::1 ", "::1", true),
        ("all", "203.0.113.1", true),
        ("unix", "127.0.0.1", false),
        ("", "127.0.0.1", false),
    ] {
        let trusted = Trusted::read(text).unwrap();
        assert_eq!(trusted.contains(Some(address.parse().unwrap())), is_trusted, "{text:?} and {address}");
    }
    assert!(Trusted::read("unix").unwrap().contains(None) && Trusted::read("all").unwrap().contains(None));
    assert!(!Trusted::read("10.0.0.0/8").unwrap().contains(None));
    assert!(Trusted::read(" , ").unwrap().is_empty());
    for (text, hint) in [
        ("*", "write all"),
        ("localhost", "127.0.0.1,::1"),
        ("10.0.0.0/8,example.org", "\"example.org\""),
        ("10.0.0.1/8", "10.0.0.0/8"),
        ("2001:db8::1/32", "2001:db8::/32"),
        ("10.0.0.0/33", "1 to 32"),
        ("::/129", "1 to 128"),
        ("10.0.0.0/", "1 to 32"),
        ("10.0.0.0/+8", "1 to 32"),
        ("0.0.0.0/0", "write all"),
        ("::/0", "write all"),
        ("::ffff:0.0.0.0/96", "write all"),
        ("10.0.0.0/8,all", "stands alone"),
        ("[::1]", "neither"),
        ("10.0.0.1:80", "neither"),
        ("10.0.0", "neither"),
    ] {
        let error = Trusted::read(text).expect_err(text).to_string();
        assert!(error.contains(hint), "{text:?}: {error}");
    }
}
