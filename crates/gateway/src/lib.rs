//! The gateway between the engine and Python. It is the only crate of the server that uses the interpreter. It builds
//! the module `kirsch._native`, which is documented for Python in `packages/kirsch/src/kirsch/_native.pyi`.
//!
//! ```text
//!   server      the Python class of a server: hosts with WSGI, ASGI or both
//!   config      the settings of a server, each taken by its name
//!   resources   builds the parts of a server, from its configuration to its engines
//!   host        engines, threads, calls and their deadlines, for any interface
//!   wsgi, asgi  interfaces: make environs and scopes, call the application
//!   mounted     several applications in one server; mounts selects one for each request
//!   interface   the traits between the host and the interfaces
//!   access_log, log_writer, refusals, scoreboard, limit    logs, counters and other reports
//!   quarantine  routes whose requests have crashed workers
//!   rate_limit  the number of requests that a client may send in a time
//!   sampling    which requests are traced
//!   object, gil, guarded, interrupt, stacks, signals       Python objects, locks and threads
//!   compat      functions that differ between CPython and PyPy
//!   forks       processes that the application forks
//!   certificates  the certificates of encrypted listeners; acme obtains them
//!   group, inotify, thread_name, clock, text, table        operating system, text, cached strings
//! ```
//!
//! Two rules hold everywhere: a thread takes the GIL first and the engine's lock second, and no application code runs
//! while the engine's lock is held ([`host`]).
//!
//! Code that runs once for a connection or a server uses ordinary PyO3. Code that runs for every request uses the C API
//! ([`object`], [`wsgi`]), because there the cost of a single call is measurable.
//!
//! A file that uses no Python says so in its first line. Such files are also tested without an interpreter
//! (`tests/without_python.rs`).

mod access_log;
mod acme;
mod asgi;
mod callable;
mod certificates;
mod clock;
mod compat;
mod config;
mod descriptor;
mod forks;
mod gil;
mod group;
mod guarded;
mod host;
#[cfg(target_os = "linux")]
mod inotify;
mod interface;
mod interrupt;
mod known_head;
mod limit;
mod log_writer;
mod mounted;
mod mounts;
mod object;
mod peers;
mod proxies;
mod quarantine;
mod rate_limit;
mod refusals;
mod resources;
mod reused;
mod sampling;
mod scoreboard;
mod server;
mod signals;
mod stacks;
mod table;
#[cfg(test)]
mod testing;
mod text;
mod thread_id;
mod thread_name;
mod watched;
mod wsgi;

use pyo3::prelude::*;

/// The native engine of Kirsch, and its WSGI and ASGI gateway.
///
/// Nothing here relies on the GIL, so a free-threaded interpreter that imports it stays without one
/// (docs/design/gil.md).
#[pymodule(gil_used = false)]
mod _native {
    use crate::access_log;
    #[pymodule_export]
    use crate::acme::{AcmeAccount, AcmeFailure, AcmeOrder};
    #[pymodule_export]
    use crate::certificates::Certificates;
    #[pymodule_export]
    use crate::forks::{block_signals, leave_engines, restore_signals};
    use crate::group;
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::group::eventfd;
    #[pymodule_export]
    use crate::host::Call;
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::inotify::Inotify;
    #[pymodule_export]
    use crate::log_writer::{LogWriter, count_dropped_line, dropped_lines, flush_logs};
    #[pymodule_export]
    use crate::peers::send_to_all;
    use crate::quarantine;
    use crate::rate_limit;
    #[pymodule_export]
    use crate::sampling::{RequestCount, sampled};
    use crate::scoreboard;
    #[pymodule_export]
    use crate::server::{HostedExchange, Server};
    use crate::signals;
    #[pymodule_export]
    use crate::signals::SignalHandler;
    #[pymodule_export]
    use crate::stacks::follow_frames;
    use crate::thread_name;
    #[pymodule_export]
    use crate::wsgi::file_wrapper::FileWrapper;
    #[pymodule_export]
    use crate::wsgi::hijack::Hijack;
    #[pymodule_export]
    use crate::wsgi::websocket::WebSocket;
    use pyo3::prelude::*;
    use pyo3::types::{PyDict, PyTuple};

    /// Checks an access log format. Raises `ValueError` that says why it is invalid.
    #[pyfunction]
    #[pyo3(signature = (log_format, /))]
    fn check_access_log_format(log_format: &str) -> PyResult<()> {
        crate::access_log::check_format(log_format)
    }

    /// Checks a list of trusted addresses. Raises `ValueError` that says which entry is invalid.
    #[pyfunction]
    #[pyo3(signature = (addresses, /))]
    fn check_addresses(addresses: &str) -> PyResult<()> {
        crate::proxies::trusted(addresses).map(drop)
    }

