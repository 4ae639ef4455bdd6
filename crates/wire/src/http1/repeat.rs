//! The field block that a receiver keeps, to recognise later blocks.
//!
//! A client sends nearly the same field lines with every request of a connection. If the input begins with the bytes of
//! the kept block, it contains exactly that block, because a block ends at its first blank line: one comparison
//! replaces the parser. If the next block has the same field names in the same order, only the lines that differ are
//! parsed, and the results of the others are reused.

use super::block::{Facts, Own};
use super::fields::{Line, field_line};
use crate::message::{Field, Limits};

/// The maximum number of lines that differ. A block with more of them is parsed as a whole.
const CHANGED_MAX: usize = 4;

/// A kept block and the result of parsing it.
#[derive(Debug)]
pub(super) struct Repeat<O> {
    block: Box<[u8]>,
    fields: Box<[Field]>,
    facts: Facts<O>,
    /// The indices of the fields that differed in the last block that was compared.
    changed: Vec<u16>,
}

impl<O: Own> Repeat<O> {
    /// Copies `block` and the result of parsing it.
    pub(super) fn new(block: &[u8], fields: &[Field], facts: Facts<O>) -> Self {
        Self { block: block.into(), fields: fields.into(), facts, changed: Vec::new() }
    }

    /// Returns the fields of the kept block.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the indices of the fields that differ. Valid after [`compare`](Self::compare) has returned a result.
    pub(super) fn changed(&self) -> &[u16] {
        &self.changed
    }

    /// Compares the block at the front of `input` with the kept one. Returns its facts and its length if only the
    /// values of a few fields differ; `None` if it is another block, or incomplete. If some values differ, its fields
    /// are stored in `fields`.
    ///
    /// A line that breaks a rule makes it another block, and so does a changed line about framing or the connection.
    #[inline]
    pub(super) fn compare(
        &mut self,
        input: &[u8],
        fields: &mut Vec<Field>,
        limits: &Limits,
    ) -> Option<(Facts<O>, usize)> {
        self.changed.clear();
        if input.starts_with(&self.block) {
            return Some((self.facts, self.block.len()));
        }
        self.compare_lines(&input[..input.len().min(limits.head)], fields, limits)
    }

    fn compare_lines(&mut self, input: &[u8], fields: &mut Vec<Field>, limits: &Limits) -> Option<(Facts<O>, usize)> {
        fields.clear();
        let mut facts = self.facts;
        let mut at = 0;
        for (index, known) in self.fields.iter().enumerate() {
            let end = self.fields.get(index + 1).map_or(self.block.len() - b"\r\n".len(), Field::start);
            let line = &self.block[known.start()..end];
            if input[at..].starts_with(line) {
                fields.push(known.moved_to(at));
                at += line.len();
                continue;
            }
            if self.changed.len() == CHANGED_MAX {
                return None;
            }
            let Ok(Line::Field(field, next)) = field_line(input, at, limits.field_line) else { return None };
            if field.name(input) != known.name(&self.block) {
                return None;
            }
            facts.relearn(field.name(input), field.value(input))?;
            self.changed.push(u16::try_from(index).ok()?);
            fields.push(field);
            at = next;
        }
        input[at..].starts_with(b"\r\n").then_some((facts, at + b"\r\n".len()))
    }
}
