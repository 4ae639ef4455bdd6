//! The client's side of a connection with many exchanges at a time, in either [`Dialect`].
//!
//! A client begins exchanges, sends parts of their bodies in turn as far as the server accepts them, lets the server
//! send as each exchange's plan says, and resets some exchanges. The client checks each frame on arrival: it belongs to
//! an exchange that is under way, it fits the window, the body of a response is the planned one from its first byte on,
//! and nothing follows the end of an exchange.

use crate::clock::{Micros, Shared};
use crate::dialect::{Dialect, ServerMessage};
use crate::frames::WINDOW;
use crate::net::Network;
use crate::plan::{ExchangePlan, Garbage, PeerPlan, Plan, ResetTrigger, upload};
use crate::response::pattern;
use std::fmt;
use std::rc::Rc;

/// The number of unsent bytes above which a client writes no more frames.
const MOST_UNSENT: usize = 32 << 10;

/// The way in which the server ended an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With a complete response.
    Whole,
    /// The server has not processed the request, and the client may retry it.
    Refused,
    /// The response is truncated.
    Cut,
}

/// The part of a response that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The request that the response names in a field; `None` for pages of the server, which lack the field.
    pub(crate) id: Option<usize>,
    pub(crate) body: usize,
}

/// One exchange of a connection.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) id: usize,
    /// The time when the head was written, and the offset of the head's end in all bytes that the client writes.
    pub(crate) begun: Option<(Micros, usize)>,
    /// The number of other exchanges that may have been under way at the server when this one was begun.
    pub(crate) beside: usize,
    /// The number of bytes of the request's body that were written, and the number that the server accepts beyond them.
    sent: usize,
    credit: usize,
    is_body_over: bool,
    /// The number of bytes of the response that the server may send, the number of bytes that were read and not granted
    /// again, and the time when the client may grant again.
    window: usize,
    ungranted: usize,
    may_grant_at: Micros,
    /// The time when the client reset the exchange.
    pub(crate) reset: Option<Micros>,
    pub(crate) response: Option<Response>,
    /// The time when the exchange ended, and how it ended.
    pub(crate) end: Option<(Micros, End)>,
}

impl Exchange {
    fn new(id: usize) -> Self {
        Self {
            id,
            begun: None,
            beside: 0,
            sent: 0,
            credit: WINDOW,
            is_body_over: true,
            window: WINDOW,
            ungranted: 0,
            may_grant_at: 0,
            reset: None,
            response: None,
            end: None,
        }
    }

    fn is_under_way(&self) -> bool {
        self.begun.is_some() && self.reset.is_none() && self.end.is_none()
    }

    /// Returns true if the call may still run although the exchange has ended for the client. The server then still
    /// counts the exchange as under way.
    fn may_linger(&self) -> bool {
        self.reset.is_some() || matches!(self.end, Some((_, End::Cut))) || self.has_page()
    }

    /// Returns true if the server does not allow the client to send the rest of the request's body.
    pub(crate) fn is_starved(&self) -> bool {
        self.credit == 0 && !self.is_body_over
    }

    /// Returns true if the server has answered instead of the application.
    pub(crate) fn has_page(&self) -> bool {
        self.response.as_ref().is_some_and(|response| response.id.is_none())
    }

    /// Returns true if the client grants the server new bytes without delay.
    pub(crate) fn is_prompt(plan: &ExchangePlan) -> bool {
        plan.grants.pause == 0 && plan.grants.burst == usize::MAX
    }
}

/// All exchanges of a connection.
#[derive(Debug)]
pub(crate) struct Exchanges {
    peer: usize,
    depth: usize,
    thinks: Micros,
    world: Rc<Plan>,
    shared: Rc<Shared>,
    /// The exchanges in the order in which they begin.
    pub(crate) all: Vec<Exchange>,
    dialect: Dialect,
    may_begin_at: Micros,
    /// The time when the server announced that it begins no further exchange.
    pub(crate) goes_away_at: Option<Micros>,
    /// True if the server has ended the connection because the client behaves like an attacker.
    pub(crate) is_scolded: bool,
    /// The requests whose resets the server has read since this list was last taken.
    seen_resets: Vec<usize>,
    /// The index of the exchange whose body was last continued.
    turn: usize,
}

