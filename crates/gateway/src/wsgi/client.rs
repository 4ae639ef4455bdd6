//! The variables for a client that a proxy names: `REMOTE_ADDR`, `REMOTE_PORT`, `wsgi.url_scheme`, and, if configured,
//! `HTTP_HOST` and `SCRIPT_NAME`. Also the variables for the socket's peer and the PROXY protocol.

use crate::interface::Peer;
use crate::object::Object;
use crate::text::percent_decoded;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use wire::message::{Client, ConnectionInfo, TlsInfo};

/// The keys of these variables, and constant values.
pub(super) struct ClientKeys {
    remote_addr: Object,
    remote_port: Object,
    http_host: Object,
    url_scheme: Object,
    script_name: Object,
    /// The key of the address of the socket's peer, which is the proxy.
    peer: Object,
    /// The key of the other data in a PROXY protocol header, besides the client's address.
    proxy: Object,
    http: Object,
    https: Object,
}

/// The values that are the same for all requests of a connection.
pub(super) struct ConnectionStrings {
    peer: Object,
    proxy: Option<Object>,
}

impl ClientKeys {
    pub(super) fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            remote_addr: Object::interned(py, c"REMOTE_ADDR")?,
            remote_port: Object::interned(py, c"REMOTE_PORT")?,
            http_host: Object::interned(py, c"HTTP_HOST")?,
            url_scheme: Object::interned(py, c"wsgi.url_scheme")?,
            script_name: Object::interned(py, c"SCRIPT_NAME")?,
            peer: Object::interned(py, c"kirsch.peer")?,
            proxy: Object::interned(py, c"kirsch.proxy")?,
            http: Object::interned(py, c"http")?,
            https: Object::interned(py, c"https")?,
        })
    }

    /// Sets the variables of `client` in an environ. The environ must be without client, or that of a client without
    /// host and prefix. Returns `None` with an exception set if an allocation fails.
    pub(super) fn set(&self, py: Python<'_>, environ: &Object, client: &Client) -> Option<()> {
        let address = client.address.map(|address| address.to_string()).unwrap_or_default();
        let port = client.port.map(|port| port.to_string()).unwrap_or_default();
        environ.set_item(py, &self.remote_addr, &Object::latin1(py, address.as_bytes())?)?;
        environ.set_item(py, &self.remote_port, &Object::latin1(py, port.as_bytes())?)?;
        let scheme = if client.is_https == Some(true) { &self.https } else { &self.http };
        environ.set_item(py, &self.url_scheme, scheme)?;
        self.set_names(py, environ, client)
    }

    /// Sets the host and the prefix that the proxy names in place of the request's own.
    pub(super) fn set_names(&self, py: Python<'_>, environ: &Object, client: &Client) -> Option<()> {
        if let Some(host) = &client.host {
            environ.set_item(py, &self.http_host, &Object::latin1(py, host)?)?;
        }
        if let Some(prefix) = &client.prefix {
            environ.set_item(py, &self.script_name, &Object::latin1(py, &percent_decoded(prefix))?)?;
        }
        Some(())
    }

    /// Sets the values that are the same for all requests of a connection; `known` caches them.
    pub(super) fn set_connection(
        &self,
        py: Python<'_>,
        environ: &Object,
        peer: &Peer,
        client: &Client,
        known: &mut Option<ConnectionStrings>,
    ) -> Option<()> {
        if known.is_none() {
            let peer = match peer.address {
                None => "unix:".to_owned(),
                Some(address) => std::net::SocketAddr::new(address.ip().to_canonical(), address.port()).to_string(),
            };
            let info = client.connection.as_ref().map(|info| mapping(py, info)).transpose();
            let proxy = match info {
                Ok(proxy) => proxy.map(|proxy| proxy.unbind().into()),
                Err(error) => {
                    error.restore(py);
                    return None;
                }
            };
            *known = Some(ConnectionStrings { peer: Object::latin1(py, peer.as_bytes())?, proxy });
        }
        let known = known.as_ref()?;
        environ.set_item(py, &self.peer, &known.peer)?;
        match &known.proxy {
            Some(proxy) => environ.set_item(py, &self.proxy, proxy),
            None => Some(()),
        }
    }
}

/// Returns true if [`ClientKeys::set`] can turn the variables of one client into those of the other.
pub(super) fn are_alike(one: Option<&Client>, other: Option<&Client>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.host == other.host && one.prefix == other.prefix,
        _ => false,
    }
}

/// Returns the data of a PROXY protocol header as a read-only mapping, because later requests share it.
fn mapping<'py>(py: Python<'py>, info: &ConnectionInfo) -> PyResult<Bound<'py, PyAny>> {
    let ConnectionInfo { destination, alpn, authority, unique_id, tls, namespace, custom } = info;
    let items = PyDict::new(py);
    if let Some(destination) = destination {
        items.set_item("destination", destination.to_string())?;
    }
    if let Some(alpn) = alpn {
        items.set_item("alpn", PyBytes::new(py, alpn))?;
    }
    if let Some(authority) = authority {
        items.set_item("authority", &**authority)?;
    }
    if let Some(unique_id) = unique_id {
        items.set_item("unique_id", PyBytes::new(py, unique_id))?;
    }
    if let Some(TlsInfo { version, cipher, common_name, has_certificate, is_verified }) = tls {
        for (key, value) in [("tls_version", version), ("tls_cipher", cipher), ("tls_common_name", common_name)] {
            if let Some(value) = value {
                items.set_item(key, &**value)?;
            }
        }
        items.set_item("tls_has_certificate", has_certificate)?;
        items.set_item("tls_is_verified", is_verified)?;
    }
    if let Some(namespace) = namespace {
        items.set_item("namespace", &**namespace)?;
    }
    for (kind, value) in custom {
        items.set_item(format!("0x{kind:02X}"), PyBytes::new(py, value))?;
    }
    py.import("types")?.getattr("MappingProxyType")?.call1((items,))
}
