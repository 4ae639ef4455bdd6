//! Invariant: a connection with any number of requests reads the same whole and in pieces. Reading never panics and
//! never uses more bytes than there are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::{check_cuts, limit_sets, requests};

fuzz_target!(|data: &[u8]| {
    for limits in limit_sets() {
        check_cuts(data, |data, cuts| requests(data, cuts, usize::MAX, &limits));
    }
});
