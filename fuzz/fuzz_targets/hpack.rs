//! Invariants: see `check_hpack`. An input is a series of field blocks, each behind a byte with its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::hpack::check_hpack;

fuzz_target!(|data: &[u8]| check_hpack(data));
