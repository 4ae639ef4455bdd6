//! Invariant: a chunked body decodes to the same bytes and trailers whole and in pieces, and never to more bytes than
//! it has. Any bytes, chunked at any positions by our sender or with extensions by hand, decode to themselves.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::http1::client::{Content, Draft, Sender};
use wire::message::{Limits, Version};
use wire_fuzz::{End, Event, Outcome, Random, check_cuts, limit_sets, requests};

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

fn read(data: &[u8], cuts: &[usize], limits: &Limits) -> Outcome<wire::message::Fault> {
    let stream = [HEAD, data].concat();
    let cuts: Vec<usize> = cuts.iter().map(|cut| cut + HEAD.len()).collect();
    requests(&stream, &cuts, 1, limits)
}

fuzz_target!(|data: &[u8]| {
    for limits in limit_sets() {
        let (events, _) = check_cuts(data, |data, cuts| read(data, cuts, &limits));
        let decoded: usize =
            events.iter().map(|event| if let Event::Data(bytes) = event { bytes.len() } else { 0 }).sum();
        assert!(decoded <= data.len() && decoded as u64 <= limits.body);
    }

    let limits = Limits::default();
    let mut random = Random::of(data, 1);
    let extensions: [&[u8]; 5] = [b"", b"", b";a", b" ; a = \"b;\\\"\"", b";a=b;c"];
    let mut draft = Draft::new(b"POST", b"/", Version::Http11).expect("valid");
    draft.field(b"Host", b"a").expect("valid");
    let mut stream = Vec::new();
    let mut sender = Sender::begin(&draft, Content::Chunked, &mut stream).expect("valid");
    let mut rest = data;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(1 + random.below(rest.len()));
        rest = after;
        if random.below(2) == 0 {
            sender.open(part.len() as u64, &mut stream).expect("chunks have no bound");
            stream.extend_from_slice(part);
            sender.close(part.len() as u64, &mut stream);
        } else {
            stream.extend_from_slice(format!("{:0width$X}", part.len(), width = random.below(17)).as_bytes());
            stream.extend_from_slice(extensions[random.below(extensions.len())]);
            stream.extend_from_slice(b"\r\n");
            stream.extend_from_slice(part);
            stream.extend_from_slice(b"\r\n");
        }
    }
    let trailers: &[(&[u8], &[u8])] = if random.below(2) == 0 { &[] } else { &[(b"Checksum", b"1 2")] };
    sender.finish(trailers, &mut stream).expect("valid");
    let (events, end) = check_cuts(&stream, |data, cuts| requests(data, cuts, 1, &limits));
    assert_eq!(end, End::Waiting { used: stream.len(), complete: true });
    let mut expected = Vec::new();
    if !data.is_empty() {
        expected.push(Event::Data(data.to_vec()));
    }
    expected.extend(trailers.iter().map(|(name, value)| Event::Trailer(name.to_vec(), value.to_vec())));
    expected.push(Event::End);
    assert_eq!(events[1..], expected);
});
