//! The reception of a request: the steps that decide, from its head, who answers it.

use super::front::Front;
use super::link::Link;
use crate::app::{App, CallId, Refusal, RefusalCause, TermsOf};
use crate::compression::Offer;
use crate::config::WebSocketConfig;
use crate::context::EngineContext;
use crate::observe::{Observer, Stage};
use crate::protocol::ResponseTerms;
use crate::responder::{Answer, Responder};
use crate::websocket::Upgrade;
use wire::message::{BodyLength, Draft, Fault, Page, RequestHead};
use wire::websocket::{Carrier, Opening, WebSocketRefusal, wants_websocket};

/// The decision about how a request is answered.
pub(super) enum Verdict<A: App> {
    /// The head cannot come from a trusted proxy. Holds the rule that it breaks.
    Broken(Fault),
    /// A health check.
    HealthCheck,
    /// The connection has no room for another exchange.
    NoRoom,
    /// The engine answers the request by itself, for example with a static file. `has_body`: the request has a body,
    /// which is not read.
    File { answer: Box<Answer>, has_body: bool },
    /// A WebSocket handshake that breaks a rule. Holds the response.
    BadHandshake(Box<(Draft, String)>),
    /// The application refuses such requests for a while.
    Refused(Refusal),
    /// The application answers the request.
    Accepted(AcceptedRequest<A>),
}

/// A request that the application answers.
pub(super) struct AcceptedRequest<A: App> {
    pub(super) request: A::Request,
    pub(super) length: BodyLength,
    pub(super) upgrade: Option<Box<Upgrade<A::Message>>>,
    /// The content coding that the client accepts for the response.
    pub(super) offer: Offer,
}

/// The state that a session keeps about the heads that its protocol remembers, because clients repeat heads.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    /// True if the kept head ([`RequestHead::retained`]) has a field Upgrade. So the engine need not search the fields
    /// of heads that share its fields.
    has_upgrade: bool,
}

impl Repeated {
    /// Examines the fields of a head that the protocol keeps.
    #[inline]
    fn note(&mut self, head: &RequestHead<'_>) {
        if head.retained {
            self.has_upgrade = head.field(b"upgrade").is_some();
        }
    }

    /// Returns true if the request may ask for a WebSocket.
    #[inline]
    fn may_upgrade(&self, head: &RequestHead<'_>) -> bool {
        self.has_upgrade || head.is_websocket || head.changed.is_none() && !head.retained
    }
}

/// The state, in addition to the head, on which the decision about a request depends.
pub(super) struct Reception<'h> {
    /// The identifier of the call, if the application is called.
    pub(super) call: CallId,
    /// True if another exchange may begin.
    pub(super) has_room: bool,
    pub(super) repeated: &'h mut Repeated,
    /// The proxies in front of the server; `None` if there cannot be any.
    pub(super) front: Option<&'h mut Front>,
}

impl<'h> Reception<'h> {
    /// Decides how a request is answered. Changes `terms` for a handshake after which a proxy may not reuse the
    /// connection.
    #[inline]
    pub(super) fn judge<A: App>(
        self,
        head: &mut RequestHead<'h>,
        terms: &mut TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Verdict<A> {
        if let Some(front) = self.front
            && let Err(fault) = front.forwarding.apply(head, context.config.trust.as_ref())
        {
            return Verdict::Broken(fault);
        }
        self.repeated.note(head);
        if context.responders.health.answers(head) {
            return Verdict::HealthCheck;
        }
        if !self.has_room {
            return Verdict::NoRoom;
        }
        if let Some(edge) = &context.config.edge
            && let Some(answer) = edge.answer(head, link.redirects())
        {
            let body_bytes = if head.method == b"HEAD" { 0 } else { answer.body_bytes() };
            app.served(head, answer.draft(), body_bytes, link.app_data());
            return Verdict::File { answer: Box::new(answer), has_body: !head.body.is_empty() };
        }
        if context.responders.files.is_some()
            && let Some(answer) = find_file(head, link, context, app)
        {
            return Verdict::File { answer: Box::new(answer), has_body: !head.body.is_empty() };
        }
        let config = context.config.websocket.as_ref();
        match config.filter(|_| self.repeated.may_upgrade(head) && wants_websocket(head)) {
            Some(config) => match ask_for_upgrade(head, terms, config) {
                Ok(upgrade) => refuse_or_begin(head, upgrade, self.call, link, context, app),
                Err(refusal) => {
                    let text = refusal.text();
                    let draft = refusal.draft(&text);
                    let body_bytes = if head.method == b"HEAD" { 0 } else { text.len() as u64 };
                    app.served(head, &draft, body_bytes, link.app_data());
                    Verdict::BadHandshake(Box::new((draft, text)))
                }
            },
            None => refuse_or_begin(head, None, self.call, link, context, app),
        }
    }
}

/// Returns the response of the file responder, if it answers the request, and reports the response to the application.
fn find_file<A: App>(
    head: &RequestHead<'_>,
    link: &mut Link<A>,
    context: &mut EngineContext<A>,
    app: &mut A,
) -> Option<Answer> {
    let (now, wall) = (context.time.now, context.time.wall);
    let answer = context.responders.files.as_mut()?.answer(head, now, wall)?;
    let body_bytes = if head.method == b"HEAD" { 0 } else { answer.body_bytes() };
    app.served(head, answer.draft(), body_bytes, link.app_data());
    Some(answer)
}

/// A WebSocket handshake: the part that is kept until the application answers, and the client's offers.
type Asked<'h, M> = (Box<Upgrade<M>>, Opening<'h>);

