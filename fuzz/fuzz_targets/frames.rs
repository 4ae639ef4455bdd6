//! Invariants: see `check_frames`. An input chooses the frames of a client of HTTP/2.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::frames::check_frames;

fuzz_target!(|data: &[u8]| check_frames(data));
