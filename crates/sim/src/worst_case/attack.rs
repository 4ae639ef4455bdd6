//! The scripts of attackers, which consist of elements of their protocol: as text in a seed file, and as bytes on the
//! wire.

use super::names::Protocol;
use fastrand::Rng;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Display, Write as _};
use std::str::FromStr;
use wire::http2::PREFACE;
use wire::websocket::client::Offer;
use wire::websocket::{Compression, Connection, Keys, Outgoing, Role, WebSocketLimits};

const HANDSHAKE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
/// The maximum number of elements in a script; the next constant is the maximum number of bytes in each of its halves.
const GENES_MOST: usize = 8;
const BYTES_MOST: usize = 1 << 18;
/// The maximum number of attackers' connections.
const CONNECTIONS_MOST: usize = 32;

const HTTP: &[&str] =
    &["get", "same", "put", "expect", "chunked", "chunk", "last", "line", "field", "end", "head", "bytes"];
const HTTP2: &[&str] = &[
    "get",
    "post",
    "cookies",
    "insert",
    "bomb",
    "table",
    "trailers",
    "begin",
    "continuation",
    "continuation-end",
    "data",
    "data-end",
    "padded",
    "reset",
    "old",
    "ping",
    "settings",
    "window-size",
    "settings-ack",
    "window",
    "window-of-stream",
    "priority",
    "priority-update",
    "goaway",
    "unknown",
    "bytes",
];
const WEBSOCKET: &[&str] = &[
    "text",
    "binary",
    "continue",
    "ping",
    "pong",
    "begin",
    "more",
    "compressed",
    "compressed-begin",
    "compressed-more",
    "close",
    "bytes",
];
const FASTCGI: &[&str] = &[
    "request",
    "begin",
    "params",
    "params-end",
    "stdin",
    "stdin-end",
    "abort",
    "values",
    "data",
    "unknown",
    "id",
    "padding",
    "bytes",
];
const GATEWAY: &[&str] = &["request", "put", "bytes"];
const PROXY: &[&str] = &["v1", "v2", "local", "get", "put", "bytes"];

/// An element of a protocol, repeated `times` times. The meaning of `a` and `b` depends on `kind`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gene {
    kind: &'static str,
    a: u16,
    b: u8,
    times: u8,
}

/// The behaviour of each attacker on its connection. `Display` and `FromStr` write and read the lines of a seed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    protocol: Protocol,
    /// The number of attackers.
    connections: usize,
    /// The number of bytes that arrive at a time.
    piece: usize,
    /// The number of bytes that each attacker may send when memory is measured.
    pub(super) each: usize,
    /// The number of arrivals that the engine receives before the innocent client sends; 0: it sends while nothing is
    /// being received.
    pub(super) moment: u64,
    /// True if the attackers read the answers.
    reads: bool,
    /// True if the application takes the messages of a WebSocket.
    takes: bool,
    /// The elements that are sent first.
    open: Vec<Gene>,
    /// The elements that are sent repeatedly after that; empty: nothing follows.
    cycle: Vec<Gene>,
}

/// A plan as bytes.
pub(super) struct Script {
    open: Vec<u8>,
    cycle: Vec<u8>,
    streams: CycleStreams,
    /// The numbers of elements, such as frames, fields and chunks, in `open` and in `cycle`.
    elements: (u64, u64),
    pub(super) piece: usize,
    pub(super) connections: usize,
    pub(super) reads: bool,
    pub(super) takes: bool,
}

impl Script {
    /// Returns the total number of bytes; `None` if they never end.
    pub(super) fn length(&self) -> Option<u64> {
        self.cycle.is_empty().then_some(self.open.len() as u64)
    }

