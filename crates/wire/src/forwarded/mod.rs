//! The client of a request behind trusted proxies: `X-Forwarded-*` and `Forwarded` (RFC 7239).
//!
//! Each proxy appends the address of its client to the right end of a list. The entries to the left come from earlier
//! proxies, or from the client itself, which can write anything. So the list is read *from the right*: if an address
//! belongs to a trusted proxy, that proxy wrote the entry to the left of it. The first address that is not trusted is
//! the client. Nothing to the left of it is read.
//!
//! Only one family of fields is used, because a proxy that writes one forwards the other as the client sent it. The
//! other family is removed from all requests, and both are removed from requests of untrusted peers, because
//! applications read these fields themselves.
//!
//! Django and others treat `X-Forwarded-Proto` and `X_Forwarded_Proto` as one name. No proxy writes the second
//! spelling, and many forward it, so it is removed from every request, even from a trusted peer. Other fields that a
//! proxy sets, such as `X-Remote-User`, are protected too: a name with underscores is removed if the same name with
//! dashes is present.

mod node;
mod rfc7239;
mod trusted;
mod x_forwarded;

pub use node::Node;
pub use trusted::{AddressListError, Trusted};

use crate::http1::Receiver;
use crate::message::{Client, Fault, Field, Limits, RequestHead};

/// The fields that the trusted proxies write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// `X-Forwarded-For`, `X-Forwarded-Proto` and similar fields.
    #[default]
    X,
    /// `Forwarded` (RFC 7239).
    Rfc7239,
}

/// The trusted proxies, and which of their fields are used.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The proxies.
    pub proxies: Trusted,
    /// The fields that the proxies write.
    pub family: Family,
    /// True if the proxies also report the host.
    pub host: bool,
    /// True if the proxies also report the prefix of the application's paths. Only [`Family::X`] has a field for it.
    pub prefix: bool,
}

/// The data in the forwarding fields of one request.
#[derive(Debug, Default)]
struct Found<'a> {
    /// The address at which the search ended, and its port; `None` if there was no address.
    client: Option<Node>,
    is_https: Option<bool>,
    host: Option<&'a [u8]>,
    prefix: Option<&'a [u8]>,
}

/// The state of one connection for finding the clients of its requests.
///
/// The client of the head that the reader keeps ([`RequestHead::retained`]) is cached, so that it need not be read
/// again when the head is repeated.
#[derive(Debug)]
pub struct Forwarding {
    /// The peer of the connection.
    peer: Client,
    is_trusted: bool,
    /// The client of the last head for which `retained` was set; `None` if fields had to be removed from that head.
    kept: Option<KeptClient>,
    current: Client,
    /// Scratch space for heads from which fields are removed.
    fields: Vec<Field>,
}

/// The cached client of a head that the reader keeps.
#[derive(Debug)]
struct KeptClient {
    /// The number of the head ([`RequestHead::kept`]).
    head: u32,
    /// The scheme of the head ([`RequestHead::is_https`]), which is not a field.
    is_https: Option<bool>,
    client: Client,
}

impl Forwarding {
    /// Creates the state for a connection of `peer`. Without `trust`, the peer counts as the client of every request,
    /// and no field is removed.
    #[must_use]
    pub fn new(peer: Client, trust: Option<&Trust>) -> Self {
        let is_trusted = trust.is_some_and(|trust| trust.proxies.contains(peer.address));
        Self { current: peer.clone(), peer, is_trusted, kept: None, fields: Vec::new() }
    }

    /// Returns the peer of the connection.
    #[must_use]
    pub fn peer(&self) -> &Client {
        &self.peer
    }

    /// Returns true if the peer is a trusted proxy.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Sets the client of `head`, and removes the forwarding fields that no trusted proxy wrote.
    ///
    /// # Errors
    /// [`Fault::ForwardedContradictory`], [`Fault::ForwardedInvalid`].
    #[inline]
    pub fn apply<'a>(&'a mut self, head: &mut RequestHead<'a>, trust: Option<&Trust>) -> Result<(), Fault> {
        let Some(trust) = trust else {
            // A web server that forwards a request names the client in CGI variables.
            head.client = Some(&self.peer).filter(|_| !head.is_cgi);
            return Ok(());
        };
        if self.is_kept(head) {
            head.client = self.kept.as_ref().map(|kept| &kept.client);
            return Ok(());
        }
        self.read(head, trust)
    }

    /// Returns true if `head` has the same client as the cached one.
    fn is_kept(&self, head: &RequestHead<'_>) -> bool {
        let lines = Lines::of(head);
        let is_same = |&index: &u16| {
            let field = &head.fields[usize::from(index)];
            let names_client = || CLIENT_VARIABLES.contains(&field.name(head.block));
            !(lines.is_forwarding(field) || head.is_cgi && names_client())
        };
        self.kept.as_ref().is_some_and(|kept| kept.head == head.kept && kept.is_https == head.is_https)
            && head.changed.is_some_and(|changed| changed.iter().all(is_same))
    }

    fn read<'a>(&'a mut self, head: &mut RequestHead<'a>, trust: &Trust) -> Result<(), Fault> {
        let lines = Lines::of(head);
        let (mut peer, is_trusted) = if head.is_cgi {
            client_of_web_server(head, &self.peer, trust)
        } else {
            (self.peer.clone(), self.is_trusted)
        };
        if is_trusted && head.is_https.is_some() {
            // A field of the proxy that names the scheme takes precedence over this.
            peer.is_https = head.is_https;
        }
        let dashed = lines.dashed_lengths();
        let is_removed = |field: &Field| {
            if lines.is_forwarding(field) {
                !(is_trusted && lines.is_canonical(field) && trust.family.has(lines, field))
            } else {
                lines.is_shadow(field, dashed)
            }
        };
        let has_removed = head.fields.iter().any(is_removed);
        self.current = if is_trusted { trust.client(peer, lines)? } else { peer };
        if has_removed {
            self.fields = head.fields.iter().filter(|field| !is_removed(field)).copied().collect();
        }
        if head.retained {
            let kept = || KeptClient { head: head.kept, is_https: head.is_https, client: self.current.clone() };
            self.kept = (!has_removed).then(kept);
        }
        if has_removed {
            head.fields = &self.fields;
            // The reader's list of changed fields counts all fields of the block, so its indices do not fit the
            // remaining fields.
            head.changed = None;
            head.retained = false;
        }
        head.client = Some(&self.current);
        Ok(())
    }
}

