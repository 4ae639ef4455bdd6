//! The messages of a WebSocket (ASGI, HTTP & WebSocket, "WebSocket", specification version 2.5).
//!
//! ```text
//!   Asked ── websocket.accept ──▶ Accepted ── websocket.close ──▶ Closed
//!     ├── websocket.close ──▶ Closed, by 403
//!     └── websocket.http.response.start ──▶ Denying ── websocket.http.response.body ──▶ Closed
//! ```

use super::call::{Body, HttpCall, Phase, ResponseProgress};
use super::complaint::{shown, wrong_type};
use super::entries::entries;
use super::send::{body, chunk, disconnected, each_header, start};
use crate::interface::{Acceptance, End, Incoming, Message, MessageSent, OutgoingMessage, Sent, WebSocketEnd};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString};
use wire::message::Draft;
use wire::websocket::{AcceptMisuse, CloseCode};

/// The outcome of sending a message, and the event on which its sender must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The message was queued, and the client must read output before the application continues.
    Wait,
    /// The message was not queued, because the client has much output left to read. The sender must wait and try again.
    Again,
}

/// Returns the next message that `receive` returns for a WebSocket; `None` if there is none yet.
pub(super) fn take_event(py: Python<'_>, call: &HttpCall, phase: Phase) -> PyResult<Option<Py<PyAny>>> {
    if call.take_connect(py) {
        return event(py, intern!(py, "websocket.connect")).map(|connect| Some(connect.into_any().unbind()));
    }
    if !call.exchange().is_websocket(py) {
        let is_over = phase == Phase::Closed || call.exchange().is_disconnected(py)?;
        return if is_over { disconnect(py, &WebSocketEnd::abnormal()).map(Some) } else { Ok(None) };
    }
    match call.exchange().take_message(py)? {
        Incoming::Pending => Ok(None),
        incoming => incoming_event(py, incoming).map(Some),
    }
}

/// Converts `incoming` into the message that `receive` returns. It is never [`Incoming::Pending`] here.
pub(super) fn incoming_event(py: Python<'_>, incoming: Incoming<Message>) -> PyResult<Py<PyAny>> {
    let received = event(py, intern!(py, "websocket.receive"))?;
    match incoming {
        Incoming::Message(Message::Text(text)) => received.set_item(intern!(py, "text"), text.bind(py))?,
        Incoming::Message(Message::Binary(bytes)) => received.set_item(intern!(py, "bytes"), bytes.bind(py))?,
        Incoming::End(end) => return disconnect(py, &end),
        Incoming::Pending => return disconnect(py, &WebSocketEnd::abnormal()),
    }
    Ok(received.into_any().unbind())
}

fn event<'py>(py: Python<'py>, kind: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyDict>> {
    let event = PyDict::new(py);
    event.set_item(intern!(py, "type"), kind)?;
    Ok(event)
}

fn disconnect(py: Python<'_>, end: &WebSocketEnd) -> PyResult<Py<PyAny>> {
    let message = event(py, intern!(py, "websocket.disconnect"))?;
    message.set_item(intern!(py, "code"), end.code)?;
    message.set_item(intern!(py, "reason"), &*end.reason)?;
    Ok(message.into_any().unbind())
}

