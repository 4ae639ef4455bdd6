//! Invariant: a connection's responses read the same whole and in pieces, whichever of them answer HEAD. Reading never
//! panics and never uses more bytes than there are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::{Random, check_cuts, limit_sets, responses};

fuzz_target!(|data: &[u8]| {
    let mut random = Random::of(data, 2);
    // Mostly zero, because the body of an answer to HEAD is not read.
    let heads = random.next() & random.next() & random.next();
    for limits in limit_sets() {
        check_cuts(data, |data, cuts| responses(data, cuts, heads, &limits));
    }
});
