//! Invariants: see `check_path` and `check_ranges`. An input is the path of a request, or the value of a Range field.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire_fuzz::files::{check_path, check_ranges};

fuzz_target!(|data: &[u8]| {
    check_path(data);
    check_ranges(data);
});
