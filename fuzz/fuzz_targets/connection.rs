//! Invariant tested: a whole connection, however many requests it carries, reads the same whole and in pieces; reading
//! never panics and never uses more than there is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::{check_cuts, limit_sets, requests};

fuzz_target!(|data: &[u8]| {
    for limits in limit_sets() {
        check_cuts(data, |data, cuts| requests(data, cuts, usize::MAX, &limits));
    }
});
