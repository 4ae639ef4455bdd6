//! Code shared by the fuzz targets: reads a stream that arrives in pieces, and checks that the pieces do not matter.
//!
//! The cuts of a stream follow from a hash of its bytes. So an input consists only of what a peer sends, cases of the
//! corpus are seeds as they are, and an artifact replays without further data.

pub mod files;
pub mod frames;
pub mod gateways;
pub mod hpack;
pub mod http2;
pub mod proxies;
pub mod tls;
pub mod websocket;

use wire::http1::client::{self, ServerFault};
use wire::http1::{BodyStep, Receiver};
use wire::message::{Fault, Field, Limits, Version};

/// An event of a reader. Data that arrived in several steps is one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Head { start: Vec<Vec<u8>>, facts: String, fields: Vec<(Vec<u8>, Vec<u8>)> },
    Data(Vec<u8>),
    Trailer(Vec<u8>, Vec<u8>),
    End,
}

/// The state of a stream after its bytes were used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End<F> {
    /// No fault; `used` bytes were used, and `complete` says whether the stream may end here.
    Waiting {
        used: usize,
        complete: bool,
    },
    Fault(F),
}

pub type Outcome<F> = (Vec<Event>, End<F>);

/// SplitMix64, seeded with a hash of the input (FNV-1a).
pub struct Random(u64);