/// Sends a message of this type.
pub(super) fn send(
    py: Python<'_>,
    call: &Py<HttpCall>,
    phase: Phase,
    kind: &str,
    message: &Bound<'_, PyDict>,
) -> PyResult<Outcome> {
    let this = call.get();
    match (kind, phase) {
        ("websocket.accept", Phase::Asked) => accept(py, call, message).map(|()| Outcome::Done),
        ("websocket.close", Phase::Asked) => deny(py, this, message).map(|()| Outcome::Done),
        ("websocket.http.response.start", Phase::Asked) => {
            start(py, call, message)?;
            this.set_phase(py, Phase::Denying);
            Ok(Outcome::Done)
        }
        ("websocket.http.response.body", Phase::Denying) => {
            let must_wait = body(py, this, message)?;
            if this.response(py) == ResponseProgress::Finished {
                this.set_phase(py, Phase::Closed);
            }
            Ok(if must_wait { Outcome::Wait } else { Outcome::Done })
        }
        ("websocket.send", Phase::Accepted) => send_message(py, this, message),
        ("websocket.close", Phase::Accepted) => close(py, this, message).map(|()| Outcome::Done),
        ("websocket.send", Phase::Asked) => Err(order("websocket.send was sent before websocket.accept: accept first")),
        ("websocket.http.response.body", Phase::Asked) => Err(order(
            "websocket.http.response.body was sent before websocket.http.response.start: send the status first",
        )),
        ("websocket.accept", Phase::Accepted) => Err(order("websocket.accept was sent twice: send websocket.send")),
        ("websocket.http.response.start" | "websocket.http.response.body", Phase::Accepted) => Err(order(&format!(
            "{kind} was sent after websocket.accept: only a WebSocket that is not accepted is denied"
        ))),
        ("websocket.http.response.start", Phase::Denying) => {
            Err(order("websocket.http.response.start was sent twice: a response has one status"))
        }
        ("websocket.accept" | "websocket.send" | "websocket.close", Phase::Denying) => Err(order(&format!(
            "{kind} was sent after websocket.http.response.start: the WebSocket is denied; send \
             websocket.http.response.body"
        ))),
        (
            "websocket.accept"
            | "websocket.send"
            | "websocket.close"
            | "websocket.http.response.start"
            | "websocket.http.response.body",
            Phase::Closed,
        ) => Err(order(&format!("{kind} was sent after the WebSocket was closed or denied: nothing more can be sent"))),
        _ => Err(order(&format!(
            "{} cannot be sent here: this is a websocket scope, which takes websocket.accept, websocket.send and \
             websocket.close",
            kind.chars().take(80).collect::<String>()
        ))),
    }
}

fn order(text: &str) -> PyErr {
    PyRuntimeError::new_err(text.to_owned())
}

/// Returns an entry of a message. Treats a value of None like a missing entry.
fn given<'py>(message: &Bound<'py, PyDict>, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(message.get_item(name)?.filter(|value| !value.is_none()))
}

fn accept(py: Python<'_>, this: &Py<HttpCall>, message: &Bound<'_, PyDict>) -> PyResult<()> {
    let call = this.get();
    let subprotocol = match given(message, intern!(py, "subprotocol"))? {
        None => None,
        Some(name) => match name.cast::<PyString>() {
            Ok(name) => Some(text(name)?.to_owned()),
            Err(_) => return Err(wrong_type(&name, "the subprotocol must be a str such as 'graphql-ws', or None")),
        },
    };
    let mut fields = Vec::new();
    if let Some(given) = given(message, intern!(py, "headers"))? {
        each_header(&given, |name, value| {
            fields.push((name.to_vec(), value.to_vec()));
            Ok(())
        })?;
    }
    match call.exchange().accept(py, subprotocol.as_deref(), &fields)? {
        Acceptance::Accepted => {
            call.set_phase(py, Phase::Accepted);
            // From now on `receive` waits for messages.
            call.set_body(py, Body::Arriving);
            // Quart receives in another task before it accepts. Until now that task waited only for the client's
            // departure.
            HttpCall::wake_all(this, py);
            Ok(())
        }
        Acceptance::Gone => Err(disconnected(py, call)),
        Acceptance::Misused(AcceptMisuse::SubprotocolNotOffered) => Err(PyValueError::new_err(format!(
            "{}: {:?}; scope['subprotocols'] has those",
            AcceptMisuse::SubprotocolNotOffered,
            subprotocol.unwrap_or_default()
        ))),
        Acceptance::Misused(misuse) => Err(PyValueError::new_err(misuse.to_string())),
    }
}

