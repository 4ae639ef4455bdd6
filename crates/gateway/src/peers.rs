//! Sending one message to many WebSockets, of WSGI and ASGI applications. `kirsch.Group` uses this.

use crate::asgi::HttpCall;
use crate::interface::{Exchange, MessageSent};
use crate::wsgi::websocket::{Data, WebSocket};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use wire::websocket::Prepared;

/// The WebSockets that did not get the message: the closed ones, and those with too much unread output.
type NotSent<'py> = [Vec<Bound<'py, PyAny>>; 2];

/// Sends a message to all of these WebSockets without blocking; it is framed and compressed only once. Returns the
/// closed WebSockets, and those that were skipped because the client has too much output left to read. A WebSocket that
/// its ASGI application has not accepted yet gets nothing, and is in neither list.
#[pyfunction]
#[pyo3(signature = (peers, data, /))]
pub(crate) fn send_to_all<'py>(
    py: Python<'py>,
    peers: Vec<Bound<'py, PyAny>>,
    data: &Bound<'py, PyAny>,
) -> PyResult<NotSent<'py>> {
    let message = Data::of(data)?;
    let prepared = Prepared::new(message.outgoing()?);
    let (mut ended, mut full) = (Vec::new(), Vec::new());
    for peer in peers {
        match exchange_of(&peer)?.send_prepared(py, &prepared)? {
            MessageSent::Done | MessageSent::Full => {}
            MessageSent::Refused => full.push(peer),
            MessageSent::Closed if is_unanswered(&peer)? => {}
            MessageSent::Closed => ended.push(peer),
        }
    }
    Ok([ended, full])
}

fn exchange_of<'a>(peer: &'a Bound<'_, PyAny>) -> PyResult<&'a Exchange> {
    if let Ok(websocket) = peer.cast::<WebSocket>() {
        return Ok(websocket.get().exchange());
    }
    match peer.cast::<HttpCall>() {
        Ok(call) => Ok(call.get().exchange()),
        Err(_) => Err(PyTypeError::new_err(format!("a group is of WebSockets, not {}", peer.get_type()))),
    }
}

/// Returns true if the application of an ASGI WebSocket has neither accepted nor rejected it.
fn is_unanswered(peer: &Bound<'_, PyAny>) -> PyResult<bool> {
    peer.cast::<HttpCall>().map_or(Ok(false), |call| call.get().is_unanswered(peer.py()))
}