    /// Copies the bytes that follow the first `at` bytes into `into`.
    pub(super) fn copy(&self, at: u64, into: &mut [u8]) {
        let mut at = usize::try_from(at).expect("a run is shorter");
        let mut filled = 0;
        while filled < into.len() {
            let rest = match self.open.get(at..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => &self.cycle[(at - self.open.len()) % self.cycle.len()..],
            };
            let count = rest.len().min(into.len() - filled);
            into[filled..filled + count].copy_from_slice(&rest[..count]);
            if at >= self.open.len() && !self.cycle.is_empty() {
                let at = at - self.open.len();
                self.streams.write(at / self.cycle.len(), at % self.cycle.len(), &mut into[filled..filled + count]);
            }
            filled += count;
            at += count;
        }
    }

    /// Estimates the number of elements in `bytes`.
    pub(super) fn elements(&self, bytes: u64) -> u64 {
        let (part, elements) =
            if self.cycle.is_empty() { (&self.open, self.elements.0) } else { (&self.cycle, self.elements.1) };
        bytes * elements / (part.len() as u64).max(1)
    }
}

/// The numbers of the HTTP/2 streams in a cycle. They increase with each repetition.
#[derive(Default)]
struct CycleStreams {
    /// The offsets of the numbers, and their values in the first repetition.
    places: Vec<(usize, u32)>,
    /// The number of streams that a cycle opens.
    count: u32,
}

impl CycleStreams {
    /// Writes the numbers of repetition `time` into `part`, which begins at offset `start` of the cycle.
    fn write(&self, time: usize, start: usize, part: &mut [u8]) {
        let time = u32::try_from(time).expect("a run is shorter");
        for &(place, first) in &self.places {
            let number = first.wrapping_add(time.wrapping_mul(2 * self.count)) & 0x7fff_ffff;
            for (offset, byte) in number.to_be_bytes().into_iter().enumerate() {
                if let Some(at) = (place + offset).checked_sub(start).filter(|at| *at < part.len()) {
                    part[at] = byte;
                }
            }
        }
    }
}

impl Plan {
    /// Returns the plan of an honest client, with which every search begins.
    pub fn honest(protocol: Protocol) -> Self {
        let gene = |kind| Gene { kind, a: 1, b: 10, times: 1 };
        let (open, cycle) = match protocol {
            Protocol::Http => (vec![], vec![gene("get"), gene("put")]),
            Protocol::Http2 => (vec![], vec![gene("get"), gene("post"), gene("data-end"), gene("window")]),
            Protocol::WebSocket => (vec![], vec![gene("text"), gene("compressed")]),
            Protocol::FastCgi => (vec![], vec![gene("request")]),
            Protocol::Scgi | Protocol::Uwsgi => (vec![gene("request")], vec![]),
            Protocol::Proxy => (vec![gene("v1")], vec![gene("get")]),
        };
        let (connections, piece, each) = (4, 1 << 16, 1 << 14);
        Self { protocol, connections, piece, each, moment: 0, reads: true, takes: true, open, cycle }
    }