impl Trust {
    /// Returns the client of a request that a trusted `peer` sent with these fields.
    fn client(&self, peer: Client, lines: Lines<'_>) -> Result<Client, Fault> {
        let found = match self.family {
            Family::X => x_forwarded::read(self, lines)?,
            Family::Rfc7239 => rfc7239::read(self, lines)?,
        };
        let mut client = peer;
        match found.client {
            Some(Node::Address(address, port)) => (client.address, client.port) = (Some(address), port),
            Some(Node::Unix) => (client.address, client.port) = (None, None),
            Some(Node::Hidden) | None => {}
        }
        client.is_https = found.is_https.or(client.is_https);
        client.host = found.host.filter(|_| self.host).map(Into::into);
        client.prefix = found.prefix.filter(|_| self.prefix).map(Into::into);
        Ok(client)
    }

    /// Returns the client of a sample request from `peer` with these field lines (without line ends).
    ///
    /// # Errors
    /// The rule that the lines break.
    pub fn client_of_lines(&self, peer: Client, lines: &[&[u8]]) -> Result<Client, Fault> {
        let mut request = b"GET / HTTP/1.1\r\nHost: localhost\r\n".to_vec();
        for line in lines {
            request.extend_from_slice(line);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let (mut receiver, mut fields) = (Receiver::default(), Vec::new());
        let head = receiver.head(&request, &mut fields, &Limits::default())?;
        let mut head = head.ok_or(Fault::HeadTooLarge)?.request;
        let mut forwarding = Forwarding::new(peer, Some(self));
        forwarding.apply(&mut head, Some(self))?;
        Ok(head.client.cloned().unwrap_or_default())
    }

    /// Returns true if the search continues to the left of this address: it belongs to a trusted proxy, which wrote
    /// that entry. If all addresses are trusted, only the last entry is known to come from a proxy.
    fn passes(&self, node: Node) -> bool {
        !self.proxies.is_all()
            && match node {
                Node::Address(address, _) => self.proxies.contains(Some(address)),
                Node::Unix => self.proxies.contains(None),
                Node::Hidden => false,
            }
    }
}

impl Family {
    /// Returns true if a forwarding field ([`Lines::is_forwarding`]) belongs to this family.
    fn has(self, lines: Lines<'_>, field: &Field) -> bool {
        (self == Family::Rfc7239) == lines.is(field, b"forwarded")
    }
}

/// The fields of a head, accessed by their names in HTTP, even if a web server has converted them to CGI variables.
#[derive(Clone, Copy)]
struct Lines<'a> {
    block: &'a [u8],
    fields: &'a [Field],
    is_cgi: bool,
}

impl<'a> Lines<'a> {
    fn of(head: &RequestHead<'a>) -> Self {
        Self { block: head.block, fields: head.fields, is_cgi: head.is_cgi }
    }

    fn is(self, field: &Field, name: &[u8]) -> bool {
        if self.is_cgi { field.is_variable_of(self.block, name) } else { field.is(self.block, name) }
    }

    fn has(self, name: &[u8]) -> bool {
        self.fields.iter().any(|field| self.is(field, name))
    }

    /// Returns the values of all fields called `name`, from the last to the first.
    fn values_from_the_right(self, name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().rev().filter(move |field| self.is(field, name)).map(move |field| field.value(self.block))
    }

    fn is_forwarding(self, field: &Field) -> bool {
        let name = field.name(self.block);
        if !self.is_cgi {
            return is_forwarding(name);
        }
        name.strip_prefix(b"HTTP_").is_some_and(is_forwarding)
    }

