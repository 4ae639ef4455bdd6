//! Tells the compiler which Python this is built for: `cfg(Py_GIL_DISABLED)` where it may run without its lock.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