    fn kinds(protocol: Protocol) -> &'static [&'static str] {
        match protocol {
            Protocol::Http => HTTP,
            Protocol::Http2 => HTTP2,
            Protocol::WebSocket => WEBSOCKET,
            Protocol::FastCgi => FASTCGI,
            Protocol::Scgi | Protocol::Uwsgi => GATEWAY,
            Protocol::Proxy => PROXY,
        }
    }

    /// Returns the protocol that the attackers speak.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns a plan that differs from this one in a few places, and may contain a part of `other`.
    #[must_use]
    pub fn mutated(&self, other: &Self, random: &mut Rng) -> Self {
        let mut plan = self.clone();
        for _ in 0..=random.u8(0..3) {
            match random.u8(0..12) {
                0 => plan.connections = 1 << random.u32(0..=CONNECTIONS_MOST.ilog2()),
                1 => plan.piece = 1 << random.u32(0..=16),
                2 => plan.each = 1 << random.u32(6..=16),
                3 => plan.moment = u64::from(random.u8(0..70)),
                4 => plan.reads = !plan.reads,
                5 => plan.takes = !plan.takes,
                6 => {
                    let genes = if random.bool() { &other.cycle } else { &other.open };
                    plan.half(random).clone_from(genes);
                }
                _ => plan.mutate_gene(random),
            }
        }
        plan
    }

    fn half(&mut self, random: &mut Rng) -> &mut Vec<Gene> {
        if random.u8(0..3) == 0 { &mut self.open } else { &mut self.cycle }
    }

    fn mutate_gene(&mut self, random: &mut Rng) {
        let kinds = Self::kinds(self.protocol);
        let genes = self.half(random);
        let count = genes.len();
        let at = random.usize(0..=count);
        let number = |random: &mut Rng| random.u16(..) >> random.u16(0..16);
        match (genes.get_mut(at), random.u8(0..6)) {
            (Some(_), 0 | 1) => drop(genes.remove(at)),
            (Some(gene), 2) => gene.a = number(random),
            (Some(gene), 3) => gene.b = (number(random) & 0xff) as u8,
            (Some(gene), 4) => gene.times = 1 << random.u8(0..8),
            _ if count < GENES_MOST => {
                let kind = kinds[random.usize(0..kinds.len())];
                let (a, b) = if random.bool() { (0, 0) } else { (number(random), (number(random) & 0xff) as u8) };
                genes.insert(at, Gene { kind, a, b, times: 1 });
            }
            _ => {}
        }
    }

    /// Returns the plan as bytes.
    pub(super) fn script(&self) -> Script {
        let mut writer =
            Writer { protocol: self.protocol, id: 1, padding: 0, elements: 0, stream: 0, back: 0, places: Vec::new() };
        let mut open = match self.protocol {
            Protocol::WebSocket => HANDSHAKE.to_vec(),
            Protocol::Http2 => [&PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat(),
            _ => Vec::new(),
        };
        writer.genes(&self.open, &mut open);
        let first = std::mem::take(&mut writer.elements);
        let opened = writer.stream;
        writer.places.clear();
        let mut cycle = Vec::new();
        writer.genes(&self.cycle, &mut cycle);
        let streams = CycleStreams { places: writer.places, count: (writer.stream - opened).div_ceil(2) };
        Script {
            open,
            cycle,
            streams,
            elements: (first, writer.elements),
            piece: self.piece,
            connections: self.connections,
            reads: self.reads,
            takes: self.takes,
        }
    }
}

struct Writer {
    protocol: Protocol,
    /// The id of the FastCGI request, and the padding of its records.
    id: u8,
    padding: u8,
    elements: u64,
    /// The last HTTP/2 stream (0 before the first), and how many streams before it the frames are for.
    stream: u32,
    back: u32,
    /// The offsets of stream numbers, and the numbers.
    places: Vec<(usize, u32)>,
}

impl Writer {
    fn genes(&mut self, genes: &[Gene], out: &mut Vec<u8>) {
        for gene in genes {
            for _ in 0..gene.times {
                if out.len() >= BYTES_MOST {
                    return;
                }
                self.elements += 1;
                let (a, b) = (usize::from(gene.a), usize::from(gene.b));
                if gene.kind == "bytes" {
                    out.resize(out.len() + a, gene.b);
                    continue;
                }
                match self.protocol {
                    Protocol::Http => self.http(gene.kind, a, b, out),
                    Protocol::Http2 => self.http2(gene.kind, a, gene.b, out),
                    Protocol::WebSocket => websocket(gene.kind, a, gene.b, out),
                    Protocol::FastCgi => self.fastcgi(gene.kind, a, b, out),
                    Protocol::Scgi | Protocol::Uwsgi => self.gateway(gene.kind, a, b, out),
                    Protocol::Proxy => self.proxy(gene.kind, a, b, out),
                }
            }
        }
    }

    /// Appends `count` field lines with values of `length` bytes.
    fn fields(&mut self, count: usize, length: usize, differ: bool, out: &mut Vec<u8>) {
        for index in 0..count.min(200) {
            self.elements += 1;
            let name = if differ { format!("f{index}") } else { "f".to_owned() };
            out.extend_from_slice(format!("{name}:{}\r\n", "v".repeat(length)).as_bytes());
        }
    }

