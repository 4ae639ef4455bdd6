//! One message for many WebSockets, of WSGI and of ASGI: what `kirsch.Group` sends by.

use crate::asgi::HttpCall;
use crate::interface::{Exchange, MessageSent};
use crate::wsgi::websocket::{Data, WebSocket};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use wire::websocket::Prepared;

/// The outcomes of [`send_to_all`]: the peers that are closed, and those whose clients have too much to read.
type NotSent<'py> = [Vec<Bound<'py, PyAny>>; 2];

/// Sends a message, framed and compressed once, to all of these WebSockets, without waiting. Returns those that are
/// closed, and those whose clients have too much to read and have got nothing. An ASGI application that has not accepted
/// its WebSocket yet gets nothing, and is in neither list.
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

/// Returns true if the application of an ASGI WebSocket has not answered its handshake.
fn is_unanswered(peer: &Bound<'_, PyAny>) -> PyResult<bool> {
    peer.cast::<HttpCall>().map_or(Ok(false), |call| call.get().is_unanswered(peer.py()))
}