impl Exchanges {
    pub(crate) fn new(peer: usize, plan: &PeerPlan, world: &Rc<Plan>, shared: &Rc<Shared>) -> Self {
        Self {
            peer,
            depth: plan.depth,
            thinks: plan.thinks,
            world: Rc::clone(world),
            shared: Rc::clone(shared),
            all: plan.requests.iter().map(|&id| Exchange::new(id)).collect(),
            dialect: Dialect::new(world.is_http2),
            may_begin_at: 0,
            goes_away_at: None,
            is_scolded: false,
            seen_resets: Vec::new(),
            turn: 0,
        }
    }

    /// Returns true if no exchange is under way, and none is going to begin.
    pub(crate) fn are_over(&self) -> bool {
        let is_told = self.goes_away_at.is_some() || self.is_scolded;
        let begins = |exchange: &Exchange| exchange.begun.is_none() && !is_told;
        !self.all.iter().any(|exchange| exchange.is_under_way() || begins(exchange))
    }

    // ------------------------------------------------------------------------------------------------------ writing

    /// Appends the frames that are due to `out`, of which the first `sent` bytes have been sent. Returns the time when
    /// more frames are due.
    pub(crate) fn write(&mut self, connection: usize, sent: usize, out: &mut Vec<u8>, network: &mut Network) -> Micros {
        let now = self.shared.now();
        let world = Rc::clone(&self.world);
        network.seen_resets.extend(self.seen_resets.drain(..));
        self.dialect.write_control(out);
        let mut next = self.begin(out);
        for (index, exchange) in self.all.iter_mut().enumerate() {
            let Some((begun, _)) = exchange.begun.filter(|_| exchange.is_under_way()) else { continue };
            let plan = plan_of(&world, exchange.id);
            if let Some(ResetTrigger::After(time)) = plan.resets {
                next = next.min(begun + time);
            }
            let got = exchange.response.as_ref().map_or(0, |response| response.body);
            let resets = match plan.resets {
                Some(ResetTrigger::After(time)) => now >= begun + time,
                Some(ResetTrigger::Sent(bytes)) => exchange.sent >= bytes,
                Some(ResetTrigger::Got(bytes)) => exchange.response.is_some() && got >= bytes,
                None => false,
            };
            if resets {
                self.shared.trace(|| format!("peer {} resets request {}", self.peer, exchange.id));
                self.dialect.reset(index, out);
                exchange.reset = Some(now);
                network.resets.insert(exchange.id, (connection, out.len() as u64));
                continue;
            }
            if exchange.ungranted == 0 || plan.grants.burst == 0 {
                continue;
            }
            if now >= exchange.may_grant_at {
                let count = exchange.ungranted.min(plan.grants.burst);
                exchange.ungranted -= count;
                exchange.window += count;
                exchange.may_grant_at = now + plan.grants.pause;
                self.dialect.grant(index, count, out);
            }
            if exchange.ungranted > 0 {
                next = next.min(exchange.may_grant_at);
            }
        }
        while out.len() - sent < MOST_UNSENT && self.write_part(out) {}
        if out.len() - sent >= MOST_UNSENT { now } else { next }
    }

    /// Begins as many exchanges as allowed. Returns the time when another one may begin.
    fn begin(&mut self, out: &mut Vec<u8>) -> Micros {
        let now = self.shared.now();
        let world = Rc::clone(&self.world);
        while let Some(index) = self.all.iter().position(|exchange| exchange.begun.is_none())
            && self.goes_away_at.is_none()
            && !self.is_scolded
            && self.dialect.may_begin()
            && self.all.iter().filter(|exchange| exchange.is_under_way()).count() < self.depth
        {
            if now < self.may_begin_at {
                return self.may_begin_at;
            }
            let beside = self.all[..index].iter().filter(|other| other.is_under_way() || other.may_linger()).count();
            let exchange = &mut self.all[index];
            let request = &world.requests[exchange.id];
            exchange.is_body_over = request.body == 0;
            self.dialect.begin(index, request, out);
            exchange.begun = Some((now, out.len()));
            exchange.beside = beside;
            let extra = plan_of(&world, exchange.id).extra;
            if extra > 0 {
                exchange.window += extra as usize;
                self.dialect.grant(index, extra as usize, out);
            }
        }
        Micros::MAX
    }

