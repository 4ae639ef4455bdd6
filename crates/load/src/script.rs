//! The requests of a plan, serialized, and the checks of their responses.

use crate::answers::{Answer, Hash, Wanted};
use crate::failure::{Class, Failure};
use crate::plan::{Checks, Expected, KeepAlive, Order, Plan, PlanError, Request, StatusRange, Version};
use crate::result::Sample;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;
use wire::http1::client::{Content, Draft, Sender};
use wire::http2::is_connection_specific;

/// The size of a chunk of a request body, in bytes.
const CHUNK: usize = 16 * 1024;

/// All requests of a plan, and the rule that chooses the next one.
#[derive(Debug)]
pub(crate) struct Script {
    forms: Vec<Form>,
    /// The maximum number of requests on one connection.
    pub(crate) per_connection: u64,
    order: Order,
    /// Cumulative sums of the weights.
    weights: Vec<u64>,
    next: usize,
    random: fastrand::Rng,
}

/// A serialized request and its checks.
#[derive(Debug)]
pub(crate) struct Form {
    /// The request's bytes, if the connection stays open after it.
    usual: Vec<u8>,
    /// The request's bytes, if the connection is closed after it.
    last: Vec<u8>,
    /// The header fields for HTTP/2, with names in lower case; empty for other versions.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body, for HTTP/2.
    pub(crate) body: Vec<u8>,
    answers_head: bool,
    label: String,
    status: Vec<StatusRange>,
    length: Check<u64>,
    hash: Check<Hash>,
    /// The first response to this request; `None` before it.
    pub(crate) sample: Option<Sample>,
}

/// The value with which a property of a response is compared.
#[derive(Debug)]
enum Check<T> {
    Nothing,
    /// The value of the first response, which has not been received yet.
    First,
    Value(T),
}

impl Script {
    pub(crate) fn new(plan: &Plan) -> Result<Self, PlanError> {
        // HTTP/2 stream identifiers are odd and below 2^31.
        let most = if plan.version == Version::Http2 { 1 << 30 } else { u64::MAX };
        let mut per_connection = plan.keep_alive.requests().min(most);
        let mut forms = Vec::with_capacity(plan.requests.len());
        for (index, request) in plan.requests.iter().enumerate() {
            let (form, keeps_alive) =
                Form::new(plan, request).map_err(|problem| PlanError::at(format!("requests[{index}]"), problem))?;
            if !keeps_alive {
                // The request's own Connection field decides. Requests that differ in it cannot share a limit, so each
                // gets a connection.
                per_connection = 1;
            }
            forms.push(form);
        }
        let mut sum = 0;
        let weights = plan.requests.iter().map(|request| {
            sum += u64::from(request.weight);
            sum
        });
        let weights: Vec<_> = weights.collect();
        if plan.order == Order::Random && sum == 0 {
            return Err(PlanError::at(
                "requests".to_owned(),
                "all weights are 0, so none would ever be drawn".to_owned(),
            ));
        }
        Ok(Self {
            forms,
            per_connection,
            order: plan.order,
            weights,
            next: 0,
            // A separate generator of random numbers, so that another list of requests does not change the arrivals.
            random: fastrand::Rng::with_seed(plan.seed ^ 0x5c21_7074),
        })
    }

    pub(crate) fn form(&self, request: usize) -> &Form {
        &self.forms[request]
    }

    pub(crate) fn form_mut(&mut self, request: usize) -> &mut Form {
        &mut self.forms[request]
    }

    pub(crate) fn forms(&self) -> &[Form] {
        &self.forms
    }

    /// Chooses the next request. Returns its index.
    pub(crate) fn draw(&mut self) -> usize {
        if self.forms.len() == 1 {
            return 0;
        }
        match self.order {
            Order::Turn => {
                let this = self.next;
                self.next = (this + 1) % self.forms.len();
                this
            }
            Order::Random => {
                let point = self.random.u64(..self.weights[self.weights.len() - 1]);
                self.weights.partition_point(|&sum| sum <= point)
            }
        }
    }
}