    fn http(&mut self, kind: &str, a: usize, b: usize, out: &mut Vec<u8>) {
        const PUT: &[u8] = b"PUT / HTTP/1.1\r\nHost:a\r\n";
        match kind {
            "get" | "same" | "head" => {
                out.extend_from_slice(if kind == "head" { b"HEAD" } else { b"GET" });
                out.extend_from_slice(b" / HTTP/1.1\r\nHost:a\r\n");
                self.fields(a, b, kind != "same", out);
                out.extend_from_slice(b"\r\n");
            }
            "put" | "expect" => {
                out.extend_from_slice(PUT);
                if kind == "expect" {
                    out.extend_from_slice(b"Expect:100-continue\r\n");
                }
                out.extend_from_slice(format!("Content-Length:{a}\r\n\r\n").as_bytes());
                out.resize(out.len() + a, b'x');
            }
            "chunked" => out.extend_from_slice(&[PUT, b"Transfer-Encoding:chunked\r\n\r\n"].concat()),
            "chunk" => {
                let length = b.max(1);
                write_text(out, format_args!("{length:x}"));
                if a > 0 {
                    write_text(out, format_args!(";{}", "e".repeat(a % 64 + 1)));
                }
                out.extend_from_slice(b"\r\n");
                out.resize(out.len() + length, b'x');
                out.extend_from_slice(b"\r\n");
            }
            "last" => {
                out.extend_from_slice(b"0\r\n");
                self.fields(a, b, true, out);
                out.extend_from_slice(b"\r\n");
            }
            "line" => out.extend_from_slice(b"GET / HTTP/1.1\r\nHost:a\r\n"),
            "field" => self.fields(1, a % 8192, true, out),
            _ => out.extend_from_slice(b"\r\n"),
        }
    }

