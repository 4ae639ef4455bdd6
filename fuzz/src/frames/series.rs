//! Series of frames, most of them right, chosen byte by byte.

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const PRIORITY_UPDATE: u8 = 16;
const UNKNOWN: u8 = 99;

pub(super) const ACK: u8 = 1;
const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const HAS_PRIORITY: u8 = 0x20;

/// The types of frames, each as often as it is chosen.
const KINDS: &[u8] = &[
    HEADERS,
    HEADERS,
    HEADERS,
    HEADERS,
    HEADERS,
    HEADERS,
    DATA,
    DATA,
    DATA,
    DATA,
    DATA,
    RST_STREAM,
    RST_STREAM,
    WINDOW_UPDATE,
    WINDOW_UPDATE,
    SETTINGS,
    PING,
    PRIORITY,
    CONTINUATION,
    PUSH_PROMISE,
    GOAWAY,
    PRIORITY_UPDATE,
    UNKNOWN,
];

/// The most interesting numbers of 32 bits.
const NUMBERS: &[u32] =
    &[0, 1, 2, 3, 5, 100, 1000, 16_383, 16_384, 65_535, (1 << 24) - 1, 1 << 24, (1 << 31) - 1, 1 << 31, u32::MAX];

/// Fields of requests and trailers; the first half is valid in a request.
const FIELDS: &[&[(&str, &str)]] = &[
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")],
    &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")],
    &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("content-length", "0")],
    &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("content-length", "5")],
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("te", "trailers")],
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("te", "gzip")],
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("connection", "close")],
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), ("x-a", "b"), (":authority", "a")],
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":path", "/"), (":authority", "a")],
    &[(":method", "GET"), (":scheme", "http"), (":authority", "a")],
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("X-A", "b")],
    &[(":status", "200")],
];
const VALID: usize = 5;
const TRAILERS: &[(&str, &str)] = &[("x-sum", "1")];