    /// Returns true if the name has the spelling that proxies use: no underscores; as a CGI variable, no lower case and
    /// no dashes.
    fn is_canonical(self, field: &Field) -> bool {
        let name = field.name(self.block);
        if self.is_cgi { is_canonical_variable(name) } else { !name.contains(&b'_') }
    }

    /// Returns the lengths of the names with dashes as a bit set; 0 if no name has underscores. This filter avoids
    /// comparing each of a client's many fields with all others.
    fn dashed_lengths(self) -> u64 {
        let has = |byte: u8| move |field: &&Field| memchr::memchr(byte, field.name(self.block)).is_some();
        if self.is_cgi || !self.fields.iter().any(|field| has(b'_')(&field)) {
            return 0;
        }
        self.fields.iter().filter(has(b'-')).fold(0, |lengths, field| lengths | length_bit(field.name(self.block)))
    }

    /// Returns true if the name has underscores, and another field has the same name with dashes.
    fn is_shadow(self, field: &Field, dashed: u64) -> bool {
        let name = field.name(self.block);
        let is_twin = |other: &Field| {
            let other = other.name(self.block);
            other.len() == name.len()
                && other.iter().zip(name).all(|(&other, &byte)| other != b'_' && folded(other) == folded(byte))
        };
        dashed & length_bit(name) != 0 && name.contains(&b'_') && self.fields.iter().any(is_twin)
    }
}

/// Returns the bit for the length of `name`.
fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % 64)
}

/// Returns true if the name of a CGI variable has neither lower-case letters nor dashes. A name that has them could
/// pose as the variable of a field, because frameworks ignore case and treat dashes as underscores.
#[must_use]
pub fn is_canonical_variable(name: &[u8]) -> bool {
    !name.iter().any(|byte| byte.is_ascii_lowercase() || *byte == b'-')
}

/// Returns a byte of a name in the form used for comparison: in lower case, with `-` for `_`.
fn folded(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}

/// The variables in which a web server names its client.
const CLIENT_VARIABLES: [&[u8]; 5] = [b"REMOTE_ADDR", b"REMOTE_PORT", b"HTTPS", b"REQUEST_SCHEME", b"UWSGI_SCHEME"];

/// Returns the client of a web server that forwards a request, from its CGI variables (RFC 3875 section 4.1), and true
/// if that client is a trusted proxy itself. `peer` is the web server.
fn client_of_web_server(head: &RequestHead<'_>, peer: &Client, trust: &Trust) -> (Client, bool) {
    let says = |name, words: &[&[u8]]| {
        head.variable(name).is_some_and(|value| words.iter().any(|word| value.eq_ignore_ascii_case(word)))
    };
    let is_https = says(b"HTTPS", &[b"on", b"1", b"true", b"yes"])
        || says(b"REQUEST_SCHEME", &[b"https"])
        || says(b"UWSGI_SCHEME", &[b"https"]);
    let node = Node::read(head.variable(b"REMOTE_ADDR").unwrap_or_default());
    let port = head.variable(b"REMOTE_PORT").and_then(|port| std::str::from_utf8(port).ok()?.parse().ok());
    let (address, is_trusted) = match node {
        Node::Address(address, _) => (Some(address), trust.proxies.contains(Some(address))),
        Node::Unix => (None, trust.proxies.contains(None)),
        Node::Hidden => (None, false),
    };
    let is_https = Some(is_https);
    (Client { address, port, is_https, connection: peer.connection.clone(), ..Client::default() }, is_trusted)
}

/// Fields in which proxies name the client, in addition to `Forwarded` and those that begin with `X-Forwarded-`.
const OTHERS: [&[u8]; 10] = [
    b"x-real-ip",
    b"x-client-ip",
    b"x-cluster-client-ip",
    b"true-client-ip",
    b"cf-connecting-ip",
    b"x-scheme",
    b"x-url-scheme",
    b"x-script-name",
    b"x-forwarded",
    b"front-end-https",
];

/// Returns true if a field of this name contains data about the client that only a proxy may report. Underscores count
/// as dashes.
#[must_use]
pub fn is_forwarding(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"x-forwarded-";
    let begins_with = |start: &[u8]| name.iter().zip(start).all(|(&byte, &other)| folded(byte) == other);
    let is = |other: &[u8]| name.len() == other.len() && begins_with(other);
    match name.first() {
        Some(b'x' | b'X') if name.len() > PREFIX.len() && begins_with(PREFIX) => true,
        Some(b'x' | b'X' | b't' | b'T' | b'c' | b'C') => OTHERS.iter().any(|other| is(other)),
        Some(b'f' | b'F') => is(b"forwarded") || is(b"front-end-https"),
        _ => false,
    }
}

/// Reads a scheme: true for https, false for http.
fn is_https(scheme: &[u8]) -> Result<bool, Fault> {
    let is = |name: &[u8]| scheme.eq_ignore_ascii_case(name);
    // A WebSocket handshake is an HTTP request, and some proxies report its scheme.
    if is(b"https") || is(b"wss") {
        Ok(true)
    } else if is(b"http") || is(b"ws") {
        Ok(false)
    } else {
        Err(Fault::ForwardedInvalid)
    }
}
