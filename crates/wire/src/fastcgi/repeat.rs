//! The variables of a request that a connection keeps, to recognise those of the next ones by them.
//!
//! A web server sends nearly the same pairs with every request of a connection. If a request has the same names in the
//! same order, only the pairs that differ are read.

use super::record;
use crate::cgi::Variables;
use crate::message::{Field, Limits};

/// Requests that differ in more variables than that are read as a whole.
const CHANGED_MAX: usize = 8;

/// The variables of a request that was kept.
#[derive(Debug)]
pub(super) struct Repeat {
    /// PARAMS as they came, and where each pair of them ends.
    pairs: Vec<u8>,
    ends: Vec<usize>,
    variables: Variables,
    fields: Vec<Field>,
    /// The length of the body that the variables declare.
    length: Option<u64>,
    /// The variables that differ in the request that was compared with this one last.
    changed: Vec<u16>,
}

impl Repeat {
    /// Keeps a request of which `pairs` are PARAMS, and `variables` and `fields` what they say.
    pub(super) fn new(pairs: Vec<u8>, variables: &Variables, fields: &[Field], length: Option<u64>) -> Self {
        let mut ends = Vec::with_capacity(fields.len());
        let mut rest = &pairs[..];
        while let Ok(Some((_, _, after))) = record::pair(rest) {
            rest = after;
            ends.push(pairs.len() - rest.len());
        }
        Self { pairs, ends, variables: variables.clone(), fields: fields.to_vec(), length, changed: Vec::new() }
    }

    /// Returns the variables that differ, as places among the fields, after [`compare`](Self::compare) has returned
    /// true.
    pub(super) fn changed(&self) -> &[u16] {
        &self.changed
    }

    /// Returns the length of the body that the variables declare.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns true if `pairs` are those of the kept request, except for the values of a few variables. Then
    /// `variables` and `fields` are set from `pairs`.
    ///
    /// A value that breaks a rule, or says something about the message's framing other than before, makes the request a
    /// different one.
    pub(super) fn compare(
        &mut self,
        pairs: &[u8],
        variables: &mut Variables,
        fields: &mut Vec<Field>,
        limits: &Limits,
    ) -> bool {
        self.changed.clear();
        variables.clone_from(&self.variables);
        fields.clone_from(&self.fields);
        if pairs == self.pairs {
            return true;
        }
        // Both are compared up to here: `pairs`, and what was kept.
        let (mut at, mut start) = (0, 0);
        loop {
            let same = common_prefix(&pairs[at..], &self.pairs[start..]);
            if at + same == pairs.len() && start + same == self.pairs.len() {
                return true;
            }
            // The pair in which they differ; none, if there is more than was kept.
            let index = self.ends.partition_point(|&end| end <= start + same);
            let Some(&end) = self.ends.get(index) else { return false };
            let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            at += begin - start;
            if self.changed.len() == CHANGED_MAX {
                return false;
            }
            let Ok(Some((name, value, rest))) = record::pair(&pairs[at..]) else { return false };
            let is_same_name = name == self.variables.name(&self.fields[index]);
            if !is_same_name || !variables.replace(index, value, fields, limits) {
                return false;
            }
            let Ok(place) = u16::try_from(index) else { return false };
            self.changed.push(place);
            (at, start) = (pairs.len() - rest.len(), end);
        }
    }
}

/// Returns the length of the common prefix. Usually nearly all bytes are equal, so they are compared by the block.
fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let mut same = equal_blocks::<64>(one, other);
    same += equal_blocks::<8>(&one[same..], &other[same..]);
    same + equal_blocks::<1>(&one[same..], &other[same..])
}

/// Returns the number of bytes in the equal blocks of `SIZE` bytes at the front of both.
fn equal_blocks<const SIZE: usize>(one: &[u8], other: &[u8]) -> usize {
    let blocks = one.as_chunks::<SIZE>().0.iter().zip(other.as_chunks::<SIZE>().0);
    blocks.take_while(|(one, other)| one == other).count() * SIZE
}
