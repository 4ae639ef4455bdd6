//! Invariants: see `check_proxy`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::proxies::check_proxy;

fuzz_target!(|data: &[u8]| check_proxy(data));
