//! The environ of a request that a web server passes on with CGI variables (RFC 3875): FastCGI, uwsgi and SCGI.
//!
//! The variables are the environ, but for those that the server answers for itself (`wsgi.*`, `SERVER_SOFTWARE`), those that
//! could mislead an application, and `SCRIPT_NAME` and `PATH_INFO`, which web servers fill in differently ([`ScriptName`](super::path::ScriptName)).

use super::environ::Environs;
use super::path::Said;
use crate::interface::Peer;
use crate::object::Object;
use pyo3::prelude::*;
use wire::message::RequestHead;

/// What a variable is for.
enum Use {
    /// It is a variable of the environ.
    Plain,
    /// It is one unless it is empty, which is how some web servers say that there is none.
    UnlessEmpty,
    /// It is no variable of the environ.
    Dropped,
}

fn use_of(name: &[u8]) -> Use {
    match name {
        b"CONTENT_LENGTH" | b"CONTENT_TYPE" | b"SERVER_NAME" | b"SERVER_PORT" | b"SERVER_PROTOCOL" | b"HTTPS"
        | b"HTTP_HOST" | b"REQUEST_URI" => Use::UnlessEmpty,
        // They are set below; it is this server that calls the application; `HTTP_PROXY` is a variable that libraries take
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

/// Values of one user alone are not kept where other connections' requests look.
fn is_secret(name: &[u8]) -> bool {
    matches!(name, b"HTTP_COOKIE" | b"HTTP_AUTHORIZATION" | b"HTTP_PROXY_AUTHORIZATION" | b"REMOTE_USER")
        || name.starts_with(b"SSL_")
}

/// Whether a variable such as HTTPS says yes.
fn is_on(value: &[u8]) -> bool {
    [&b"on"[..], b"1", b"true", b"yes"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

impl Environs {
    /// The environ of a request without a body; `None` with an exception set if memory is short.
    pub(super) fn begin_cgi(&mut self, py: Python<'_>, head: &RequestHead<'_>, peer: &Peer) -> Option<Object> {
        let environ = self.bases[peer.listener].copy_dict(py)?;
        let mut said = Said { target_path: head.target.path, ..Said::default() };
        let (mut is_https, mut has_host, mut has_uri, mut has_port, mut has_repeated) =
            (false, false, false, false, false);
        let mut size = environ.dict_size(py);
        for field in head.fields {
            let (name, value) = (field.name(head.block), field.value(head.block));
            match name {
                b"SCRIPT_NAME" => said.script_name = value,
                b"PATH_INFO" => said.path_info = value,
                b"DOCUMENT_URI" => said.document_uri = value,
                b"HTTPS" => is_https = is_on(value),
                b"REQUEST_SCHEME" | b"UWSGI_SCHEME" => is_https |= value == b"https",
                b"HTTP_HOST" => has_host = !value.is_empty(),
                b"REQUEST_URI" => has_uri = !value.is_empty(),
                b"SERVER_PORT" => has_port = !value.is_empty(),
                _ => {}
            }
            match use_of(name) {
                Use::Dropped => continue,
                Use::UnlessEmpty if value.is_empty() => continue,
                Use::UnlessEmpty | Use::Plain => {}
            }
            if name == b"SERVER_NAME" {
                self.set_server_name(py, &environ, value)?;
                continue;
            }
            let line = field.line(head.block);
            match self.lines.get(line) {
                Ok((key, value)) => environ.set_item(py, key, value)?,
                Err(vacancy) => {
                    let (key, value) = (Object::latin1(py, name)?, Object::latin1(py, value)?);
                    environ.set_item(py, &key, &value)?;
                    if !is_secret(name) {
                        self.lines.offer(vacancy, line, || (key, value));
                    }
                }
            }
            let grown = environ.dict_size(py);
            has_repeated |= grown == size && name.starts_with(b"HTTP_");
            size = grown;
        }
        // HTTP_HOST, which every environ has at first, is not there twice.
        if has_repeated {
            join_repeated(py, &environ, head)?;
        }
        let raw = Object::latin1(py, head.target.raw)?;
        environ.set_item(py, &self.keys.raw_uri, &raw)?;
        if !has_uri {
            environ.set_item(py, &self.keys.request_uri, &raw)?;
        }
        if !has_host {
            environ.delete_item(py, &self.keys.http_host)?;
        }
        if is_https {
            environ.set_item(py, &self.keys.url_scheme, &self.keys.https)?;
            if !has_port {
                environ.set_item(py, &self.keys.server_port, &self.keys.https_port)?;
            }
        }
        let (script_name, path_info) = self.script_name.split(&said);
        environ.set_item(py, &self.keys.script_name, &Object::latin1(py, &script_name)?)?;
        environ.set_item(py, &self.keys.path_info, &Object::latin1(py, &path_info)?)?;
        Some(environ)
    }

    /// Sets `SERVER_NAME`. nginx says `_` where its server has no name; `HAProxy` says a port too, which is no part of it.
    fn set_server_name(&self, py: Python<'_>, environ: &Object, name: &[u8]) -> Option<()> {
        if name == b"_" {
            return Some(());
        }
        let colon = name.iter().rposition(|&byte| byte == b':');
        // An IPv6 address without brackets has colons of its own.
        let host = match colon {
            Some(at) if at > 0 && name[at + 1..].iter().all(u8::is_ascii_digit) && !name[..at].contains(&b':') => {
                &name[..at]
            }
            Some(at) if at > 0 && name[at - 1] == b']' => &name[..at],
            _ => name,
        };
        environ.set_item(py, &self.keys.server_name, &Object::latin1(py, host)?)
    }
}

/// Joins the values of fields that come more than once (RFC 9110 section 5.3; RFC 6265 section 5.4 for cookies), as
/// nginx before 1.23 passes them on. Of other variables the last one counts.
fn join_repeated(py: Python<'_>, environ: &Object, head: &RequestHead<'_>) -> Option<()> {
    let mut names: Vec<(&[u8], &[u8])> = head
        .fields
        .iter()
        .map(|field| (field.name(head.block), field.value(head.block)))
        .filter(|(name, _)| name.starts_with(b"HTTP_") && matches!(use_of(name), Use::Plain))
        .collect();
    // Stable: values stay in the order in which they came.
    names.sort_by_key(|(name, _)| *name);
    for same in names.chunk_by(|one, other| one.0 == other.0) {
        let [(name, _), _, ..] = same else { continue };
        let separator: &[u8] = if *name == b"HTTP_COOKIE" { b"; " } else { b"," };
        let values: Vec<&[u8]> = same.iter().map(|(_, value)| *value).collect();
        environ.set_item(py, &Object::latin1(py, name)?, &Object::latin1(py, &values.join(separator))?)?;
    }
    Some(())
}
