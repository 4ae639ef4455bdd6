//! Calls of the application: concurrent tasks, and handlers that are suspended between messages.

use super::call::{Call, TaskState, Until};
use super::driver::LoopDriver;
use crate::app::{CallEnd, Chunk, Job, Records, Returnable, SuspendedCall};
use crate::engine_core::EngineCore;
use crate::frames::Simulated;
use crate::plan::tasks::{Handling, Outside, TaskOp, message};
use crate::response::pattern;
use engine::{Incoming, Input, Progress, Room, WebSocketEnd};
use wire::message::Draft;
use wire::websocket::{CloseCode, Kind, Outgoing, SendError};

/// The number of unsent bytes above which a WebSocket accepts no message.
const HIGH_WATER: u64 = 64 << 10;

/// The next step of a task after an operation.
enum Next {
    GoOn,
    /// Retry the same operation when the wait has ended.
    Wait(TaskState),
    /// Begin the next operation when the wait has ended.
    WaitAndGoOn(TaskState),
    Return,
    Raise,
}

enum Sent {
    Done,
    Full,
    Refused,
    Closed,
}

impl<P: Simulated> LoopDriver<'_, P> {
    fn call(&mut self, id: usize) -> &mut Call {
        self.world.event_loop.calls[id].as_mut().expect("it was called")
    }

    /// Runs a task until it waits or ends.
    pub(super) fn run_task(&mut self, id: usize, task: usize) {
        while !self.world.shared.has_failed() && !self.call(id).is_over {
            let own = &self.call(id).tasks[task];
            if own.state != TaskState::Ready {
                return;
            }
            let op = own.ops.get(own.at).copied();
            let next = match op {
                None => Next::Return,
                Some(op) => self.operate(id, task, op),
            };
            let own = &mut self.call(id).tasks[task];
            match next {
                Next::GoOn => {
                    own.at += 1;
                    own.count = 0;
                    // The application lets other tasks run.
                    if self.world.shared.one_in(8) {
                        return self.world.event_loop.ready.push((id, task));
                    }
                }
                Next::Wait(state) => return self.wait(id, task, state),
                Next::WaitAndGoOn(state) => {
                    own.at += 1;
                    own.count = 0;
                    return self.wait(id, task, state);
                }
                Next::Return | Next::Raise => {
                    own.state = TaskState::Over;
                    if task == 0 {
                        self.conclude(id, matches!(next, Next::Raise));
                    }
                    return;
                }
            }
        }
    }

    fn wait(&mut self, id: usize, task: usize, state: TaskState) {
        self.world.event_loop.waits += 1;
        self.world.shared.trace(|| format!("task {task} of call {id} waits: {state:?}"));
        self.call(id).tasks[task].state = state;
        match state {
            TaskState::Ready => self.world.event_loop.ready.push((id, task)),
            TaskState::Sleeping(_) => {}
            _ => self.arm(id),
        }
    }

    /// Makes the engine wake the call when any of its tasks can continue.
    pub(super) fn arm(&mut self, id: usize) {
        let call = self.world.event_loop.calls[id].as_mut().expect("it was called");
        let (Some(awaited), Some(ticket)) = (call.awaited(), &call.ticket) else { return };
        call.armed += 1;
        let core = self.world.rules.source_mut();
        let now = core.clock();
        core.engine.wait_for_any(ticket, awaited, id, now, &mut core.records);
        self.world.rules.step_of_host();
    }

    /// Handles a wake-up of a call: an awaited event may have happened, so its tasks retry.
    pub(super) fn wake_call(&mut self, id: usize) {
        let Some(call) = &mut self.world.event_loop.calls[id] else {
            return self.world.shared.fail(|| format!("call {id} is woken, which was not called"));
        };
        let Some(armed) = call.armed.checked_sub(1) else {
            return self.world.shared.fail(|| format!("call {id} is woken more often than it has waited"));
        };
        call.armed = armed;
        self.world.shared.trace(|| format!("call {id} is woken"));
        self.look_again(id);
    }

    fn look_again(&mut self, id: usize) {
        let call = self.world.event_loop.calls[id].as_mut().expect("it was called");
        for (index, task) in call.tasks.iter_mut().enumerate() {
            if matches!(task.state, TaskState::Receiving | TaskState::Sending | TaskState::Departing) {
                task.state = TaskState::Ready;
                self.world.event_loop.ready.push((id, index));
            }
        }
    }

    /// Cancels a task of a call.
    pub(super) fn cancel(&mut self, id: usize, index: usize, is_swallowed: bool) {
        let Some(call) = self.world.event_loop.calls[id].as_mut().filter(|call| !call.is_over) else { return };
        let index = index.min(call.tasks.len().saturating_sub(1));
        let Some(task) = call.tasks.get_mut(index) else { return };
        if matches!(task.state, TaskState::Over | TaskState::Ready) {
            return;
        }
        self.world.event_loop.cancelled += 1;
        self.world.shared.trace(|| format!("task {index} of call {id} is cancelled"));
        if is_swallowed {
            task.state = TaskState::Ready;
            self.world.event_loop.ready.push((id, index));
        } else {
            task.state = TaskState::Over;
            if index == 0 {
                self.conclude(id, true);
            }
        }
    }

    fn operate(&mut self, id: usize, task: usize, op: TaskOp) -> Next {
        match op {
            TaskOp::Sleep(time) => Next::WaitAndGoOn(TaskState::Sleeping(self.world.shared.now() + time)),
            TaskOp::Receive | TaskOp::ReceiveAll if !self.world.plan.requests[id].is_websocket => {
                self.read(id, op == TaskOp::ReceiveAll)
            }
            TaskOp::Receive => self.take(id, task, 1, false),
            TaskOp::ReceiveAll => self.take(id, task, usize::MAX, false),
            TaskOp::Echo(most) => self.take(id, task, most, true),
            TaskOp::AwaitDeparture => {
                let call = self.world.event_loop.calls[id].as_mut().expect("it was called");
                let engine = &self.world.rules.source().engine;
                match &call.ticket {
                    Some(ticket) if !engine.has_peer_left(ticket) => Next::Wait(TaskState::Departing),
                    _ => Next::GoOn,
                }
            }
            TaskOp::Head(_) => Next::GoOn,
            TaskOp::Part(length) => self.write(id, length),
            TaskOp::End => self.end_response(id),
            TaskOp::Accept => self.accept(id),
            TaskOp::Deny(status) => self.deny(id, status),
            TaskOp::Send(length) => {
                let own = &mut self.call(id).tasks[task];
                own.pending.get_or_insert((Kind::Binary, length));
                self.send_pending(id, task).unwrap_or(Next::GoOn)
            }
            TaskOp::Close(code) => {
                self.close(id, code);
                Next::GoOn
            }
            TaskOp::Raise => Next::Raise,
        }
    }

    // -------------------------------------------------------------------------------------------------------- HTTP

    fn read(&mut self, id: usize, is_all: bool) -> Next {
        let mut buffer = vec![0; 1 + self.world.shared.index(64 << 10)];
        loop {
            let call = self.world.event_loop.calls[id].as_ref().expect("it was called");
            let Some(ticket) = &call.ticket else { return Next::GoOn };
            let core = self.world.rules.source_mut();
            let now = core.clock();
            let input = core.engine.read(ticket, &mut buffer, now, &mut core.records);
            match input {
                Input::Bytes(count) => {
                    core.records.take_body(id, &buffer[..count]);
                    if !is_all {
                        return Next::GoOn;
                    }
                }
                Input::Pending => return Next::Wait(TaskState::Receiving),
                Input::Broken(_) => return Next::Raise,
                Input::End => {
                    let (read, length) = (core.records.requests[id].read, self.world.plan.requests[id].body);
                    if read != length {
                        self.world.shared.fail(|| format!("the body of call {id} ends after {read} bytes of {length}"));
                    }
                    return Next::GoOn;
                }
            }
        }
    }

    /// Writes the head, unless that was done, and a part of the body, and sends them.
    fn write(&mut self, id: usize, length: usize) -> Next {
        let declared = self.world.plan.requests[id].handling.declared();
        let call = self.world.event_loop.calls[id].as_mut().expect("it was called");
        let Some(ticket) = &call.ticket else { return Next::GoOn };
        let core = self.world.rules.source_mut();
        if core.engine.is_gone(ticket) {
            return Next::Raise;
        }
        let chunk = Chunk::new(id, pattern(id, call.written, length), &core.records.ledger);
        let is_full = core.engine.reply(ticket, |reply| {
            begin(id, &mut call.has_head, declared, reply);
            if length > 0 && reply.write(chunk).is_err() {
                return Err("the engine takes a part for wrong");
            }
            reply.flush();
            Ok(reply.is_full())
        });
        call.written += length;
        self.world.rules.step_of_host();
        match is_full {
            Ok(true) => Next::WaitAndGoOn(TaskState::Sending),
            Ok(false) => Next::GoOn,
            Err(what) => {
                self.world.shared.fail(|| format!("call {id}: {what}"));
                Next::Raise
            }
        }
    }

    fn end_response(&mut self, id: usize) -> Next {
        let declared = self.world.plan.requests[id].handling.declared();
        let call = self.world.event_loop.calls[id].as_mut().expect("it was called");
        let Some(ticket) = call.ticket.take() else { return Next::GoOn };
        let core = self.world.rules.source_mut();
        let now = core.clock();
        let how = if core.engine.is_gone(&ticket) {
            CallEnd::Cut
        } else {
            let finished = core.engine.reply(&ticket, |reply| {
                begin(id, &mut call.has_head, declared, reply);
                reply.finish()
            });
            if finished.is_err() { CallEnd::Cut } else { CallEnd::Whole }
        };
        core.records.end(id, how);
        let progress = if how == CallEnd::Cut { Progress::Cut } else { Progress::Done };
        core.engine.complete(ticket, progress, now, &mut core.records);
        self.world.rules.step_of_host();
        // Tasks that wait in `receive` must now return.
        self.look_again(id);
        Next::GoOn
    }

    // --------------------------------------------------------------------------------------------------- WebSocket

    fn accept(&mut self, id: usize) -> Next {
        let call = self.world.event_loop.calls[id].as_mut().expect("it was called");
        let Some(ticket) = &call.ticket else { return Next::Raise };
        let core = self.world.rules.source_mut();
        let now = core.clock();
        match core.engine.accept_websocket(ticket, None, [], now, &mut core.records) {
            Ok(Some(websocket)) => {
                call.websocket = Some(websocket);
                self.world.event_loop.websockets += 1;
                self.world.rules.step_of_host();
                Next::GoOn
            }
            Ok(None) => Next::Raise,
            Err(misuse) => {
                self.world.shared.fail(|| format!("call {id} may not accept: {misuse}"));
                Next::Raise
            }
        }
    }

    fn deny(&mut self, id: usize, status: u16) -> Next {
        let call = self.world.event_loop.calls[id].as_mut().expect("it was called");
        let Some(ticket) = call.ticket.take() else { return Next::GoOn };
        let core = self.world.rules.source_mut();
        let now = core.clock();
        let is_gone = core.engine.is_gone(&ticket);
        if !is_gone {
            core.engine.reply(&ticket, |reply| {
                let mut draft = Draft::default();
                draft.start_code(status).expect("a status");
                draft.field(b"Content-Length", b"0").expect("a length");
                reply.begin(&draft, None);
                reply.finish().expect("it is whole");
            });
        }
        core.records.end(id, if is_gone { CallEnd::Cut } else { CallEnd::Refused(status) });
        core.engine.complete(ticket, if is_gone { Progress::Cut } else { Progress::Done }, now, &mut core.records);
        self.world.rules.step_of_host();
        Next::GoOn
    }

    fn receive(&mut self, id: usize) -> Incoming<(Kind, Vec<u8>)> {
        let Some(websocket) = self.call(id).websocket else { return Incoming::End(WebSocketEnd::abnormal()) };
        let core = self.world.rules.source_mut();
        let now = core.clock();
        let incoming = core.engine.receive_message(websocket, now, &mut core.records);
        let incoming = match incoming {
            Incoming::Message(mut message) => {
                let (kind, bytes) = (message.kind, std::mem::take(&mut message.bytes));
                core.records.take_message(id, kind, &bytes);
                Incoming::Message((kind, bytes))
            }
            Incoming::Pending => Incoming::Pending,
            Incoming::End(end) => {
                let record = &core.records.requests[id];
                let (arrived, taken) = (record.arrived, record.taken);
                if arrived != taken {
                    self.world.shared.fail(|| format!("call {id} gets the end after {taken} of {arrived} messages"));
                }
                Incoming::End(end)
            }
        };
        self.world.rules.step_of_host();
        if let Incoming::End(end) = &incoming {
            let call = self.call(id);
            if call.end.get_or_insert_with(|| end.clone()) != end {
                self.world.shared.fail(|| format!("call {id} gets another end than before: {end:?}"));
            }
        }
        incoming
    }

    /// Takes at most `most` messages. `answers`: sends each message back.
    fn take(&mut self, id: usize, task: usize, most: usize, answers: bool) -> Next {
        loop {
            if let Some(next) = self.send_pending(id, task) {
                return next;
            }
            if self.call(id).tasks[task].count >= most {
                return Next::GoOn;
            }
            match self.receive(id) {
                Incoming::Message((kind, bytes)) => {
                    let own = &mut self.call(id).tasks[task];
                    own.count += 1;
                    own.pending = answers.then_some((kind, bytes.len()));
                }
                Incoming::Pending => return Next::Wait(TaskState::Receiving),
                Incoming::End(_) => return Next::Return,
            }
        }
    }

    /// Sends the task's pending message, if there is one. Returns `None` if the task continues.
    fn send_pending(&mut self, id: usize, task: usize) -> Option<Next> {
        let (kind, length) = self.call(id).tasks[task].pending?;
        let sent = self.send(id, kind, length, true);
        let own = &mut self.call(id).tasks[task];
        if !matches!(sent, Sent::Refused) {
            own.pending = None;
        }
        match sent {
            Sent::Done => None,
            // The operation consisted of this message only.
            Sent::Full if matches!(own.ops[own.at], TaskOp::Send(_)) => Some(Next::WaitAndGoOn(TaskState::Sending)),
            Sent::Full | Sent::Refused => Some(Next::Wait(TaskState::Sending)),
            Sent::Closed => Some(Next::Raise),
        }
    }

    /// Sends a message, from the loop's thread or from another one.
    fn send(&mut self, id: usize, kind: Kind, length: usize, is_host: bool) -> Sent {
        let call = self.world.event_loop.calls[id].as_mut().expect("it was called");
        let Some(websocket) = call.websocket else { return Sent::Closed };
        let bytes = message(id, call.messages_sent, kind, length, true);
        let outgoing = match kind {
            Kind::Text => Outgoing::Text(str::from_utf8(&bytes).expect("ASCII")),
            Kind::Binary => Outgoing::Binary(&bytes),
        };
        let core = self.world.rules.source_mut();
        let connection = core.records.requests[id].connection.unwrap_or_default();
        let backlog = call.composed.saturating_sub(self.world.network.borrow().sent_on(connection));
        let now = core.clock();
        let sent = core.engine.send_message(websocket, outgoing, now, &mut core.records);
        if is_host {
            self.world.rules.step_of_host();
        } else {
            self.world.rules.step();
        }
        if sent.is_ok() {
            let header = match bytes.len() {
                0..126 => 2,
                126..65_536 => 4,
                _ => 10,
            };
            call.messages_sent += 1;
            call.composed += header + bytes.len() as u64;
            if backlog > HIGH_WATER {
                self.world.shared.fail(|| format!("a message of call {id} is taken while {backlog} bytes wait"));
            }
        }
        match sent {
            Ok(Room::Left) => Sent::Done,
            Ok(Room::Full) => Sent::Full,
            Err(SendError::QueueFull) => Sent::Refused,
            Err(_) => Sent::Closed,
        }
    }

    fn close(&mut self, id: usize, code: u16) {
        let Some(websocket) = self.call(id).websocket else { return };
        let core = self.world.rules.source_mut();
        let (now, code) = (core.clock(), CloseCode::new(code).expect("a code for frames"));
        core.engine.close_websocket(websocket, code, "", now, &mut core.records);
    }

    /// Sends a message or closes the WebSocket, as a thread other than the loop's.
    pub(crate) fn act_outside(&mut self, entry: usize) {
        self.world.event_loop.outside += 1;
        let (_, id, act) = self.world.plan.outside[entry];
        let is_open =
            self.world.event_loop.calls[id].as_ref().is_some_and(|call| call.websocket.is_some() && !call.is_over);
        if !is_open {
            return;
        }
        self.world.shared.trace(|| format!("another thread acts on call {id}: {act:?}"));
        match act {
            Outside::Send(length) => drop(self.send(id, Kind::Text, length, false)),
            Outside::Close(code) => {
                self.close(id, code);
                self.world.rules.step();
            }
        }
    }

    /// Ends a call, and the WebSocket or response that the call has left open.
    fn conclude(&mut self, id: usize, has_raised: bool) {
        let now = self.world.shared.now();
        let call = self.world.event_loop.calls[id].as_mut().expect("it was called");
        call.is_over = true;
        call.over_at = now;
        for task in &mut call.tasks {
            task.state = TaskState::Over;
        }
        self.world.shared.trace(|| format!("call {id} is over{}", if has_raised { ", by an exception" } else { "" }));
        let Some(ticket) = call.ticket.take() else { return };
        let websocket = call.websocket;
        let core = self.world.rules.source_mut();
        let now = core.clock();
        let EngineCore { engine, records, .. } = core;
        let (progress, how) = match websocket {
            Some(websocket) => {
                if has_raised {
                    let code = CloseCode::INTERNAL_ERROR;
                    engine.close_websocket(websocket, code, "", now, records);
                }
                (Progress::Done, CallEnd::Whole)
            }
            None if engine.is_gone(&ticket) => (Progress::Cut, CallEnd::Cut),
            None => {
                if engine.reply(&ticket, |reply| reply.fail(500, "The application has failed.")) {
                    (Progress::Done, CallEnd::Refused(500))
                } else {
                    (Progress::Cut, CallEnd::Cut)
                }
            }
        };
        records.end(id, how);
        engine.complete(ticket, progress, now, records);
        self.world.rules.step_of_host();
    }

    // ----------------------------------------------------------------------------------------------------- handlers

    /// Runs a handler until no message is left.
    pub(super) fn run_handler(&mut self, id: usize, resumed: Option<Until>) {
        let Handling::Handler { answers, closes_after } = self.world.plan.requests[id].handling else { return };
        if resumed.is_none() && !matches!(self.accept(id), Next::GoOn) {
            return self.complete_handler(id, Progress::Cut, CallEnd::Cut);
        }
        let mut is_first = true;
        let mut pending = self.world.event_loop.handler_owes[id].take();
        loop {
            if let Some((kind, length)) = pending.take() {
                match self.send(id, kind, length, true) {
                    Sent::Done | Sent::Closed => {}
                    Sent::Full => return self.give_back(id, Until::Output),
                    Sent::Refused => {
                        self.world.event_loop.handler_owes[id] = Some((kind, length));
                        return self.give_back(id, Until::Output);
                    }
                }
            }
            let taken = self.world.records().requests[id].taken;
            if closes_after.is_some_and(|most| taken >= most) {
                self.close(id, 4002);
                return self.complete_handler(id, Progress::Done, CallEnd::Whole);
            }
            match self.receive(id) {
                Incoming::Message((kind, bytes)) => pending = answers.then_some((kind, bytes.len())),
                Incoming::Pending if is_first && resumed == Some(Until::Message) => {
                    return self.world.shared.fail(|| format!("call {id} is resumed, and there is no message"));
                }
                Incoming::Pending => return self.give_back(id, Until::Message),
                Incoming::End(_) => return self.complete_handler(id, Progress::Done, CallEnd::Whole),
            }
            is_first = false;
        }
    }

    fn give_back(&mut self, id: usize, until: Until) {
        let core = self.world.rules.source_mut();
        let connection = core.records.requests[id].connection.unwrap_or_default();
        let job = Job { id, connection, worker: 0, ticket: None, at: 0, written: 0, read: 0 };
        let held = SuspendedCall { job, returnable: Returnable::new(&core.records.ledger) };
        core.bind(0);
        let progress = match until {
            Until::Message => Progress::Listening(held),
            Until::Output => Progress::Blocked(held),
        };
        self.call(id).until = Some(until);
        self.complete_with(id, progress);
    }

    fn complete_handler(&mut self, id: usize, progress: Progress<SuspendedCall>, how: CallEnd) {
        let now = self.world.shared.now();
        let call = self.call(id);
        call.is_over = true;
        call.over_at = now;
        self.world.records_mut().end(id, how);
        self.complete_with(id, progress);
    }

    fn complete_with(&mut self, id: usize, progress: Progress<SuspendedCall>) {
        let Some(ticket) = self.call(id).ticket.take() else {
            return self.world.shared.fail(|| format!("call {id} has no ticket to give back"));
        };
        let core = self.world.rules.source_mut();
        let now = core.clock();
        core.engine.complete(ticket, progress, now, &mut core.records);
        self.world.rules.step_of_host();
    }

    // ------------------------------------------------------------------------------------------------------- checks

    /// Checks, when the loop is about to wait, that no call waits for an event that has already happened.
    pub(super) fn check_waiting(&mut self) {
        for id in 0..self.world.event_loop.calls.len() {
            let Some(call) = self.world.event_loop.calls[id].as_ref().filter(|call| !call.is_over) else { continue };
            let core = self.world.rules.source_mut();
            let record = &core.records.requests[id];
            let (arrived, taken, read) = (record.arrived, record.taken, record.read);
            let connection = record.connection.unwrap_or_default();
            let network = self.world.network.borrow();
            let is_stuck = network.history(connection).full_since.is_some();
            let has_ended = call.websocket.is_some_and(|websocket| core.engine.websocket_state(websocket).0.is_some());
            let is = |state: TaskState| call.tasks.iter().any(|task| task.state == state);
            let (receives, sends, departs) =
                (is(TaskState::Receiving), is(TaskState::Sending), is(TaskState::Departing));
            let is_gone = call.ticket.as_ref().is_some_and(|ticket| core.engine.is_gone(ticket));
            let has_left = call.ticket.as_ref().is_some_and(|ticket| core.engine.has_peer_left(ticket));
            let wrong = if (receives || sends || departs) && call.ticket.is_none() {
                "waits although its response is complete"
            } else if (receives || call.until == Some(Until::Message)) && arrived > taken {
                "waits although there is a message"
            } else if (receives || sends || call.until.is_some()) && has_ended {
                "waits although its WebSocket has ended"
            } else if (sends || call.until == Some(Until::Output)) && !is_stuck {
                "waits for output although its client has taken all"
            } else if (receives || sends || departs) && is_gone {
                "waits although its client is gone"
            } else if departs && has_left {
                "waits although its client has left"
            } else if receives && call.websocket.is_none() && self.has_unread_body(id, read, network.taken(connection))
            {
                "waits although some of its body is there"
            } else {
                continue;
            };
            self.world.shared.fail(|| format!("call {id} {wrong}: {call:?}"));
        }
    }

    /// Returns true if the engine has received more of a body than the application has read.
    fn has_unread_body(&self, id: usize, read: usize, taken: u64) -> bool {
        let plan = &self.world.plan.requests[id];
        let client = &self.world.connections[self.world.owners[id]];
        let index = client.plan.requests.iter().position(|&call| call == id).unwrap_or_default();
        let body = client.places[index].head;
        let received = usize::try_from(taken).unwrap_or(usize::MAX).saturating_sub(body).min(plan.body);
        !plan.is_chunked && received > read
    }
}

/// Writes the head of the response, unless that was done.
fn begin<P: Simulated>(
    id: usize,
    has_head: &mut bool,
    declared: Option<u64>,
    reply: &mut engine::Reply<'_, Records<P>>,
) {
    if std::mem::replace(has_head, true) {
        return;
    }
    let mut draft = Draft::default();
    draft.start(b"200 OK").expect("a status");
    draft.field(b"X-Id", id.to_string().as_bytes()).expect("a field");
    if let Some(length) = declared {
        draft.field(b"Content-Length", length.to_string().as_bytes()).expect("a length");
    }
    reply.begin(&draft, None);
}
