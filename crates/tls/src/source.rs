//! Files of the settings, and mistakes in them.

use std::fmt;

/// A file that the settings name, with its content.
#[derive(Clone)]
pub struct Source {
    /// The path as the settings have it, for messages.
    pub path: String,
    /// The content.
    pub content: Vec<u8>,
}

impl Source {
    /// Returns a mistake in this file. `text` says what is wrong, and which command mends it.
    pub(crate) fn mistake(&self, text: impl fmt::Display) -> Mistake {
        Mistake(format!("{}: {text}", self.path))
    }
}

impl fmt::Debug for Source {
    /// Shows no content, which may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A mistake in the settings of TLS, in one line: the file, what is wrong, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake(pub String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}
