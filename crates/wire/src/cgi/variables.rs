//! The variables of one request, and the head that is made from them.

use crate::grammar::{decimal, is_token, is_value, target_end};
use crate::message::{BodyLength, Fault, Field, Limits, RequestHead, Target, Version, is_host};

/// The number and the total size of the variables that a web server may add to those of the request's fields.
const OWN_VARIABLES: usize = 400;
const OWN_BYTES: usize = 32 << 10;

/// The variables of one request, as lines `NAME=value`.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    block: Vec<u8>,
    /// The total size of names and values in bytes, and the number of variables that are fields of the request.
    size: usize,
    http_fields: usize,
    /// The positions of the variables for the head; `None` until they have been searched.
    known: Option<Known>,
}

/// The indices, among the fields, of the variables from which the head is made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    method: Option<usize>,
    uri: Option<usize>,
    path_info: Option<usize>,
    script_name: Option<usize>,
    document_uri: Option<usize>,
    query: Option<usize>,
    protocol: Option<usize>,
    has_host: bool,
    /// True if `SERVER_SOFTWARE` shows that the web server is HAProxy.
    pub(crate) is_haproxy: bool,
}

impl Clone for Variables {
    fn clone(&self) -> Self {
        Self { block: self.block.clone(), ..*self }
    }

    // This runs for each request, so it reuses the existing block.
    fn clone_from(&mut self, other: &Self) {
        self.block.clone_from(&other.block);
        (self.size, self.http_fields, self.known) = (other.size, other.http_fields, other.known);
    }
}

/// Returns the maximum total size of a request's names and values, in bytes.
pub(crate) fn most_bytes(limits: &Limits) -> usize {
    limits.head.saturating_add(OWN_BYTES)
}

impl Variables {
    /// Removes all variables, and releases the memory if it is large.
    pub(crate) fn clear(&mut self) {
        self.block.clear();
        self.block.shrink_to(4 << 10);
        self.size = 0;
        self.http_fields = 0;
        self.known = None;
    }

    /// Returns the name of a variable.
    pub(crate) fn name(&self, field: &Field) -> &[u8] {
        field.name(&self.block)
    }

    /// Replaces the value of the variable at `index`. Returns false if the value breaks a rule, or if the length of the
    /// body may depend on it; then the variables must not be used any more.
    pub(crate) fn replace(&mut self, index: usize, value: &[u8], fields: &mut [Field], limits: &Limits) -> bool {
        let field = fields[index];
        let (name, old) = (field.name(&self.block), field.value(&self.block).len());
        let is_allowed = match name {
            b"CONTENT_LENGTH" | b"SERVER_SOFTWARE" | b"HTTP_TRANSFER_ENCODING" => false,
            b"HTTP_HOST" => is_host(value) && check_field(name, value, limits).is_ok(),
            _ => check_field(name, value, limits).is_ok(),
        };
        self.size = self.size - old + value.len();
        if !is_allowed || self.size > most_bytes(limits) {
            return false;
        }
        let (start, end) = (field.value as usize, field.value_end as usize);
        if old == value.len() {
            self.block[start..end].copy_from_slice(value);
            return true;
        }
        self.block.splice(start..end, value.iter().copied());
        fields[index].value_end = offset(start + value.len());
        for field in &mut fields[index + 1..] {
            *field = field.moved_to(field.start() + value.len() - old);
        }
        true
    }

