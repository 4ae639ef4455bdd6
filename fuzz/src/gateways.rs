//! The invariants of FastCGI, uwsgi and SCGI: what is read of a connection does not depend on how its bytes arrive,
//! reading never panics, and every step takes something.

use crate::Random;
use std::collections::BTreeMap;
use wire::cgi::{self, Framing};
use wire::fastcgi::{self, Event};
use wire::message::{Fault, Limits, RequestHead};

/// Requests that a FastCGI connection takes at a time.
const MOST: usize = 3;
/// Random divisions of an input that are compared with the whole.
const DIVISIONS: u64 = 3;

/// What has become of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Request {
    head: String,
    body: Vec<u8>,
    is_whole: bool,
    is_aborted: bool,
    fault: Option<Fault>,
}

/// What has become of a connection: its requests in order, what the receiver answers itself, and how it ends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    requests: Vec<Request>,
    answers: Vec<u8>,
    fault: Option<Fault>,
    is_ending: bool,
}

impl Outcome {
    /// How much of a body comes before a broken rule shows depends on the cuts.
    fn without_broken_bodies(mut self) -> Self {
        for request in &mut self.requests {
            if request.fault.is_some() || self.fault.is_some() {
                request.body.clear();
            }
        }
        self
    }
}

fn request(head: &RequestHead<'_>) -> Request {
    let fields: Vec<_> =
        head.fields.iter().map(|field| (field.name(head.block).to_vec(), field.value(head.block).to_vec())).collect();
    Request {
        head: format!("{:?} {:?} {:?} {fields:?}", head.method, head.target.raw, head.body),
        is_whole: head.body == wire::message::BodyLength::None,
        ..Request::default()
    }
}

fn fastcgi(data: &[u8], cuts: &[usize], limits: &Limits) -> Outcome {
    let mut receiver = fastcgi::Receiver::new(MOST);
    let mut outcome = Outcome::default();
    let mut places = BTreeMap::new();
    let mut at = 0;
    'cuts: for &cut in cuts.iter().chain([&data.len()]) {
        while at < cut {
            let (used, event) = match receiver.next(&data[at..cut], limits) {
                Ok(step) => step,
                Err(fault) => {
                    outcome.fault = Some(fault);
                    break 'cuts;
                }
            };
            assert!(used > 0 && used <= cut - at, "a step takes some of the input");
            at += used;
            let requests = &mut outcome.requests;
            match event {
                Event::More => {}
                Event::Head { id, head } => {
                    assert!(places.insert(id.serial, requests.len()).is_none(), "a serial number is used once");
                    requests.push(request(&head));
                }
                Event::Data { id, bytes } => {
                    assert!(!bytes.is_empty());
                    requests[places[&id.serial]].body.extend_from_slice(bytes);
                }
                Event::End { id } => {
                    requests[places[&id.serial]].is_whole = true;
                    // The response is sent before the next request is read.
                    receiver.forget(id.serial);
                }
                Event::Abort { id } => requests[places[&id.serial]].is_aborted = true,
                Event::Broken { id, fault } => {
                    let place = *places.entry(id.serial).or_insert_with(|| {
                        requests.push(Request::default());
                        requests.len() - 1
                    });
                    requests[place].fault = Some(fault);
                    receiver.forget(id.serial);
                }
            }
        }
    }
    if outcome.fault.is_none() {
        outcome.fault = receiver.end_of_input().err();
    }
    receiver.take_answers(&mut outcome.answers);
    outcome.is_ending = receiver.is_ending();
    outcome
}

fn single(framing: Framing, data: &[u8], cuts: &[usize], limits: &Limits) -> Outcome {
    let (mut receiver, mut fields) = (cgi::Receiver::new(framing), Vec::new());
    let mut outcome = Outcome::default();
    let mut at = 0;
    for &cut in cuts.iter().chain([&data.len()]) {
        if outcome.requests.is_empty() {
            match receiver.head(&data[at..cut], &mut fields, limits) {
                Ok(Some((used, head))) => {
                    assert!(used <= cut - at);
                    at += used;
                    outcome.requests.push(request(&head));
                }
                Ok(None) => continue,
                Err(fault) => {
                    outcome.fault = Some(fault);
                    return outcome;
                }
            }
        }
        while receiver.is_in_body() && at < cut {
            let (part, is_last) = receiver.body(&data[at..cut]);
            assert!(!part.is_empty() || is_last, "a step takes some of the input");
            at += part.len();
            outcome.requests[0].body.extend_from_slice(part);
            outcome.requests[0].is_whole = is_last;
        }
    }
    outcome.fault = receiver.end_of_input(&data[at..]).err();
    outcome
}

fn check(data: &[u8], read: impl Fn(&[u8], &[usize], &Limits) -> Outcome) {
    let tight = Limits { request_line: 40, fields: 3, field_line: 32, head: 80, body: 24 };
    for limits in [tight, Limits::default()] {
        let whole = read(data, &[], &limits).without_broken_bodies();
        for salt in 0..DIVISIONS {
            let mut random = Random::of(data, salt);
            let mut cuts: Vec<usize> =
                (0..1 + random.next() % 4).map(|_| (random.next() % (data.len() as u64 + 1)) as usize).collect();
            cuts.sort_unstable();
            assert_eq!(read(data, &cuts, &limits).without_broken_bodies(), whole, "cut at {cuts:?}");
        }
        if data.len() < 1 << 10 {
            let each: Vec<usize> = (1..data.len()).collect();
            assert_eq!(read(data, &each, &limits).without_broken_bodies(), whole, "byte by byte");
        }
    }
}

/// Checks the records of a FastCGI connection.
pub fn check_fastcgi(data: &[u8]) {
    check(data, fastcgi);
}

/// Checks the request of a uwsgi connection.
pub fn check_uwsgi(data: &[u8]) {
    check(data, |data, cuts, limits| single(Framing::Uwsgi, data, cuts, limits));
}

/// Checks the request of a SCGI connection.
pub fn check_scgi(data: &[u8]) {
    check(data, |data, cuts, limits| single(Framing::Scgi, data, cuts, limits));
}