    /// Returns the client of a request with these field lines from `peer`. Raises `ValueError` on an error.
    #[pyfunction]
    #[pyo3(signature = (trusted_proxies, forwarded, peer, lines, *, host = false, prefix = false))]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn forwarded_client(
        trusted_proxies: &str,
        forwarded: &str,
        peer: &str,
        lines: Vec<String>,
        host: bool,
        prefix: bool,
    ) -> PyResult<crate::proxies::NamedClient> {
        crate::proxies::client(trusted_proxies, forwarded, peer, &lines, (host, prefix))
    }

    /// Returns the index of the mount for a host and a decoded path; `None` if no mount matches.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn find_mount(places: Vec<(String, String)>, host: &str, path: &str) -> Option<usize> {
        let places = places.iter().map(|(host, path)| (&host[..], &path[..]));
        crate::mounts::Mounts::new(places).at(host, path)
    }

    /// Returns true if a request id from a client or proxy is short and plain enough for logs.
    #[pyfunction]
    fn is_request_id(given: &str) -> bool {
        access_log::is_request_id(given.as_bytes())
    }

    /// Makes a private key (PEM) and a certificate signing request (DER) for a name.
    #[pyfunction]
    #[pyo3(signature = (name, /))]
    fn make_request(name: &str) -> PyResult<(String, Vec<u8>)> {
        crate::acme::make_request(name)
    }

    /// Makes the key and the certificate (PEM) that answer a challenge of TLS-ALPN-01.
    #[pyfunction]
    #[pyo3(signature = (name, key_authorization, /))]
    fn make_challenge(name: &str, key_authorization: &str) -> PyResult<(String, String)> {
        crate::acme::make_challenge(name, key_authorization)
    }

    /// Makes the key and the certificate (PEM) of a certificate authority for development.
    #[pyfunction]
    fn make_authority() -> PyResult<(String, String)> {
        crate::acme::make_authority()
    }

    /// Makes a key and a certificate (PEM) for these names, issued by such an authority.
    #[pyfunction]
    #[pyo3(signature = (authority_key, names, /))]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn issue_certificate(authority_key: &str, names: Vec<String>) -> PyResult<(String, String)> {
        crate::acme::issue_certificate(authority_key, &names)
    }

    /// Permanently restricts the files that this process may read and write.
    #[pyfunction]
    #[pyo3(signature = (writable, readable, /))]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn confine(writable: &str, readable: Vec<String>) -> PyResult<&'static str> {
        crate::acme::confine(writable, &readable)
    }

    /// Replaces the alternate signal stack of this thread if it is too small for all signals at once.
    #[pyfunction]
    fn make_room_for_signals() -> PyResult<()> {
        Ok(signals::make_room()?)
    }

    /// Initializes an empty list of routes in quarantine.
    #[pyfunction]
    fn start_quarantine(memory: &Bound<'_, PyAny>, hash_key: [u64; 2]) -> PyResult<()> {
        quarantine::start(memory, hash_key)
    }

    /// Replaces the list of routes in quarantine.
    #[pyfunction]
    fn publish_quarantine(
        memory: &Bound<'_, PyAny>,
        recording: Option<u64>,
        routes: Vec<quarantine::ListedRoute>,
    ) -> PyResult<()> {
        quarantine::publish(memory, recording, routes)
    }

    /// Returns the routes in quarantine.
    #[pyfunction]
    fn quarantined_routes(memory: &Bound<'_, PyAny>) -> PyResult<Vec<quarantine::ListedRoute>> {
        quarantine::listed(memory)
    }

    /// Returns the content of a worker's table of routes.
    #[pyfunction]
    fn recorded_routes(memory: &Bound<'_, PyAny>) -> PyResult<(u64, u64, Vec<quarantine::RecordedRoute>)> {
        quarantine::recorded(memory)
    }

    /// Returns how many token buckets were evicted before they were full.
    #[pyfunction]
    fn rate_limit_evictions(memory: &Bound<'_, PyAny>) -> PyResult<u64> {
        rate_limit::given_up(memory)
    }

    /// Returns the tokens taken on this host since the last call, for other hosts.
    #[pyfunction]
    fn take_rate_limit_debts(memory: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        rate_limit::take_debts(memory)
    }

    /// Records tokens taken on other hosts.
    #[pyfunction]
    fn add_rate_limit_debts(memory: &Bound<'_, PyAny>, debts: &[u8]) -> PyResult<()> {
        rate_limit::add_debts(memory, debts)
    }

    /// Names the calling thread for the operating system.
    #[pyfunction]
    fn name_thread(name: &str) {
        thread_name::set(name);
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        let py = module.py();
        module.add("STAGES", PyTuple::new(py, engine::Stage::ALL.map(|(_, name)| name))?)?;
        let protocols = PyDict::new(py);
        for (kind, name) in engine::ProtocolKind::ALL {
            protocols.set_item(name, PyTuple::new(py, kind.alpn())?)?;
        }
        module.add("PROTOCOLS", protocols)?;
        module.add("SCOREBOARD_SIZE", scoreboard::SIZE)?;
        module.add("GROUP_RECORD_SIZE", group::SIZE)?;
        module.add("QUARANTINE_SIZE", quarantine::LIST_SIZE)?;
        module.add("QUARANTINED_MAX", quarantine::QUARANTINED_MAX)?;
        module.add("ROUTE_TABLE_SIZE", quarantine::TABLE_SIZE)?;
        module.add("RATE_LIMIT_SIZE", rate_limit::SIZE)?;
        module.add("SCOREBOARD_FIELDS", PyTuple::new(py, scoreboard::names())?)?;
        module.add("SCOREBOARD_BOUNDS", PyTuple::new(py, scoreboard::bounds())?)
    }
}
