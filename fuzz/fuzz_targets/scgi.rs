//! Invariants: see `check_scgi`. An input is what a web server sends on one connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::gateways::check_scgi;

fuzz_target!(|data: &[u8]| check_scgi(data));