#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// With the reserved bit.
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn contains(&self, bytes: &[u8]) -> bool {
        self.payload.windows(bytes.len()).any(|part| part == bytes)
    }

    /// Returns true if the priority of a stream names the stream itself.
    pub(super) fn depends_on_itself(&self) -> bool {
        let start = match self.kind {
            PRIORITY => 0,
            HEADERS if self.has(HAS_PRIORITY) => usize::from(self.has(PADDED)),
            _ => return false,
        };
        let parent = self.payload.get(start..).and_then(|rest| rest.first_chunk());
        parent.is_some_and(|parent| u32::from_be_bytes(*parent) << 1 == self.stream << 1)
    }

    /// Returns the numbers and values of SETTINGS.
    pub(super) fn settings(&self) -> impl Iterator<Item = (u8, u32)> {
        let payload = if self.kind == SETTINGS { &self.payload[..] } else { &[] };
        payload.as_chunks().0.iter().map(|&[_, id, a, b, c, d]| (id, u32::from_be_bytes([a, b, c, d])))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.payload.len().to_be_bytes()[size_of::<usize>() - 3..].to_vec();
        bytes.extend_from_slice(&[self.kind, self.flags]);
        bytes.extend_from_slice(&self.stream.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

/// The frames of a client. The series ends with its choices, with GOAWAY, or after `most` frames.
pub(super) struct Series<I> {
    choices: I,
    pub(super) most: usize,
    /// The next stream that the client opens.
    next: u32,
    /// The stream of the incomplete header block, and the rest of the block.
    open: Option<(u32, Vec<u8>)>,
    has_left: bool,
}

impl<I: Iterator<Item = u8>> Series<I> {
    pub(super) fn new(choices: I) -> Self {
        Self { choices, most: usize::MAX, next: 1, open: None, has_left: false }
    }

    pub(super) fn next(&mut self) -> Option<Frame> {
        if self.most == 0 || self.has_left {
            return None;
        }
        self.most -= 1;
        let mut frame = if self.open.is_some() && self.below(16)? > 0 { self.continuation()? } else { self.any()? };
        // A frame in 64 has another length, and one another flag.
        match self.below(64)? {
            0 => frame.payload.truncate(self.below(12)?),
            1 => frame.payload.resize(frame.payload.len() + 1 + self.below(9)?, 0),
            2 => frame.flags ^= 1 << self.below(8)?,
            3 => frame.stream ^= 1 << 31,
            4 => frame.payload.resize(16_385, 0),
            // As many empty fields would exceed the limit of a head, which h2 answers otherwise.
            5 if !matches!(frame.kind, HEADERS | CONTINUATION) => frame.payload.resize(16_384, 0),
            _ => {}
        }
        // Kirsch reads on after GOAWAY, and h2 only while a request is running.
        self.has_left = frame.kind == GOAWAY;
        Some(frame)
    }

    /// Returns a number below `bound`, which is at most 256.
    fn below(&mut self, bound: usize) -> Option<usize> {
        self.choices.next().map(|choice| usize::from(choice) % bound)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        self.below(all.len()).map(|at| all[at])
    }

    fn any(&mut self) -> Option<Frame> {
        let kind = self.of(KINDS)?;
        if kind == HEADERS {
            return self.headers();
        }
        let (mut flags, mut stream) = (0, 0);
        if matches!(kind, DATA | PRIORITY | RST_STREAM | PUSH_PROMISE | CONTINUATION) || self.below(2)? == 0 {
            stream = self.stream()?;
        }
        let payload = match kind {
            DATA => {
                flags = self.of(&[0, END_STREAM, END_STREAM])?;
                let length = self.of(&[0, 1, 5, 5, 20, 5000])?;
                let data = vec![b'd'; length];
                self.padded(data, &mut flags)?
            }
            PRIORITY => [&self.of(&[0, 1, 3, stream])?.to_be_bytes()[..], &[1]].concat(),
            RST_STREAM | WINDOW_UPDATE => self.number()?.to_vec(),
            SETTINGS => {
                stream = self.of(&[0, 0, 0, stream])?;
                flags = self.of(&[0, 0, 0, ACK])?;
                let count = if flags == 0 { self.below(3)? } else { 0 };
                let mut payload = Vec::new();
                for _ in 0..count {
                    payload.extend_from_slice(&[0, self.of(&[1, 2, 3, 4, 5, 6, 8, 9, 99])?]);
                    payload.extend_from_slice(&self.number()?);
                }
                payload
            }
            PING => {
                stream = self.of(&[0, 0, 0, stream])?;
                flags = self.of(&[0, ACK])?;
                vec![0; 8]
            }
            GOAWAY | PRIORITY_UPDATE => {
                stream = self.of(&[0, 0, 0, stream])?;
                [self.number()?, self.number()?].concat()
            }
            _ => vec![0; self.below(12)?],
        };
        Some(Frame { kind, flags, stream, payload })
    }

    fn number(&mut self) -> Option<[u8; 4]> {
        self.of(NUMBERS).map(u32::to_be_bytes)
    }

    /// Returns a stream that the client has used, or now and then one that it has not.
    fn stream(&mut self) -> Option<u32> {
        Some(match self.below(32)? {
            0 => 0,
            1 => 2,
            2 => self.next + 2,
            3 => self.next,
            other => self.next.saturating_sub(2 + 2 * (other as u32 % 6)).max(1),
        })
    }

    fn headers(&mut self) -> Option<Frame> {
        let (stream, is_new) = match self.below(8)? {
            0 => (self.stream()?, false),
            1 => (self.next.saturating_sub(2).max(1), false),
            _ => (self.next, true),
        };
        let mut flags = self.of(&[0, END_STREAM])?;
        let mut block = Vec::new();
        let fields = match self.below(16)? {
            0 if is_new => self.of(&FIELDS[VALID..])?,
            _ if is_new => self.of(&FIELDS[..VALID])?,
            0 => self.of(FIELDS)?,
            _ => {
                flags |= END_STREAM * u8::from(self.below(8)? > 0);
                TRAILERS
            }
        };
        for (name, value) in fields {
            // Literals without indexing leave the table unchanged.
            block.push(0);
            for text in [name, value] {
                block.push(text.len() as u8);
                block.extend_from_slice(text.as_bytes());
            }
        }
        if self.below(64)? == 0 {
            // The index 0 (RFC 7541 section 6.1).
            block.push(0x80);
        }
        if stream == self.next || (stream > self.next && stream % 2 == 1) {
            self.next = stream + 2;
        }
        let mut first = block;
        if self.below(4)? == 0 {
            let rest = first.split_off(self.below(first.len() + 1)?);
            self.open = Some((stream, rest));
        } else {
            flags |= END_HEADERS;
        }
        if self.below(8)? == 0 {
            flags |= HAS_PRIORITY;
            let parent = self.of(&[0, 1, 3, stream])?;
            first = [&parent.to_be_bytes()[..], &[1], &first].concat();
        }
        let payload = self.padded(first, &mut flags)?;
        Some(Frame { kind: HEADERS, flags, stream, payload })
    }

    fn continuation(&mut self) -> Option<Frame> {
        let (stream, mut block) = self.open.take()?;
        let mut flags = END_HEADERS;
        if self.below(4)? == 0 {
            let rest = block.split_off(self.below(block.len() + 1)?);
            self.open = Some((stream, rest));
            flags = 0;
        }
        Some(Frame { kind: CONTINUATION, flags, stream, payload: block })
    }

    /// Adds padding now and then, which is too long now and then.
    fn padded(&mut self, payload: Vec<u8>, flags: &mut u8) -> Option<Vec<u8>> {
        let length = match self.below(32)? {
            0 => payload.len() as u8,
            1..4 => self.below(9)? as u8,
            _ => return Some(payload),
        };
        *flags |= PADDED;
        let padding = if self.below(8)? == 0 { 0 } else { usize::from(length) };
        Some([&[length], &payload[..], &vec![0; padding]].concat())
    }
}
