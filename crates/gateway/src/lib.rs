//! The gateway between the engine and Python: the only crate of the server that knows the interpreter. It builds the
//! module `kirsch._native`, whose Python face is described in `packages/kirsch/src/kirsch/_native.pyi`.
//!
//! ```text
//!   server      the class that Python sees: a host of WSGI or of ASGI
//!   config      what a server is configured with, each setting taken by its name
//!   resources   what a server is made of: from its configuration to its engines
//!   host        engines, threads, calls and their deadlines, for any interface
//!   wsgi, asgi  interfaces: make environs and scopes, call the application
//!   mounted     both in one server: which application a request is for (mounts)
//!   interface   what the host asks of an interface, and an interface of the host
//!   access_log, log_writer, refusals, scoreboard, limit    what is reported, and to whom
//!   quarantine  routes whose requests have crashed workers
//!   rate_limit  how many requests a client may send in a time
//!   sampling    which requests are traced
//!   object, gil, guarded, interrupt, stacks, signals       Python objects, locks and threads
//!   compat      what CPython and PyPy have differently
//!   forks       children that the application forks
//!   certificates  those of encrypted listeners; acme obtains them
//!   group, inotify, thread_name, clock, text, table        the operating system, and text
//! ```
//!
//! Two rules hold everywhere: the GIL is taken first and the engine's lock second, and nothing of the application's
//! runs while that lock is held ([`host`]).
//!
//! Ordinary PyO3 is used where a connection or a server begins and ends. What happens for every request is written
//! against the C API ([`object`], [`wsgi`]), because there the price of one call shows.
//!
//! Files that know no Python say so in their first line, and are tested without an interpreter, too
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

    /// See the stub.
    #[pyfunction]
    #[pyo3(signature = (log_format, /))]
    fn check_access_log_format(log_format: &str) -> PyResult<()> {
        crate::access_log::check_format(log_format)
    }

    /// See the stub.
    #[pyfunction]
    #[pyo3(signature = (addresses, /))]
    fn check_addresses(addresses: &str) -> PyResult<()> {
        crate::proxies::trusted(addresses).map(drop)
    }

    /// See the stub.
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

    /// See the stub.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn find_mount(places: Vec<(String, String)>, host: &str, path: &str) -> Option<usize> {
        let places = places.iter().map(|(host, path)| (&host[..], &path[..]));
        crate::mounts::Mounts::new(places).at(host, path)
    }

    /// See the stub.
    #[pyfunction]
    fn is_request_id(given: &str) -> bool {
        access_log::is_request_id(given.as_bytes())
    }

    /// See the stub.
    #[pyfunction]
    #[pyo3(signature = (name, /))]
    fn make_request(name: &str) -> PyResult<(String, Vec<u8>)> {
        crate::acme::make_request(name)
    }

    /// See the stub.
    #[pyfunction]
    #[pyo3(signature = (name, key_authorization, /))]
    fn make_challenge(name: &str, key_authorization: &str) -> PyResult<(String, String)> {
        crate::acme::make_challenge(name, key_authorization)
    }

    /// See the stub.
    #[pyfunction]
    fn make_authority() -> PyResult<(String, String)> {
        crate::acme::make_authority()
    }

    /// See the stub.
    #[pyfunction]
    #[pyo3(signature = (authority_key, names, /))]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn issue_certificate(authority_key: &str, names: Vec<String>) -> PyResult<(String, String)> {
        crate::acme::issue_certificate(authority_key, &names)
    }

    /// See the stub.
    #[pyfunction]
    #[pyo3(signature = (writable, readable, /))]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn confine(writable: &str, readable: Vec<String>) -> PyResult<&'static str> {
        crate::acme::confine(writable, &readable)
    }

    /// See the stub.
    #[pyfunction]
    fn make_room_for_signals() -> PyResult<()> {
        Ok(signals::make_room()?)
    }

    /// See the stub.
    #[pyfunction]
    fn start_quarantine(memory: &Bound<'_, PyAny>, hash_key: [u64; 2]) -> PyResult<()> {
        quarantine::start(memory, hash_key)
    }

    /// See the stub.
    #[pyfunction]
    fn publish_quarantine(
        memory: &Bound<'_, PyAny>,
        recording: Option<u64>,
        routes: Vec<quarantine::ListedRoute>,
    ) -> PyResult<()> {
        quarantine::publish(memory, recording, routes)
    }

    /// See the stub.
    #[pyfunction]
    fn quarantined_routes(memory: &Bound<'_, PyAny>) -> PyResult<Vec<quarantine::ListedRoute>> {
        quarantine::listed(memory)
    }

    /// See the stub.
    #[pyfunction]
    fn recorded_routes(memory: &Bound<'_, PyAny>) -> PyResult<(u64, u64, Vec<quarantine::RecordedRoute>)> {
        quarantine::recorded(memory)
    }

    /// See the stub.
    #[pyfunction]
    fn rate_limit_evictions(memory: &Bound<'_, PyAny>) -> PyResult<u64> {
        rate_limit::given_up(memory)
    }

    /// See the stub.
    #[pyfunction]
    fn take_rate_limit_debts(memory: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        rate_limit::take_debts(memory)
    }

    /// See the stub.
    #[pyfunction]
    fn add_rate_limit_debts(memory: &Bound<'_, PyAny>, debts: &[u8]) -> PyResult<()> {
        rate_limit::add_debts(memory, debts)
    }

    /// See the stub.
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
