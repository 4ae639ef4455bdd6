//! A receiver that keeps a block reads the heads behind it as a receiver reads them that has seen nothing before.
//!
//! Each seed makes a row of heads, of which most differ from the one before in a few lines, valid or not, and gives
//! them to one receiver that reads them all, and each to a fresh one. A failure prints its seed;
//! `KIRSCH_SEED=n cargo test -p wire repeat` runs that one alone.

use wire::http1::{BodyStep, Head, Receiver};
use wire::message::{BodyLength, Fault, Field, Limits, Version};

const SEEDS: u64 = if cfg!(miri) { 4 } else { 20_000 };

/// Lines that say something about the message or its connection, some of them wrong, and lines that do not.
const LINES: &[&str] = &[
    "Host: a",
    "Host: b",
    "host: a",
    "Host: a b",
    "Connection: keep-alive",
    "Connection: close",
    "Connection: upgrade",
    "Content-Length: 0",
    "Content-Length: 5",
    "Content-Length: 17",
    "Content-Length: x",
    "content-length: 5",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip",
    "Expect: 100-continue",
    "TE: trailers",
    "Expect: else",
    "X-Id: 1",
    "X-Id: 22",
    "X-Id:  22 ",
    "X-Id:",
    "x-id: 1",
    "X-Id: \x01",
    "Cookie: a=b",
    "Cookie: a=c; d=e",
    "Accept: */*",
    "Accept: text/html",
    "Referer: /",
    "Referer : /",
    " folded",
    "nothing",
    "",
];

/// The generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ z >> 31) % bound as u64).unwrap()
    }

    fn line(&mut self) -> &'static str {
        LINES[self.below(LINES.len())]
    }

    /// A line with the name of `line`, if there is another one.
    fn sibling(&mut self, line: &str) -> &'static str {
        let name = line.split(':').next().unwrap_or_default();
        let same: Vec<_> = LINES.iter().filter(|other| other.split(':').next() == Some(name)).collect();
        same.get(self.below(same.len().max(1))).map_or("X-Id: 1", |line| line)
    }
}

/// The contents of a head, without the positions in its block.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    version: Version,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    lines: Vec<Vec<u8>>,
    framing: BodyLength,
    keep_alive: bool,
    expects_continue: bool,
    takes_trailers: bool,
    length: usize,
}

fn said(head: &Head<'_>) -> Said {
    let of = |field: &Field| (field.name(head.request.block).to_vec(), field.value(head.request.block).to_vec());
    Said {
        version: head.request.version,
        fields: head.request.fields.iter().map(of).collect(),
        lines: head.request.fields.iter().map(|field| field.line(head.request.block).to_vec()).collect(),
        framing: head.request.body,
        keep_alive: head.keep_alive,
        expects_continue: head.expects_continue,
        takes_trailers: head.takes_trailers,
        length: head.length,
    }
}

fn fresh(input: &[u8], limits: &Limits) -> Result<Option<Said>, Fault> {
    Ok(Receiver::default().head(input, &mut Vec::new(), limits)?.map(|head| said(&head)))
}

/// The number of heads that were recognised as a whole, and except for some fields.
#[derive(Default)]
struct Recognised {
    whole: usize,
    partly: usize,
}

