//! A client and a server joined in memory: each reads what the other wrote, however the bytes between them are cut.
//!
//! Each seed makes a conversation of several requests and responses. It writes them with the senders of both roles, and
//! by hand what these never write (chunk extensions, trailers of responses, interim responses), passes them on in
//! random pieces, and compares. A failure prints its seed; `KIRSCH_SEED=n cargo test -p wire --test pair` runs only
//! that one.

use std::fmt::Debug;
use wire::http1::client::{self, Body, Content};
use wire::http1::{BodyStep, CONTINUE, Receiver, Request, Sender};
use wire::message::{BodyLength, Draft, Field, Limits, Stamp, Version};

const SEEDS: u64 = if cfg!(miri) { 4 } else { 4000 };
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

// ---------------------------------------------------------------------------------------------------------- chance

/// The generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Up to `most` bytes, mostly few.
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1) >> self.below(8);
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    fn text(&mut self, letters: &[u8], least: usize, most: usize) -> Vec<u8> {
        (0..least + self.below(most - least + 1)).map(|_| self.pick(letters)).collect()
    }
}

// -------------------------------------------------------------------------------------------------------- messages

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The framing of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Frame {
    None,
    Length,
    Chunked,
    UntilClose,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    method: Vec<u8>,
    target: Vec<u8>,
    version: Version,
    /// Including Host, without the fields that the sender adds.
    fields: Fields,
    frame: Frame,
    body: Vec<u8>,
    trailers: Fields,
    keep_alive: bool,
    expects_continue: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Answered {
    version: Version,
    status: u16,
    reason: Vec<u8>,
    /// Without the fields that the sender adds.
    fields: Fields,
    frame: Frame,
    body: Vec<u8>,
    trailers: Fields,
    keep_alive: bool,
    /// Heads of interim responses before it.
    interims: usize,
}

/// The fields that senders add.
fn is_added(name: &[u8]) -> bool {
    [&b"content-length"[..], b"transfer-encoding", b"connection", b"date"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

fn own_fields(fields: &[Field], block: &[u8]) -> Fields {
    fields
        .iter()
        .map(|field| (field.name(block).to_vec(), field.value(block).to_vec()))
        .filter(|(name, _)| !is_added(name))
        .collect()
}

fn pairs(fields: &Fields) -> Vec<(&[u8], &[u8])> {
    fields.iter().map(|(name, value)| (&name[..], &value[..])).collect()
}

fn random_fields(random: &mut Random, most: usize) -> Fields {
    let name = b"abcXYZ019-_!#$%&'*+.^`|~";
    let value = b"abc XYZ\t;=\",:/()\x80\xff{}";
    let mut fields = Vec::new();
    for _ in 0..random.below(most + 1) {
        // The prefix keeps them apart from names with a meaning.
        let name = [&b"x-"[..], &random.text(name, 0, 12)].concat();
        let longest = if random.one_in(50) { 3000 } else { 24 };
        let value = random.text(value, 0, longest).trim_ascii().to_vec();
        fields.push((name, value));
    }
    fields
}

/// Cuts `body` into parts, some of them empty.
fn parts<'a>(random: &mut Random, mut body: &'a [u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    while !body.is_empty() {
        let most = body.len().min(1 << random.below(13));
        let (part, rest) = body.split_at(random.below(most + 1));
        parts.push(part);
        body = rest;
    }
    parts
}

/// A chunk as our senders never write it: leading zeros, upper case, extensions.
fn push_odd_chunk(random: &mut Random, part: &[u8], out: &mut Vec<u8>) {
    if part.is_empty() {
        return;
    }
    let width = random.below(17);
    let digits = if random.one_in(2) { format!("{:0width$x}", part.len()) } else { format!("{:0width$X}", part.len()) };
    out.extend_from_slice(digits.as_bytes());
    for _ in 0..random.below(3) {
        out.extend_from_slice(random.pick(&[&b";a"[..], b" ;\ta = b", b";a=\"\"", b";a=\";\\\"\\\\\xff \"", b";5=5"]));
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(part);
    out.extend_from_slice(b"\r\n");
}

// ----------------------------------------------------------------------------------------------------- the request

fn random_request(random: &mut Random, is_last: bool) -> Asked {
    let version = if random.one_in(4) { Version::Http10 } else { Version::Http11 };
    let method = random.pick(&[&b"GET"[..], b"HEAD", b"POST", b"PUT", b"OPTIONS", b"DELETE", b"m!x", b"get"]);
    let path = b"abc/%2f?&=+;:@!$'()*,~|{}^\\\"<>\x80\xff";
    let longest = if random.one_in(50) { 7000 } else { 20 };
    let target = match random.below(8) {
        0 if method == b"OPTIONS" => b"*".to_vec(),
        1 => [&b"http://"[..], random.pick(&[&b"a.b"[..], b"[::1]:8", b"1.2.3.4:"]), b"/", &random.text(path, 0, 9)]
            .concat(),
        2 => b"HTTPS://a".to_vec(),
        _ => [&b"/"[..], &random.text(path, 0, longest)].concat(),
    };
    let mut fields = random_fields(random, 8);
    if version == Version::Http11 || random.one_in(2) {
        let host = random.pick(&[&b"a"[..], b"", b"example.com:80", b"[2001:db8::1]", b"%41~_"]);
        fields.insert(random.below(fields.len() + 1), (b"hOsT".to_vec(), host.to_vec()));
    }
    let frame = match random.below(4) {
        0 if version == Version::Http11 => Frame::Chunked,
        1 => Frame::Length,
        _ => Frame::None,
    };
    let body = if frame == Frame::None { Vec::new() } else { random.bytes(9000) };
    let trailers = if frame == Frame::Chunked { random_fields(random, 3) } else { Vec::new() };
    let asks_to_wait = random.one_in(6);
    if asks_to_wait {
        fields.push((b"Expect".to_vec(), b"100-Continue".to_vec()));
    }
    let keep_alive = !is_last;
    let expects_continue = asks_to_wait && version == Version::Http11;
    Asked { method: method.to_vec(), target, version, fields, frame, body, trailers, keep_alive, expects_continue }
}

fn write_request(asked: &Asked, random: &mut Random, out: &mut Vec<u8>) {
    let mut draft = client::Draft::new(&asked.method, &asked.target, asked.version).expect("a request line");
    for (name, value) in &asked.fields {
        draft.field(name, value).expect("a field");
    }
    match (asked.keep_alive, asked.version) {
        (true, Version::Http10) => draft.field(b"Connection", b"Keep-Alive").expect("a wish"),
        (false, Version::Http11) => draft.field(b"connection", b"close").expect("a wish"),
        _ => {}
    }
    assert_eq!((draft.keeps_alive(), draft.expects_continue()), (asked.keep_alive, asked.expects_continue));
    let content = match asked.frame {
        Frame::Chunked => Content::Chunked,
        Frame::Length => Content::Length(asked.body.len() as u64),
        Frame::None | Frame::UntilClose => Content::None,
    };
    let mut sender = client::Sender::begin(&draft, content, out).expect("a head");
    for part in parts(random, &asked.body) {
        if asked.frame == Frame::Chunked && random.one_in(2) {
            push_odd_chunk(random, part, out);
            continue;
        }
        sender.open(part.len() as u64, out).expect("within the length");
        out.extend_from_slice(part);
        sender.close(part.len() as u64, out);
    }
    sender.finish(&pairs(&asked.trailers), out).expect("the whole body");
}

// ---------------------------------------------------------------------------------------------------- the response

fn random_response(random: &mut Random, asked: &Asked) -> Answered {
    let status = random.pick(&[200, 200, 200, 201, 204, 205, 206, 301, 304, 404, 500, 503, 999]);
    let is_head = asked.method == b"HEAD";
    let frame = match status {
        _ if is_head => Frame::None,
        204 | 304 => Frame::None,
        // It has a body of zero bytes.
        205 => Frame::Length,
        _ if random.one_in(2) => Frame::Length,
        _ if asked.version == Version::Http11 => Frame::Chunked,
        _ => Frame::UntilClose,
    };
    let body = if frame == Frame::None || status == 205 { Vec::new() } else { random.bytes(9000) };
    let trailers = if frame == Frame::Chunked && random.one_in(2) { random_fields(random, 3) } else { Vec::new() };
    let keep_alive = asked.keep_alive && frame != Frame::UntilClose;
    Answered {
        version: Version::Http11,
        status,
        reason: random.text(b"OK xyz\t\x80\xff", 0, 9),
        fields: random_fields(random, 8),
        frame,
        body,
        trailers,
        keep_alive,
        interims: usize::from(asked.expects_continue) + if random.one_in(5) { random.below(4) } else { 0 },
    }
}

fn write_response(answered: &Answered, asked: &Asked, random: &mut Random, out: &mut Vec<u8>) {
    for nth in 0..answered.interims {
        let early = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\nContent-Length: 3\r\n\r\n";
        out.extend_from_slice(if nth == 0 { CONTINUE } else { early });
    }
    let mut draft = Draft::default();
    let status = [answered.status.to_string().as_bytes(), b" ", &answered.reason].concat();
    draft.start(&status).expect("a status");
    for (name, value) in &answered.fields {
        draft.field(name, value).expect("a field");
    }
    let length = answered.body.len() as u64;
    let mut known = None;
    if answered.frame == Frame::Length {
        match random.below(2) {
            0 => draft.field(b"Content-Length", length.to_string().as_bytes()).expect("a length"),
            _ => known = Some(length),
        }
    }
    let is_head = asked.method == b"HEAD";
    let request = Request { version: asked.version, is_head, keep_alive: asked.keep_alive, takes_trailers: false };
    let mut sender = Sender::begin(&draft, request, known, &Stamp::new("", 784_111_777).unwrap(), out);
    assert_eq!(sender.keeps_alive(), answered.keep_alive);
    for part in parts(random, &answered.body) {
        if answered.frame == Frame::Chunked && random.one_in(2) {
            push_odd_chunk(random, part, out);
            continue;
        }
        assert_eq!(sender.open(part.len() as u64, out), (part.len() as u64, Ok(())));
        out.extend_from_slice(part);
        sender.close(part.len() as u64, out);
    }
    if answered.frame == Frame::None {
        // The length that HEAD and 204 do not send may be declared all the same.
        assert_eq!(sender.open(5, out), (0, Ok(())));
        sender.close(0, out);
    }
    sender.finish(out).expect("the whole body");
    if !answered.trailers.is_empty() {
        out.truncate(out.len() - 2);
        for (name, value) in &answered.trailers {
            out.extend_from_slice(&[&name[..], b":", value, b" \t\r\n"].concat());
        }
        out.extend_from_slice(b"\r\n");
    }
}

// ------------------------------------------------------------------------------------------------------- the peers

/// Received bytes that were not used yet: a reader's buffer, which moves and grows.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    is_ended: bool,
}

impl Inbox {
    fn use_up(&mut self, count: usize) {
        self.bytes.drain(..count);
    }
}

/// Reads what is there of a body; returns whether it has ended.
fn read_body<F: Debug>(
    inbox: &mut Inbox,
    body: &mut Vec<u8>,
    trailers: &mut Fields,
    mut step: impl for<'a> FnMut(&'a [u8]) -> Result<(usize, BodyStep<'a>), F>,
) -> bool {
    loop {
        let (used, found) = step(&inbox.bytes).expect("what a peer of ours wrote");
        let found = match found {
            BodyStep::Data(data) => {
                body.extend_from_slice(data);
                None
            }
            BodyStep::Trailer { name, value } => {
                trailers.push((name.to_vec(), value.to_vec()));
                None
            }
            BodyStep::End => Some(true),
            BodyStep::More => Some(false),
        };
        inbox.use_up(used);
        if let Some(is_over) = found {
            return is_over;
        }
    }
}

#[derive(Default)]
struct Server {
    inbox: Inbox,
    receiver: Receiver,
    fields: Vec<Field>,
    heard: Vec<Asked>,
    in_body: bool,
    repeated: usize,
}

impl Server {
    fn hear(&mut self, limits: &Limits) {
        loop {
            if self.in_body {
                let asked = self.heard.last_mut().expect("a head was read");
                if !read_body(&mut self.inbox, &mut asked.body, &mut asked.trailers, |input| {
                    self.receiver.body(input, limits)
                }) {
                    return;
                }
                self.in_body = false;
            }
            let head = self.receiver.head(&self.inbox.bytes, &mut self.fields, limits);
            let Some(head) = head.expect("what a client of ours wrote") else { return };
            self.repeated += usize::from(head.request.is_repeated());
            self.heard.push(Asked {
                method: head.request.method.to_vec(),
                target: head.request.target.raw.to_vec(),
                version: head.request.version,
                fields: own_fields(head.request.fields, head.request.block),
                frame: match head.request.body {
                    BodyLength::None => Frame::None,
                    BodyLength::Known(_) => Frame::Length,
                    BodyLength::Unknown => Frame::Chunked,
                },
                body: Vec::new(),
                trailers: Vec::new(),
                keep_alive: head.keep_alive,
                expects_continue: head.expects_continue,
            });
            let length = head.length;
            self.inbox.use_up(length);
            self.in_body = true;
        }
    }
}

#[derive(Default)]
struct Client {
    inbox: Inbox,
    receiver: client::Receiver,
    fields: Vec<Field>,
    heard: Vec<Answered>,
    in_body: bool,
    interims: usize,
}

impl Client {
    fn hear(&mut self, asked: &[Asked], limits: &Limits) {
        loop {
            if self.inbox.is_ended {
                self.receiver.end_of_input(&self.inbox.bytes).expect("what a server of ours wrote is whole");
            }
            if self.in_body {
                let (mut nothing, mut none) = (Vec::new(), Vec::new());
                let (body, trailers) = match self.heard.last_mut() {
                    Some(answered) if self.interims == 0 => (&mut answered.body, &mut answered.trailers),
                    _ => (&mut nothing, &mut none),
                };
                if !read_body(&mut self.inbox, body, trailers, |input| self.receiver.body(input, limits)) {
                    return;
                }
                self.in_body = false;
            }
            let Some(request) = asked.get(self.heard.len()) else {
                assert!(self.inbox.bytes.is_empty(), "bytes behind the last response");
                return;
            };
            let is_head = request.method == b"HEAD";
            let reply = self.receiver.head(&self.inbox.bytes, is_head, &mut self.fields, limits);
            let Some(reply) = reply.expect("what a server of ours wrote") else { return };
            if reply.is_interim {
                assert!(matches!(reply.status, 100 | 103) && reply.body == Body::None);
                self.interims += 1;
            } else {
                assert_eq!(reply.field(b"date"), Some(DATE.as_bytes()));
                self.heard.push(Answered {
                    version: reply.version,
                    status: reply.status,
                    reason: reply.reason.to_vec(),
                    fields: own_fields(reply.fields, reply.block),
                    frame: match reply.body {
                        Body::None => Frame::None,
                        Body::Length(_) => Frame::Length,
                        Body::Chunked => Frame::Chunked,
                        Body::UntilClose => Frame::UntilClose,
                    },
                    body: Vec::new(),
                    trailers: Vec::new(),
                    keep_alive: reply.keep_alive,
                    interims: std::mem::take(&mut self.interims),
                });
            }
            let length = reply.length;
            self.inbox.use_up(length);
            self.in_body = true;
        }
    }
}

/// Passes `bytes` on in pieces, and calls `hear` after each.
fn hand_over(random: &mut Random, mut bytes: &[u8], mut hear: impl FnMut(&[u8])) {
    // Whole, byte by byte, or anything between.
    let most = match random.below(8) {
        0 => bytes.len().max(1),
        1 if bytes.len() < 2000 => 1,
        _ => {
            let most = 1 << random.below(14);
            1 + random.below(most)
        }
    };
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at((1 + random.below(most)).min(bytes.len()));
        bytes = rest;
        hear(piece);
    }
}

/// Runs one conversation; returns how many heads repeated the one before.
fn converse(seed: u64) -> usize {
    let (mut random, limits) = (Random(seed), Limits::default());
    let mut asked: Vec<Asked> = Vec::new();
    for nth in (0..=random.below(6)).rev() {
        let mut next = random_request(&mut random, nth == 0);
        if let Some(before) = asked.last().filter(|_| nth > 0 && random.one_in(2)) {
            // Browsers send the same fields again and again, which takes a fast path of its own.
            next = Asked { body: before.body.clone(), ..before.clone() };
        }
        asked.push(next);
    }
    let mut answered: Vec<Answered> = Vec::new();
    for request in &asked {
        let mut response = random_response(&mut random, request);
        // A body until the close ends the conversation, because a later response would be read as part of it.
        if response.frame == Frame::UntilClose && request.keep_alive {
            (response.frame, response.keep_alive) = (Frame::Length, true);
        }
        answered.push(response);
    }

    let (mut requests, mut responses) = (Vec::new(), Vec::new());
    for (request, response) in asked.iter().zip(&answered) {
        write_request(request, &mut random, &mut requests);
        write_response(response, request, &mut random, &mut responses);
    }

    let mut server = Server::default();
    hand_over(&mut random, &requests, |piece| {
        server.inbox.bytes.extend_from_slice(piece);
        server.hear(&limits);
    });
    assert_eq!(server.receiver.end_of_input(&server.inbox.bytes), Ok(()));
    assert_eq!(server.heard, asked);

    let mut client = Client::default();
    hand_over(&mut random, &responses, |piece| {
        client.inbox.bytes.extend_from_slice(piece);
        client.hear(&asked, &limits);
    });
    client.inbox.is_ended = true;
    client.hear(&asked, &limits);
    assert!(!client.in_body, "the end of the connection ends the last body");
    assert_eq!(client.heard, answered);
    server.repeated
}

/// Prints the seed if it is dropped during a panic.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to replay: KIRSCH_SEED={} cargo test -p wire --test pair", self.0);
        }
    }
}

#[test]
fn client_and_server_read_what_the_other_wrote() {
    if let Ok(seed) = std::env::var("KIRSCH_SEED") {
        converse(seed.parse().expect("KIRSCH_SEED is a number"));
        return;
    }
    let mut repeated = 0;
    for seed in 0..SEEDS {
        let named = Named(seed);
        repeated += converse(named.0);
    }
    // The conversations reach the fast path of repeated heads.
    assert!(cfg!(miri) || repeated > 100, "{repeated}");
}
