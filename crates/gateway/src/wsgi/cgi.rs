//! The environ of a request that a web server forwards with CGI variables (RFC 3875), over FastCGI, uwsgi or SCGI.
//!
//! The web server's variables become the environ, except those that the server sets itself (`wsgi.*`,
//! `SERVER_SOFTWARE`) and those that could mislead an application. `SCRIPT_NAME` and `PATH_INFO` are computed anew,
//! because web servers set them differently ([`ScriptName`](super::path::ScriptName)).

use super::cgi_template::{CgiTemplate, Use, is_of_path, use_of};
use super::environ::Environs;
use super::path::PathVariables;
use crate::interface::Remote;
use crate::object::Object;
use pyo3::prelude::*;
use wire::message::{Field, RequestHead};

/// Returns true if the variable's value belongs to one user. Such values are not stored in the table that all
/// connections share.
fn is_secret(name: &[u8]) -> bool {
    matches!(name, b"HTTP_COOKIE" | b"HTTP_AUTHORIZATION" | b"HTTP_PROXY_AUTHORIZATION" | b"REMOTE_USER")
        || name.starts_with(b"SSL_")
}

/// Returns true if the value of a variable such as HTTPS means yes.
fn is_on(value: &[u8]) -> bool {
    [&b"on"[..], b"1", b"true", b"yes"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

impl Environs {
    /// Makes the environ of a request, without its body. Returns `None` with an exception set if an allocation fails.
    /// `template` is that of the request's connection.
    pub(super) fn begin_cgi(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        remote: &Remote,
        template: &mut Option<Box<CgiTemplate>>,
    ) -> Option<Object> {
        if let Some(kept) = template
            && let Some(changes) = kept.changes(head)
        {
            return self.copy_cgi(py, head, &kept.environ, changes);
        }
        let environ = self.build_cgi(py, head, remote)?;
        if head.retained {
            *template = CgiTemplate::new(environ.copy_dict(py)?, head).map(Box::new);
        }
        Some(environ)
    }

    /// Returns a copy of `environ`, which was made from the same variables except those with the indices `changes`.
    fn copy_cgi(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        environ: &Object,
        changes: &[u16],
    ) -> Option<Object> {
        let environ = environ.copy_dict(py)?;
        let mut is_path_changed = false;
        for &index in changes {
            let field = &head.fields[usize::from(index)];
            let name = field.name(head.block);
            is_path_changed |= is_of_path(name);
            if !matches!(use_of(name), Use::Dropped) {
                self.set_variable(py, &environ, head, field)?;
            }
        }
        if is_path_changed {
            self.set_path(py, &environ, head, &PathVariables::of(head))?;
        }
        Some(environ)
    }

    /// Sets a variable of the environ to the value that the web server sent.
    fn set_variable(&mut self, py: Python<'_>, environ: &Object, head: &RequestHead<'_>, field: &Field) -> Option<()> {
        let (name, line) = (field.name(head.block), field.line(head.block));
        if name == b"REMOTE_PORT" {
            // Each client has another port, which would evict lines that recur from the table.
            let port = Object::latin1(py, field.value(head.block))?;
            return environ.set_item(py, &self.keys.remote_port, &port);
        }
        match self.lines.get(line) {
            Ok((key, value)) => environ.set_item(py, key, value),
            Err(vacancy) => {
                let (key, value) = (Object::latin1(py, name)?, Object::latin1(py, field.value(head.block))?);
                environ.set_item(py, &key, &value)?;
                if !is_secret(name) {
                    self.lines.offer(vacancy, line, || (key, value));
                }
                Some(())
            }
        }
    }

    /// Sets the variables that depend on the path and the target of the request.
    fn set_path(
        &self,
        py: Python<'_>,
        environ: &Object,
        head: &RequestHead<'_>,
        variables: &PathVariables<'_>,
    ) -> Option<()> {
        let raw = Object::latin1(py, head.target.raw)?;
        environ.set_item(py, &self.keys.raw_uri, &raw)?;
        if !variables.has_uri {
            environ.set_item(py, &self.keys.request_uri, &raw)?;
        }
        let (script_name, path_info) = self.script_name.split(variables);
        environ.set_item(py, &self.keys.script_name, &Object::latin1(py, &script_name)?)?;
        environ.set_item(py, &self.keys.path_info, &Object::latin1(py, &path_info)?)
    }

    fn build_cgi(&mut self, py: Python<'_>, head: &RequestHead<'_>, remote: &Remote) -> Option<Object> {
        let environ = self.bases[remote.peer.listener].copy_dict(py)?;
        let mut variables = PathVariables::new(head.target.path);
        let (mut is_https, mut has_host, mut has_port, mut has_repeated) = (false, false, false, false);
        let mut size = environ.dict_size(py);
        for field in head.fields {
            let (name, value) = (field.name(head.block), field.value(head.block));
            variables.note(name, value);
            match name {
                b"HTTPS" => is_https = is_on(value),
                b"REQUEST_SCHEME" | b"UWSGI_SCHEME" => is_https |= value == b"https",
                b"HTTP_HOST" => has_host = !value.is_empty(),
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
            self.set_variable(py, &environ, head, field)?;
            let grown = environ.dict_size(py);
            // A repeated variable does not enlarge the environ. HTTP_HOST is in every base, so it is not a repeated
            // variable.
            has_repeated |= grown == size && name.starts_with(b"HTTP_") && name != b"HTTP_HOST";
            size = grown;
        }
        if has_repeated {
            join_repeated(py, &environ, head)?;
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
        self.set_path(py, &environ, head, &variables)?;
        Some(environ)
    }

    /// Computes `SCRIPT_NAME` and `PATH_INFO` of a request with CGI variables.
    pub(crate) fn split_path(&self, head: &RequestHead<'_>) -> (Vec<u8>, Vec<u8>) {
        self.script_name.split(&PathVariables::of(head))
    }

    /// Sets `SERVER_NAME`. nginx sends `_` if its server has no name. `HAProxy` appends a port, which does not belong
    /// to the name.
    fn set_server_name(&self, py: Python<'_>, environ: &Object, name: &[u8]) -> Option<()> {
        if name == b"_" {
            return Some(());
        }
        let colon = name.iter().rposition(|&byte| byte == b':');
        // An IPv6 address without brackets has colons that precede no port.
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

/// Joins the values of header fields that occur more than once (RFC 9110 section 5.3; RFC 6265 section 5.4 for
/// cookies), as nginx before 1.23 sends them. Of other repeated variables the last one applies.
fn join_repeated(py: Python<'_>, environ: &Object, head: &RequestHead<'_>) -> Option<()> {
    let mut names: Vec<(&[u8], &[u8])> = head
        .fields
        .iter()
        .map(|field| (field.name(head.block), field.value(head.block)))
        .filter(|(name, _)| name.starts_with(b"HTTP_") && matches!(use_of(name), Use::Plain))
        .collect();
    // A stable sort keeps the values of one field in their order.
    names.sort_by_key(|(name, _)| *name);
    for same in names.chunk_by(|one, other| one.0 == other.0) {
        let [(name, _), _, ..] = same else { continue };
        let separator: &[u8] = if *name == b"HTTP_COOKIE" { b"; " } else { b"," };
        let values: Vec<&[u8]> = same.iter().map(|(_, value)| *value).collect();
        environ.set_item(py, &Object::latin1(py, name)?, &Object::latin1(py, &values.join(separator))?)?;
    }
    Some(())
}
