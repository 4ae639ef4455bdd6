//! Invariants: see `check_http2`. An input is what a client sends behind the preface of HTTP/2 and its first SETTINGS.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::http2::check_http2;

fuzz_target!(|data: &[u8]| check_http2(data));
