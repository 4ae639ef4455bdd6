//! Tells the compiler which Python this is built for: `cfg(Py_GIL_DISABLED)` where it may run without the GIL.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    // For tests, which link libpython. An extension module does not, and gets no argument here.
    pyo3_build_config::add_libpython_rpath_link_args();
}
