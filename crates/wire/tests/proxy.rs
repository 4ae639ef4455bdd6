//! The corpus of `tests/corpus/proxy` against the reader of PROXY protocol headers: every case whole, byte by byte, cut
//! at each position, and at seeded random positions (`KIRSCH_SEED`, or a fixed seed).
#![cfg(not(miri))]

use serde::Deserialize;
use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use wire::message::{ConnectionInfo, TlsInfo};
use wire::proxy::{HEADER_MAX, Header, ProxyFault, Source, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Valid {
    #[serde(rename = "rule")]
    _rule: String,
    length: usize,
    source: String,
    destination: Option<String>,
    alpn: Option<String>,
    authority: Option<String>,
    unique_id: Option<String>,
    namespace: Option<String>,
    tls: Option<Tls>,
    #[serde(default)]
    custom: Vec<(u8, String)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    version: Option<String>,
    cipher: Option<String>,
    common_name: Option<String>,
    #[serde(default)]
    has_certificate: bool,
    #[serde(default)]
    is_verified: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Invalid {
    #[serde(rename = "rule")]
    _rule: String,
    fault: String,
}

/// A case writes bytes as latin-1.
fn latin1(text: &str) -> Box<[u8]> {
    text.chars().map(|character| u8::try_from(u32::from(character)).expect("latin-1")).collect()
}

impl Valid {
    fn header(self) -> Header {
        let boxed = |text: Option<String>| text.map(String::into_boxed_str);
        Header {
            length: self.length,
            source: match self.source.as_str() {
                "peer" => Source::Peer,
                "unix" => Source::Unix,
                address => Source::Address(address.parse().expect("an address")),
            },
            info: ConnectionInfo {
                destination: self.destination.map(|address| address.parse().expect("an address")),
                alpn: self.alpn.as_deref().map(latin1),
                authority: boxed(self.authority),
                unique_id: self.unique_id.as_deref().map(latin1),
                namespace: boxed(self.namespace),
                tls: self.tls.map(|tls| TlsInfo {
                    version: boxed(tls.version),
                    cipher: boxed(tls.cipher),
                    common_name: boxed(tls.common_name),
                    has_certificate: tls.has_certificate,
                    is_verified: tls.is_verified,
                }),
                custom: self.custom.iter().map(|(kind, value)| (*kind, latin1(value))).collect(),
            },
        }
    }
}

fn folder<T: for<'a> Deserialize<'a>>(kind: &str) -> Vec<(String, Vec<u8>, T)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/proxy").join(kind);
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).expect("the corpus is in the source tree") {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "bin") {
            let name = format!("{kind}/{}", path.file_stem().unwrap().to_str().unwrap());
            let said = fs::read(path.with_extension("json")).unwrap_or_else(|error| panic!("{name}.json: {error}"));
            let case = serde_json::from_slice(&said).unwrap_or_else(|error| panic!("{name}.json: {error}"));
            cases.push((name, fs::read(&path).unwrap(), case));
        }
    }
    assert!(cases.len() >= 25, "{kind} has only {} cases", cases.len());
    cases
}

/// Reads `bytes` in pieces that end at `cuts`, then the end of the input.
fn in_pieces(bytes: &[u8], cuts: impl IntoIterator<Item = usize>) -> Result<Header, ProxyFault> {
    for end in cuts.into_iter().chain([bytes.len()]) {
        if let Some(header) = read(&bytes[..end])? {
            assert!(header.length <= end && header.length <= HEADER_MAX);
            return Ok(header);
        }
        assert!(end < HEADER_MAX, "the longest header is whole");
    }
    Err(ProxyFault::Truncated)
}

fn check(name: &str, bytes: &[u8], expected: &Result<Header, ProxyFault>, random: &mut u64) {
    assert_eq!(&in_pieces(bytes, []), expected, "{name} whole");
    assert_eq!(&in_pieces(bytes, 0..bytes.len()), expected, "{name} byte by byte");
    for cut in 0..bytes.len() {
        assert_eq!(&in_pieces(bytes, [cut]), expected, "{name} cut at {cut}");
    }
    for _ in 0..50 {
        let mut cuts: Vec<usize> = (0..4)
            .map(|_| {
                *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                usize::try_from(*random >> 33).expect("31 bits") % (bytes.len() + 1)
            })
            .collect();
        cuts.sort_unstable();
        assert_eq!(&in_pieces(bytes, cuts.iter().copied()), expected, "{name} cut at {cuts:?}");
    }
}

#[test]
fn every_case_is_read_as_it_says_however_it_is_cut() {
    let seed = std::env::var("KIRSCH_SEED").ok().map_or(11, |seed| seed.parse().expect("a number"));
    println!("KIRSCH_SEED={seed}");
    let mut random = seed;
    for (name, bytes, case) in folder::<Valid>("valid") {
        check(&name, &bytes, &Ok(case.header()), &mut random);
    }
    let mut reached = HashSet::new();
    for (name, bytes, case) in folder::<Invalid>("invalid") {
        let fault = ProxyFault::ALL.iter().copied().find(|fault| format!("{fault:?}") == case.fault);
        let fault = fault.unwrap_or_else(|| panic!("{name}: there is no fault {}", case.fault));
        reached.insert(fault);
        check(&name, &bytes, &Err(fault), &mut random);
    }
    let missing: Vec<_> = ProxyFault::ALL.iter().filter(|fault| !reached.contains(fault)).collect();
    assert!(missing.is_empty(), "not reached: {missing:?}");
}

/// No change of one byte makes a reader panic, read beyond the header, or believe a wrong checksum.
#[test]
fn changed_bytes_are_read_without_surprise() {
    for (name, bytes, case) in folder::<Valid>("valid") {
        let header = case.header();
        for at in 0..bytes.len().min(300) {
            for change in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let found = in_pieces(&changed, []);
                // Another type in place of the checksum's leaves the header without one.
                let is_type = bytes[at..].starts_with(&[3, 0, 4]);
                let is_checked = name.contains("crc32c") && (16..header.length).contains(&at) && !is_type;
                assert!(!is_checked || found.is_err(), "{name} with byte {at} changed by {change}: {found:?}");
            }
        }
    }
}
