//! The states of a thread, and all transitions between them.
//!
//! [`Rules`](crate::Rules) changes states only by [`State::apply`](transitions::State::apply). Builds with debug
//! assertions (the tests, the simulator and loom) check each transition against the table.

use transitions::{Machine, Table};

/// The state of a thread of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// The thread has never been started.
    Absent,
    /// The thread was started or notified, and has not arrived yet.
    Arriving,
    /// The thread asks for its next action, or prepares that action.
    Active,
    /// The thread is the leader and waits for the poller.
    Leading,
    /// The thread is a follower and sleeps until it is notified.
    Following,
    /// The thread runs a call.
    Running,
    /// The thread waits for an event within its call.
    Waiting,
    /// The thread waits for the poller within its call, because no other thread can lead.
    Polling,
    /// The thread has exited, or could not be started.
    Exited,
}

/// An event that changes the state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadEvent {
    Start,
    StartFailed,
    Arrive,
    Lead,
    Poll,
    ReturnPoller,
    Follow,
    Notify,
    Begin,
    End,
    BeginWait,
    EndWait,
    Exit,
}

impl Machine for ThreadState {
    type Event = ThreadEvent;
    const TABLE: Table<ThreadState, ThreadEvent> = Table {
        name: "thread",
        initial: ThreadState::Absent,
        rows: &[
            (ThreadState::Absent, ThreadEvent::Start, ThreadState::Arriving),
            (ThreadState::Arriving, ThreadEvent::Arrive, ThreadState::Active),
            (ThreadState::Arriving, ThreadEvent::StartFailed, ThreadState::Exited),
            (ThreadState::Active, ThreadEvent::Begin, ThreadState::Running),
            (ThreadState::Active, ThreadEvent::Lead, ThreadState::Leading),
            (ThreadState::Active, ThreadEvent::Follow, ThreadState::Following),
            (ThreadState::Active, ThreadEvent::Exit, ThreadState::Exited),
            (ThreadState::Leading, ThreadEvent::ReturnPoller, ThreadState::Active),
            (ThreadState::Following, ThreadEvent::Notify, ThreadState::Arriving),
            (ThreadState::Running, ThreadEvent::End, ThreadState::Active),
            (ThreadState::Running, ThreadEvent::BeginWait, ThreadState::Waiting),
            (ThreadState::Waiting, ThreadEvent::EndWait, ThreadState::Running),
            (ThreadState::Waiting, ThreadEvent::Poll, ThreadState::Polling),
            (ThreadState::Polling, ThreadEvent::ReturnPoller, ThreadState::Waiting),
        ],
    };
}
