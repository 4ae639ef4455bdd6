//! The corpus of `tests/corpus/http1` against the receiver: every case whole, byte by byte, cut at every position if it
//! is short and at seeded random positions otherwise, with bytes after it, truncated, and flush against a guard page.
//!
//! The seed of the random cuts is `KIRSCH_SEED`, or a fixed one; a failure prints it with the cuts.
//!
//! Not under Miri: hundreds of files at every cut would take it days, and it has no guard pages. `pair.rs` and
//! `faults.rs` run the same code there.
#![cfg(not(miri))]

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use wire::http1::{BodyStep, Receiver};
use wire::message::{Fault, Field, Limits, Version};

const RANDOM_SPLITS: usize = 20;
/// Cases up to this many bytes are cut at every position; for longer ones that would take quadratic time.
const SHORT: usize = 600;
/// A request that may follow any other on a persistent connection.
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: next.example\r\n\r\n";

// ---------------------------------------------------------------------------------------------------------- cases

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    method: String,
    target: String,
    version: String,
    fields: Vec<(String, String)>,
    body: String,
    keep_alive: bool,
    #[serde(default)]
    trailers: usize,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseLimits {
    body: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Valid {
    #[serde(rename = "rule")]
    _rule: String,
    requests: Vec<Request>,
    #[serde(default)]
    rest: usize,
    #[serde(default)]
    limits: CaseLimits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Invalid {
    #[serde(rename = "rule")]
    _rule: String,
    fault: String,
    status: u16,
    before: Vec<Request>,
    #[serde(default)]
    eof: bool,
    #[serde(default)]
    limits: CaseLimits,
}

/// The expected result of a case, valid or invalid.
struct Case {
    name: String,
    bytes: Vec<u8>,
    limits: Limits,
    expected: Outcome,
    /// True if the input ends after the bytes: the receiver then learns of the end.
    ends: bool,
}

impl Case {
    fn is_valid(&self) -> bool {
        matches!(self.expected.end, End::Waiting | End::Closed { .. })
    }
}

fn folder(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/http1").join(kind)
}

/// Every case of a folder by name: its bytes and its description.
fn read_folder<T: for<'a> Deserialize<'a>>(kind: &str) -> Vec<(String, Vec<u8>, T)> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder(kind)).expect("the corpus is in the source tree") {
        let path = entry.expect("a directory can be read").path();
        if path.extension().is_none_or(|extension| extension != "http") {
            continue;
        }
        let name = format!("{kind}/{}", path.file_stem().and_then(|stem| stem.to_str()).expect("names are ASCII"));
        let text = fs::read(path.with_extension("json")).unwrap_or_else(|error| panic!("{name}.json: {error}"));
        let said = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name}.json: {error}"));
        cases.push((name, fs::read(&path).expect("a file can be read"), said));
    }
    assert!(cases.len() >= 100, "{kind} has only {} cases", cases.len());
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

fn limits(case: &CaseLimits) -> Limits {
    let mut limits = Limits::default();
    limits.body = case.body.unwrap_or(limits.body);
    limits
}

fn valid_cases() -> Vec<Case> {
    let case = |(name, bytes, said): (String, Vec<u8>, Valid)| {
        let persists = said.requests.last().expect("a valid case has a request").keep_alive;
        assert!(!persists || said.rest == 0, "{name}: a connection that persists leaves nothing unread");
        let end = if persists { End::Waiting } else { End::Closed { rest: said.rest } };
        let expected = Outcome { requests: said.requests, end };
        Case { name, bytes, limits: limits(&said.limits), expected, ends: false }
    };
    read_folder("valid").into_iter().map(case).collect()
}

fn invalid_cases() -> Vec<Case> {
    let case = |(name, bytes, said): (String, Vec<u8>, Invalid)| {
        let fault = Fault::ALL.iter().copied().find(|fault| fault.name() == said.fault);
        let fault = fault.unwrap_or_else(|| panic!("{name}: there is no fault {}", said.fault));
        assert_eq!(fault.status(), said.status, "{name}: the status of {}", said.fault);
        let expected = Outcome { requests: said.before, end: End::Fault(fault) };
        Case { name, bytes, limits: limits(&said.limits), expected, ends: said.eof }
    };
    read_folder("invalid").into_iter().map(case).collect()
}

