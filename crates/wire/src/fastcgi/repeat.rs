//! The variables of a request that a connection keeps, to recognise those of later requests.
//!
//! A web server sends nearly the same pairs with every request of a connection. If a request has the same names in the
//! same order, only the pairs that differ are parsed.

use super::record;
use crate::cgi::Variables;
use crate::message::{Field, Limits};

/// The maximum number of variables that differ. A request with more of them is parsed as a whole.
const CHANGED_MAX: usize = 8;

/// The variables of a kept request.
#[derive(Debug)]
pub(super) struct Repeat {
    /// The content of PARAMS, and the position at which each pair ends.
    pairs: Vec<u8>,
    ends: Vec<usize>,
    variables: Variables,
    fields: Vec<Field>,
    /// The length of the body that the variables declare.
    length: Option<u64>,
    /// The indices of the variables that differed in the last request that was compared.
    changed: Vec<u16>,
}

impl Repeat {
    /// Copies a request: `pairs` is the content of PARAMS, `variables` and `fields` the result of parsing it.
    pub(super) fn new(pairs: Vec<u8>, variables: &Variables, fields: &[Field], length: Option<u64>) -> Self {
        let mut ends = Vec::with_capacity(fields.len());
        let mut rest = &pairs[..];
        while let Ok(Some((_, _, after))) = record::pair(rest) {
            rest = after;
            ends.push(pairs.len() - rest.len());
        }
        Self { pairs, ends, variables: variables.clone(), fields: fields.to_vec(), length, changed: Vec::new() }
    }

    /// Returns the indices of the variables that differ. Valid after [`compare`](Self::compare) has returned true.
    pub(super) fn changed(&self) -> &[u16] {
        &self.changed
    }

    /// Returns the length of the body that the variables declare.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns true if `pairs` equal those of the kept request, except for the values of a few variables. Then
    /// `variables` and `fields` describe `pairs`.
    ///
    /// A value that breaks a rule makes it another request, and so does a changed value about framing.
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
        // The positions up to which `pairs` and the kept pairs have been compared.
        let (mut at, mut start) = (0, 0);
        loop {
            let same = common_prefix(&pairs[at..], &self.pairs[start..]);
            if at + same == pairs.len() && start + same == self.pairs.len() {
                return true;
            }
            // The first pair that differs. There is none if all kept pairs are equal and more follow.
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

/// Returns the length of the common prefix. Nearly all bytes are usually equal, so they are compared in blocks.
fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let mut same = equal_blocks::<64>(one, other);
    same += equal_blocks::<8>(&one[same..], &other[same..]);
    same + equal_blocks::<1>(&one[same..], &other[same..])
}

/// Returns the total length of the equal blocks of `SIZE` bytes at the front of both slices.
fn equal_blocks<const SIZE: usize>(one: &[u8], other: &[u8]) -> usize {
    let blocks = one.as_chunks::<SIZE>().0.iter().zip(other.as_chunks::<SIZE>().0);
    blocks.take_while(|(one, other)| one == other).count() * SIZE
}
