//! A call of the application: its tasks, and the state of its response or WebSocket.

use crate::clock::Micros;
use crate::plan::tasks::{Handling, TaskOp};
use engine::{Awaited, Ticket, WebSocketEnd, WebSocketId};
use wire::websocket::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// The loop runs the task in its next iteration.
    Ready,
    Receiving,
    Sending,
    Departing,
    Sleeping(Micros),
    Over,
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) ops: Vec<TaskOp>,
    pub(crate) at: usize,
    pub(crate) state: TaskState,
    /// The kind and length of the message that the task has to send.
    pub(crate) pending: Option<(Kind, usize)>,
    /// The number of messages that the current operation has taken.
    pub(crate) count: usize,
}

/// The event for which a suspended handler waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Message,
    Output,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) ticket: Option<Ticket>,
    pub(crate) websocket: Option<WebSocketId>,
    pub(crate) tasks: Vec<Task>,
    /// The number of wake-ups that were requested from the engine and have not happened. One wake-up ends all waits of
    /// a call.
    pub(crate) armed: u32,
    /// The event for which the handler waits while it is suspended.
    pub(crate) until: Option<Until>,
    pub(crate) has_head: bool,
    pub(crate) written: usize,
    pub(crate) messages_sent: usize,
    /// The number of bytes in frames of messages that the engine has accepted.
    pub(crate) composed: u64,
    /// The end of the WebSocket, as the engine reported it to the application.
    pub(crate) end: Option<WebSocketEnd>,
    /// True once the response and the tasks have ended.
    pub(crate) is_over: bool,
    /// The time when the application's part of the WebSocket ended.
    pub(crate) over_at: Micros,
}

impl Call {
    pub(crate) fn new(ticket: Ticket, handling: &Handling) -> Self {
        let ops = if let Handling::Tasks(tasks) = handling { &tasks[..] } else { &[] };
        let task =
            |ops: &Vec<TaskOp>| Task { ops: ops.clone(), at: 0, state: TaskState::Ready, pending: None, count: 0 };
        Self {
            ticket: Some(ticket),
            websocket: None,
            tasks: ops.iter().map(task).collect(),
            armed: 0,
            until: None,
            has_head: false,
            written: 0,
            messages_sent: 0,
            composed: 0,
            end: None,
            is_over: false,
            over_at: Micros::MAX,
        }
    }

    /// Returns all conditions for which tasks wait; `None` if no task waits for the engine.
    pub(crate) fn awaited(&self) -> Option<Awaited> {
        let of = |task: &Task| match task.state {
            TaskState::Receiving => Some(Awaited::INPUT.or(Awaited::DEPARTURE)),
            TaskState::Sending => Some(Awaited::OUTPUT),
            TaskState::Departing => Some(Awaited::DEPARTURE),
            _ => None,
        };
        self.tasks.iter().filter_map(of).reduce(Awaited::or)
    }
}