/// Reads a WebSocket handshake. Returns `None` if the request is to be served as an ordinary one.
///
/// # Errors
/// The rule that the handshake breaks, if the configuration refuses such handshakes.
fn ask_for_upgrade<'h, T: ResponseTerms, M>(
    head: &RequestHead<'h>,
    terms: &mut T,
    config: &WebSocketConfig,
) -> Result<Option<Asked<'h, M>>, WebSocketRefusal> {
    let carrier = if head.is_websocket { Carrier::Connect } else { Carrier::Http1 };
    match Opening::read(head, carrier) {
        Ok(read) => Ok(Some((Box::new(Upgrade::Asked(read.keep(config.deflate))), read))),
        // An extended CONNECT cannot be served as an ordinary request.
        Err(refusal) if config.refuses_broken || head.is_websocket => Err(refusal),
        // Without `Connection: upgrade` no proxy considers the request an upgrade (RFC 9110 section 7.8).
        Err(WebSocketRefusal::ConnectionMissing) => Ok(None),
        // A proxy that ignores the status of the response forwards all further bytes as frames. So the connection ends
        // with this response, and none of these bytes is read as a request.
        Err(_) => {
            *terms = terms.ending();
            Ok(None)
        }
    }
}

/// Makes the application create its request from the head, unless it refuses such requests.
#[inline]
fn refuse_or_begin<A: App>(
    head: &mut RequestHead<'_>,
    upgrade: Option<Asked<'_, A::Message>>,
    call: CallId,
    link: &mut Link<A>,
    context: &mut EngineContext<A>,
    app: &mut A,
) -> Verdict<A> {
    if head.is_websocket {
        // The application receives an extended CONNECT (RFC 8441) as GET, like a WebSocket handshake over HTTP/1.1, so
        // that routing and access logs treat both alike.
        head.method = b"GET";
    }
    if let Some(refusal) = app.refuses(head, upgrade.is_some(), link.app_data()) {
        if let Some(RefusalCause::RateLimit(seconds)) = refusal.cause {
            return refuse_too_many(head, refusal, seconds, link, context, app);
        }
        let mut draft = Draft::default();
        // This cannot fail: it is a valid status.
        draft.start_refusal(refusal.status).ok();
        app.served(head, &draft, 0, link.app_data());
        return Verdict::Refused(refusal);
    }
    let offer = context.compression.as_ref().map(|compression| compression.offer(head)).unwrap_or_default();
    context.observer.switch(call, Stage::Environ);
    let (request, upgrade) = match upgrade {
        None => (app.begin(head, link.app_data()), None),
        Some((kept, opening)) => (app.begin_websocket(head, &opening, link.app_data()), Some(kept)),
    };
    context.observer.switch(call, Stage::Parse);
    Verdict::Accepted(AcceptedRequest { request, length: head.body, upgrade, offer })
}

/// Answers a request that exceeds a rate limit. The connection stays open unless the request has a body: a new
/// connection for each refused request would cost the server more than the refusal.
#[cold]
fn refuse_too_many<A: App>(
    head: &RequestHead<'_>,
    refusal: Refusal,
    seconds: u32,
    link: &mut Link<A>,
    context: &mut EngineContext<A>,
    app: &mut A,
) -> Verdict<A> {
    context.statistics.refused += 1;
    context.statistics.rate_limited += 1;
    let text = Page::text(refusal.status, refusal.explanation());
    let draft = Page::error(refusal.status, &text, Some(seconds.into())).draft();
    let answer = Answer::other((draft, text));
    let body_bytes = if head.method == b"HEAD" { 0 } else { answer.body_bytes() };
    app.served(head, answer.draft(), body_bytes, link.app_data());
    Verdict::File { answer: Box::new(answer), has_body: !head.body.is_empty() }
}
