//! The environ of a connection's last request with CGI variables, of which the next one is a copy but for what differs.

use crate::object::Object;
use wire::message::{Field, RequestHead};

/// The environ that the variables of a request became, before the application saw it. Web servers repeat most variables
/// on a connection, so that the next environ is a copy but for a few values.
pub(super) struct CgiTemplate {
    pub(super) environ: Object,
    block: Box<[u8]>,
    fields: Box<[Field]>,
    /// Requests in a row that it was of no use for.
    pub(super) misses: u8,
}

impl CgiTemplate {
    pub(super) fn new(environ: Object, head: &RequestHead<'_>, misses: u8) -> Self {
        Self { environ, block: head.block.into(), fields: head.fields.into(), misses }
    }

    /// Where the variables of `head` differ from those here; `None` if that makes another environ than a copy with those
    /// variables set anew.
    pub(super) fn changes(&self, head: &RequestHead<'_>) -> Option<Vec<usize>> {
        if self.fields.len() != head.fields.len() {
            return None;
        }
        let mut changes = Vec::new();
        for (index, (old, new)) in self.fields.iter().zip(head.fields).enumerate() {
            if old.line(&self.block) == new.line(head.block) {
                continue;
            }
            let (name, value) = (new.name(head.block), new.value(head.block));
            let may_change = match name {
                b"REMOTE_ADDR" | b"REMOTE_PORT" | b"SCRIPT_FILENAME" | b"PATH_TRANSLATED" => true,
                b"REQUEST_URI" => !value.is_empty() && !old.value(&self.block).is_empty(),
                _ if is_of_path(name) => true,
                _ => name.starts_with(b"HTTP_") && matches!(use_of(name), Use::Plain),
            };
            // Of a variable that comes twice the last value counts, or both.
            let is_alone = || head.fields.iter().filter(|field| field.name(head.block) == name).count() == 1;
            if !may_change || name != old.name(&self.block) || !is_alone() {
                return None;
            }
            changes.push(index);
        }
        Some(changes)
    }
}

/// Whether the path or the query of a request is made of this variable.
pub(super) fn is_of_path(name: &[u8]) -> bool {
    matches!(name, b"REQUEST_URI" | b"SCRIPT_NAME" | b"PATH_INFO" | b"DOCUMENT_URI" | b"QUERY_STRING")
}

/// What a variable is for.
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
        // They are set from the path; it is this server that calls the application; `HTTP_PROXY` is a variable that libraries take
        // for their own (CVE-2016-5385); the coding is undone; the other two stand without `HTTP_`.
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
        _ => Use::Plain,
    }
}
