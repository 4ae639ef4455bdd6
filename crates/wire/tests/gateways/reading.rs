//! Reads a connection of FastCGI, uwsgi or SCGI whose bytes arrive in pieces. The fuzz targets read with it too.

use std::collections::BTreeMap;
use wire::cgi::{self, Framing};
use wire::fastcgi::{Event, Receiver};
use wire::message::{BodyLength, Fault, Limits, RequestHead};

/// Requests that a FastCGI connection takes at a time.
const MOST: usize = 3;

/// One request as it was read; `H` is the test's note of its head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Read<H> {
    pub(crate) head: H,
    pub(crate) body: Vec<u8>,
    pub(crate) is_whole: bool,
    pub(crate) is_aborted: bool,
    pub(crate) fault: Option<Fault>,
}

/// One connection as it was read: its requests in order, the receiver's own answers, and the end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reading<H> {
    pub(crate) requests: Vec<Read<H>>,
    pub(crate) answers: Vec<u8>,
    pub(crate) fault: Option<Fault>,
    pub(crate) is_ending: bool,
}

impl<H: Default> Reading<H> {
    /// Reads `bytes`, which arrive in pieces that end at `cuts`. `framing`: that of uwsgi or SCGI; `None` for FastCGI.
    pub(crate) fn of(
        framing: Option<Framing>,
        bytes: &[u8],
        cuts: &[usize],
        limits: &Limits,
        note: impl Fn(&RequestHead<'_>) -> H,
    ) -> Self {
        let mut reading = Self { requests: Vec::new(), answers: Vec::new(), fault: None, is_ending: false };
        let begin = |head: &RequestHead<'_>| Read {
            head: note(head),
            is_whole: head.body == BodyLength::None,
            ..Read::default()
        };
        let ended = match framing {
            None => reading.read_records(bytes, cuts, limits, begin),
            Some(framing) => reading.read_request(framing, bytes, cuts, limits, begin),
        };
        reading.fault = ended.err();
        reading
    }

    /// How much of a body comes before a broken rule shows depends on the cuts.
    pub(crate) fn without_broken_bodies(mut self) -> Self {
        for request in &mut self.requests {
            if request.fault.is_some() || self.fault.is_some() {
                request.body.clear();
            }
        }
        self
    }

    fn read_records(
        &mut self,
        bytes: &[u8],
        cuts: &[usize],
        limits: &Limits,
        begin: impl Fn(&RequestHead<'_>) -> Read<H>,
    ) -> Result<(), Fault> {
        let mut receiver = Receiver::new(MOST);
        let mut places = BTreeMap::new();
        let result = self.read_events(&mut receiver, &mut places, bytes, cuts, limits, begin);
        // A request without a body is answered at the end.
        for (&serial, &place) in &places {
            if self.requests[place].is_whole {
                receiver.forget(serial);
            }
        }
        let result = result.and_then(|()| receiver.end_of_input());
        receiver.take_answers(&mut self.answers);
        self.is_ending = receiver.is_ending();
        result
    }

    /// `places`: the indices of the requests by their serial numbers.
    fn read_events(
        &mut self,
        receiver: &mut Receiver,
        places: &mut BTreeMap<u32, usize>,
        bytes: &[u8],
        cuts: &[usize],
        limits: &Limits,
        begin: impl Fn(&RequestHead<'_>) -> Read<H>,
    ) -> Result<(), Fault> {
        let mut at = 0;
        for &cut in cuts.iter().chain([&bytes.len()]) {
            while at < cut {
                let (used, event) = receiver.next(&bytes[at..cut], limits)?;
                assert!(used > 0 && used <= cut - at, "a step takes some of the input");
                at += used;
                let requests = &mut self.requests;
                match event {
                    Event::More => {}
                    Event::Head { id, head } => {
                        assert!(places.insert(id.serial, requests.len()).is_none(), "serial numbers are used once");
                        requests.push(begin(&head));
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
                            requests.push(Read::default());
                            requests.len() - 1
                        });
                        requests[place].fault = Some(fault);
                        receiver.forget(id.serial);
                    }
                }
            }
        }
        Ok(())
    }

    fn read_request(
        &mut self,
        framing: Framing,
        bytes: &[u8],
        cuts: &[usize],
        limits: &Limits,
        begin: impl Fn(&RequestHead<'_>) -> Read<H>,
    ) -> Result<(), Fault> {
        let (mut receiver, mut fields) = (cgi::Receiver::new(framing), Vec::new());
        let mut at = 0;
        for &cut in cuts.iter().chain([&bytes.len()]) {
            if self.requests.is_empty() {
                let Some((used, head)) = receiver.head(&bytes[at..cut], &mut fields, limits)? else { continue };
                assert!(used <= cut - at);
                at += used;
                self.requests.push(begin(&head));
            }
            while receiver.is_in_body() && at < cut {
                let (part, is_last) = receiver.body(&bytes[at..cut]);
                assert!(!part.is_empty() || is_last, "a step takes some of the input");
                at += part.len();
                self.requests[0].body.extend_from_slice(part);
                self.requests[0].is_whole = is_last;
            }
        }
        receiver.end_of_input(&bytes[at..])
    }
}
