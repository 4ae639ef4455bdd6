//! The scope of a request (ASGI, HTTP, "HTTP Connection Scope").
//!
//! What is the same for all requests of a listener stands in a *base*, and a scope begins as its copy. Dictionaries and lists
//! are new for each request, because applications change them; only immutable values are shared. A header line that repeats,
//! on any connection, is found in a table together with its tuple. Lines of `Cookie`, `Authorization` and the like never
//! enter the table. A whole block that repeats on its connection but for a few lines ([`RequestHead::changed`]) copies the
//! *template* that was made from the block that was kept.

use crate::interface::{Local, Peer, Requests};
use crate::object::Object;
use crate::table::Table;
use crate::text::percent_decoded;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::path::PathBuf;
use wire::message::{Client, Field, Form, RequestHead, Version};
use wire::websocket::Opening;

/// Lines that are remembered.
const LINES: usize = 1024;

/// What a connection keeps so that its next request is cheaper.
#[derive(Default)]
pub(crate) struct ConnectionState {
    /// `client`.
    client: Option<Object>,
    template: Option<Box<Template>>,
}

/// The scope that a header block became, before the application saw it, without the dictionaries and lists of a request.
struct Template {
    scope: Object,
    headers: Object,
    /// Which of the blocks that the reader has kept ([`RequestHead::kept`]). Heads that were answered without the
    /// application are not seen here, and the reader may have kept one of them since.
    kept: u32,
    method: Box<[u8]>,
    target: Box<[u8]>,
    /// The client that a proxy has named.
    client: Option<Client>,
}

impl Template {
    /// Whether the scope of `head` is a copy of this one but for its target, and for the lines that are returned, if they
    /// have changed.
    fn changed<'h>(&self, head: &RequestHead<'h>) -> Option<&'h [u16]> {
        let changed = head.changed?;
        let is_like =
            self.kept == head.kept && self.client.as_ref() == head.client && head.target.form != Form::Absolute;
        // Where a proxy has named the host, the entries are not one for each line.
        let has_each_line = head.client.is_none_or(|client| client.host.is_none());
        (is_like && (changed.is_empty() || has_each_line)).then_some(changed)
    }
}

/// Makes scopes.
pub(crate) struct Scopes {
    bases: Vec<Object>,
    lines: Table<Object>,
    methods: Vec<(&'static [u8], Object)>,
    /// What each request gets a copy of.
    versions: Object,
    keys: Keys,
}

/// The keys that are set for every request.
struct Keys {
    asgi: Object,
    extensions: Object,
    headers: Object,
    method: Object,
    /// Of the extensions. Those that a client of HTTP/1.0 has not come last.
    of_extensions: [Object; 4],
}

impl Keys {
    fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            asgi: Object::interned(py, c"asgi")?,
            extensions: Object::interned(py, c"extensions")?,
            headers: Object::interned(py, c"headers")?,
            method: Object::interned(py, c"method")?,
            of_extensions: [
                Object::interned(py, c"http.response.pathsend")?,
                Object::interned(py, c"http.response.zerocopysend")?,
                Object::interned(py, c"http.response.early_hint")?,
                Object::interned(py, c"http.response.trailers")?,
            ],
        })
    }
}

impl Scopes {
    pub(super) fn new(py: Python<'_>, locals: &[Local], paths: &[Option<PathBuf>]) -> PyResult<Self> {
        let bases = locals
            .iter()
            .enumerate()
            .map(|(index, local)| base(py, local, paths.get(index).and_then(Option::as_ref)))
            .collect::<PyResult<_>>()?;
        let versions = PyDict::new(py);
        versions.set_item(intern!(py, "version"), intern!(py, "3.0"))?;
        versions.set_item(intern!(py, "spec_version"), intern!(py, "2.5"))?;
        let methods = [c"GET", c"POST", c"HEAD", c"PUT", c"PATCH", c"DELETE", c"OPTIONS"];
        let methods = methods
            .into_iter()
            .map(|name| Ok((name.to_bytes(), Object::interned(py, name)?)))
            .collect::<PyResult<_>>()?;
        Ok(Self {
            bases,
            lines: Table::new(LINES),
            methods,
            versions: versions.into_any().unbind().into(),
            keys: Keys::new(py)?,
        })
    }

