//! The environ of a request (PEP 3333, "environ Variables").
//!
//! Building an environ from an empty dict takes longer than the rest of the server, so it is never done:
//!
//! * All that does not depend on the request is in a *base* for each listener. An environ starts as a copy of the base,
//!   which CPython makes in one step. The base has an entry for each variable that every request sets, so setting them
//!   never resizes the copy.
//! * If the header block of a connection repeats with a few other values ([`RequestHead::changed`]), the environ is a
//!   copy of the *template* that was made from the block that the reader has kept.
//! * The key and the value of a line that repeats, on any connection, are found in a table.
//!
//! Each request has its own dict; only immutable values are shared. A dict that the application left unchanged is
//! [reused](crate::reused) for the next equal request of the connection. Values of `Cookie`, `Authorization` and
//! similar fields are never stored in the table.

use super::cgi_template::CgiTemplate;
use super::client::{ClientKeys, ConnectionStrings, are_alike};
use super::encryption::EncryptionVariables;
use super::input::EmptyInput;
use super::path::ScriptName;
use crate::interface::{ListenerInfo, Local, Peer, Remote, RequestObject, Requests, Route};
use crate::object::Object;
use crate::reused::{Own, Reused};
use crate::table::Table;
use crate::text::percent_decoded;
use crate::watched::{CAN_WATCH, do_not_count};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::Arc;
use wire::message::{Client, Field, Form, RequestHead, Version};

/// The numbers of cached lines, targets and names. They take at most a few hundred KiB of memory.
const LINES: usize = 1024;
const TARGETS: usize = 1024;
const NAMES: usize = 256;

/// The data that are kept with a connection, to make its next environ faster.
#[derive(Default)]
pub(crate) struct ConnectionEnvirons {
    /// The values of `REMOTE_ADDR` and `REMOTE_PORT`.
    address: Option<(Object, Object)>,
    /// The values for a connection from a proxy.
    proxied: Option<ConnectionStrings>,
    /// The variables of an encrypted connection. The box keeps plain connections small.
    encryption: Option<Box<EncryptionVariables>>,
    template: Option<Box<EnvironTemplate>>,
    /// The template for requests with CGI variables.
    cgi: Option<Box<CgiTemplate>>,
}

/// An environ as it was before the application received it.
struct EnvironTemplate {
    environ: Object,
    /// The number of the block from which the environ was made, which the reader has kept ([`RequestHead::kept`]). It
    /// must be compared: the reader may have kept a later block, of a request that was answered without the
    /// application.
    kept: u32,
    method: Box<[u8]>,
    target: Box<[u8]>,
    /// True if a variable has the values of several fields.
    has_joined: bool,
    /// The client that a proxy named.
    client: Option<Client>,
    /// The pool of environs of equal requests.
    reused: Arc<Reused>,
}

impl EnvironTemplate {
    /// Makes a template from `environ`, the environ of `head`. Returns `None` with an exception set if an allocation
    /// fails.
    fn new(
        py: Python<'_>,
        disconnected: (Object, Own),
        environ: &Object,
        head: &RequestHead<'_>,
        has_joined: bool,
    ) -> Option<Box<Self>> {
        let environ = environ.copy_dict(py)?;
        Some(Box::new(Self {
            reused: Arc::new(Reused::new(environ.clone_ref(py), [disconnected])),
            environ,
            kept: head.kept,
            method: head.method.into(),
            target: head.target.raw.into(),
            has_joined,
            client: head.client.cloned(),
        }))
    }
}

/// The variables of a request target.
struct TargetStrings {
    raw: Object,
    path: Object,
    query: Object,
}

/// The treatment of a header field.
enum Variable {
    /// The field becomes the variable with this name.
    Named(Object),
    /// The field becomes no variable.
    Dropped,
}

impl Variable {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Variable::Named(key) => Variable::Named(key.clone_ref(py)),
            Variable::Dropped => Variable::Dropped,
        }
    }
}

/// The kind of variable that a header field has set.
enum Set {
    Nothing,
    /// `HTTP_HOST`.
    Host,
    /// Any other variable.
    Variable,
}

