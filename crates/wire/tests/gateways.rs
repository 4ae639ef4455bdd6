//! The corpus of `tests/corpus/gateways` against the receivers of FastCGI, uwsgi and SCGI: every case whole, byte by
//! byte, and at seeded random positions. The seed is `KIRSCH_SEED`, or a fixed one; a failure prints it.
#![cfg(not(miri))]

mod reading;

use reading::{Read, Reading};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;
use wire::cgi::Framing;
use wire::fastcgi::{self, Event, Receiver};
use wire::message::{BodyLength, Fault, Field, Limits, RequestHead};

const RANDOM_SPLITS: usize = 20;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Case {
    rule: String,
    requests: Vec<Request>,
    answers: String,
    end: Option<String>,
    is_ending: bool,
    limits: CaseLimits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CaseLimits {
    body: Option<u64>,
    fields: Option<usize>,
    field_line: Option<usize>,
    request_line: Option<usize>,
    head: Option<usize>,
}

/// A request, as a case expects it and as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Request {
    method: String,
    target: String,
    /// -1 where it shows when the body ends, 0 where there is none.
    length: i64,
    body: String,
    is_whole: bool,
    is_aborted: bool,
    fault: Option<String>,
    /// Some of them; those without a value are not there.
    variables: BTreeMap<String, Option<String>>,
}

/// The receiver's result for the bytes of a case.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    requests: Vec<Request>,
    answers: String,
    end: Option<String>,
    is_ending: bool,
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

fn request(head: &RequestHead<'_>) -> Request {
    assert!(head.is_cgi);
    let length = match head.body {
        BodyLength::None => 0,
        BodyLength::Known(length) => i64::try_from(length).expect("it fits"),
        BodyLength::Unknown => -1,
    };
    let pair = |field: &Field| (latin1(field.name(head.block)), Some(latin1(field.value(head.block))));
    Request {
        method: latin1(head.method),
        target: latin1(head.target.raw),
        length,
        variables: head.fields.iter().map(pair).collect(),
        ..Request::default()
    }
}

fn read(kind: &str, bytes: &[u8], cuts: &[usize], limits: &Limits) -> Outcome {
    Reading::of(framing(kind), bytes, cuts, limits, request).into()
}

fn framing(kind: &str) -> Option<Framing> {
    match kind {
        "fastcgi" => None,
        "uwsgi" => Some(Framing::Uwsgi),
        _ => Some(Framing::Scgi),
    }
}

impl From<Reading<Request>> for Outcome {
    fn from(reading: Reading<Request>) -> Self {
        let name = |fault: Fault| fault.name().to_owned();
        let request = |read: Read<Request>| Request {
            body: latin1(&read.body),
            is_whole: read.is_whole,
            is_aborted: read.is_aborted,
            fault: read.fault.map(name),
            ..read.head
        };
        Self {
            requests: reading.requests.into_iter().map(request).collect(),
            answers: latin1(&reading.answers),
            end: reading.fault.map(name),
            is_ending: reading.is_ending,
        }
    }
}

fn cases(kind: &str) -> Vec<(String, Vec<u8>, Case)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/gateways").join(kind);
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).expect("the corpus is in the source tree") {
        let path = entry.expect("a directory can be read").path();
        if path.extension().is_some_and(|extension| extension == "bytes") {
            let name = path.file_stem().and_then(|stem| stem.to_str()).expect("names are ASCII").to_owned();
            let text = fs::read(path.with_extension("json")).unwrap_or_else(|error| panic!("{name}.json: {error}"));
            let case: Case = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name}.json: {error}"));
            assert!(case.rule.contains(": "), "{name}: the rule says where it is written and what is shown");
            cases.push((name, fs::read(&path).expect("a file can be read"), case));
        }
    }
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

