//! Tests that limit or measure the whole process, so one runs after the other, and no other test beside them.

mod common;
mod process_descriptors;
#[cfg(target_os = "linux")]
mod process_memory;

#[test]
fn engine_keeps_to_the_limits_of_a_process() {
    // The first one, because memory that another has freed would hide what is allocated.
    #[cfg(target_os = "linux")]
    process_memory::ten_thousand_idle_websockets_take_two_kibibytes_each();
    process_descriptors::engine_waits_when_no_descriptor_is_left();
}