impl Random {
    pub fn of(data: &[u8], salt: u64) -> Self {
        Self(
            data.iter()
                .fold(0xcbf2_9ce4_8422_2325 ^ salt, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)),
        )
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Returns the default limits, and limits so tight that short inputs exceed each of them.
pub fn limit_sets() -> [Limits; 2] {
    [Limits::default(), Limits { request_line: 40, fields: 3, field_line: 32, head: 80, body: 24 }]
}

fn push_data(events: &mut Vec<Event>, data: &[u8]) {
    assert!(!data.is_empty(), "a step without data must not say Data");
    match events.last_mut() {
        Some(Event::Data(before)) => before.extend_from_slice(data),
        _ => events.push(Event::Data(data.to_vec())),
    }
}

fn copies(fields: &[Field], block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields.iter().map(|field| (field.name(block).to_vec(), field.value(block).to_vec())).collect()
}

/// Takes body steps from `data[*used..end]`; whether the body has ended.
fn read_body<F>(
    data: &[u8],
    end: usize,
    used: &mut usize,
    events: &mut Vec<Event>,
    mut step: impl for<'a> FnMut(&'a [u8]) -> Result<(usize, BodyStep<'a>), F>,
) -> Result<bool, F> {
    loop {
        let input = &data[*used..end];
        let (taken, found) = step(input)?;
        assert!(taken <= input.len(), "used more than there was");
        *used += taken;
        match found {
            BodyStep::Data(bytes) => {
                assert!(bytes.len() <= taken, "more out than in");
                push_data(events, bytes);
            }
            BodyStep::Trailer { name, value } => {
                assert!(name.len() + value.len() < taken);
                events.push(Event::Trailer(name.to_vec(), value.to_vec()));
            }
            BodyStep::End => {
                events.push(Event::End);
                return Ok(true);
            }
            BodyStep::More => return Ok(false),
        }
    }
}

/// Reads up to `most` requests of `data`, which arrives in pieces that end at `cuts` and at its end.
pub fn requests(data: &[u8], cuts: &[usize], most: usize, limits: &Limits) -> Outcome<Fault> {
    let mut receiver = Receiver::default();
    let mut fields = Vec::new();
    let mut events = Vec::new();
    let (mut used, mut in_body, mut read) = (0, false, 0);
    for &end in cuts.iter().chain([&data.len()]) {
        loop {
            if in_body {
                match read_body(data, end, &mut used, &mut events, |input| receiver.body(input, limits)) {
                    Ok(true) => in_body = false,
                    Ok(false) => break,
                    Err(fault) => return (events, End::Fault(fault)),
                }
            }
            if read == most {
                break;
            }
            let input = &data[used..end];
            match receiver.head(input, &mut fields, limits) {
                Ok(Some(head)) => {
                    assert!(head.length <= input.len() && input[..head.length].ends_with(head.request.block));
                    assert!(head.request.block.ends_with(b"\r\n") && head.request.fields.len() <= limits.fields);
                    let facts = (
                        head.request.version,
                        head.request.body,
                        head.keep_alive,
                        head.expects_continue,
                        head.request.target.form,
                    );
                    let facts = format!("{facts:?}");
                    let target = head.request.target;
                    let query = target.query.unwrap_or(b"");
                    let start =
                        [head.request.method, target.raw, target.authority, target.path, query].map(<[u8]>::to_vec);
                    let fields = copies(head.request.fields, head.request.block);
                    events.push(Event::Head { start: start.to_vec(), facts, fields });
                    used += head.length;
                    read += 1;
                    in_body = true;
                }
                Ok(None) => break,
                Err(fault) => return (events, End::Fault(fault)),
            }
        }
    }
    let complete = receiver.end_of_input(&data[used..]).is_ok();
    (events, End::Waiting { used, complete })
}

/// Reads all responses of `data`; bit *n* of `heads` says whether the *n*th request's method was HEAD.
pub fn responses(data: &[u8], cuts: &[usize], heads: u64, limits: &Limits) -> Outcome<ServerFault> {
    let mut receiver = client::Receiver::default();
    let mut fields = Vec::new();
    let mut events = Vec::new();
    let (mut used, mut in_body, mut answered) = (0, false, 0);
    for &end in cuts.iter().chain([&data.len()]) {
        loop {
            if in_body {
                match read_body(data, end, &mut used, &mut events, |input| receiver.body(input, limits)) {
                    Ok(true) => in_body = false,
                    Ok(false) => break,
                    Err(fault) => return (events, End::Fault(fault)),
                }
            }
            let input = &data[used..end];
            match receiver.head(input, heads >> (answered % 64) & 1 == 1, &mut fields, limits) {
                Ok(Some(reply)) => {
                    assert!(reply.length <= input.len() && input[..reply.length].ends_with(reply.block));
                    assert!(reply.block.ends_with(b"\r\n") && reply.fields.len() <= limits.fields);
                    assert!((100..1000).contains(&reply.status));
                    let facts = (reply.version, reply.status, reply.body, reply.content_length, reply.keep_alive);
                    let start = vec![reply.reason.to_vec()];
                    let fields = copies(reply.fields, reply.block);
                    events.push(Event::Head { start, facts: format!("{facts:?}"), fields });
                    used += reply.length;
                    answered += usize::from(!reply.is_interim);
                    in_body = true;
                }
                Ok(None) => break,
                Err(fault) => return (events, End::Fault(fault)),
            }
        }
    }
    let complete = receiver.end_of_input(&data[used..]).is_ok();
    (events, End::Waiting { used, complete })
}

/// Checks that `read` returns the same for `data` as a whole and in any pieces, with one exception. An unfinished line
/// that is read as a whole shows its faults early; read in pieces, it is awaited to its end. So if the whole is faulty
/// and the pieces still wait, one more line feed must show the same fault.
pub fn check_cuts<E: PartialEq + std::fmt::Debug, F: PartialEq + std::fmt::Debug>(
    data: &[u8],
    read: impl Fn(&[u8], &[usize]) -> (E, End<F>),
) -> (E, End<F>) {
    let whole = read(data, &[]);
    let compare = |cuts: &[usize]| {
        let pieces = read(data, cuts);
        if pieces == whole {
            return;
        }
        if let (End::Fault(_), End::Waiting { .. }) = (&whole.1, &pieces.1) {
            let ended = [data, b"\n"].concat();
            let mut cuts = cuts.to_vec();
            cuts.push(data.len());
            assert_eq!(read(&ended, &cuts), whole, "with a line feed behind it, cut at {cuts:?}");
            return;
        }
        assert_eq!(pieces, whole, "cut at {cuts:?}");
    };
    let mut random = Random::of(data, 0);
    for _ in 0..4 {
        compare(&[random.below(data.len() + 1)]);
    }
    let mut cuts: Vec<usize> = (0..1 + random.below(12)).map(|_| random.below(data.len() + 1)).collect();
    cuts.sort_unstable();
    compare(&cuts);
    if data.len() <= 256 && random.below(4) == 0 {
        compare(&(0..data.len()).collect::<Vec<_>>());
    }
    whole
}

/// Returns the spelling of a version in HTTP.
pub fn version_text(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"HTTP/1.0",
        Version::Http11 => b"HTTP/1.1",
        Version::Http2 => b"HTTP/2.0",
    }
}