// --------------------------------------------------------------------------------------------------------- reading

#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// A rule was broken.
    Fault(Fault),
    /// The last request closes the connection; this many bytes stay unread.
    Closed { rest: usize },
    /// Everything was used, and another request may follow.
    Waiting,
    /// Not everything was used, and no rule is broken yet.
    Partial,
}

#[derive(Clone, PartialEq, Eq)]
struct Outcome {
    requests: Vec<Request>,
    end: End,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after", self.end)?;
        for request in &self.requests {
            let text: String = format!("{request:?}").chars().take(400).collect();
            write!(f, " {text}")?;
        }
        write!(f, " {} requests", self.requests.len())
    }
}

/// A receiver and the current request.
struct Reader<'l> {
    receiver: Receiver,
    limits: &'l Limits,
    fields: Vec<Field>,
    current: Option<Request>,
    requests: Vec<Request>,
    /// Number of bytes used up to the end of each request.
    boundaries: Vec<usize>,
    used: usize,
    end: Option<End>,
}

impl<'l> Reader<'l> {
    fn new(limits: &'l Limits) -> Self {
        Self {
            receiver: Receiver::default(),
            limits,
            fields: Vec::new(),
            current: None,
            requests: Vec::new(),
            boundaries: Vec::new(),
            used: 0,
            end: None,
        }
    }

    /// Reads what can be read of `input`, the bytes not used so far; returns how many of them are used now.
    fn read(&mut self, input: &[u8]) -> usize {
        let before = self.used;
        while self.end.is_none() && self.step(&input[self.used - before..]) {}
        self.used - before
    }

    /// Takes one step; returns whether another may be possible without more input.
    fn step(&mut self, input: &[u8]) -> bool {
        let result = if self.current.is_none() { self.head(input) } else { self.body(input) };
        match result {
            Ok((used, more)) => {
                assert!(used <= input.len(), "no more bytes are used than given");
                self.used += used;
                more
            }
            Err(fault) => {
                self.end = Some(End::Fault(fault));
                false
            }
        }
    }

    fn head(&mut self, input: &[u8]) -> Result<(usize, bool), Fault> {
        let Some(head) = self.receiver.head(input, &mut self.fields, self.limits)? else {
            return Ok((0, false));
        };
        self.current = Some(Request {
            method: latin1(head.request.method),
            target: latin1(head.request.target.raw),
            version: match head.request.version {
                Version::Http10 => "1.0".into(),
                Version::Http11 => "1.1".into(),
                Version::Http2 => "2".into(),
            },
            fields: head
                .request
                .fields
                .iter()
                .map(|f| (latin1(f.name(head.request.block)), latin1(f.value(head.request.block))))
                .collect(),
            body: String::new(),
            keep_alive: head.keep_alive,
            trailers: 0,
        });
        Ok((head.length, true))
    }

    fn body(&mut self, input: &[u8]) -> Result<(usize, bool), Fault> {
        let request = self.current.as_mut().expect("a body follows a head");
        let (used, step) = self.receiver.body(input, self.limits)?;
        match step {
            BodyStep::Data(data) => {
                assert!(!data.is_empty(), "a step through a body returns data or says that there is none");
                request.body.push_str(&latin1(data));
            }
            BodyStep::Trailer { .. } => request.trailers += 1,
            BodyStep::More => return Ok((used, false)),
            BodyStep::End => {
                if !request.keep_alive {
                    self.end = Some(End::Closed { rest: 0 });
                }
                self.requests.extend(self.current.take());
                self.boundaries.push(self.used + used);
            }
        }
        Ok((used, true))
    }

    /// Ends the input; `rest` is what [`read`](Self::read) did not use.
    fn finish(self, rest: &[u8], ends: bool) -> (Outcome, Vec<usize>) {
        let end = match self.end {
            Some(End::Closed { .. }) => End::Closed { rest: rest.len() },
            Some(end) => end,
            None if ends => match self.receiver.end_of_input(rest) {
                Ok(()) => End::Waiting,
                Err(fault) => End::Fault(fault),
            },
            None if self.current.is_none() && rest.is_empty() => End::Waiting,
            None => End::Partial,
        };
        (Outcome { requests: self.requests, end }, self.boundaries)
    }
}

