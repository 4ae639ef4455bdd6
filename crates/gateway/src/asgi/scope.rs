//! The scope of a request (ASGI, HTTP, "HTTP Connection Scope").
//!
//! The entries that are equal for all requests of a listener are in a *base*, and a scope starts as a copy of the base.
//! Dicts and lists are made for each request, because applications change them; only immutable values are shared. The
//! tuple for a header line that repeats, on any connection, is found in a table; lines of `Cookie`, `Authorization` and
//! similar fields are never stored there. If a whole header block repeats on its connection, except for a few lines
//! ([`RequestHead::changed`]), the scope is a copy of the *template* that was made from the block that the reader has
//! kept.

use super::template::{Common, ScopeTemplate, copy_dict, set_item};
use crate::interface::{ListenerInfo, Local, Remote, RequestObject, Requests, Route, Security};
use crate::object::Object;
use crate::table::Table;
use crate::text::percent_decoded;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::path::PathBuf;
use tls::{ClientCertificate, certificate_pem};
use wire::message::{Client, Field, Form, RequestHead, Version};
use wire::websocket::Opening;

/// The number of cached lines.
const LINES: usize = 1024;

/// The data that are kept with a connection, to make its next scope faster.
#[derive(Default)]
pub(crate) struct ConnectionScopes {
    /// The entry `client`.
    client: Option<Object>,
    /// The extension `tls`, if the connection is encrypted.
    tls: Option<Object>,
    template: Option<Box<ScopeTemplate>>,
}

/// Makes the scopes of requests.
pub(crate) struct Scopes {
    bases: Vec<Object>,
    lines: Table<Object>,
    methods: Vec<(&'static [u8], Object)>,
    common: Common,
}

impl Scopes {
    pub(super) fn new(py: Python<'_>, listening: &[ListenerInfo], paths: &[Option<PathBuf>]) -> PyResult<Self> {
        let bases = listening
            .iter()
            .enumerate()
            .map(|(index, listening)| base(py, listening, paths.get(index).and_then(Option::as_ref)))
            .collect::<PyResult<_>>()?;
        let methods = [c"GET", c"POST", c"HEAD", c"PUT", c"PATCH", c"DELETE", c"OPTIONS"];
        let methods = methods
            .into_iter()
            .map(|name| Ok((name.to_bytes(), Object::interned(py, name)?)))
            .collect::<PyResult<_>>()?;
        Ok(Self { bases, lines: Table::new(LINES), methods, common: Common::new(py)? })
    }

    fn scope(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        remote: &Remote,
        connection: &mut ConnectionScopes,
    ) -> PyResult<RequestObject> {
        if let Some(template) = &connection.template
            && let Some(changed) = template.changed(head)
        {
            return self.copy(py, template, changed, head);
        }
        let scope = copy_dict(py, &self.bases[remote.peer.listener])?;
        self.set_method(py, &scope, head)?;
        let bound = scope.bind(py);
        let bound = bound.cast::<PyDict>()?;
        match head.version {
            Version::Http11 => {}
            Version::Http10 => bound.set_item(intern!(py, "http_version"), intern!(py, "1.0"))?,
            Version::Http2 => bound.set_item(intern!(py, "http_version"), intern!(py, "2"))?,
        }
        set_target(bound, head)?;
        if let Some(client) = head.client {
            set_client(bound, client)?;
        } else {
            if connection.client.is_none() {
                let address = match remote.peer.address {
                    Some(address) => {
                        (address.ip().to_canonical().to_string(), address.port()).into_pyobject(py)?.into_any()
                    }
                    None => py.None().into_bound(py),
                };
                connection.client = Some(address.unbind().into());
            }
            if let Some(address) = &connection.client {
                bound.set_item(intern!(py, "client"), address.bind(py))?;
            }
        }
        let headers = self.headers(py, head)?;
        if head.retained {
            connection.template = None;
        }
        // With an absolute target the host is a header entry that another head with the same lines may not have.
        if head.retained && head.target.form != Form::Absolute {
            let headers = headers.get_slice(0, headers.len()).into_any().unbind().into();
            connection.template = Some(Box::new(ScopeTemplate::new(py, &self.common, &scope, headers, head)?));
        }
        self.common.set_own(py, &scope, &headers.into_any().unbind().into(), head.version)?;
        Ok(scope.into())
    }

    /// Makes the scope of a head from the template.
    fn copy(
        &mut self,
        py: Python<'_>,
        template: &ScopeTemplate,
        changed: &[u16],
        head: &RequestHead<'_>,
    ) -> PyResult<RequestObject> {
        let (has_method, has_target) = template.has_line(head);
        let is_same = changed.is_empty() && has_method && has_target;
        if is_same && let Some(scope) = template.take_spare(py) {
            return Ok(scope);
        }
        let (scope, headers) = template.copy(py)?;
        if !has_method {
            self.set_method(py, &scope, head)?;
        }
        if !has_target {
            set_target(scope.bind(py).cast::<PyDict>()?, head)?;
        }
        for &index in changed {
            let index = usize::from(index);
            headers.set_item(index, self.header(py, &head.fields[index], head.block)?.bind(py))?;
        }
        self.common.set_own(py, &scope, &headers.into_any().unbind().into(), head.version)?;
        Ok(if is_same { template.reusable(scope) } else { scope.into() })
    }

