//! The field block that a receiver keeps, to recognise the next one by it.
//!
//! A client sends nearly the same field lines with every request of a connection. If the next block begins with the
//! bytes of the one that was kept it *is* that block, because a block ends at its first blank line: one comparison
//! replaces the parse. If it has the same field names in the same order, then only the lines that differ are read, and
//! what the others say is known.

use super::block::{Facts, Own};
use super::fields::{Line, field_line};
use crate::message::{Field, Limits};

/// Blocks that differ in more lines than that are read as a whole.
const CHANGED_MAX: usize = 4;

/// A block that was kept, with what it says.
#[derive(Debug)]
pub(super) struct Repeat<O> {
    block: Box<[u8]>,
    fields: Box<[Field]>,
    facts: Facts<O>,
    /// The fields that differ in the block that was compared with this one last.
    changed: Vec<u16>,
}

impl<O: Own> Repeat<O> {
    /// Keeps `block`.
    pub(super) fn new(block: &[u8], fields: &[Field], facts: Facts<O>) -> Self {
        Self { block: block.into(), fields: fields.into(), facts, changed: Vec::new() }
    }

    /// Returns the fields of the block that was kept.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the fields that differ, as places in the block's fields, after [`compare`](Self::compare) has returned
    /// something.
    pub(super) fn changed(&self) -> &[u16] {
        &self.changed
    }

    /// Returns the facts and the length of the block at the front of `input`, if it is the kept block except for the
    /// values of a few fields; `None` if it is another block, or not whole. The fields of a block that differs are put
    /// into `fields`.
    ///
    /// Lines that break a rule, or say something about the message's framing or its connection other than before, make
    /// the block a different one.
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