/// Rejects the WebSocket with 403 (ASGI, WebSocket, Close).
fn deny(py: Python<'_>, call: &HttpCall, message: &Bound<'_, PyDict>) -> PyResult<()> {
    close_code(message)?;
    let exchange = call.exchange();
    let mut draft = Draft::default();
    // 403 is a valid status, so this cannot fail.
    draft.start_code(403).ok();
    let stored = exchange.take_draft(py, false).and_then(|_| exchange.store_draft(py, false, draft, || ()));
    if stored.is_err() {
        return Err(disconnected(py, call));
    }
    match exchange.send(py, None, End::Here)? {
        Sent::Done | Sent::Full => {
            call.set_phase(py, Phase::Closed);
            call.set_response(py, ResponseProgress::Finished);
            Ok(())
        }
        Sent::Gone | Sent::Over => Err(disconnected(py, call)),
    }
}

fn send_message(py: Python<'_>, call: &HttpCall, message: &Bound<'_, PyDict>) -> PyResult<Outcome> {
    let [_, bytes, string] = entries(message, [intern!(py, "type"), intern!(py, "bytes"), intern!(py, "text")])?;
    let is_given = |value: &Bound<'_, PyAny>| !value.is_none();
    let sent = match (string.filter(is_given), bytes.filter(is_given)) {
        (Some(string), None) => {
            let Ok(string) = string.cast::<PyString>() else {
                return Err(wrong_type(&string, "the text of websocket.send must be a str"));
            };
            send_one(py, call, &OutgoingMessage::Text(text(string)?))?
        }
        (None, Some(bytes)) => {
            let bytes = chunk(py, bytes, "the bytes of websocket.send must be bytes such as b'hello'")?;
            send_one(py, call, &OutgoingMessage::Binary(bytes))?
        }
        (None, None) => {
            return Err(PyValueError::new_err(
                "websocket.send has neither 'text' nor 'bytes': one of them is the message",
            ));
        }
        (Some(_), Some(_)) => {
            return Err(PyValueError::new_err("websocket.send has both 'text' and 'bytes': send two messages"));
        }
    };
    match sent {
        MessageSent::Done => Ok(Outcome::Done),
        MessageSent::Full => Ok(Outcome::Wait),
        MessageSent::Refused => Ok(Outcome::Again),
        MessageSent::Closed => Err(disconnected(py, call)),
    }
}

fn send_one(py: Python<'_>, call: &HttpCall, message: &OutgoingMessage<'_>) -> PyResult<MessageSent> {
    // Senders that already wait take precedence.
    if call.has_waiting_senders(py) && call.exchange().websocket_end(py)?.is_none() {
        return Ok(MessageSent::Refused);
    }
    call.exchange().send_message(py, message)
}

/// Returns the content of a string as UTF-8.
///
/// # Errors
/// `ValueError` for surrogates, which UTF-8 cannot encode.
fn text<'a>(string: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    string.to_str().map_err(|_| {
        PyValueError::new_err(format!("a text message must be Unicode without surrogates: {}", shown(string)))
    })
}

fn close(py: Python<'_>, call: &HttpCall, message: &Bound<'_, PyDict>) -> PyResult<()> {
    let (code, reason) = close_code(message)?;
    call.set_phase(py, Phase::Closed);
    // It is no error if the client has closed the WebSocket first.
    call.exchange().close_websocket(py, code, &reason)
}

/// Returns the code and the reason of `websocket.close`.
fn close_code(message: &Bound<'_, PyDict>) -> PyResult<(CloseCode, String)> {
    let py = message.py();
    let code = match given(message, intern!(py, "code"))? {
        None => CloseCode::NORMAL,
        Some(code) if code.is_instance_of::<PyInt>() && !code.is_instance_of::<PyBool>() => {
            let number = code.extract::<u16>().ok().and_then(CloseCode::new);
            number.ok_or_else(|| {
                PyValueError::new_err(format!(
                    "the close code is {}: it must be one of 1000 to 1003, 1007 to 1014, and 3000 to 4999",
                    shown(&code)
                ))
            })?
        }
        Some(code) => return Err(wrong_type(&code, "the close code must be an int such as 1000")),
    };
    let reason = match given(message, intern!(py, "reason"))? {
        None => String::new(),
        Some(reason) => match reason.cast::<PyString>() {
            Ok(reason) => text(reason)?.to_owned(),
            Err(_) => return Err(wrong_type(&reason, "the reason of websocket.close must be a str, or None")),
        },
    };
    Ok((code, reason))
}