    fn set_method(&self, py: Python<'_>, scope: &Object, head: &RequestHead<'_>) -> PyResult<()> {
        if let Some((_, method)) = self.methods.iter().find(|(name, _)| *name == head.method) {
            return set_item(py, scope, &self.common.keys.method, method);
        }
        let method = PyString::new(py, std::str::from_utf8(head.method).unwrap_or_default());
        set_item(py, scope, &self.common.keys.method, &method.into_any().unbind().into())
    }

    fn headers<'py>(&mut self, py: Python<'py>, head: &RequestHead<'_>) -> PyResult<Bound<'py, PyList>> {
        let headers = PyList::empty(py);
        // The host of an absolute target replaces the field (RFC 9112 section 3.2.2), and so does the host that a
        // trusted proxy names.
        let host = match (head.client.and_then(|client| client.host.as_deref()), head.target.form) {
            (Some(host), _) => Some(host),
            (None, Form::Absolute) => Some(head.target.authority),
            (None, _) => None,
        };
        if let Some(host) = host {
            headers.append((PyBytes::new(py, b"host"), PyBytes::new(py, host)))?;
        }
        for field in head.fields {
            if host.is_some() && field.is(head.block, b"host") {
                continue;
            }
            headers.append(self.header(py, field, head.block)?.bind(py))?;
        }
        Ok(headers)
    }

    /// Returns the tuple for a header field.
    fn header(&mut self, py: Python<'_>, field: &Field, block: &[u8]) -> PyResult<Object> {
        let line = field.line(block);
        match self.lines.get(line) {
            Ok(header) => Ok(header.clone_ref(py)),
            Err(vacancy) => {
                let header: Object = header(py, field, block)?.into_any().unbind().into();
                if !is_secret(field, block) {
                    self.lines.offer(vacancy, line, || header.clone_ref(py));
                }
                Ok(header)
            }
        }
    }
}

/// Converts the scope of a request into that of a WebSocket (ASGI, WebSocket, "WebSocket Connection Scope").
fn turn_to_websocket(scope: &Bound<'_, PyDict>, opening: &Opening<'_>) -> PyResult<()> {
    let py = scope.py();
    scope.set_item(intern!(py, "type"), intern!(py, "websocket"))?;
    scope.del_item(intern!(py, "method"))?;
    let is_secure = scope.get_item(intern!(py, "scheme"))?.is_some_and(|scheme| scheme.eq("https").unwrap_or(false));
    scope.set_item(intern!(py, "scheme"), if is_secure { intern!(py, "wss") } else { intern!(py, "ws") })?;
    scope.set_item(intern!(py, "subprotocols"), PyList::new(py, opening.subprotocols())?)?;
    let extensions = PyDict::new(py);
    extensions.set_item(intern!(py, "websocket.http.response"), PyDict::new(py))?;
    scope.set_item(intern!(py, "extensions"), extensions)
}

impl Requests for Scopes {
    type Connection = ConnectionScopes;

    fn begin_websocket(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        _: Route,
        opening: &Opening<'_>,
        remote: &Remote,
        connection: &mut ConnectionScopes,
    ) -> Option<RequestObject> {
        let scope = self.scope(py, head, remote, connection).and_then(|scope| {
            turn_to_websocket(scope.bind(py).cast::<PyDict>()?, opening)?;
            extend_encrypted(py, &scope, remote, connection)?;
            Ok(scope)
        });
        scope.map_err(|error| error.restore(py)).ok()
    }

    /// Returns the scope of a request. Returns `None` with a Python exception set if an allocation fails.
    fn begin(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        _: Route,
        remote: &Remote,
        connection: &mut ConnectionScopes,
    ) -> Option<RequestObject> {
        let scope = self.scope(py, head, remote, connection).and_then(|scope| {
            extend_encrypted(py, &scope, remote, connection)?;
            Ok(scope)
        });
        scope.map_err(|error| error.restore(py)).ok()
    }
}

/// Returns the tuple of the name, in lower case, and the value.
fn header<'py>(py: Python<'py>, field: &Field, block: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    let name = field.name(block).to_ascii_lowercase();
    PyTuple::new(py, [PyBytes::new(py, &name), PyBytes::new(py, field.value(block))])
}

/// Returns true if the field's value belongs to one user. Such values are not stored in the table that all connections
/// share.
fn is_secret(field: &Field, block: &[u8]) -> bool {
    [&b"cookie"[..], b"authorization", b"proxy-authorization"].iter().any(|name| field.is(block, name))
}