/// Reads `bytes` in pieces that end at `cuts`, as a connection does: unused bytes are offered again with the next
/// piece.
fn read_in_pieces(bytes: &[u8], cuts: &[usize], limits: &Limits, ends: bool) -> Outcome {
    let mut reader = Reader::new(limits);
    let mut kept: Vec<u8> = Vec::new();
    let mut start = 0;
    for &cut in cuts.iter().chain([&bytes.len()]) {
        kept.extend_from_slice(&bytes[start..cut]);
        let used = reader.read(&kept);
        kept.drain(..used);
        start = cut;
    }
    reader.finish(&kept, ends).0
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

// ------------------------------------------------------------------------------------------------------- reporting

/// Collects failures, so that one run reports every case that fails.
#[derive(Default)]
struct Report {
    failures: Vec<String>,
    checks: usize,
}

impl Report {
    fn check(&mut self, name: &str, how: impl FnOnce() -> String, expected: &Outcome, found: &Outcome) {
        self.checks += 1;
        if expected != found {
            self.failures.push(format!("{name}, {}:\n  expected {expected:?}\n  found    {found:?}", how()));
        }
    }

    fn finish(self) {
        assert!(self.checks > 0, "nothing was checked");
        let mut shown: BTreeMap<&str, &str> = BTreeMap::new();
        for failure in &self.failures {
            shown.entry(failure.split(',').next().expect("split gives one")).or_insert(failure);
        }
        let text: Vec<&str> = shown.values().copied().collect();
        assert!(
            text.is_empty(),
            "{} cases fail, {} of {} checks; the first of each:\n{}",
            text.len(),
            self.failures.len(),
            self.checks,
            text.join("\n")
        );
    }
}

/// `SplitMix64`, which is enough for reproducible cuts.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to but not including `bound`.
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("usize fits");
        usize::try_from(self.next() % bound).expect("it is below a usize")
    }

    /// Up to 16 positions at which to cut `length` bytes, in order.
    fn cuts(&mut self, length: usize) -> Vec<usize> {
        let mut cuts: Vec<usize> = (0..=self.below(16)).map(|_| self.below(length + 1)).collect();
        cuts.sort_unstable();
        cuts
    }
}

fn seed() -> u64 {
    let seed = std::env::var("KIRSCH_SEED").map_or(20_261_120, |text| {
        text.parse().unwrap_or_else(|_| panic!("KIRSCH_SEED is a number of 64 bits, not {text:?}"))
    });
    println!("KIRSCH_SEED={seed}");
    seed
}

fn all_cases() -> impl Iterator<Item = Case> {
    valid_cases().into_iter().chain(invalid_cases())
}

// ----------------------------------------------------------------------------------------------------------- tests

#[test]
fn cases_read_whole() {
    let mut report = Report::default();
    for case in all_cases() {
        let found = read_in_pieces(&case.bytes, &[], &case.limits, case.ends);
        report.check(&case.name, || "whole".into(), &case.expected, &found);
    }
    report.finish();
}

#[test]
fn cases_read_byte_by_byte() {
    let mut report = Report::default();
    for case in all_cases() {
        let cuts: Vec<usize> = (1..case.bytes.len()).collect();
        let found = read_in_pieces(&case.bytes, &cuts, &case.limits, case.ends);
        report.check(&case.name, || "byte by byte".into(), &case.expected, &found);
    }
    report.finish();
}

#[test]
fn short_cases_read_cut_in_two_anywhere() {
    let mut report = Report::default();
    for case in all_cases().filter(|case| case.bytes.len() <= SHORT) {
        for cut in 1..case.bytes.len() {
            let found = read_in_pieces(&case.bytes, &[cut], &case.limits, case.ends);
            report.check(&case.name, || format!("cut at {cut}"), &case.expected, &found);
        }
    }
    report.finish();
}