    /// Appends HTTP/2 frames. Fields are encoded without Huffman coding and, except for "insert", without the dynamic
    /// table.
    fn http2(&mut self, kind: &str, a: usize, b: u8, out: &mut Vec<u8>) {
        const END_STREAM: u8 = 1;
        const END_HEADERS: u8 = 4;
        const PADDED: u8 = 8;
        // GET, http, `/` and an authority; or POST instead of GET.
        const GET: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'a'];
        const POST: &[u8] = &[0x83, 0x86, 0x84, 0x01, 1, b'a'];
        let crumb: &[u8] = &[0x0f, 17, 1, b'c'];
        // A field with a name of one byte and a value of `b % 127` bytes; `first` decides whether it is indexed.
        let field = |first: u8| [&[first, 1, b'f', b % 127], &vec![b'v'; usize::from(b % 127)][..]].concat();
        let number = u32::try_from(a).unwrap_or(0).to_be_bytes();
        let is_opening = matches!(kind, "get" | "cookies" | "insert" | "bomb" | "table" | "post" | "begin");
        let is_of_connection = matches!(
            kind,
            "ping" | "settings" | "window-size" | "settings-ack" | "window" | "priority-update" | "goaway"
        );
        let (kind, flags, payload) = match kind {
            "get" => (1, END_STREAM | END_HEADERS, [GET, &field(0x10).repeat(a % 100)].concat()),
            "cookies" => (1, END_STREAM | END_HEADERS, [GET, &crumb.repeat(a % 1000)].concat()),
            "insert" => (1, END_STREAM | END_HEADERS, [GET, &field(0x40)].concat()),
            "bomb" => (1, END_STREAM | END_HEADERS, [GET, &vec![0xbe; a % 16_000]].concat()),
            "table" => (1, END_STREAM | END_HEADERS, [&[0x20, 0x3f, 0xe1, 0x1f], GET].concat()),
            "post" => (1, END_HEADERS, POST.to_vec()),
            "begin" => (1, END_STREAM, [GET, &field(0x10).repeat(a % 100)].concat()),
            "trailers" => (1, END_STREAM | END_HEADERS, field(0x10).repeat(a % 100)),
            "continuation" => (9, 0, field(0x10).repeat(a % 100)),
            "continuation-end" => (9, END_HEADERS, field(0x10).repeat(a % 100)),
            "data" => (0, 0, vec![b'x'; a % 16_384]),
            "data-end" => (0, END_STREAM, vec![b'x'; a % 16_384]),
            "padded" => (0, PADDED, [&[b][..], &vec![0; usize::from(b)]].concat()),
            "reset" => (3, 0, vec![0, 0, 0, 8]),
            "ping" => (6, 0, vec![b; 8]),
            "settings" => (4, 0, [&[0, 6][..], &number].concat().repeat(usize::from(b) + 1)),
            "window-size" => (4, 0, [&[0, 4][..], &number].concat()),
            "settings-ack" => (4, 1, Vec::new()),
            "window" | "window-of-stream" => (8, 0, number.to_vec()),
            "priority" => (2, 0, vec![0, 0, 0, 0, b]),
            "priority-update" => (16, 0, [&[0, 0, 0, b | 1], &b"u=1"[..]].concat()),
            "goaway" => (7, 0, vec![0; 8]),
            "old" => {
                self.back = u32::from(b);
                return;
            }
            _ => (200, 0, vec![b; a % 16_384]),
        };
        let stream = if is_opening {
            self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
            self.stream
        } else if is_of_connection {
            0
        } else {
            self.stream.saturating_sub(2 * self.back).max(1)
        };
        let length = u32::try_from(payload.len()).expect("it is bounded").to_be_bytes();
        out.extend_from_slice(&[length[1], length[2], length[3], kind, flags]);
        if stream > 0 {
            self.places.push((out.len(), stream));
        }
        out.extend_from_slice(&stream.to_be_bytes());
        out.extend_from_slice(&payload);
    }

    fn proxy(&mut self, kind: &str, a: usize, b: usize, out: &mut Vec<u8>) {
        const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
        match kind {
            "v1" => out.extend_from_slice(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"),
            "v2" | "local" => {
                let mut rest = vec![192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2];
                let count = a.min(4000 / (3 + b));
                for _ in 0..count {
                    self.elements += 1;
                    rest.extend_from_slice(&[0xe0, 0, b.to_le_bytes()[0]]);
                    rest.resize(rest.len() + b, b'x');
                }
                out.extend_from_slice(SIGNATURE);
                out.extend_from_slice(&[if kind == "v2" { 0x21 } else { 0x20 }, 0x11]);
                out.extend_from_slice(&u16::try_from(rest.len()).expect("it is bounded").to_be_bytes());
                out.extend_from_slice(&rest);
            }
            kind => self.http(kind, a, b, out),
        }
    }

    fn gateway(&mut self, kind: &str, a: usize, b: usize, out: &mut Vec<u8>) {
        let is_put = kind == "put";
        let length = if is_put { a } else { 0 };
        let mut variables = vec![
            ("CONTENT_LENGTH".to_owned(), length.to_string()),
            ("SCGI".to_owned(), "1".to_owned()),
            ("REQUEST_METHOD".to_owned(), if is_put { "PUT" } else { "GET" }.to_owned()),
            ("REQUEST_URI".to_owned(), "/".to_owned()),
            ("SERVER_PROTOCOL".to_owned(), "HTTP/1.1".to_owned()),
            ("HTTP_HOST".to_owned(), "a".to_owned()),
        ];
        for index in 0..if is_put { 0 } else { a.min(200) } {
            self.elements += 1;
            variables.push((format!("HTTP_F{index}"), "v".repeat(b)));
        }
        let mut block = Vec::new();
        for text in variables.iter().flat_map(|(name, value)| [name, value]) {
            if self.protocol == Protocol::Scgi {
                block.extend_from_slice(text.as_bytes());
                block.push(0);
            } else {
                block.extend_from_slice(&u16::try_from(text.len()).expect("it is short").to_le_bytes());
                block.extend_from_slice(text.as_bytes());
            }
        }
        if self.protocol == Protocol::Scgi {
            write_text(out, format_args!("{}:", block.len()));
            block.push(b',');
        } else {
            let [low, high] = u16::try_from(block.len()).unwrap_or(u16::MAX).to_le_bytes();
            out.extend_from_slice(&[0, low, high, 0]);
        }
        out.extend_from_slice(&block);
        out.resize(out.len() + length, b'x');
    }

    fn fastcgi(&mut self, kind: &str, a: usize, b: usize, out: &mut Vec<u8>) {
        let (id, padding) = (self.id, self.padding);
        let mut record = |kind: u8, id: u8, content: &[u8]| {
            let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
            out.extend_from_slice(&[1, kind, 0, id, high, low, padding, 0]);
            out.extend_from_slice(&content[..content.len().min(0xffff)]);
            out.resize(out.len() + usize::from(padding), 0);
        };
        let pair = |name: &str, value: &str| {
            let lengths = [name.len(), value.len()].map(|length| 0x8000_0000 | u32::try_from(length).unwrap_or(0));
            [&lengths[0].to_be_bytes(), &lengths[1].to_be_bytes(), name.as_bytes(), value.as_bytes()].concat()
        };
        let begin: &[u8] = &[0, 1, 1, 0, 0, 0, 0, 0];
        let request = [pair("REQUEST_METHOD", "GET"), pair("REQUEST_URI", "/"), pair("SERVER_PROTOCOL", "HTTP/1.1")];
        match kind {
            "request" => {
                let mut params = request.concat();
                for index in 0..a.min(200) {
                    self.elements += 1;
                    params.extend(pair(&format!("HTTP_F{index}"), &"v".repeat(b)));
                }
                record(1, id, begin);
                record(4, id, &params);
                record(4, id, &[]);
                record(5, id, &[]);
            }
            "begin" => record(1, id, begin),
            "params" => {
                let mut params = if a == 0 { request.concat() } else { Vec::new() };
                for index in 0..a.min(200) {
                    self.elements += 1;
                    params.extend(pair(&format!("HTTP_F{index}"), &"v".repeat(b)));
                }
                record(4, id, &params);
            }
            "params-end" => record(4, id, &[]),
            "stdin" => record(5, id, &vec![b'x'; a]),
            "stdin-end" => record(5, id, &[]),
            "abort" => record(2, id, &[]),
            "values" => {
                let names: Vec<u8> = (0..a % 1000).flat_map(|_| pair("FCGI_MPXS_CONNS", "")).collect();
                self.elements += (a % 1000) as u64;
                record(9, 0, &names);
            }
            "data" => record(8, id, &vec![b'x'; a]),
            "unknown" => record(200, 0, &vec![b'x'; a]),
            "id" => self.id = a.to_le_bytes()[0],
            _ => self.padding = b.to_le_bytes()[0],
        }
    }
}

