//! Invariants: see `check_uwsgi`. An input is what a web server sends on one connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::gateways::check_uwsgi;

fuzz_target!(|data: &[u8]| check_uwsgi(data));
