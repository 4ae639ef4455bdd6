//! Errors of the authority and of the communication with it.

use std::fmt::{self, Write as _};

/// The maximum length of an error message in characters.
const TEXT_MAX: usize = 500;

const PREFIX: &str = "urn:ietf:params:acme:error:";

/// The reason why a request failed, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeError {
    /// The type of the problem without its prefix (RFC 8555 section 6.7), such as `rateLimited`; empty if the authority
    /// gave none.
    pub kind: String,
    /// The explanation. Text of the authority is converted to one line and shortened.
    pub text: String,
}

impl AcmeError {
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Self { kind: String::new(), text: one_line(&text.to_string()) }
    }

    /// Returns the problem that the authority described.
    pub(crate) fn of_problem(problem: &instant_acme::Problem) -> Self {
        let kind = problem.r#type.as_deref().unwrap_or_default();
        let kind = kind.strip_prefix(PREFIX).unwrap_or(kind);
        let mut text = problem.detail.clone().unwrap_or_else(|| "the authority gives no reason".to_owned());
        for part in problem.subproblems.iter().filter_map(|part| part.detail.as_ref()) {
            // Writing to a String cannot fail.
            let _ = write!(text, "; {part}");
        }
        Self { kind: one_line(kind), text: one_line(&text) }
    }
}

impl fmt::Display for AcmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if self.kind.is_empty() { Ok(()) } else { write!(f, " ({})", self.kind) }
    }
}

impl std::error::Error for AcmeError {}

impl From<instant_acme::Error> for AcmeError {
    fn from(error: instant_acme::Error) -> Self {
        match error {
            instant_acme::Error::Api(problem) => Self::of_problem(&problem),
            instant_acme::Error::Json(error) => {
                Self::new(format_args!("the authority's answer is not readable: {error}"))
            }
            other => Self::new(other),
        }
    }
}

impl From<rcgen::Error> for AcmeError {
    fn from(error: rcgen::Error) -> Self {
        Self::new(error)
    }
}

/// Returns `text` in one line without control characters, so that it is safe in a log.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words: Vec<_> = plain.split_whitespace().collect();
    words.join(" ").chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_authority_becomes_one_bounded_line() {
        let text = format!("a\r\n\x1b[31mb\t c{}", "x".repeat(1000));
        let line = one_line(&text);
        assert!(line.starts_with("a [31mb cx"), "{line}");
        assert_eq!(line.chars().count(), TEXT_MAX);
        assert!(!line.chars().any(char::is_control));
    }
}
