//! The position of a field line in its block.

/// The positions of one field line in its block. `line <= name_end < value <= value_end <= block length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub(crate) line: u32,
    pub(crate) name_end: u32,
    pub(crate) value: u32,
    pub(crate) value_end: u32,
}

impl Field {
    /// Returns the name as it was received.
    #[must_use]
    pub fn name<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.line as usize..self.name_end as usize]
    }

    /// Returns the value without white space around it. It may contain obs-text (bytes from 0x80), but no control
    /// character except HTAB.
    #[must_use]
    pub fn value<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.value as usize..self.value_end as usize]
    }

    /// Returns name, colon and value as received, without trailing white space. It can serve as the key of a table of
    /// repeated lines.
    #[must_use]
    pub fn line<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.line as usize..self.value_end as usize]
    }

    /// Returns the position of the line in its block.
    pub(crate) fn start(&self) -> usize {
        self.line as usize
    }

    /// Returns the positions of the same line if it begins at `start` of another block.
    pub(crate) fn moved_to(&self, start: usize) -> Self {
        // The limits keep a head far below 4 GiB, so the offsets fit.
        #[allow(clippy::cast_possible_truncation)]
        let line = start as u32;
        let moved = |at: u32| at - self.line + line;
        Self { line, name_end: moved(self.name_end), value: moved(self.value), value_end: moved(self.value_end) }
    }

    /// Returns true if this field is the CGI variable of the HTTP field `name`, given in lower case (RFC 3875 section
    /// 4.1.18): `HTTP_USER_AGENT` is the variable of `user-agent`.
    #[must_use]
    pub fn is_variable_of(&self, block: &[u8], name: &[u8]) -> bool {
        let own = self.name(block);
        let rest = match name {
            b"content-type" | b"content-length" => Some(own),
            _ => own.strip_prefix(b"HTTP_"),
        };
        let upper = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
        rest.is_some_and(|rest| {
            rest.len() == name.len() && rest.iter().zip(name).all(|(&own, &byte)| own == upper(byte))
        })
    }

    /// Returns true if the name is `name`, which must be given in lower case.
    #[must_use]
    pub fn is(&self, block: &[u8], name: &[u8]) -> bool {
        self.name(block).eq_ignore_ascii_case(name)
    }
}
