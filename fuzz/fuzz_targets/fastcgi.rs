//! Invariants: see `check_fastcgi`. An input is what a web server sends on one connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::gateways::check_fastcgi;

fuzz_target!(|data: &[u8]| check_fastcgi(data));
