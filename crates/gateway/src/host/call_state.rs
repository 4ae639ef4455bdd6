//! The states of a call and their transitions. No other file assigns a state.

use transitions::{Machine, Table};

/// The state of a call until it ends. A call can end in any of these states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallState {
    /// A thread, or the loop that hosts the engine, executes the call.
    Running,
    /// The call waits for its request body or for a message. The time counts towards its deadline.
    WaitingForInput,
    /// The call waits until its client has read output. The time does not count.
    WaitingForClient,
    /// The engine holds the response until its client has read enough output. The call occupies no thread.
    Suspended,
    /// The call was dispatched to the hosting loop, and waits for a free thread beside the loop.
    SetAside,
    /// The engine holds the call of a WebSocket until a message arrives. The call occupies no thread.
    Listening,
}

/// An event that moves a call to another state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEvent {
    WaitForInput,
    WaitForClient,
    GoOn,
    Suspend,
    Resume,
    SetAside,
    TakeOver,
    Listen,
    HandleMessage,
}

impl Machine for CallState {
    type Event = CallEvent;
    const TABLE: Table<Self, CallEvent> = Table {
        name: "call",
        initial: Self::Running,
        rows: &[
            (Self::Running, CallEvent::WaitForInput, Self::WaitingForInput),
            (Self::Running, CallEvent::WaitForClient, Self::WaitingForClient),
            (Self::Running, CallEvent::Suspend, Self::Suspended),
            (Self::Running, CallEvent::SetAside, Self::SetAside),
            (Self::Running, CallEvent::Listen, Self::Listening),
            // The next message has arrived already, or the call has just returned.
            (Self::Running, CallEvent::HandleMessage, Self::Running),
            // Several threads or tasks of the application may wait in one call. The last wait to begin determines the
            // state.
            (Self::WaitingForInput, CallEvent::WaitForInput, Self::WaitingForInput),
            (Self::WaitingForInput, CallEvent::WaitForClient, Self::WaitingForClient),
            (Self::WaitingForInput, CallEvent::GoOn, Self::Running),
            (Self::WaitingForClient, CallEvent::WaitForInput, Self::WaitingForInput),
            (Self::WaitingForClient, CallEvent::WaitForClient, Self::WaitingForClient),
            (Self::WaitingForClient, CallEvent::GoOn, Self::Running),
            (Self::Suspended, CallEvent::Resume, Self::Running),
            (Self::SetAside, CallEvent::TakeOver, Self::Running),
            (Self::Listening, CallEvent::HandleMessage, Self::Running),
        ],
    };
}

impl CallState {
    /// Returns true if time in this state counts towards the call's deadline.
    pub(super) fn counts(self) -> bool {
        matches!(self, Self::Running | Self::WaitingForInput)
    }

    /// Returns true if a thread or a task waits inside the call.
    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Self::WaitingForInput | Self::WaitingForClient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transitions::State;

    #[test]
    fn test_table_of_transitions_is_whole_and_in_the_documentation() {
        CallState::TABLE.validate().unwrap();
        CallState::TABLE.assert_page(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/deadlines.md"));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "illegal move of a call: Suspended, Listen, Listening")]
    fn test_illegal_move_is_found() {
        let mut state = State::<CallState>::new();
        state.apply(CallEvent::Suspend, CallState::Suspended);
        state.apply(CallEvent::Listen, CallState::Listening);
    }
}
