//! Invariants: see `check_handshake`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::websocket::check_handshake;

fuzz_target!(|data: &[u8]| check_handshake(data));
