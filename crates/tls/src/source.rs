//! Files named by the settings, and mistakes in them.

use std::fmt;

/// A file named by the settings, with its content.
#[derive(Clone)]
pub struct Source {
    /// The path as written in the settings, for messages.
    pub path: String,
    /// The content.
    pub content: Vec<u8>,
}

impl Source {
    /// Returns a mistake in this file. `text` explains the problem and names the command that fixes it.
    pub(crate) fn mistake(&self, text: impl fmt::Display) -> Mistake {
        Mistake(format!("{}: {text}", self.path))
    }
}

impl fmt::Debug for Source {
    /// Omits the content, which may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A mistake in the TLS settings, in one line: the file, the problem, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake(pub String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}