    fn scope(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        peer: &Peer,
        connection: &mut ConnectionState,
    ) -> PyResult<Object> {
        if let Some(template) = &connection.template
            && let Some(changed) = template.changed(head)
        {
            return self.copy(py, template, changed, head);
        }
        let scope = copy_dict(py, &self.bases[peer.listener])?;
        self.set_method(py, &scope, head)?;
        let bound = scope.bind(py);
        let bound = bound.cast::<PyDict>()?;
        if head.version == Version::Http10 {
            bound.set_item(intern!(py, "http_version"), intern!(py, "1.0"))?;
        }
        set_target(bound, head)?;
        if let Some(client) = head.client {
            set_client(bound, client)?;
        } else {
            if connection.client.is_none() {
                let address = match peer.address {
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
        // The host of an absolute target is an entry, which another head of the same lines may not have.
        if head.retained && head.target.form != Form::Absolute {
            connection.template = Some(Box::new(Template {
                scope: copy_dict(py, &scope)?,
                headers: headers.get_slice(0, headers.len()).into_any().unbind().into(),
                kept: head.kept,
                method: head.method.into(),
                target: head.target.raw.into(),
                client: head.client.cloned(),
            }));
        }
        self.set_own(py, &scope, &headers.into_any().unbind().into(), head.version)?;
        Ok(scope)
    }

    /// The scope of a head like that of the template.
    fn copy(
        &mut self,
        py: Python<'_>,
        template: &Template,
        changed: &[u16],
        head: &RequestHead<'_>,
    ) -> PyResult<Object> {
        let scope = copy_dict(py, &template.scope)?;
        if *template.method != *head.method {
            self.set_method(py, &scope, head)?;
        }
        if *template.target != *head.target.raw {
            set_target(scope.bind(py).cast::<PyDict>()?, head)?;
        }
        let headers = template.headers.bind(py);
        let headers = headers.cast::<PyList>()?;
        let headers = headers.get_slice(0, headers.len());
        for &index in changed {
            let index = usize::from(index);
            headers.set_item(index, self.header(py, &head.fields[index], head.block)?.bind(py))?;
        }
        self.set_own(py, &scope, &headers.into_any().unbind().into(), head.version)?;
        Ok(scope)
    }

    /// Sets the dictionaries and the list that are each request's own.
    fn set_own(&self, py: Python<'_>, scope: &Object, headers: &Object, version: Version) -> PyResult<()> {
        let Keys { asgi, extensions, headers: headers_key, of_extensions, .. } = &self.keys;
        set_item(py, scope, headers_key, headers)?;
        // Applications have been seen to change it.
        set_item(py, scope, asgi, &copy_dict(py, &self.versions)?)?;
        let known: Object = PyDict::new(py).into_any().unbind().into();
        // They have nothing to say, and so one dictionary of this request does for all.
        let empty: Object = PyDict::new(py).into_any().unbind().into();
        // A client of HTTP/1.0 knows no interim responses (RFC 9110 section 15.2) and no chunks, behind which trailers are.
        let count = if version == Version::Http11 { of_extensions.len() } else { 2 };
        for name in &of_extensions[..count] {
            set_item(py, &known, name, &empty)?;
        }
        set_item(py, scope, extensions, &known)
    }

    fn set_method(&self, py: Python<'_>, scope: &Object, head: &RequestHead<'_>) -> PyResult<()> {
        if let Some((_, method)) = self.methods.iter().find(|(name, _)| *name == head.method) {
            return set_item(py, scope, &self.keys.method, method);
        }
        let method = PyString::new(py, std::str::from_utf8(head.method).unwrap_or_default());
        set_item(py, scope, &self.keys.method, &method.into_any().unbind().into())
    }

    fn headers<'py>(&mut self, py: Python<'py>, head: &RequestHead<'_>) -> PyResult<Bound<'py, PyList>> {
        let headers = PyList::empty(py);
        // The host of an absolute target takes the place of the field (RFC 9112 section 3.2.2), and so does the one that a
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

    /// The entry of a field.
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

/// A copy of a dict of ours.
fn copy_dict(py: Python<'_>, dict: &Object) -> PyResult<Object> {
    dict.copy_dict(py).ok_or_else(|| PyErr::fetch(py))
}

fn set_item(py: Python<'_>, dict: &Object, key: &Object, value: &Object) -> PyResult<()> {
    dict.set_item(py, key, value).ok_or_else(|| PyErr::fetch(py))
}

/// Makes the scope of a WebSocket of that of its request (ASGI, WebSocket, "WebSocket Connection Scope").
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
    type Connection = ConnectionState;

    fn begin_websocket(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        opening: &Opening<'_>,
        peer: &Peer,
        connection: &mut ConnectionState,
    ) -> Option<Object> {
        let scope = self.scope(py, head, peer, connection).and_then(|scope| {
            turn_to_websocket(scope.bind(py).cast::<PyDict>()?, opening)?;
            Ok(scope)
        });
        scope.map_err(|error| error.restore(py)).ok()
    }

    /// `None` with an exception set if memory is short.
    fn begin(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        peer: &Peer,
        connection: &mut ConnectionState,
    ) -> Option<Object> {
        self.scope(py, head, peer, connection).map_err(|error| error.restore(py)).ok()
    }
}

/// The name in lower case, and the value.
fn header<'py>(py: Python<'py>, field: &Field, block: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    let name = field.name(block).to_ascii_lowercase();
    PyTuple::new(py, [PyBytes::new(py, &name), PyBytes::new(py, field.value(block))])
}

/// Fields whose values are one user's alone are not kept where other connections' requests look.
fn is_secret(field: &Field, block: &[u8]) -> bool {
    [&b"cookie"[..], b"authorization", b"proxy-authorization"].iter().any(|name| field.is(block, name))
}

/// `path`, `raw_path`, `query_string`, `root_path`. The path includes the root path.
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

/// A path without escapes, as text. What is not UTF-8 is replaced.
fn path<'py>(py: Python<'py>, raw: &[u8]) -> Bound<'py, PyString> {
    if memchr::memchr(b'%', raw).is_some() {
        PyString::new(py, &String::from_utf8_lossy(&percent_decoded(raw)))
    } else {
        PyString::new(py, &String::from_utf8_lossy(raw))
    }
}

/// `client` and `scheme` of a client that a proxy names.
fn set_client(scope: &Bound<'_, PyDict>, client: &Client) -> PyResult<()> {
    let py = scope.py();
    match client.address {
        Some(address) => scope.set_item(intern!(py, "client"), (address.to_string(), client.port.unwrap_or(0)))?,
        None => scope.set_item(intern!(py, "client"), py.None())?,
    }
    if client.is_https == Some(true) {
        scope.set_item(intern!(py, "scheme"), intern!(py, "https"))?;
    }
    Ok(())
}

fn base(py: Python<'_>, local: &Local, path: Option<&PathBuf>) -> PyResult<Object> {
    let base = PyDict::new(py);
    base.set_item("type", intern!(py, "http"))?;
    base.set_item("asgi", py.None())?;
    base.set_item("http_version", intern!(py, "1.1"))?;
    match local {
        Local::Tcp(address) => {
            base.set_item("server", (address.ip().to_canonical().to_string(), address.port()))?;
        }
        Local::Unix => base.set_item("server", (path.map(|path| path.as_os_str()), py.None()))?,
    }
    for name in ["client", "method", "path", "raw_path", "query_string", "headers", "extensions"] {
        base.set_item(PyString::intern(py, name), py.None())?;
    }
    base.set_item("scheme", intern!(py, "http"))?;
    base.set_item("root_path", intern!(py, ""))?;
    Ok(base.into_any().unbind().into())
}