fn write_text(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    let mut string = String::new();
    string.write_fmt(text).expect("a string takes everything");
    out.extend_from_slice(string.as_bytes());
}

/// Appends a masked frame. Its mask is zero, so the payload is unchanged.
fn websocket(kind: &str, a: usize, b: u8, out: &mut Vec<u8>) {
    const FIN: u8 = 0x80;
    if let Some(rest) = kind.strip_prefix("compressed") {
        let payload = zeros(a % 25);
        let first = match rest {
            "" => FIN | 0x42,
            "-begin" => 0x42,
            _ => 0,
        };
        return frame(first, &payload, out);
    }
    let payload = vec![b & 0x7f; if matches!(kind, "ping" | "pong" | "close") { a % 126 } else { a }];
    let first = match kind {
        "text" => FIN | 1,
        "binary" => FIN | 2,
        "continue" => FIN,
        "begin" => 1 + (b & 1),
        "more" => 0,
        "ping" => FIN | 0x9,
        "pong" => FIN | 0xa,
        _ => FIN | 8,
    };
    frame(first, &payload, out);
}

fn frame(first: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    match u16::try_from(payload.len()) {
        Ok(length @ 0..126) => out.push(0x80 | length.to_be_bytes()[1]),
        Ok(length) => {
            out.push(0x80 | 0x7e);
            out.extend_from_slice(&length.to_be_bytes());
        }
        Err(_) => {
            out.push(0x80 | 0x7f);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

/// Returns the compressed form of 2 to the power of `bits` zero bytes.
fn zeros(bits: usize) -> Vec<u8> {
    thread_local! {
        static ZEROS: RefCell<HashMap<usize, Vec<u8>>> = RefCell::default();
    }
    ZEROS.with_borrow_mut(|zeros| zeros.entry(bits).or_insert_with(|| compressed(&vec![0; 1 << bits])).clone())
}

/// Returns the payload of a compressed message, made by the client of this repository.
fn compressed(message: &[u8]) -> Vec<u8> {
    let offer = Offer { target: "/", host: "a", key: "dGhlIHNhbXBsZSBub25jZQ==", subprotocols: &[], deflate: true };
    let fields: [(&[u8], &[u8]); 4] = [
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        (b"sec-websocket-extensions", b"permessage-deflate"),
    ];
    let answer = offer.judge(101, &fields).expect("it is what the server answers");
    let limits = WebSocketLimits { message: usize::MAX, backlog: usize::MAX };
    let mut client = Connection::new(Role::Client(Keys::new(1)), answer.deflate, limits);
    let (mut sent, mut compression) = (Vec::new(), Compression::new(9));
    client.send(Outgoing::Binary(message), &mut compression, 0, &mut sent).expect("it is open");
    let (start, length) = match sent[1] & 0x7f {
        126 => (4, usize::from(u16::from_be_bytes([sent[2], sent[3]]))),
        127 => (10, usize::try_from(u64::from_be_bytes(sent[2..10].try_into().expect("8 bytes"))).expect("it is here")),
        length => (2, usize::from(length)),
    };
    let key: [u8; 4] = sent[start..start + 4].try_into().expect("4 bytes");
    sent[start + 4..start + 4 + length].iter().enumerate().map(|(index, byte)| byte ^ key[index % 4]).collect()
}

impl Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, connections, piece, each, moment, reads, takes, .. } = self;
        write!(out, "{protocol} connections={connections} piece={piece} each={each} moment={moment}")?;
        write!(out, " reads={} takes={}", u8::from(*reads), u8::from(*takes))?;
        for (name, genes) in [("open", &self.open), ("cycle", &self.cycle)] {
            let genes: Vec<_> =
                genes.iter().map(|Gene { kind, a, b, times }| format!("{kind}:{a}:{b}:{times}")).collect();
            write!(out, " {name}={}", genes.join(","))?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let protocol: Protocol = words.next().unwrap_or_default().parse()?;
        let mut plan = Self::honest(protocol);
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}: no ="))?;
            let number = || value.parse::<usize>().map_err(|error| format!("{word}: {error}"));
            match name {
                "connections" => plan.connections = number()?,
                "piece" => plan.piece = number()?.max(1),
                "each" => plan.each = number()?,
                "moment" => plan.moment = number()? as u64,
                "reads" => plan.reads = number()? > 0,
                "takes" => plan.takes = number()? > 0,
                "open" => plan.open = genes(protocol, value)?,
                "cycle" => plan.cycle = genes(protocol, value)?,
                _ => return Err(format!("{name} is not known")),
            }
        }
        Ok(plan)
    }
}

fn genes(protocol: Protocol, text: &str) -> Result<Vec<Gene>, String> {
    let gene = |text: &str| {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let kind = Plan::kinds(protocol).iter().find(|kind| **kind == name);
        let kind = kind.ok_or_else(|| format!("{protocol} has no element {name}"))?;
        let mut number = || parts.next().and_then(|part| part.parse::<u16>().ok());
        let (Some(a), Some(b), Some(times)) = (number(), number(), number()) else {
            return Err(format!("{text}: three numbers are needed"));
        };
        let byte = |number: u16| u8::try_from(number).map_err(|_| format!("{text}: {number} is too large"));
        Ok(Gene { kind, a, b: byte(b)?, times: byte(times)? })
    };
    text.split(',').filter(|text| !text.is_empty()).map(gene).collect()
}