fn limits(case: &CaseLimits) -> Limits {
    let default = Limits::default();
    Limits {
        body: case.body.unwrap_or(default.body),
        fields: case.fields.unwrap_or(default.fields),
        field_line: case.field_line.unwrap_or(default.field_line),
        request_line: case.request_line.unwrap_or(default.request_line),
        head: case.head.unwrap_or(default.head),
    }
}

/// Compares what has been read with what a case expects, of variables those that it names.
fn check(what: &str, case: &Case, mut found: Outcome) {
    for (found, expected) in found.requests.iter_mut().zip(&case.requests) {
        let named = |name: &String| (name.clone(), found.variables.get(name).cloned().flatten());
        // How much of a body has come before it shows to be too long depends on the cuts.
        if found.fault.as_deref() == Some("BodyLengthWrong") {
            found.body.clear();
        }
        found.variables = expected.variables.keys().map(named).collect();
    }
    let expected = Outcome {
        requests: case.requests.clone(),
        answers: case.answers.clone(),
        end: case.end.clone(),
        is_ending: case.is_ending,
    };
    assert_eq!(found, expected, "{what}");
}

/// Random numbers below the one that is given each time (xorshift64).
fn random_below(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("it is below a usize")
    }
}

#[test]
fn every_case_is_read_alike_however_it_is_cut() {
    let seed = std::env::var("KIRSCH_SEED").map_or(0x5eed, |seed| seed.parse().expect("KIRSCH_SEED is a number"));
    let mut random = random_below(seed);
    let mut count = 0;
    for kind in ["fastcgi", "uwsgi", "scgi"] {
        for (name, bytes, case) in cases(kind) {
            let limits = limits(&case.limits);
            count += 1;
            check(&format!("{kind}/{name}, whole"), &case, read(kind, &bytes, &[], &limits));
            if bytes.len() < 8 << 10 {
                let each: Vec<usize> = (1..bytes.len()).collect();
                check(&format!("{kind}/{name}, byte by byte"), &case, read(kind, &bytes, &each, &limits));
            }
            for _ in 0..RANDOM_SPLITS {
                let mut cuts: Vec<usize> = (0..random(6)).map(|_| random(bytes.len())).collect();
                cuts.sort_unstable();
                check(
                    &format!("{kind}/{name}, cut at {cuts:?}, seed {seed}"),
                    &case,
                    read(kind, &bytes, &cuts, &limits),
                );
            }
        }
    }
    assert!(count >= 100, "only {count} cases");
}

#[test]
fn every_fault_of_gateways_is_reached_twice() {
    let mut reached: HashMap<String, usize> = HashMap::new();
    for (_, _, case) in ["fastcgi", "uwsgi", "scgi"].into_iter().flat_map(cases) {
        let faults = case.requests.into_iter().filter_map(|request| request.fault).chain(case.end);
        faults.for_each(|fault| *reached.entry(fault).or_default() += 1);
    }
    for fault in Fault::GATEWAY {
        let count = reached.get(fault.name()).copied().unwrap_or_default();
        assert!(count >= 2, "{fault:?} has {count} cases");
    }
}

/// A request without a body, with the end of STDIN. `length` is a pair for `CONTENT_LENGTH`, or empty.
fn bodiless(flags: u8, length: &[u8]) -> Vec<u8> {
    let mut input = vec![1, 1, 0, 5, 0, 8, 0, 0, 0, 1, flags, 0, 0, 0, 0, 0];
    let pairs = [b"\x0e\x03REQUEST_METHODGET", length].concat();
    input.extend_from_slice(&[1, 4, 0, 5, 0, u8::try_from(pairs.len()).expect("a short text"), 0, 0]);
    input.extend_from_slice(&pairs);
    input.extend_from_slice(&[1, 4, 0, 5, 0, 0, 0, 0, 1, 5, 0, 5, 0, 0, 0, 0]);
    input
}

