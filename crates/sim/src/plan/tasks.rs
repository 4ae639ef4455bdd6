//! The operations in a world with an event loop: of tasks and handlers, of clients with a WebSocket, and of other
//! threads.

use crate::clock::Micros;
use crate::response::pattern;
use wire::websocket::Kind;

/// The length of a message's label in characters: the number of its WebSocket, its own number, and its direction.
pub(crate) const LABEL: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    Send(usize),
    Close(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientOp {
    /// A message of this kind with this many bytes, in this many frames.
    Message(Kind, usize, usize),
    Ping,
    Close(u16),
    /// A frame that breaks a rule.
    Break,
    Pause(Micros),
}

/// The cancellation of a task of a call, at a time after the call began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancelled {
    pub(crate) after: Micros,
    pub(crate) task: usize,
    /// True if the task continues and repeats the operation in which it waited.
    pub(crate) is_swallowed: bool,
}

/// The application's behaviour for a request in an event loop.
#[derive(Clone, Debug)]
pub(crate) enum Handling {
    /// Tasks. The first one decides how the call ends.
    Tasks(Vec<Vec<TaskOp>>),
    /// An object with a method for messages, as in a WSGI application. The call is suspended while there is no message.
    Handler {
        /// True if the handler sends each message back.
        answers: bool,
        /// The number of messages after which the handler closes.
        closes_after: Option<usize>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskOp {
    /// Sleeps for this time, in which other tasks run.
    Sleep(Micros),
    /// Takes a part of the body, or a message.
    Receive,
    /// Takes all of the body, or all messages until the end.
    ReceiveAll,
    /// Waits until the client has disconnected.
    AwaitDeparture,
    /// Sends the head of the response, with Content-Length if true.
    Head(bool),
    /// Sends this many bytes of the body.
    Part(usize),
    /// Ends the response; the call may continue.
    End,
    Accept,
    Deny(u16),
    /// Sends a message.
    Send(usize),
    /// Sends each message back, until this many have arrived or the WebSocket has ended.
    Echo(usize),
    Close(u16),
    Raise,
}

/// Returns the bytes of message `number` of the WebSocket of call `id`; ASCII if it is text. `is_servers`: the server
/// sends it; its messages differ from the client's.
pub(crate) fn message(id: usize, number: usize, kind: Kind, length: usize, is_servers: bool) -> Vec<u8> {
    let mut bytes = format!("{id:05}{number:06}{}", if is_servers { '<' } else { '>' }).into_bytes();
    bytes.extend(pattern(id * 8192 + number + usize::from(is_servers), 0, length.saturating_sub(LABEL)));
    if kind == Kind::Text {
        bytes[LABEL..].iter_mut().for_each(|byte| *byte = b' ' + (*byte & 63));
    }
    bytes
}

/// Returns the WebSocket and the number in a message's label, and true if the server has sent the message.
pub(crate) fn label(bytes: &[u8]) -> Option<(usize, usize, bool)> {
    let label = str::from_utf8(bytes.get(..LABEL)?).ok()?;
    Some((label[..5].parse().ok()?, label[5..11].parse().ok()?, label.ends_with('<')))
}

impl Handling {
    /// Returns the length of the body that the first task declares, if it declares one.
    pub(crate) fn declared(&self) -> Option<u64> {
        let Self::Tasks(tasks) = self else { return None };
        let declares = tasks[0].contains(&TaskOp::Head(true));
        let length = |op: &TaskOp| if let TaskOp::Part(length) = op { *length as u64 } else { 0 };
        declares.then(|| tasks[0].iter().map(length).sum())
    }
}

impl Default for Handling {
    fn default() -> Self {
        Self::Tasks(Vec::new())
    }
}
