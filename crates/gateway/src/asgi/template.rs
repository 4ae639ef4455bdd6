//! The scope that a header block became, for the requests that repeat the block on its connection.
//!
//! A scope is a dict with two dicts and a list in it, which are each request's own. Making and freeing them costs a
//! fifth of a short request. So the scope of a call that is over is [used again](crate::reused) for the next request
//! that would get an equal one, if no code can tell it from a new one.

use crate::interface::RequestObject;
use crate::object::Object;
use crate::reused::{Own, Reused};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;
use wire::message::{Client, Form, RequestHead, Version};

/// See the module.
pub(super) struct ScopeTemplate {
    /// The scope as it was before the application saw it, with None for the entries that are each request's own.
    scope: Object,
    headers: Object,
    /// The number of blocks that the reader had kept ([`RequestHead::kept`]), which identifies the block of this scope.
    /// Heads that were answered without the application are not seen here, and the reader may have kept one of them
    /// since.
    kept: u32,
    method: Box<[u8]>,
    target: Box<[u8]>,
    version: Version,
    /// The client that a proxy has named.
    client: Option<Client>,
    /// Scopes of the same method and target, to be used again.
    reused: Arc<Reused>,
}

impl ScopeTemplate {
    /// Makes a template. `scope` is complete except for the entries that are each request's own; `headers` is a list
    /// that the template takes over.
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

    /// Returns the indexes of the lines that have changed, if the scope of `head` is a copy of this one except for
    /// these lines and its request line. Returns `None` if it is not.
    pub(super) fn changed<'h>(&self, head: &RequestHead<'h>) -> Option<&'h [u16]> {
        let changed = head.changed?;
        let is_like = self.kept == head.kept
            && self.version == head.version
            && self.client.as_ref() == head.client
            && head.target.form != Form::Absolute;
        // If a proxy has named the host, there is not exactly one entry for each line.
        let has_each_line = head.client.is_none_or(|client| client.host.is_none());
        (is_like && (changed.is_empty() || has_each_line)).then_some(changed)
    }

    /// Returns whether the method is that of `head`, and whether the target is.
    pub(super) fn has_line(&self, head: &RequestHead<'_>) -> (bool, bool) {
        (*self.method == *head.method, *self.target == *head.target.raw)
    }

    /// Returns a copy of the scope without the entries that are each request's own, and a list of the headers.
    pub(super) fn copy<'py>(&self, py: Python<'py>) -> PyResult<(Object, Bound<'py, PyList>)> {
        let headers = self.headers.bind(py);
        let headers = headers.cast::<PyList>()?;
        Ok((copy_dict(py, &self.scope)?, headers.get_slice(0, headers.len())))
    }

    /// Returns a scope that is to be used again, if there is one.
    pub(super) fn take_spare(&self, py: Python<'_>) -> Option<RequestObject> {
        self.reused.take(py).map(|scope| self.reusable(scope))
    }

    /// Marks a scope to be used again. Its request has the same method and target, and no line that has changed.
    pub(super) fn reusable(&self, scope: Object) -> RequestObject {
        RequestObject::reused(scope, &self.reused)
    }
}

/// The objects that all scopes have in common.
pub(super) struct Common {
    /// The dict of versions of which each request gets a copy, and the entries of this dict.
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
    /// The names of the extensions that a client of HTTP/1.0 has.
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

    /// Returns the names of the extensions of a version. A client of HTTP/1.0 knows no interim responses (RFC 9110
    /// section 15.2) and no chunks, after which trailers are sent.
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

    /// Sets the dictionaries and the list that are each request's own.
    pub(super) fn set_own(&self, py: Python<'_>, scope: &Object, headers: &Object, version: Version) -> PyResult<()> {
        let ScopeKeys { asgi, extensions, headers: headers_key, .. } = &self.keys;
        set_item(py, scope, headers_key, headers)?;
        // Applications have been seen to change this dict.
        set_item(py, scope, asgi, &copy_dict(py, &self.versions)?)?;
        let known: Object = PyDict::new(py).into_any().unbind().into();
        // The extensions have no parameters, so one empty dictionary of this request serves for all.
        let empty: Object = PyDict::new(py).into_any().unbind().into();
        for name in self.keys.of_extensions(version).iter() {
            set_item(py, &known, name, &empty)?;
        }
        set_item(py, scope, extensions, &known)
    }
}

/// Returns a copy of a dict of the server's own.
pub(super) fn copy_dict(py: Python<'_>, dict: &Object) -> PyResult<Object> {
    dict.copy_dict(py).ok_or_else(|| PyErr::fetch(py))
}

pub(super) fn set_item(py: Python<'_>, dict: &Object, key: &Object, value: &Object) -> PyResult<()> {
    dict.set_item(py, key, value).ok_or_else(|| PyErr::fetch(py))
}
