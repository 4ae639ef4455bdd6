//! A FastCGI receiver that keeps a request's variables reads the next ones as a receiver that has seen nothing before.
//!
//! Each seed makes a row of requests on one connection, of which most differ from the one before in a few variables,
//! valid or not, and gives each to a fresh receiver too. A failure prints its seed; `KIRSCH_SEED=n cargo test -p wire
//! repeat_fastcgi` runs that one alone.

use crate::repeat::{Random, seeds};
use wire::fastcgi::{Event, Receiver};
use wire::message::{BodyLength, Fault, Limits, Version};

/// Values for each variable, some of them wrong. The first one is the most frequent.
const VARIABLES: &[(&str, &[&str])] = &[
    ("REQUEST_METHOD", &["GET", "POST", "HEAD", "CONNECT", "G T", ""]),
    ("REQUEST_URI", &["/", "/a?b", "/c%20d", "/long/long/long", "", "no target", "*", "/a#f"]),
    ("SCRIPT_NAME", &["", "/s", "/ä"]),
    ("PATH_INFO", &["/", "/p", ""]),
    ("DOCUMENT_URI", &["/", "/d"]),
    ("QUERY_STRING", &["", "q=1", "q=22"]),
    ("SERVER_PROTOCOL", &["HTTP/1.1", "HTTP/1.0", "HTTP/2.0"]),
    ("CONTENT_LENGTH", &["", "0", "5", "x", "-1"]),
    ("SERVER_SOFTWARE", &["nginx/1.26", "Caddy/2"]),
    ("REMOTE_PORT", &["1", "22", "333", "4444"]),
    ("HTTP_HOST", &["a", "b:1", "", "a b"]),
    ("HTTP_COOKIE", &["a=1", "b=22", "\u{1}", "a much longer cookie than the others are in this table"]),
    ("HTTP_TRANSFER_ENCODING", &["", "chunked"]),
    ("HTTP_X_ONE", &["1", "22"]),
    ("BAD=NAME", &["1"]),
];

/// The receiver's result for a request.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Head { method: Vec<u8>, target: Vec<u8>, version: Version, body: BodyLength, pairs: Vec<(Vec<u8>, Vec<u8>)> },
    Broken(Fault),
    Nothing,
}

/// The variables of the last request that the receiver retained, as an application keeps them.
#[derive(Default)]
struct Kept {
    pairs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    number: u32,
    whole: usize,
    partly: usize,
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

/// The records of a request, whose body is what it declares.
fn request(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut params = Vec::new();
    for (name, value) in pairs {
        params.extend([u8::try_from(name.len()).unwrap(), u8::try_from(value.len()).unwrap()]);
        params.extend(name.bytes().chain(value.bytes()));
    }
    let has_body = pairs.contains(&("CONTENT_LENGTH", "5"));
    let mut bytes = record(1, &[0, 1, 1, 0, 0, 0, 0, 0]);
    bytes.extend(record(4, &params));
    bytes.extend(record(4, b""));
    bytes.extend(if has_body { record(5, b"12345") } else { Vec::new() });
    bytes.extend(record(5, b""));
    bytes
}

/// Reads one request to its end.
fn read(receiver: &mut Receiver, bytes: &[u8], limits: &Limits, mut kept: Option<&mut Kept>) -> Said {
    let (mut at, mut said, mut serial) = (0, Said::Nothing, None);
    while at < bytes.len() {
        let (used, event) = receiver.next(&bytes[at..], limits).expect("the records are well-formed");
        at += used;
        match event {
            Event::Head { id, head } => {
                serial = Some(id.serial);
                let pair =
                    |field: &wire::message::Field| (field.name(head.block).to_vec(), field.value(head.block).to_vec());
                let pairs: Vec<_> = head.fields.iter().map(pair).collect();
                if let Some(kept) = &mut kept {
                    kept.judge(&pairs, head.changed, head.retained, head.kept);
                }
                let (method, target) = (head.method.to_vec(), head.target.raw.to_vec());
                said = Said::Head { method, target, version: head.version, body: head.body, pairs };
            }
            Event::Broken { id, fault } => {
                serial = Some(id.serial);
                if said == Said::Nothing {
                    said = Said::Broken(fault);
                }
            }
            Event::More | Event::Data { .. } | Event::End { .. } | Event::Abort { .. } => {}
        }
    }
    if let Some(serial) = serial {
        receiver.forget(serial);
    }
    said
}

impl Kept {
    fn judge(&mut self, pairs: &[(Vec<u8>, Vec<u8>)], changed: Option<&[u16]>, retained: bool, number: u32) {
        assert!(changed.is_none() || !retained);
        if let Some(changed) = changed
            && number == self.number
        {
            let before = self.pairs.as_ref().expect("a request has been kept");
            assert_eq!(before.len(), pairs.len());
            assert!(changed.is_sorted());
            for (index, (before, now)) in before.iter().zip(pairs).enumerate() {
                let is_changed = changed.iter().any(|&place| usize::from(place) == index);
                assert_eq!(before.0, now.0, "names differ");
                assert_eq!(before.1 != now.1, is_changed, "{index}: {before:?} {now:?}");
            }
            self.whole += usize::from(changed.is_empty());
            self.partly += usize::from(!changed.is_empty());
        }
        if retained {
            (self.pairs, self.number) = (Some(pairs.to_vec()), number);
        }
    }
}

fn read_in_a_row(seed: u64, counts: &mut (usize, usize)) {
    let mut random = Random(seed);
    let limits = Limits {
        field_line: 30 + random.below(60),
        fields: 1 + random.below(4),
        request_line: 8 + random.below(20),
        ..Limits::default()
    };
    let mut receiver = Receiver::new(1);
    let mut kept = Kept::default();
    let mut pairs: Vec<(&str, &str)> = VARIABLES[..VARIABLES.len() - 1]
        .iter()
        .filter(|_| random.below(8) > 0)
        .map(|(name, values)| (*name, values[0]))
        .collect();
    for _ in 0..14 {
        for _ in 0..random.below(3) {
            let (name, values) = VARIABLES[random.below(VARIABLES.len())];
            let value = values[random.below(values.len())];
            match pairs.iter().position(|(known, _)| *known == name) {
                Some(place) if random.below(12) == 0 => drop(pairs.remove(place)),
                Some(place) => pairs[place].1 = value,
                None if name.contains('=') && random.below(4) > 0 => {}
                None => pairs.insert(random.below(pairs.len() + 1), (name, value)),
            }
        }
        if random.below(40) == 0 && !pairs.is_empty() {
            // A variable that comes twice.
            pairs.push(pairs[random.below(pairs.len())]);
        }
        if random.below(30) == 0 {
            receiver.rest();
        }
        let bytes = request(&pairs);
        let expected = read(&mut Receiver::new(1), &bytes, &limits, None);
        let said = read(&mut receiver, &bytes, &limits, Some(&mut kept));
        assert_eq!(said, expected, "{pairs:?}");
    }
    counts.0 += kept.whole;
    counts.1 += kept.partly;
}

#[test]
fn requests_in_a_row_are_read_as_if_each_were_the_first() {
    let mut counts = (0, 0);
    let is_all = seeds("repeat_fastcgi", |seed| read_in_a_row(seed, &mut counts));
    assert!(!is_all || counts.0 > 1000 && counts.1 > 1000, "{counts:?}");
}
