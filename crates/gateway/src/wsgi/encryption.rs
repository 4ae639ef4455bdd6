//! The variables of an encrypted connection, by the names of Apache's `mod_ssl`.

use crate::interface::Security;
use crate::object::Object;
use pyo3::prelude::*;

/// The variables of one connection, with their values.
pub(super) struct EncryptionVariables(Vec<(Object, Object)>);

impl EncryptionVariables {
    /// Makes the variables of a connection. `None` with an exception set if memory is short.
    pub(super) fn new(py: Python<'_>, security: &Security) -> Option<Self> {
        let verified = if security.client_certificates.is_empty() { "NONE" } else { "SUCCESS" };
        let resumed = if security.is_resumed { "Resumed" } else { "Initial" };
        let server_name = security.server_name.as_deref();
        let values = [
            (c"SSL_PROTOCOL", Some(security.version_name())),
            (c"SSL_CIPHER", Some(security.cipher_name)),
            (c"SSL_SESSION_RESUMED", Some(resumed)),
            (c"SSL_TLS_SNI", server_name),
            (c"SSL_CLIENT_VERIFY", Some(verified)),
        ];
        let mut variables = Vec::with_capacity(values.len());
        for (name, value) in values {
            let Some(value) = value else { continue };
            let name = Object::interned(py, name).map_err(|error| error.restore(py)).ok()?;
            variables.push((name, Object::latin1(py, value.as_bytes())?));
        }
        Some(Self(variables))
    }

    /// Sets the variables. `None` with an exception set if memory is short.
    pub(super) fn set(&self, py: Python<'_>, environ: &Object) -> Option<()> {
        self.0.iter().try_for_each(|(name, value)| environ.set_item(py, name, value))
    }
}