    /// Adds a variable.
    ///
    /// # Errors
    /// The rule that the name or the value breaks, or the limit that is exceeded.
    pub(crate) fn push(
        &mut self,
        name: &[u8],
        value: &[u8],
        fields: &mut Vec<Field>,
        limits: &Limits,
    ) -> Result<(), Fault> {
        // In an environment, a name that contains `=` could be mistaken for another variable.
        if name.is_empty() || !name.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'=') {
            return Err(Fault::VariablesMalformed);
        }
        self.size += name.len() + value.len();
        if self.size > most_bytes(limits) {
            return Err(Fault::HeadTooLarge);
        }
        self.http_fields += usize::from(name.starts_with(b"HTTP_"));
        check_field(name, value, limits)?;
        if self.http_fields > limits.fields || fields.len() >= limits.fields.saturating_add(OWN_VARIABLES) {
            return Err(Fault::FieldsTooMany);
        }
        let line = offset(self.block.len());
        self.block.extend_from_slice(name);
        let name_end = offset(self.block.len());
        self.block.push(b'=');
        let start = offset(self.block.len());
        self.block.extend_from_slice(value);
        fields.push(Field { line, name_end, value: start, value_end: offset(self.block.len()) });
        self.block.push(b'\n');
        Ok(())
    }

    /// Returns `CONTENT_LENGTH`, and true if a transfer coding is present.
    ///
    /// # Errors
    /// A length that is malformed, contradicts another one, or exceeds the limit.
    pub(crate) fn length(&self, fields: &[Field], limits: &Limits) -> Result<(Option<u64>, bool), Fault> {
        let (mut length, mut has_coding, mut is_caddy) = (None, false, false);
        for field in fields {
            match field.name(&self.block) {
                b"CONTENT_LENGTH" => {
                    let value = field.value(&self.block);
                    if length.replace(value).is_some_and(|before| before != value) {
                        return Err(Fault::ContentLengthRepeated);
                    }
                }
                b"SERVER_SOFTWARE" => is_caddy = field.value(&self.block).starts_with(b"Caddy"),
                b"HTTP_TRANSFER_ENCODING" => has_coding |= !field.value(&self.block).is_empty(),
                _ => {}
            }
        }
        match length {
            // nginx sends an empty value if there is no length (RFC 3875 section 4.1.2).
            None | Some(b"") => Ok((None, has_coding)),
            // Caddy sends -1 if the body is chunked.
            Some(b"-1") if is_caddy => Ok((None, true)),
            Some(digits) => match decimal(digits).ok_or(Fault::ContentLengthInvalid)? {
                length if length > limits.body => Err(Fault::BodyTooLarge),
                length => Ok((Some(length), has_coding)),
            },
        }
    }

    /// Returns the head that is made from the variables `fields`.
    ///
    /// # Errors
    /// The rule that the variables break.
    pub(crate) fn head<'a>(
        &'a mut self,
        fields: &'a [Field],
        limits: &Limits,
        body: BodyLength,
    ) -> Result<RequestHead<'a>, Fault> {
        let known = self.learn(fields)?;
        let method = known.method.map(|at| fields[at].value(&self.block)).ok_or(Fault::VariablesMalformed)?;
        if !is_token(method) {
            return Err(Fault::MethodInvalid);
        }
        match method {
            b"CONNECT" => return Err(Fault::ConnectRefused),
            _ if method.len() > 64 => return Err(Fault::MethodTooLong),
            _ => {}
        }
        let version = match known.protocol.map(|at| fields[at].value(&self.block)) {
            Some(b"HTTP/1.0" | b"HTTP/0.9") => Version::Http10,
            _ => Version::Http11,
        };
        let (start, end) = self.target(&known, fields);
        if end - start > limits.request_line {
            return Err(Fault::RequestLineTooLong);
        }
        let block = &self.block[..];
        let method = known.method.map_or(&b""[..], |at| fields[at].value(block));
        let target = Target::read(&block[start..end], method)?;
        Ok(RequestHead {
            stream: None,
            method,
            target,
            version,
            block,
            fields,
            body,
            is_cgi: true,
            is_websocket: false,
            is_https: None,
            takes_errors: false,
            changed: None,
            retained: false,
            kept: 0,
            client: None,
        })
    }

    /// Finds the variables from which a head is made. If a variable is repeated, the last one is used: this is how a
    /// web server's configuration overrides an included one.
    ///
    /// # Errors
    /// [`Fault::HostRepeated`], [`Fault::HostInvalid`].
    pub(crate) fn learn(&mut self, fields: &[Field]) -> Result<Known, Fault> {
        if let Some(known) = self.known {
            return Ok(known);
        }
        let mut known = Known::default();
        for (at, field) in fields.iter().enumerate() {
            let place = match field.name(&self.block) {
                b"REQUEST_METHOD" => &mut known.method,
                b"REQUEST_URI" => &mut known.uri,
                b"PATH_INFO" => &mut known.path_info,
                b"SCRIPT_NAME" => &mut known.script_name,
                b"DOCUMENT_URI" => &mut known.document_uri,
                b"QUERY_STRING" => &mut known.query,
                b"SERVER_PROTOCOL" => &mut known.protocol,
                b"HTTP_HOST" => {
                    if std::mem::replace(&mut known.has_host, true) {
                        return Err(Fault::HostRepeated);
                    }
                    if !is_host(field.value(&self.block)) {
                        return Err(Fault::HostInvalid);
                    }
                    continue;
                }
                b"SERVER_SOFTWARE" => {
                    known.is_haproxy = field.value(&self.block).starts_with(b"HAProxy");
                    continue;
                }
                _ => continue,
            };
            *place = Some(at);
        }
        self.known = Some(known);
        Ok(known)
    }

    /// Returns the start and the end of the request target in the block. The target is `REQUEST_URI`, or else the path
    /// and the query, which this function appends to the block.
    fn target(&mut self, known: &Known, fields: &[Field]) -> (usize, usize) {
        if let Some(uri) = known.uri.map(|at| &fields[at]) {
            let value = uri.value(&self.block);
            // A fragment does not belong to a target, but some clients send it and some web servers forward it.
            let end = memchr::memchr(b'#', value).unwrap_or(value.len());
            let method = known.method.map_or(&b""[..], |at| fields[at].value(&self.block));
            let is_target = !value.is_empty() && target_end(&value[..end], 0) == end;
            if is_target && Target::read(&value[..end], method).is_ok() {
                let start = uri.value as usize;
                return (start, start + end);
            }
        }
        let of = |at: Option<usize>| at.map_or(&b""[..], |at| fields[at].value(&self.block)).to_vec();
        let mut path = of(known.script_name);
        path.extend_from_slice(&of(known.path_info));
        if path.is_empty() {
            path = of(known.document_uri);
        }
        let query = of(known.query);
        let start = self.block.len();
        if path.first() != Some(&b'/') {
            self.block.push(b'/');
        }
        escape(&path, b"?#%", &mut self.block);
        if !query.is_empty() {
            self.block.push(b'?');
            escape(&query, b"#", &mut self.block);
        }
        (start, self.block.len())
    }
}

/// Checks the value of a variable that is a field of the request.
fn check_field(name: &[u8], value: &[u8], limits: &Limits) -> Result<(), Fault> {
    if !name.starts_with(b"HTTP_") {
        return Ok(());
    }
    if !is_value(value) {
        return Err(Fault::FieldValueInvalid);
    }
    if name.len() + value.len() > limits.field_line {
        return Err(Fault::FieldLineTooLong);
    }
    Ok(())
}

/// Appends `text`, with percent escapes for bytes that are not allowed in a request target and for those in `also` (RFC
/// 3986 section 2.1).
fn escape(text: &[u8], also: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        if byte.is_ascii_graphic() && !also.contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// Converts an offset in a block. [`most_bytes`] and the limit on variables keep a block far below 4 GiB.
fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("a block of variables is bounded")
}