/// Makes the environs of requests.
pub(crate) struct Environs {
    pub(super) bases: Vec<Object>,
    pub(super) keys: EnvironKeys,
    pub(super) script_name: ScriptName,
    client_keys: ClientKeys,
    methods: Vec<(&'static [u8], Object)>,
    http10: Object,
    http2: Object,
    empty: Object,
    targets: Table<TargetStrings>,
    pub(super) lines: Table<(Object, Object)>,
    names: Table<Variable>,
}

/// The keys that are set for every request.
pub(crate) struct EnvironKeys {
    request_method: Object,
    pub(super) path_info: Object,
    pub(super) query_string: Object,
    pub(super) raw_uri: Object,
    pub(super) request_uri: Object,
    server_protocol: Object,
    pub(super) remote_addr: Object,
    pub(super) remote_port: Object,
    pub(super) http_host: Object,
    wsgi_input: Object,
    disconnected: Object,
    pub(super) script_name: Object,
    pub(super) url_scheme: Object,
    pub(super) https: Object,
    pub(super) server_port: Object,
    pub(super) server_name: Object,
    pub(super) https_port: Object,
}

/// The values that are the same for every request of a server.
pub(crate) struct Constants<'py> {
    pub(crate) errors: Bound<'py, PyAny>,
    pub(crate) file_wrapper: Bound<'py, PyAny>,
    pub(crate) multithread: bool,
    pub(crate) multiprocess: bool,
    pub(crate) software: String,
    pub(crate) script_name: ScriptName,
}

impl Environs {
    pub(crate) fn new(py: Python<'_>, listening: &[ListenerInfo], constants: &Constants<'_>) -> PyResult<Self> {
        let keys = EnvironKeys::new(py)?;
        do_not_count(py, keys.disconnected.clone_ref(py));
        let empty: Object = PyString::new(py, "").into_any().unbind().into();
        let http11 = Object::interned(py, c"HTTP/1.1")?;
        let mut bases = Vec::new();
        for one in listening {
            let base = base(py, one, constants)?;
            for key in keys.set_by_each_request() {
                base.set_item(key.bind(py), empty.bind(py))?;
            }
            base.set_item(keys.server_protocol.bind(py), http11.bind(py))?;
            base.set_item(keys.wsgi_input.bind(py), Py::new(py, EmptyInput)?)?;
            bases.push(base.into_any().unbind().into());
        }
        let methods = [c"GET", c"POST", c"HEAD", c"PUT", c"PATCH", c"DELETE", c"OPTIONS"];
        let methods = methods
            .into_iter()
            .map(|name| Ok((name.to_bytes(), Object::interned(py, name)?)))
            .collect::<PyResult<_>>()?;
        Ok(Self {
            bases,
            keys,
            script_name: constants.script_name.clone(),
            client_keys: ClientKeys::new(py)?,
            methods,
            http10: Object::interned(py, c"HTTP/1.0")?,
            http2: Object::interned(py, c"HTTP/2.0")?,
            empty,
            targets: Table::new(TARGETS),
            lines: Table::new(LINES),
            names: Table::new(NAMES),
        })
    }

    fn set_address(
        &self,
        py: Python<'_>,
        environ: &Object,
        peer: &Peer,
        connection: &mut ConnectionEnvirons,
    ) -> Option<()> {
        if connection.address.is_none() {
            let (ip, port) = match peer.address {
                Some(address) => (address.ip().to_canonical().to_string(), address.port().to_string()),
                None => (String::new(), String::new()),
            };
            connection.address = Some((Object::latin1(py, ip.as_bytes())?, Object::latin1(py, port.as_bytes())?));
        }
        let (address, port) = connection.address.as_ref()?;
        environ.set_item(py, &self.keys.remote_addr, address)?;
        environ.set_item(py, &self.keys.remote_port, port)
    }

    fn set_request_line(&mut self, py: Python<'_>, environ: &Object, head: &RequestHead<'_>) -> Option<()> {
        match self.methods.iter().find(|(name, _)| *name == head.method) {
            Some((_, method)) => environ.set_item(py, &self.keys.request_method, method)?,
            None => environ.set_item(py, &self.keys.request_method, &Object::latin1(py, head.method)?)?,
        }
        match self.targets.get(head.target.raw) {
            Ok(strings) => strings.set(py, environ, &self.keys),
            Err(vacancy) => {
                let strings = self.target_strings(py, head)?;
                strings.set(py, environ, &self.keys)?;
                self.targets.offer(vacancy, head.target.raw, || strings);
                Some(())
            }
        }
    }