#[test]
fn cases_read_at_random_splits() {
    let seed = seed();
    let mut report = Report::default();
    for case in all_cases() {
        // Each case has a generator of its own: a new case does not change the cuts of the others.
        let mut random =
            Random(case.name.bytes().fold(seed, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)));
        for _ in 0..RANDOM_SPLITS {
            let cuts = random.cuts(case.bytes.len());
            let found = read_in_pieces(&case.bytes, &cuts, &case.limits, case.ends);
            report.check(&case.name, || format!("KIRSCH_SEED={seed}, cut at {cuts:?}"), &case.expected, &found);
        }
    }
    report.finish();
}

#[test]
fn bytes_after_a_case_are_read_as_the_next_request_or_left_unread() {
    let next = read_in_pieces(NEXT, &[], &Limits::default(), false);
    assert_eq!((next.requests.len(), &next.end), (1, &End::Waiting));
    let mut report = Report::default();
    for case in all_cases().filter(|case| !case.ends) {
        let bytes = [&case.bytes, NEXT].concat();
        let mut expected = case.expected.clone();
        match &mut expected.end {
            End::Waiting => expected.requests.extend(next.requests.iter().cloned()),
            End::Closed { rest } => *rest += NEXT.len(),
            End::Fault(_) | End::Partial => {}
        }
        for cuts in [vec![], vec![case.bytes.len()], (1..bytes.len()).collect()] {
            let found = read_in_pieces(&bytes, &cuts, &case.limits, false);
            report.check(&case.name, || format!("another behind it in {} pieces", cuts.len() + 1), &expected, &found);
        }
    }
    report.finish();
}

/// A truncated valid case gives `Truncated`, or some whole requests; no other rule is broken.
#[test]
fn truncated_valid_cases_give_truncated_or_whole_requests() {
    let seed = seed();
    let mut random = Random(seed);
    let mut report = Report::default();
    for case in valid_cases() {
        let mut reader = Reader::new(&case.limits);
        let used = reader.read(&case.bytes);
        let (outcome, boundaries) = reader.finish(&case.bytes[used..], false);
        let cuts: Vec<usize> = match case.bytes.len() {
            0..=SHORT => (0..case.bytes.len()).collect(),
            length => (0..RANDOM_SPLITS).map(|_| random.below(length)).collect(),
        };
        for cut in cuts {
            let whole = boundaries.partition_point(|&boundary| boundary <= cut);
            let start = whole.checked_sub(1).map_or(0, |last| boundaries[last]);
            let unread = &case.bytes[start..cut];
            let end = match outcome.requests[..whole].last() {
                Some(last) if !last.keep_alive => End::Closed { rest: unread.len() },
                _ if unread.iter().all(|byte| b"\r\n".contains(byte)) => End::Waiting,
                _ => End::Fault(Fault::Truncated),
            };
            let expected = Outcome { requests: outcome.requests[..whole].to_vec(), end };
            for cuts in [vec![], vec![cut / 2]] {
                let found = read_in_pieces(&case.bytes[..cut], &cuts, &case.limits, true);
                report.check(&case.name, || format!("cut off at {cut}, seed {seed}"), &expected, &found);
            }
        }
    }
    report.finish();
}

#[test]
fn every_fault_is_reached_twice() {
    let cases = invalid_cases();
    // The rules about trusted proxies have a corpus of their own: `forwarded.rs`.
    let of_proxies = [Fault::ForwardedContradictory, Fault::ForwardedInvalid];
    for &fault in Fault::ALL
        .iter()
        .filter(|fault| !of_proxies.contains(fault) && !Fault::GATEWAY.contains(fault) && **fault != Fault::HTTP2)
    {
        let count = cases.iter().filter(|case| case.expected.end == End::Fault(fault)).count();
        assert!(count >= 2, "{fault:?} has {count} cases");
    }
    assert!(valid_cases().iter().all(Case::is_valid));
}

// ------------------------------------------------------------------------------------------------------ guard page

/// Memory in which a slice can end at the end of the mapping. The page after it is inaccessible, so reading one byte
/// too many kills the process.
#[cfg(unix)]
mod guard {
    use std::ptr;

