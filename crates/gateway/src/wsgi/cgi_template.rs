//! The environ of a connection's last request with CGI variables. The next environ is a copy of it with the changed
//! variables set anew.

use crate::object::Object;
use wire::forwarded::is_canonical_variable;
use wire::message::RequestHead;

/// An environ as it was before the application received it. Web servers repeat most variables on a connection, so the
/// next environ is a copy with a few other values.
pub(super) struct CgiTemplate {
    pub(super) environ: Object,
    /// The number of the head from which the environ was made, which the reader has kept ([`RequestHead::kept`]).
    kept: u32,
    /// True if `REQUEST_URI` was present and not empty.
    has_uri: bool,
}

impl CgiTemplate {
    /// Creates a template; `None` if the request has a variable twice: then the last value or both values apply.
    pub(super) fn new(environ: Object, head: &RequestHead<'_>) -> Option<Self> {
        let mut names: Vec<&[u8]> = head.fields.iter().map(|field| field.name(head.block)).collect();
        names.sort_unstable();
        let has_uri = head.variable(b"REQUEST_URI").is_some_and(|uri| !uri.is_empty());
        names.is_sorted_by(|one, other| one < other).then_some(Self { environ, kept: head.kept, has_uri })
    }

    /// Returns the indices of the fields of `head` that differ from the template. Returns `None` if the environ would
    /// not be a copy with just these variables set anew.
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

/// Returns true if the path or the query of a request is computed from this variable.
pub(super) fn is_of_path(name: &[u8]) -> bool {
    matches!(name, b"REQUEST_URI" | b"SCRIPT_NAME" | b"PATH_INFO" | b"DOCUMENT_URI" | b"QUERY_STRING")
}

/// The treatment of a variable.
pub(super) enum Use {
    /// The variable is copied to the environ.
    Plain,
    /// The variable is copied unless it is empty; some web servers send an empty value for a missing one.
    UnlessEmpty,
    /// The variable is not copied to the environ.
    Dropped,
}

pub(super) fn use_of(name: &[u8]) -> Use {
    match name {
        b"CONTENT_LENGTH" | b"CONTENT_TYPE" | b"SERVER_NAME" | b"SERVER_PORT" | b"SERVER_PROTOCOL" | b"HTTPS"
        | b"HTTP_HOST" | b"REQUEST_URI" => Use::UnlessEmpty,
        // Computed from the path, or set by this server; libraries read `HTTP_PROXY` as their own setting
        // (CVE-2016-5385); the transfer coding has been decoded; the last two have names without `HTTP_`.
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
        // Names with a dot belong to the server (PEP 3333), such as `wsgi.input`.
        _ if name.contains(&b'.') => Use::Dropped,
        _ if name.starts_with(b"HTTP_") && !is_canonical_variable(name) => Use::Dropped,
        _ => Use::Plain,
    }
}