    fn target_strings(&self, py: Python<'_>, head: &RequestHead<'_>) -> Option<TargetStrings> {
        let target = &head.target;
        let raw = Object::latin1(py, target.raw)?;
        let path = if memchr::memchr(b'%', target.path).is_some() {
            Object::latin1(py, &percent_decoded(target.path))?
        } else if target.path.len() == target.raw.len() {
            raw.clone_ref(py)
        } else {
            Object::latin1(py, target.path)?
        };
        let query = match target.query {
            Some(query) => Object::latin1(py, query)?,
            None => self.empty.clone_ref(py),
        };
        Some(TargetStrings { raw, path, query })
    }

    /// Sets the variables of all header fields. Returns true if a variable has the values of several fields; `None`
    /// with an exception set if an allocation fails.
    fn set_fields(&mut self, py: Python<'_>, environ: &Object, head: &RequestHead<'_>) -> Option<bool> {
        let (mut has_host, mut has_repeated) = (false, false);
        let mut size = environ.dict_size(py);
        for field in head.fields {
            match self.set_field(py, environ, head, field)? {
                Set::Host => has_host = true,
                Set::Nothing => {}
                Set::Variable => {
                    let grown = environ.dict_size(py);
                    has_repeated |= grown == size;
                    size = grown;
                }
            }
        }
        if has_repeated {
            self.join_repeated(py, environ, head)?;
        }
        if head.target.form == Form::Absolute {
            let authority = Object::latin1(py, head.target.authority)?;
            environ.set_item(py, &self.keys.http_host, &authority)?;
        } else if !has_host {
            // The environ has this key from its base.
            environ.delete_item(py, &self.keys.http_host)?;
        }
        Some(has_repeated)
    }

    /// Sets the variable of one header field. Returns `None` with an exception set if an allocation fails.
    fn set_field(&mut self, py: Python<'_>, environ: &Object, head: &RequestHead<'_>, field: &Field) -> Option<Set> {
        let line = field.line(head.block);
        let host = self.keys.http_host.as_ptr();
        let is_host = match self.lines.get(line) {
            Ok((key, value)) => {
                environ.set_item(py, key, value)?;
                key.as_ptr() == host
            }
            Err(vacancy) => {
                let Variable::Named(key) = self.variable(py, field.name(head.block))? else {
                    return Some(Set::Nothing);
                };
                let value = Object::latin1(py, field.value(head.block))?;
                environ.set_item(py, &key, &value)?;
                let is_host = key.as_ptr() == host;
                if !is_secret(field, head.block) {
                    self.lines.offer(vacancy, line, || (key, value));
                }
                is_host
            }
        };
        Some(if is_host { Set::Host } else { Set::Variable })
    }

    /// Returns the treatment of a field with this name; `None` with an exception set if an allocation fails.
    fn variable(&mut self, py: Python<'_>, name: &[u8]) -> Option<Variable> {
        let vacancy = match self.names.get(name) {
            Ok(variable) => return Some(variable.clone_ref(py)),
            Err(vacancy) => vacancy,
        };
        let variable = match variable_name(name) {
            None => Variable::Dropped,
            Some(key) if key == b"HTTP_HOST" => Variable::Named(self.keys.http_host.clone_ref(py)),
            Some(key) => Variable::Named(Object::latin1(py, &key)?),
        };
        self.names.offer(vacancy, name, || variable.clone_ref(py));
        Some(variable)
    }

    /// Sets the variable of each field that occurs more than once to all its values, joined (RFC 9110 section 5.3; RFC
    /// 6265 section 5.4 for cookies).
    ///
    /// Each value is copied only once. Joining anew for each further field would take quadratic time.
    fn join_repeated(&mut self, py: Python<'_>, environ: &Object, head: &RequestHead<'_>) -> Option<()> {
        let name = |field: &Field| field.name(head.block).iter().map(u8::to_ascii_lowercase);
        let mut sorted: Vec<&Field> = head.fields.iter().collect();
        // A stable sort keeps the values of one field in their order.
        sorted.sort_by(|one, other| name(one).cmp(name(other)));
        for same in sorted.chunk_by(|one, other| name(one).eq(name(other))) {
            let [first, _, ..] = same else { continue };
            let Variable::Named(key) = self.variable(py, first.name(head.block))? else { continue };
            let separator: &[u8] = if first.is(head.block, b"cookie") { b"; " } else { b"," };
            let values: Vec<&[u8]> = same.iter().map(|field| field.value(head.block)).collect();
            let joined = Object::latin1(py, &values.join(separator))?;
            environ.set_item(py, &key, &joined)?;
        }
        Some(())
    }
}