impl Form {
    /// Serializes a request. Also returns true if its own fields allow the connection to stay open.
    fn new(plan: &Plan, request: &Request) -> Result<(Self, bool), String> {
        let version = match plan.version {
            Version::Http10 => wire::message::Version::Http10,
            // Names, values and targets follow the rules of HTTP/1.1 in HTTP/2 too.
            Version::Http11 | Version::Http2 => wire::message::Version::Http11,
        };
        let text = |error: wire::http1::client::ClientMisuse| error.to_string();
        let mut draft = Draft::new(request.method.as_bytes(), request.path.as_bytes(), version).map_err(text)?;
        if !request.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            draft.field(b"Host", plan.target.host.as_bytes()).map_err(|error| format!("target.host: {error}"))?;
        }
        for (name, value) in &request.fields {
            draft.field(name.as_bytes(), value.as_bytes()).map_err(|error| format!("field {name:?}: {error}"))?;
        }
        let own_close = request.fields.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("connection")
                && value.split(',').any(|wish| wish.trim().eq_ignore_ascii_case("close"))
        });
        let mut last = draft.clone();
        if plan.version != Version::Http10 {
            last.field(b"Connection", b"close").map_err(text)?;
        } else if plan.keep_alive != KeepAlive::Switch(false) && !own_close {
            draft.field(b"Connection", b"keep-alive").map_err(text)?;
        }
        let body = match &request.body {
            Some(body) => Some(STANDARD.decode(body).map_err(|error| format!("body: not base64: {error}"))?),
            None => None,
        };
        let checks = request.checks.as_ref().unwrap_or(&plan.checks);
        let usual = write(&draft, request, body.as_deref()).map_err(text)?;
        let last = write(&last, request, body.as_deref()).map_err(text)?;
        let is_multiplexed = plan.version == Version::Http2;
        let form = Self {
            fields: if is_multiplexed { multiplexed(plan, request, body.as_deref()) } else { Vec::new() },
            usual: if is_multiplexed { Vec::new() } else { usual },
            last: if is_multiplexed { Vec::new() } else { last },
            body: if is_multiplexed { body.unwrap_or_default() } else { Vec::new() },
            answers_head: request.method == "HEAD",
            label: format!("{} {}", request.method, request.path),
            status: checks.status.clone(),
            length: match checks.length {
                None => Check::Nothing,
                Some(Expected::First(_)) => Check::First,
                Some(Expected::Given(length)) => Check::Value(length),
            },
            hash: hash_check(checks)?,
            sample: None,
        };
        Ok((form, is_multiplexed || draft.keeps_alive() || plan.keep_alive == KeepAlive::Switch(false)))
    }

    /// Returns the request's bytes; `is_last`: the connection is closed after it.
    pub(crate) fn bytes(&self, is_last: bool) -> &[u8] {
        if is_last { &self.last } else { &self.usual }
    }

    /// Returns the method and the target, for messages.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Returns what the reader must keep of the next response.
    pub(crate) fn wanted(&self) -> Wanted {
        let is_first = self.sample.is_none();
        Wanted {
            answers_head: self.answers_head,
            hash: !matches!(self.hash, Check::Nothing) || is_first,
            head: is_first,
            content: false,
        }
    }

    /// Checks a response, and keeps it if it is the first one. Returns the failure and its description.
    pub(crate) fn judge(&mut self, request: usize, answer: &mut Answer) -> Result<(), (Failure, String)> {
        if let (None, Some(head), Some(hash)) = (&self.sample, answer.head.take(), &answer.hash) {
            self.sample = Some(Sample {
                request,
                status: answer.status,
                head: head.iter().map(|&byte| char::from(byte)).collect(),
                length: answer.length,
                sha256: hex(hash),
            });
        }
        if !self.status.is_empty() && !self.status.iter().any(|range| range.contains(answer.status)) {
            return Err((Failure::status(answer.status), format!("status {}", answer.status)));
        }
        self.length.compare(answer.length).map_err(|expected| {
            (Failure::of(Class::Length), format!("{} bytes of body instead of {expected}", answer.length))
        })?;
        if let Some(hash) = answer.hash {
            self.hash.compare(hash).map_err(|expected| {
                let (length, hash, expected) = (answer.length, hex(&hash), hex(&expected));
                (
                    Failure::of(Class::Hash),
                    format!("a body of {length} bytes with SHA-256 {hash} instead of {expected}"),
                )
            })?;
        }
        Ok(())
    }
}