    /// Writes a part of the body of the next exchange that may send one. Returns true if there was one.
    fn write_part(&mut self, out: &mut Vec<u8>) -> bool {
        let world = Rc::clone(&self.world);
        for _ in 0..self.all.len() {
            self.turn = (self.turn + 1) % self.all.len();
            let exchange = &mut self.all[self.turn];
            if let Some(window) = self.dialect.window(self.turn).filter(|_| exchange.is_under_way()) {
                exchange.credit = window;
            }
            let plan = plan_of(&world, exchange.id);
            let length = world.requests[exchange.id].body;
            // An exchange that is to be reset after a part of its body must not send the whole body before.
            let most = match plan.resets {
                Some(ResetTrigger::Sent(bytes)) => bytes.min(length),
                _ => plan.stalls_at.unwrap_or(length),
            };
            let credit = if plan.overruns { usize::MAX } else { exchange.credit };
            let count = plan.part.min(credit).min(most - exchange.sent);
            if !exchange.is_under_way() || exchange.is_body_over || count == 0 {
                continue;
            }
            let part = pattern(upload(exchange.id), exchange.sent, count);
            exchange.sent += count;
            exchange.credit = exchange.credit.saturating_sub(count);
            exchange.is_body_over = exchange.sent == length;
            self.dialect.data(self.turn, &part, exchange.is_body_over, out);
            return true;
        }
        false
    }

    // ------------------------------------------------------------------------------------------------------ reading

    /// Reads the complete messages in `input`, and removes them.
    pub(crate) fn read(&mut self, input: &mut Vec<u8>) {
        let mut dialect = std::mem::replace(&mut self.dialect, Dialect::new(false));
        let read = dialect.read(input, |dialect, message| {
            self.take(dialect, message).map_err(|what| format!("{what}: {:?}", Shown(message)))
        });
        self.dialect = dialect;
        match read {
            Ok(used) => drop(input.drain(..used)),
            Err(what) => self.shared.fail(|| format!("peer {}: {what}", self.peer)),
        }
    }

