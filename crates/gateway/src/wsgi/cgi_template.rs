//! The environ of a connection's last request with CGI variables. The next environ is a copy of it in which only the
//! variables that differ are set.

use crate::object::Object;
use wire::forwarded::is_canonical_variable;
use wire::message::RequestHead;

/// The environ that the variables of a request became, before the application saw it. Web servers repeat most variables
/// on a connection, so that the next environ is a copy with a few other values.
pub(super) struct CgiTemplate {
    pub(super) environ: Object,
    /// The number of the head that the reader has kept, of which it was made ([`RequestHead::kept`]).
    kept: u32,
    /// `REQUEST_URI` was there and not empty.
    has_uri: bool,
}

impl CgiTemplate {
    /// `None` for a request that has a variable twice: the last value counts, or both.
    pub(super) fn new(environ: Object, head: &RequestHead<'_>) -> Option<Self> {
        let mut names: Vec<&[u8]> = head.fields.iter().map(|field| field.name(head.block)).collect();
        names.sort_unstable();
        let has_uri = head.variable(b"REQUEST_URI").is_some_and(|uri| !uri.is_empty());
        names.is_sorted_by(|one, other| one < other).then_some(Self { environ, kept: head.kept, has_uri })
    }

    /// The variables of `head` that differ from those here, as places among its fields; `None` if that makes another
    /// environ than a copy with those variables set anew.
    pub(super) fn changes<'a>(&self, head: &RequestHead<'a>) -> Option<&'a [u16]> {
        let changed = head.changed.filter(|_| head.kept == self.kept)?;
        let may_change = |&index: &u16| {
            let field = &head.fields[usize::from(index)];
            match field.name(head.block) {
                b"REMOTE_ADDR" | b"REMOTE_PORT" | b"SCRIPT_FILENAME" | b"PATH_TRANSLATED" => true,
                b"REQUEST_URI" => self.has_uri && !field.value(head.block).is_empty(),
                name => is_of_path(name) || name.starts_with(b"HTTP_") && matches!(use_of(name), Use::Plain),
            }
        };
        changed.iter().all(may_change).then_some(changed)
    }
}

/// Returns true if the path or the query of a request is made of this variable.
pub(super) fn is_of_path(name: &[u8]) -> bool {
    matches!(name, b"REQUEST_URI" | b"SCRIPT_NAME" | b"PATH_INFO" | b"DOCUMENT_URI" | b"QUERY_STRING")
}

/// The use of a variable.
pub(super) enum Use {
    /// It is a variable of the environ.
    Plain,
    /// It is one unless it is empty, which is how some web servers say that there is none.
    UnlessEmpty,
    /// It is no variable of the environ.
    Dropped,
}

pub(super) fn use_of(name: &[u8]) -> Use {
    match name {
        b"CONTENT_LENGTH" | b"CONTENT_TYPE" | b"SERVER_NAME" | b"SERVER_PORT" | b"SERVER_PROTOCOL" | b"HTTPS"
        | b"HTTP_HOST" | b"REQUEST_URI" => Use::UnlessEmpty,
        // They are set from the path; it is this server that calls the application; `HTTP_PROXY` is a variable that
        // libraries take for their own (CVE-2016-5385); the coding is undone; the other two stand without `HTTP_`.
        b"SCRIPT_NAME"
        | b"PATH_INFO"
        | b"RAW_URI"
        | b"UWSGI_SCHEME"
        | b"SERVER_SOFTWARE"
        | b"GATEWAY_INTERFACE"
        | b"HTTP_PROXY"
        | b"HTTP_TRANSFER_ENCODING"
        | b"HTTP_CONTENT_LENGTH"
        | b"HTTP_CONTENT_TYPE" => Use::Dropped,
        // Names with a dot are this server's (PEP 3333), such as `wsgi.input`.
        _ if name.contains(&b'.') => Use::Dropped,
        _ if name.starts_with(b"HTTP_") && !is_canonical_variable(name) => Use::Dropped,
        _ => Use::Plain,
    }
}