#[test]
fn last_request_of_a_connection_is_read_to_its_end_with_its_head() {
    let none = &b""[..];
    let zero = b"\x0e\x01CONTENT_LENGTH0";
    for (flags, length) in [(0, none), (1, none), (0, zero), (1, zero)] {
        let input = bodiless(flags, length);
        let mut receiver = Receiver::new(1);
        let Ok((used, Event::Head { id, .. })) = receiver.next(&input, &Limits::default()) else { panic!("a head") };
        assert_eq!((used, receiver.has_last()), (input.len(), flags == 0));
        receiver.forget(id.serial);
        assert_eq!((receiver.is_ending(), receiver.is_unread()), (flags == 0, false));
    }
}

#[test]
fn a_head_longer_than_a_record_is_written_in_several() {
    let mut receiver = Receiver::new(1);
    let input = bodiless(1, b"");
    let Ok((_, Event::Head { id, .. })) = receiver.next(&input, &Limits::default()) else { panic!("a head") };
    let mut draft = wire::message::Draft::default();
    draft.start(b"200 OK").expect("a status");
    for _ in 0..20 {
        draft.field(b"X-Long", &[b'x'; 8000]).expect("a field");
    }
    let request = wire::http1::Request {
        version: wire::message::Version::Http11,
        is_head: false,
        keep_alive: true,
        takes_trailers: false,
    };
    let mut out = Vec::new();
    fastcgi::begin(id, &draft, request, Some(3), &mut out);
    let (mut head, mut rest) = (Vec::new(), &out[..]);
    while let [1, 6, 0, 5, high, low, 0, 0, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        assert!(length > 0, "an empty record would end the response");
        head.extend_from_slice(&after[..length]);
        rest = &after[length..];
    }
    assert!(rest.is_empty() && head.len() > 160_000);
    assert!(head.starts_with(b"Status: 200 OK\r\nX-Long: xxx") && head.ends_with(b"\r\nContent-Length: 3\r\n\r\n"));
}

/// Changes a case a little, or joins two.
fn mutated(cases: &[Vec<u8>], random: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut bytes = cases[random(cases.len())].clone();
    for _ in 0..=random(4) {
        let at = random(bytes.len() + 1);
        match random(6) {
            0 if at < bytes.len() => bytes[at] = u8::try_from(random(256)).expect("below 256"),
            1 if at < bytes.len() => bytes[at] ^= 1 << random(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, [0, 1, 5, 127, 128, 255][random(6)]),
            4 if at < bytes.len() => {
                bytes.drain(at..(at + 1 + random(16)).min(bytes.len()));
            }
            _ => {
                let other = &cases[random(cases.len())];
                let start = random(other.len() + 1);
                bytes.extend_from_slice(&other[start..]);
            }
        }
    }
    bytes
}

/// `KIRSCH_FUZZ_CASES` sets their number. Nothing panics, memory is bounded, and what is read does not depend on cuts.
#[test]
fn mutated_cases_are_read_alike_however_they_are_cut() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let (count, seed) = (number("KIRSCH_FUZZ_CASES", 20_000), number("KIRSCH_SEED", 0x5eed));
    let mut random = random_below(seed);
    let kinds = ["fastcgi", "uwsgi", "scgi"];
    // Large cases show limits, and are slow.
    let corpus =
        kinds.map(|kind| cases(kind).into_iter().map(|case| case.1).filter(|bytes| bytes.len() < 2000).collect());
    let corpus: [Vec<Vec<u8>>; 3] = corpus;
    let tight = Limits { request_line: 40, fields: 3, field_line: 32, head: 80, body: 24 };
    for nth in 0..count {
        let kind = random(3);
        let bytes = mutated(&corpus[kind], &mut random);
        let limits = if random(2) == 0 { &tight } else { &Limits::default() };
        let mut cuts: Vec<usize> = (0..=random(4)).map(|_| random(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let read =
            |cuts: &[usize]| Reading::of(framing(kinds[kind]), &bytes, cuts, limits, request).without_broken_bodies();
        assert_eq!(read(&[]), read(&cuts), "{} {bytes:?} cut at {cuts:?}, case {nth} of seed {seed}", kinds[kind]);
    }
}
