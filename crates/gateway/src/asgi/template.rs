//! The scope of a header block, reused for requests that repeat the block on the same connection.
//!
//! A scope is a dict that contains two dicts and a list, all of which belong to one request. Making and freeing them
//! takes a fifth of the time of a short request. So the scope of an ended call is [reused](crate::reused) for the next
//! equal request, if no code can distinguish it from a new one.

use crate::interface::RequestObject;
use crate::object::Object;
use crate::reused::{Own, Reused};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;
use wire::message::{Client, Form, RequestHead, Version};

/// The scope of a header block that the reader has kept.
pub(super) struct ScopeTemplate {
    /// The scope before the application received it, with None in place of the values that belong to one request.
    scope: Object,
    headers: Object,
    /// The number of blocks that the reader had kept ([`RequestHead::kept`]), which identifies the block of this scope.
    /// It must be compared: the reader may have kept a later block, of a request that was answered without the
    /// application.
    kept: u32,
    method: Box<[u8]>,
    target: Box<[u8]>,
    version: Version,
    /// The client that a proxy named.
    client: Option<Client>,
    /// The pool of scopes with the same method and target.
    reused: Arc<Reused>,
}

impl ScopeTemplate {
    /// Creates a template. `scope` is complete except for the values that belong to one request; the template takes
    /// over the list `headers`.
    pub(super) fn new(
        py: Python<'_>,
        common: &Common,
        scope: &Object,
        headers: Object,
        head: &RequestHead<'_>,
    ) -> PyResult<Self> {
        let scope = copy_dict(py, scope)?;
        let ScopeKeys { asgi, extensions, headers: headers_key, .. } = &common.keys;
        let own = [
            (headers_key.clone_ref(py), Own::List(headers.clone_ref(py))),
            (asgi.clone_ref(py), Own::Dict(Arc::clone(&common.version_items))),
            (extensions.clone_ref(py), Own::Names(Arc::clone(common.keys.of_extensions(head.version)))),
        ];
        Ok(Self {
            reused: Arc::new(Reused::new(scope.clone_ref(py), own)),
            scope,
            headers,
            kept: head.kept,
            method: head.method.into(),
            target: head.target.raw.into(),
            version: head.version,
            client: head.client.cloned(),
        })
    }

    /// Returns the indices of the changed lines, if the scope of `head` is a copy of this one except for these lines
    /// and the request line; otherwise `None`.
    pub(super) fn changed<'h>(&self, head: &RequestHead<'h>) -> Option<&'h [u16]> {
        let changed = head.changed?;
        let is_like = self.kept == head.kept
            && self.version == head.version
            && self.client.as_ref() == head.client
            && head.target.form != Form::Absolute;
        // If a proxy names the host, lines and header entries do not correspond one to one.
        let has_each_line = head.client.is_none_or(|client| client.host.is_none());
        (is_like && (changed.is_empty() || has_each_line)).then_some(changed)
    }

    /// Returns true for each of method and target that is equal to that of `head`.
    pub(super) fn has_line(&self, head: &RequestHead<'_>) -> (bool, bool) {
        (*self.method == *head.method, *self.target == *head.target.raw)
    }

    /// Returns a copy of the scope without the values that belong to one request, and a copy of the list of headers.
    pub(super) fn copy<'py>(&self, py: Python<'py>) -> PyResult<(Object, Bound<'py, PyList>)> {
        let headers = self.headers.bind(py);
        let headers = headers.cast::<PyList>()?;
        Ok((copy_dict(py, &self.scope)?, headers.get_slice(0, headers.len())))
    }

    /// Returns a scope for reuse; `None` if there is none.
    pub(super) fn take_spare(&self, py: Python<'_>) -> Option<RequestObject> {
        self.reused.take(py).map(|scope| self.reusable(scope))
    }

    /// Makes a scope that returns to the pool. Its request has the template's method and target, and no changed line.
    pub(super) fn reusable(&self, scope: Object) -> RequestObject {
        RequestObject::reused(scope, &self.reused)
    }
}

/// The objects that all scopes share.
pub(super) struct Common {
    /// The dict of versions, of which each request gets a copy, and its entries.
    versions: Object,
    version_items: Arc<[(Object, Object)]>,
    pub(super) keys: ScopeKeys,
}

/// The keys that are set for every request.
pub(super) struct ScopeKeys {
    asgi: Object,
    extensions: Object,
    headers: Object,
    pub(super) method: Object,
    extension_names: Arc<[Object]>,
    /// The names of the extensions for a client of HTTP/1.0.
    old_extension_names: Arc<[Object]>,
}

impl ScopeKeys {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let (pathsend, zerocopysend) = (c"http.response.pathsend", c"http.response.zerocopysend");
        let old = [Object::interned(py, pathsend)?, Object::interned(py, zerocopysend)?];
        Ok(Self {
            asgi: Object::interned(py, c"asgi")?,
            extensions: Object::interned(py, c"extensions")?,
            headers: Object::interned(py, c"headers")?,
            method: Object::interned(py, c"method")?,
            extension_names: Arc::new([
                old[0].clone_ref(py),
                old[1].clone_ref(py),
                Object::interned(py, c"http.response.early_hint")?,
                Object::interned(py, c"http.response.trailers")?,
            ]),
            old_extension_names: Arc::new(old),
        })
    }

    /// Returns the names of the extensions for a version. HTTP/1.0 has neither interim responses (RFC 9110 section
    /// 15.2) nor the chunked coding, which trailers require.
    fn of_extensions(&self, version: Version) -> &Arc<[Object]> {
        if version == Version::Http10 { &self.old_extension_names } else { &self.extension_names }
    }
}

impl Common {
    pub(super) fn new(py: Python<'_>) -> PyResult<Self> {
        let version_items = Arc::new([
            (Object::interned(py, c"version")?, Object::interned(py, c"3.0")?),
            (Object::interned(py, c"spec_version")?, Object::interned(py, c"2.5")?),
        ]);
        let versions = Object::from(PyDict::new(py).into_any().unbind());
        for (name, value) in version_items.iter() {
            set_item(py, &versions, name, value)?;
        }
        Ok(Self { versions, version_items, keys: ScopeKeys::new(py)? })
    }

    /// Sets the dicts and the list that belong to one request.
    pub(super) fn set_own(&self, py: Python<'_>, scope: &Object, headers: &Object, version: Version) -> PyResult<()> {
        let ScopeKeys { asgi, extensions, headers: headers_key, .. } = &self.keys;
        set_item(py, scope, headers_key, headers)?;
        // Some applications change this dict.
        set_item(py, scope, asgi, &copy_dict(py, &self.versions)?)?;
        let known: Object = PyDict::new(py).into_any().unbind().into();
        // The extensions have no parameters, so all names can share one empty dict of this request.
        let empty: Object = PyDict::new(py).into_any().unbind().into();
        for name in self.keys.of_extensions(version).iter() {
            set_item(py, &known, name, &empty)?;
        }
        set_item(py, scope, extensions, &known)
    }
}

/// Copies a dict that only the server uses.
pub(super) fn copy_dict(py: Python<'_>, dict: &Object) -> PyResult<Object> {
    dict.copy_dict(py).ok_or_else(|| PyErr::fetch(py))
}

pub(super) fn set_item(py: Python<'_>, dict: &Object, key: &Object, value: &Object) -> PyResult<()> {
    dict.set_item(py, key, value).ok_or_else(|| PyErr::fetch(py))
}
