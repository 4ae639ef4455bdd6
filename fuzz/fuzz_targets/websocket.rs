//! Invariants: see `check_websocket`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::websocket::check_websocket;

fuzz_target!(|data: &[u8]| check_websocket(data));