impl<T: Copy + PartialEq> Check<T> {
    /// Compares a value with the expected one. Returns the expected value as the error if they differ.
    fn compare(&mut self, value: T) -> Result<(), T> {
        match *self {
            Self::Nothing => Ok(()),
            Self::First => {
                *self = Self::Value(value);
                Ok(())
            }
            Self::Value(expected) if expected == value => Ok(()),
            Self::Value(expected) => Err(expected),
        }
    }
}

fn hash_check(checks: &Checks) -> Result<Check<Hash>, String> {
    match &checks.sha256 {
        None => Ok(Check::Nothing),
        Some(Expected::First(_)) => Ok(Check::First),
        Some(Expected::Given(text)) => {
            unhex(text).map(Check::Value).ok_or_else(|| "checks.sha256: 64 hexadecimal digits or \"first\"".to_owned())
        }
    }
}

fn content(request: &Request, body: Option<&[u8]>) -> Content {
    match body {
        Some(_) if request.chunked => Content::Chunked,
        Some(body) => Content::Length(body.len() as u64),
        // These methods usually have a body, and should declare a length of 0 without one (RFC 9110 section 8.6).
        None if matches!(request.method.as_str(), "POST" | "PUT" | "PATCH") => Content::Length(0),
        None => Content::None,
    }
}

/// Returns the fields of a request for HTTP/2 (RFC 9113 section 8.3.1), without those that are specific to HTTP/1.
fn multiplexed(plan: &Plan, request: &Request, body: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let scheme = if plan.tls.is_some() { "https" } else { "http" };
    let host = request.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let authority = host.map_or(plan.target.host.as_str(), |(_, value)| value);
    let pseudo =
        [(":method", &*request.method), (":scheme", scheme), (":authority", authority), (":path", &*request.path)];
    let mut fields: Vec<_> = pseudo.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).into();
    for (name, value) in &request.fields {
        let name = name.to_ascii_lowercase();
        let is_left_out =
            name == "host" || is_connection_specific(name.as_bytes()) || name == "te" && value != "trailers";
        if !is_left_out {
            fields.push((name.into_bytes(), value.trim().as_bytes().to_vec()));
        }
    }
    if let Content::Length(length) = content(request, body) {
        fields.push((b"content-length".to_vec(), length.to_string().into_bytes()));
    }
    fields
}

fn write(draft: &Draft, request: &Request, body: Option<&[u8]>) -> Result<Vec<u8>, wire::http1::client::ClientMisuse> {
    let mut out = Vec::new();
    let content = content(request, body);
    let mut sender = Sender::begin(draft, content, &mut out)?;
    let body = body.unwrap_or_default();
    let part = if content == Content::Chunked { CHUNK } else { body.len().max(1) };
    for part in body.chunks(part) {
        sender.open(part.len() as u64, &mut out)?;
        out.extend_from_slice(part);
        sender.close(part.len() as u64, &mut out);
    }
    sender.finish(&[], &mut out)?;
    Ok(out)
}

fn hex(hash: &Hash) -> String {
    let mut text = String::with_capacity(64);
    for byte in hash {
        write!(text, "{byte:02x}").ok();
    }
    text
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(hash)
}
