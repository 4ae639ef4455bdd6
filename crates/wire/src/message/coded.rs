//! The head of a response whose body the server compresses for this client or for other clients (RFC 9110 sections 8.4
//! and 12.5.3).

use super::Draft;
use crate::grammar::list;

/// The field by which an application turns compression of a response on or off. It is not sent.
pub const COMPRESS_FIELD: &[u8] = b"kirsch-compress";

impl Draft {
    /// Returns this head for a response that depends on Accept-Encoding. `coding` is the token of the content coding
    /// that the server applies to the body; `None` if it applies none. With a coding,
    ///
    /// * Content-Encoding is added;
    /// * Content-Length is removed, because it counts the bytes before encoding;
    /// * Accept-Ranges is removed, because the application's ranges refer to the bytes before encoding;
    /// * a strong `ETag` becomes weak, because the encoded bytes differ (RFC 9110 section 8.8.1).
    #[must_use]
    pub fn depending_on_coding(&self, coding: Option<&str>) -> Self {
        let mut new = Self::default();
        new.clone_from(self);
        new.bytes.clear();
        let mut lines = self.bytes.split_inclusive(|&b| b == b'\n');
        new.bytes.extend_from_slice(lines.next().unwrap_or_default());
        let mut has_vary = false;
        for line in lines {
            let colon = memchr::memchr(b':', line).unwrap_or(line.len());
            let (name, value) = (&line[..colon], line[(colon + 1).min(line.len())..].trim_ascii());
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            if is(b"vary") {
                let is_named =
                    list(value).any(|member| member == b"*" || member.eq_ignore_ascii_case(b"accept-encoding"));
                let is_only = !std::mem::replace(&mut has_vary, true);
                if !is_named && is_only && !self.varies_by_coding() {
                    let separator: &[u8] = if value.is_empty() { b"" } else { b", " };
                    new.push_line(name, &[value, separator, b"Accept-Encoding"]);
                    continue;
                }
            } else if is(COMPRESS_FIELD) || coding.is_some() && is(b"accept-ranges") {
                continue;
            } else if is(b"etag") && coding.is_some() && !value.starts_with(b"W/") {
                new.push_line(name, &[b"W/", value]);
                continue;
            }
            new.bytes.extend_from_slice(line);
        }
        if !has_vary {
            new.push_line(b"Vary", &[b"Accept-Encoding"]);
        }
        if let Some(coding) = coding {
            new.push_line(b"Content-Encoding", &[coding.as_bytes()]);
            new.forget_length();
        }
        new
    }

    /// Returns this head for a 304, which confirms a stored response: a strong `ETag` becomes weak, as it does in the
    /// response with the encoded body.
    #[must_use]
    pub fn confirming_coded(&self) -> Self {
        let mut new = self.depending_on_coding(Some(""));
        // A 304 has no content, so it has no Content-Encoding. The other fields stay.
        let end = new.bytes.len() - b"Content-Encoding: \r\n".len();
        new.bytes.truncate(end);
        new
    }

    /// Returns this head without [`COMPRESS_FIELD`].
    #[must_use]
    pub fn without_decision(&self) -> Self {
        let mut new = Self::default();
        new.clone_from(self);
        new.bytes.clear();
        for line in self.bytes.split_inclusive(|&b| b == b'\n') {
            let name = memchr::memchr(b':', line).map_or(line, |colon| &line[..colon]);
            if !name.eq_ignore_ascii_case(COMPRESS_FIELD) {
                new.bytes.extend_from_slice(line);
            }
        }
        new
    }

    /// Returns true if Vary lists Accept-Encoding or `*`.
    fn varies_by_coding(&self) -> bool {
        self.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"vary")).any(|(_, value)| {
            list(value).any(|member| member == b"*" || member.eq_ignore_ascii_case(b"accept-encoding"))
        })
    }

    fn push_line(&mut self, name: &[u8], value: &[&[u8]]) {
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        for part in value {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(fields: &[(&str, &str)]) -> Draft {
        let mut draft = Draft::default();
        draft.start_code(200).unwrap();
        for (name, value) in fields {
            draft.field(name.as_bytes(), value.as_bytes()).unwrap();
        }
        draft
    }

    fn lines(draft: &Draft) -> String {
        String::from_utf8(draft.bytes.clone()).unwrap().replace("\r\n", "|")
    }

    #[test]
    fn an_encoded_body_has_a_weak_tag_and_no_length_or_ranges() {
        let before = draft(&[
            ("Content-Type", "text/html"),
            ("Content-Length", "5000"),
            ("ETag", "\"a\""),
            ("Accept-Ranges", "bytes"),
            ("Kirsch-Compress", "on"),
        ]);
        let after = before.depending_on_coding(Some("br"));
        assert_eq!(
            lines(&after),
            "HTTP/1.1 200 OK|Content-Type: text/html|ETag: W/\"a\"|Vary: Accept-Encoding|Content-Encoding: br|"
        );
        assert_eq!((before.content_length(), after.content_length()), (Some(5000), None));
    }

    #[test]
    fn a_body_that_is_not_encoded_keeps_its_fields() {
        let before = draft(&[("Content-Length", "5000"), ("etag", "\"a\""), ("Accept-Ranges", "bytes")]);
        let after = before.depending_on_coding(None);
        assert_eq!(lines(&after), "HTTP/1.1 200 OK|etag: \"a\"|Accept-Ranges: bytes|Vary: Accept-Encoding|");
        assert_eq!(after.content_length(), Some(5000));
    }

    #[test]
    fn vary_is_merged() {
        for (before, expected) in [
            (&["Cookie"][..], "vary: Cookie, Accept-Encoding|"),
            (&["Cookie, accept-encoding"], "vary: Cookie, accept-encoding|"),
            (&["*"], "vary: *|"),
            (&["Cookie", "Accept-Encoding"], "vary: Cookie|vary: Accept-Encoding|"),
            (&["Cookie", "Accept"], "vary: Cookie, Accept-Encoding|vary: Accept|"),
            (&[""], "vary: Accept-Encoding|"),
        ] {
            let fields: Vec<_> = before.iter().map(|value| ("vary", *value)).collect();
            let after = draft(&fields).depending_on_coding(None);
            assert_eq!(lines(&after), format!("HTTP/1.1 200 OK|{expected}"), "{before:?}");
        }
    }

    #[test]
    fn a_weak_tag_stays_and_a_confirmation_has_no_coding() {
        let weak = draft(&[("ETag", "W/\"a\"")]).depending_on_coding(Some("gzip"));
        assert!(lines(&weak).contains("ETag: W/\"a\"|"));
        let confirmed = draft(&[("ETag", "\"a\"")]).confirming_coded();
        assert_eq!(lines(&confirmed), "HTTP/1.1 200 OK|ETag: W/\"a\"|Vary: Accept-Encoding|");
    }

    #[test]
    fn the_decision_of_the_application_is_left_out() {
        let without = draft(&[("A", "b"), ("KIRSCH-compress", "off"), ("C", "d")]).without_decision();
        assert_eq!(lines(&without), "HTTP/1.1 200 OK|A: b|C: d|");
    }
}
