//! Invariants: see `check_tls`. An input says what happens to the records of a real client.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::tls::check_tls;

fuzz_target!(|data: &[u8]| check_tls(data));