impl Requests for Environs {
    type Connection = ConnectionEnvirons;

    fn route(&self, _: &RequestHead<'_>) -> Route {
        Route { limits_handshakes: true, ..Route::default() }
    }

    fn begin(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        _: Route,
        remote: &Remote,
        connection: &mut ConnectionEnvirons,
    ) -> Option<RequestObject> {
        if head.is_cgi {
            let environ = self.begin_cgi(py, head, remote, &mut connection.cgi)?;
            if let Some(client) = head.client {
                self.client_keys.set(py, &environ, client)?;
                self.client_keys.set_connection(py, &environ, &remote.peer, client, &mut connection.proxied)?;
            }
            return Some(environ.into());
        }
        let is_origin_form = head.target.form != Form::Absolute;
        if let Some(changed) = head.changed
            && is_origin_form
            && let Some(template) = &connection.template
            && template.kept == head.kept
            && (changed.is_empty() || !template.has_joined)
            && are_alike(template.client.as_ref(), head.client)
        {
            let has_line = *template.target == *head.target.raw && *template.method == *head.method;
            // Without a watcher, comparing every entry for reuse would take longer than a copy.
            let is_same = CAN_WATCH && has_line && changed.is_empty() && template.client.as_ref() == head.client;
            if is_same && let Some(environ) = template.reused.take(py) {
                return Some(RequestObject::reused(environ, &template.reused));
            }
            let environ = template.environ.copy_dict(py)?;
            if !has_line {
                self.set_request_line(py, &environ, head)?;
            }
            for &index in changed {
                self.set_field(py, &environ, head, &head.fields[usize::from(index)])?;
            }
            if let Some(client) = head.client {
                if template.client.as_ref() != head.client {
                    self.client_keys.set(py, &environ, client)?;
                } else if !changed.is_empty() {
                    // The changed lines may include the field Host.
                    self.client_keys.set_names(py, &environ, client)?;
                }
            }
            return Some(if is_same { RequestObject::reused(environ, &template.reused) } else { environ.into() });
        }
        let environ = self.bases[remote.peer.listener].copy_dict(py)?;
        if head.client.is_none() {
            self.set_address(py, &environ, &remote.peer, connection)?;
        }
        self.set_request_line(py, &environ, head)?;
        match head.version {
            Version::Http11 => {}
            Version::Http10 => environ.set_item(py, &self.keys.server_protocol, &self.http10)?,
            Version::Http2 => environ.set_item(py, &self.keys.server_protocol, &self.http2)?,
        }
        let has_joined = self.set_fields(py, &environ, head)?;
        if let Some(security) = &remote.security {
            if connection.encryption.is_none() {
                connection.encryption = Some(Box::new(EncryptionVariables::new(py, security)?));
            }
            connection.encryption.as_ref()?.set(py, &environ)?;
        }
        if let Some(client) = head.client {
            self.client_keys.set(py, &environ, client)?;
            self.client_keys.set_connection(py, &environ, &remote.peer, client, &mut connection.proxied)?;
        }
        if head.retained && is_origin_form {
            let disconnected = (self.keys.disconnected.clone_ref(py), Own::Set(self.empty.clone_ref(py)));
            connection.template = Some(EnvironTemplate::new(py, disconnected, &environ, head, has_joined)?);
        } else if head.retained {
            connection.template = None;
        }
        Some(environ.into())
    }
}