/// Sets `path`, `raw_path`, `query_string` and `root_path`. The path includes the root path.
fn set_target(scope: &Bound<'_, PyDict>, head: &RequestHead<'_>) -> PyResult<()> {
    let py = scope.py();
    let target = &head.target;
    let raw = if target.form == Form::Asterisk { b"*" } else { target.path };
    let prefix = head.client.and_then(|client| client.prefix.as_deref());
    let joined = prefix.map(|prefix| [prefix, raw].concat());
    let raw = joined.as_deref().unwrap_or(raw);
    scope.set_item(intern!(py, "raw_path"), PyBytes::new(py, raw))?;
    scope.set_item(intern!(py, "path"), path(py, raw))?;
    scope.set_item(intern!(py, "query_string"), PyBytes::new(py, target.query.unwrap_or_default()))?;
    if let Some(prefix) = prefix {
        scope.set_item(intern!(py, "root_path"), path(py, prefix))?;
    }
    Ok(())
}

/// Returns a path as text, percent-decoded. Bytes that are not UTF-8 are replaced.
fn path<'py>(py: Python<'py>, raw: &[u8]) -> Bound<'py, PyString> {
    if memchr::memchr(b'%', raw).is_some() {
        PyString::new(py, &String::from_utf8_lossy(&percent_decoded(raw)))
    } else {
        PyString::new(py, &String::from_utf8_lossy(raw))
    }
}

/// Sets `client` and `scheme` for the client that a proxy names.
fn set_client(scope: &Bound<'_, PyDict>, client: &Client) -> PyResult<()> {
    let py = scope.py();
    match client.address {
        Some(address) => scope.set_item(intern!(py, "client"), (address.to_string(), client.port.unwrap_or(0)))?,
        None => scope.set_item(intern!(py, "client"), py.None())?,
    }
    if let Some(is_https) = client.is_https {
        let scheme = if is_https { intern!(py, "https") } else { intern!(py, "http") };
        scope.set_item(intern!(py, "scheme"), scheme)?;
    }
    Ok(())
}

/// Adds the extension `tls` to the scope of an encrypted connection (ASGI, "TLS Extension", version 0.2).
fn extend_encrypted(
    py: Python<'_>,
    scope: &Object,
    remote: &Remote,
    connection: &mut ConnectionScopes,
) -> PyResult<()> {
    let Some(security) = &remote.security else { return Ok(()) };
    let known = match &connection.tls {
        Some(known) => known,
        None => connection.tls.insert(tls_extension(py, security)?.into_any().unbind().into()),
    };
    let extensions = scope.bind(py).get_item(intern!(py, "extensions"))?;
    // Each request gets a copy, because applications may change it.
    extensions.set_item(intern!(py, "tls"), copy_dict(py, known)?.bind(py))
}

fn tls_extension<'py>(py: Python<'py>, security: &Security) -> PyResult<Bound<'py, PyDict>> {
    let extension = PyDict::new(py);
    extension.set_item("server_cert", py.None())?;
    let chain = security.client_certificates.iter().map(|certificate| certificate_pem(certificate));
    extension.set_item("client_cert_chain", PyTuple::new(py, chain.collect::<Vec<_>>())?)?;
    let own = security.client_certificates.first().and_then(|own| ClientCertificate::parse(own).ok());
    extension.set_item("client_cert_name", own.map(|own| own.subject().rfc4514()))?;
    // A handshake with an invalid client certificate fails, so there is no error to report.
    extension.set_item("client_cert_error", py.None())?;
    extension.set_item("tls_version", security.version)?;
    extension.set_item("cipher_suite", security.cipher_suite)?;
    Ok(extension)
}

fn base(py: Python<'_>, listening: &ListenerInfo, path: Option<&PathBuf>) -> PyResult<Object> {
    let base = PyDict::new(py);
    // Applications look these keys up with interned strings, which are found faster by their address.
    base.set_item(intern!(py, "type"), intern!(py, "http"))?;
    base.set_item(intern!(py, "asgi"), py.None())?;
    base.set_item(intern!(py, "http_version"), intern!(py, "1.1"))?;
    match &listening.local {
        Local::Tcp(address) => {
            base.set_item(intern!(py, "server"), (address.ip().to_canonical().to_string(), address.port()))?;
        }
        Local::Unix => base.set_item(intern!(py, "server"), (path.map(|path| path.as_os_str()), py.None()))?,
    }
    for name in ["client", "method", "path", "raw_path", "query_string", "headers", "extensions"] {
        base.set_item(PyString::intern(py, name), py.None())?;
    }
    let scheme = if listening.is_encrypted { intern!(py, "https") } else { intern!(py, "http") };
    base.set_item(intern!(py, "scheme"), scheme)?;
    base.set_item(intern!(py, "root_path"), intern!(py, ""))?;
    Ok(base.into_any().unbind().into())
}
