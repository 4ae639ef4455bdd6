//! Invariants: see `check_forwarded`. An input is the field lines of a request, behind Host.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::proxies::check_forwarded;

fuzz_target!(|data: &[u8]| check_forwarded(data));
