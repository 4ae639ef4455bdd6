//! The settings for trusted proxies, read from the Python configuration.

use crate::config::NativeConfig;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use wire::forwarded::{Family, Trust, Trusted};
use wire::message::Client;

/// A client that a proxy names: address, port, true for https, host, and path prefix.
pub(crate) type NamedClient = (Option<String>, Option<u16>, Option<bool>, Option<String>, Option<String>);

/// Parses a list of trusted addresses.
///
/// # Errors
/// `ValueError` that says which entry is invalid and why.
pub(crate) fn trusted(text: &str) -> PyResult<Trusted> {
    Trusted::read(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Reads the proxies that the server trusts from the configuration; `None` if there are none.
pub(crate) fn take_trust(given: &NativeConfig<'_>) -> PyResult<Option<Trust>> {
    let proxies: String = given.take("trusted_proxies")?;
    let family = family(&given.take::<String>("forwarded")?)?;
    let trust = Trust {
        proxies: trusted(&proxies)?,
        family,
        host: given.take("forwarded_host")?,
        prefix: given.take("forwarded_prefix")?,
    };
    Ok((!trust.proxies.is_empty()).then_some(trust))
}

/// Reads the peers that may send PROXY protocol headers; `None`: all peers.
pub(crate) fn take_proxy_from(given: &NativeConfig<'_>) -> PyResult<Option<Trusted>> {
    let trusted = trusted(&given.take::<String>("proxy_from")?)?;
    Ok((!trusted.is_empty()).then_some(trusted))
}

fn family(name: &str) -> PyResult<Family> {
    match name {
        "x" => Ok(Family::X),
        "rfc7239" => Ok(Family::Rfc7239),
        _ => Err(PyValueError::new_err(format!("forwarded: {name:?} is neither \"x\" nor \"rfc7239\""))),
    }
}

/// Returns the client of a request that has these field lines and comes from `peer`, an IP address or `unix`.
///
/// # Errors
/// `ValueError` if an argument cannot be parsed, or if the server would refuse such a request.
pub(crate) fn client(
    trusted_proxies: &str,
    forwarded: &str,
    peer: &str,
    lines: &[String],
    names: (bool, bool),
) -> PyResult<NamedClient> {
    let (host, prefix) = names;
    let trust = Trust { proxies: trusted(trusted_proxies)?, family: family(forwarded)?, host, prefix };
    let address = match peer {
        "unix" => None,
        peer => Some(peer.parse().map_err(|_| PyValueError::new_err(format!("{peer:?} is no IP address")))?),
    };
    let peer = Client { address, ..Client::default() };
    let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
    let refused = |fault: wire::message::Fault| PyValueError::new_err(fault.explanation());
    let client = trust.client_of_lines(peer, &lines).map_err(refused)?;
    let text = |bytes: Option<Box<[u8]>>| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let address = client.address.map(|address| address.to_string());
    Ok((address, client.port, client.is_https, text(client.host), text(client.prefix)))
}