/// Longer than other functions: each head is compared with all that the ones before it have left behind.
fn read_in_a_row(seed: u64, recognised: &mut Recognised) {
    let mut random = Random(seed);
    let limits = Limits { head: 60 + random.below(200), fields: 4 + random.below(8), ..Limits::default() };
    let mut receiver = Receiver::default();
    let mut scratch = Vec::new();
    let mut kept: Option<Vec<(Vec<u8>, Vec<u8>)>> = None;
    let mut blocks_kept = 0;
    let mut lines = vec!["Host: a"];
    for _ in 0..random.below(8) {
        lines.push(["X-Id: 1", "Cookie: a=b", "Accept: */*", "Content-Length: 5"][random.below(4)]);
    }
    for _ in 0..12 {
        for _ in 0..random.below(3) {
            let place = random.below(lines.len());
            match random.below(12) {
                0 => lines.insert(place, random.line()),
                1 if lines.len() > 1 => drop(lines.remove(place)),
                2 => lines[place] = random.line(),
                _ => lines[place] = random.sibling(lines[place]),
            }
        }
        let version = if random.below(20) == 0 { "1.0" } else { "1.1" };
        let mut input = format!("POST / HTTP/{version}\r\n{}\r\n\r\nrest", lines.join("\r\n")).into_bytes();
        let expected = fresh(&input, &limits);
        // In one piece or two.
        let cut = random.below(2 * input.len());
        if cut < input.len() {
            match receiver.head(&input[..cut], &mut scratch, &limits) {
                Ok(None) => {}
                Ok(Some(head)) => assert_eq!(Ok(Some(said(&head))), expected),
                Err(fault) => {
                    assert_eq!(expected, Err(fault));
                    return;
                }
            }
            if matches!(&expected, Ok(Some(said)) if said.length <= cut) {
                return;
            }
        }
        let result = receiver.head(&input, &mut scratch, &limits);
        let head = match result {
            Ok(Some(head)) => head,
            other => {
                assert_eq!(other.map(|head| head.map(|head| said(&head))), expected);
                return;
            }
        };
        let now = said(&head);
        if let Some(changed) = head.request.changed {
            let kept = kept.as_ref().expect("a block has been kept");
            assert_eq!(kept.len(), now.fields.len());
            for (index, (before, after)) in kept.iter().zip(&now.lines).enumerate() {
                let is_changed = changed.iter().any(|&place| usize::from(place) == index);
                assert_eq!(before.0, now.fields[index].0, "names differ");
                assert!(is_changed || before.1 == *after, "a line differs that is not among the changed: {index}");
            }
            assert!(changed.is_sorted());
            recognised.whole += usize::from(changed.is_empty());
            recognised.partly += usize::from(!changed.is_empty());
        }
        blocks_kept += u32::from(head.request.retained);
        assert_eq!(head.request.kept, blocks_kept);
        if head.request.retained {
            kept = Some(now.fields.iter().map(|(name, _)| name.clone()).zip(now.lines.iter().cloned()).collect());
        }
        assert_eq!(expected, Ok(Some(now)));
        let length = head.length;
        // The next head is read behind the body.
        if head.request.body == BodyLength::Unknown {
            return;
        }
        if let BodyLength::Known(body) = head.request.body {
            input.truncate(length);
            input.resize(length + usize::try_from(body).unwrap(), b'x');
            let mut at = length;
            loop {
                match receiver.body(&input[at..], &limits).expect("the body has its length") {
                    (_, BodyStep::End) => break,
                    (used, _) => at += used,
                }
            }
        } else {
            assert!(matches!(receiver.body(&[], &limits), Ok((0, BodyStep::End))));
        }
    }
}

#[test]
fn heads_in_a_row_are_read_as_if_each_were_the_first() {
    let mut recognised = Recognised::default();
    let is_all = seeds("repeat", |seed| read_in_a_row(seed, &mut recognised));
    let Recognised { whole, partly } = recognised;
    assert!(!is_all || whole > 1000 && partly > 1000, "{whole} whole, {partly} partly");
}

/// Calls `read` with each seed, or with that of `KIRSCH_SEED`. Returns whether it was all of them.
pub(crate) fn seeds(test: &str, mut read: impl FnMut(u64)) -> bool {
    let seeds = match std::env::var("KIRSCH_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("KIRSCH_SEED is a number");
            seed..=seed
        }
        Err(_) => 0..=SEEDS,
    };
    let is_all = seeds.clone().count() > 100;
    for seed in seeds {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(seed)));
        if let Err(panic) = result {
            eprintln!("to replay: KIRSCH_SEED={seed} cargo test -p wire {test}");
            std::panic::resume_unwind(panic);
        }
    }
    is_all
}