    fn take(&mut self, dialect: &Dialect, message: ServerMessage<'_>) -> Result<(), String> {
        let now = self.shared.now();
        let wrong = |what: &str| Err(what.to_owned());
        let index = match message {
            ServerMessage::Settings(allowed) => {
                let planned = self.world.config.exchanges;
                return if allowed as usize == planned { Ok(()) } else { wrong("the bound is another") };
            }
            ServerMessage::GoAway { from } => return self.take_end(from),
            ServerMessage::Broken { code } => {
                self.is_scolded = true;
                // The server takes many resets, refused requests and small windows for an attack (ENHANCE_YOUR_CALM).
                return if code == 11 { Ok(()) } else { wrong("the client is said to break a rule") };
            }
            ServerMessage::Windows => {
                for (index, exchange) in self.all.iter_mut().enumerate().filter(|(_, each)| each.is_under_way()) {
                    exchange.credit = dialect.window(index).unwrap_or(exchange.credit);
                }
                return Ok(());
            }
            ServerMessage::Credit { index, .. }
            | ServerMessage::Unwanted { index }
            | ServerMessage::Head { index, .. }
            | ServerMessage::Data { index, .. }
            | ServerMessage::End { index }
            | ServerMessage::Reset { index, .. } => index,
            ServerMessage::ResetSeen { index } => return self.take_seen(index),
        };
        let Some(exchange) = self.all.get_mut(index).filter(|exchange| exchange.begun.is_some()) else {
            return wrong("a message for an exchange that was never begun");
        };
        let (id, is_over) = (exchange.id, exchange.end.is_some());
        match message {
            ServerMessage::Credit { more, .. } => {
                exchange.credit += more;
                // The server may grant a byte again only after it has arrived.
                let is_too_much = exchange.credit > WINDOW && !plan_of(&self.world, id).overruns;
                return if is_too_much { wrong("the server takes more than its window") } else { Ok(()) };
            }
            ServerMessage::Unwanted { .. } => {
                exchange.is_body_over = true;
                return if exchange.response.is_some() { Ok(()) } else { wrong("complete without a response") };
            }
            _ if is_over => return wrong("a message behind the end of its exchange"),
            ServerMessage::Head { status, answered, .. } => {
                if answered.is_some_and(|answered| answered != id) {
                    return wrong("it answers another request");
                }
                let before = exchange.response.replace(Response { status, id: answered, body: 0 });
                return if before.is_some() { wrong("it is answered twice") } else { Ok(()) };
            }
            ServerMessage::Data { bytes, .. } => {
                let Some(response) = &mut exchange.response else { return wrong("a body without a head") };
                let count = bytes.len();
                if count > exchange.window {
                    return wrong("more than the window allows");
                }
                if response.id.is_some() && bytes != pattern(id, response.body, count) {
                    return wrong("the body is not the planned one");
                }
                response.body += count;
                exchange.window -= count;
                exchange.ungranted += count;
                return Ok(());
            }
            ServerMessage::End { .. } if exchange.response.is_none() => return wrong("an end without a response"),
            ServerMessage::End { .. } => exchange.end = Some((now, End::Whole)),
            ServerMessage::Reset { is_refused: true, .. } if exchange.response.is_some() => {
                return wrong("it is refused and answered");
            }
            ServerMessage::Reset { is_refused: true, .. } => exchange.end = Some((now, End::Refused)),
            ServerMessage::Reset { is_refused: false, .. } => exchange.end = Some((now, End::Cut)),
            _ => {}
        }
        self.may_begin_at = now + self.thinks;
        self.shared.trace(|| format!("peer {}: request {id} ends: {:?}", self.peer, self.all[index].end));
        Ok(())
    }

    /// Handles the message that the server has read the reset of an exchange.
    fn take_seen(&mut self, index: usize) -> Result<(), String> {
        let reset = self.all.get(index).filter(|exchange| exchange.reset.is_some());
        self.seen_resets.push(reset.ok_or("an answer that nothing asked for")?.id);
        Ok(())
    }

    /// Handles the announcement of the end: no exchange from the index `from` on has been begun or will be.
    fn take_end(&mut self, from: usize) -> Result<(), String> {
        let now = self.shared.now();
        let is_repeated = self.goes_away_at.is_some();
        self.goes_away_at.get_or_insert(now);
        for exchange in self.all.iter_mut().skip(from).filter(|exchange| exchange.is_under_way()) {
            if exchange.response.is_some() {
                return Err("it is answered, and said to be not begun".to_owned());
            }
            exchange.end = Some((now, End::Refused));
        }
        // HTTP/2 first announces the end, and then which exchange is the last one.
        let is_once = !self.world.is_http2 || from > self.all.len();
        if is_repeated && is_once { Err("the end is announced twice".to_owned()) } else { Ok(()) }
    }
}

/// A message without the bytes of a body, for failure reports.
struct Shown<'m>(ServerMessage<'m>);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ServerMessage::Data { index, bytes } => write!(out, "{} bytes of {index}", bytes.len()),
            message => write!(out, "{message:?}"),
        }
    }
}

pub(crate) fn plan_of(world: &Plan, id: usize) -> ExchangePlan {
    world.requests[id].exchange.expect("the world is multiplexed")
}

/// Returns true if the head of a request is malformed.
pub(crate) fn is_garbage(world: &Plan, id: usize) -> bool {
    matches!(world.requests[id].garbage, Some(Garbage::Head(_)))
}