    pub(crate) struct Guarded {
        base: *mut libc::c_void,
        usable: usize,
        page: usize,
    }

    impl Guarded {
        /// Memory for at least `least` bytes.
        pub(crate) fn new(least: usize) -> Self {
            // SAFETY: `sysconf` reads a constant of the system and touches no memory of ours.
            let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a page has a size");
            let usable = least.next_multiple_of(page).max(page);
            // SAFETY: an anonymous private mapping at an address of the kernel's choice overlaps nothing.
            let base = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    usable + page,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            assert_ne!(base, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
            // SAFETY: the last page of the mapping made just now; nothing refers to it.
            let protected = unsafe { libc::mprotect(base.byte_add(usable), page, libc::PROT_NONE) };
            assert_eq!(protected, 0, "mprotect: {}", std::io::Error::last_os_error());
            Self { base, usable, page }
        }

        /// A copy of `bytes` that ends where the guard page begins.
        pub(crate) fn place(&mut self, bytes: &[u8]) -> &[u8] {
            assert!(bytes.len() <= self.usable);
            // SAFETY: `usable` bytes from `base` on are mapped readable and writable for as long as `self` lives, and
            // the exclusive borrow of `self` ends any earlier slice into them.
            let room = unsafe { std::slice::from_raw_parts_mut(self.base.cast::<u8>(), self.usable) };
            let start = self.usable - bytes.len();
            room[start..].copy_from_slice(bytes);
            &room[start..]
        }

        /// Reads the byte after the end, which kills the process.
        pub(crate) fn touch(&self) -> u8 {
            // SAFETY: never safe to go on after, which is the point: the address is mapped without any permission, so
            // the read cannot yield a value and cannot alias anything. Only a child process made for dying calls it.
            unsafe { ptr::read_volatile(self.base.byte_add(self.usable).cast::<u8>()) }
        }
    }

    impl Drop for Guarded {
        fn drop(&mut self) {
            // SAFETY: the mapping of `new`, whole; slices into it borrow `self` and are gone.
            unsafe { libc::munmap(self.base, self.usable + self.page) };
        }
    }
}

/// Every case, and every prefix of a short one, where reading one byte beyond the input kills the process.
#[cfg(unix)]
#[test]
fn receiver_reads_no_byte_beyond_its_input() {
    let mut report = Report::default();
    let longest = all_cases().map(|case| case.bytes.len()).max().expect("there are cases");
    let mut guarded = guard::Guarded::new(longest);
    for case in all_cases() {
        let input = guarded.place(&case.bytes);
        let mut reader = Reader::new(&case.limits);
        let used = reader.read(input);
        let found = reader.finish(&input[used..], case.ends).0;
        report.check(&case.name, || "against a guard page".into(), &case.expected, &found);
        if case.bytes.len() > SHORT {
            continue;
        }
        for end in 0..case.bytes.len() {
            let mut reader = Reader::new(&case.limits);
            let used = reader.read(guarded.place(&case.bytes[..end]));
            // Unused bytes are offered again with the rest after them, flush with the page once more.
            reader.read(guarded.place(&case.bytes[used..]));
            assert!(reader.used <= case.bytes.len(), "{}: more is used than there is", case.name);
        }
    }
    report.finish();
}

/// The test above proves something only if the guard page works.
#[cfg(unix)]
#[test]
fn guard_page_kills_a_process_that_reads_it() {
    use std::os::unix::process::ExitStatusExt;
    const MARK: &str = "KIRSCH_TOUCH_GUARD";
    if std::env::var_os(MARK).is_some() {
        // SAFETY: sets a limit of this process, which is about to die and should leave no core file behind.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 }) };
        let byte = guard::Guarded::new(1).touch();
        unreachable!("the guard page was read as {byte}");
    }
    let status = std::process::Command::new(std::env::current_exe().expect("tests know their file"))
        .args(["--exact", "corpus::guard_page_kills_a_process_that_reads_it", "--test-threads=1"])
        .env(MARK, "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .expect("the test can run itself");
    let signal = status.signal();
    assert!(matches!(signal, Some(libc::SIGSEGV | libc::SIGBUS)), "it ended with {status}, not by the guard page");
}