impl EnvironKeys {
    fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            request_method: Object::interned(py, c"REQUEST_METHOD")?,
            path_info: Object::interned(py, c"PATH_INFO")?,
            query_string: Object::interned(py, c"QUERY_STRING")?,
            raw_uri: Object::interned(py, c"RAW_URI")?,
            request_uri: Object::interned(py, c"REQUEST_URI")?,
            server_protocol: Object::interned(py, c"SERVER_PROTOCOL")?,
            remote_addr: Object::interned(py, c"REMOTE_ADDR")?,
            remote_port: Object::interned(py, c"REMOTE_PORT")?,
            http_host: Object::interned(py, c"HTTP_HOST")?,
            wsgi_input: Object::interned(py, c"wsgi.input")?,
            disconnected: Object::interned(py, c"kirsch.disconnected")?,
            script_name: Object::interned(py, c"SCRIPT_NAME")?,
            url_scheme: Object::interned(py, c"wsgi.url_scheme")?,
            https: Object::interned(py, c"https")?,
            server_port: Object::interned(py, c"SERVER_PORT")?,
            server_name: Object::interned(py, c"SERVER_NAME")?,
            https_port: Object::interned(py, c"443")?,
        })
    }

    fn set_by_each_request(&self) -> [&Object; 9] {
        [
            &self.request_method,
            &self.path_info,
            &self.query_string,
            &self.raw_uri,
            &self.request_uri,
            &self.remote_addr,
            &self.remote_port,
            &self.http_host,
            &self.disconnected,
        ]
    }
}

fn base<'py>(py: Python<'py>, listening: &ListenerInfo, constants: &Constants<'py>) -> PyResult<Bound<'py, PyDict>> {
    let (name, port) = match &listening.local {
        Local::Tcp(address) => (address.ip().to_canonical().to_string(), address.port().to_string()),
        // Neither may be empty (PEP 3333). These are the values of a URL without a host and port.
        Local::Unix => ("localhost".to_owned(), if listening.is_encrypted { "443" } else { "80" }.to_owned()),
    };
    let base = PyDict::new(py);
    base.set_item("wsgi.version", (1, 0))?;
    base.set_item("wsgi.url_scheme", if listening.is_encrypted { "https" } else { "http" })?;
    if listening.is_encrypted {
        base.set_item("HTTPS", "on")?;
    }
    base.set_item("wsgi.errors", &constants.errors)?;
    base.set_item("wsgi.multithread", constants.multithread)?;
    base.set_item("wsgi.multiprocess", constants.multiprocess)?;
    base.set_item("wsgi.run_once", false)?;
    base.set_item("wsgi.input_terminated", true)?;
    base.set_item("wsgi.file_wrapper", &constants.file_wrapper)?;
    base.set_item("SERVER_SOFTWARE", &constants.software)?;
    base.set_item("GATEWAY_INTERFACE", "CGI/1.1")?;
    base.set_item("SERVER_NAME", name)?;
    base.set_item("SERVER_PORT", port)?;
    base.set_item("SCRIPT_NAME", "")?;
    Ok(base)
}

impl TargetStrings {
    fn set(&self, py: Python<'_>, environ: &Object, keys: &EnvironKeys) -> Option<()> {
        environ.set_item(py, &keys.path_info, &self.path)?;
        environ.set_item(py, &keys.query_string, &self.query)?;
        environ.set_item(py, &keys.raw_uri, &self.raw)?;
        environ.set_item(py, &keys.request_uri, &self.raw)
    }
}

/// Returns the name of the variable for a header field (RFC 3875 section 4.1.18). Returns `None` for
///
/// * a name with an underscore, which could be mistaken for one with a dash;
/// * `Proxy`, because libraries read `HTTP_PROXY` as their own setting (CVE-2016-5385);
/// * `Transfer-Encoding`, because the coding is decoded before the application receives the body.
fn variable_name(name: &[u8]) -> Option<Vec<u8>> {
    if name.contains(&b'_') {
        return None;
    }
    let upper: Vec<u8> = name.iter().map(|&b| if b == b'-' { b'_' } else { b.to_ascii_uppercase() }).collect();
    match upper.as_slice() {
        b"PROXY" | b"TRANSFER_ENCODING" => None,
        b"CONTENT_TYPE" | b"CONTENT_LENGTH" => Some(upper),
        _ => Some([b"HTTP_", upper.as_slice()].concat()),
    }
}

/// Returns true if the field's value belongs to one user. Such values are not stored in the table that all connections
/// share.
fn is_secret(field: &Field, block: &[u8]) -> bool {
    [&b"cookie"[..], b"authorization", b"proxy-authorization"].iter().any(|name| field.is(block, name))
}
