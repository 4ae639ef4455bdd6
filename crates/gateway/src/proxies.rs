//! Trusted proxies, as Python configures and checks them.

use crate::config::NativeConfig;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use wire::forwarded::{Family, Trust, Trusted};
use wire::message::Client;

/// Address, port, whether it is https, host and prefix of a client.
pub(crate) type NamedClient = (Option<String>, Option<u16>, Option<bool>, Option<String>, Option<String>);

/// A list of addresses that are trusted.
///
/// # Errors
/// `ValueError` with what is wrong with an entry.
pub(crate) fn trusted(text: &str) -> PyResult<Trusted> {
    Trusted::read(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The proxies that a server trusts; `None` for none.
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

/// The peers that may send headers of the PROXY protocol; `None`: all.
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

/// The client of a request with these field lines from `peer`, an IP address or `unix`.
///
/// # Errors
/// `ValueError` for what cannot be read, and where the request would be refused.
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
