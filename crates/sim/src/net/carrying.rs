//! The code that moves bytes that have arrived in virtual time through the real sockets of
//! [`Wires`](super::wires::Wires).

use super::pipe::{End, post};
use super::wires::READ;
use super::{Network, Reset};
use crate::clock::Event;
use engine::Readiness;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};
use std::time::Duration;

impl Network {
    /// Connects the real socket of a connection that has just arrived. Returns false if the listener is closed.
    pub(super) fn connect_wire(&mut self, number: usize) -> bool {
        let listener = self.connections[number].listener;
        self.wires.as_mut().is_none_or(|wires| wires.connect(number, listener))
    }

    /// Takes the events of the engine's poller.
    pub(super) fn poll_wires(&mut self, ready: &mut Vec<Readiness>) {
        let Some(wires) = &mut self.wires else { return };
        let first = ready.len();
        // The first wait takes the awaited events, the second one the events that the kernel has noticed since.
        for _ in 0..2 {
            wires.poller.wait(Some(Duration::ZERO), ready).expect("the poller works");
        }
        for event in &ready[first..] {
            let Readiness::Connection { slot, .. } = event else { continue };
            let is_it = |connection: &super::Connection| {
                connection.dropped.is_none() && connection.watched.is_some_and(|watched| watched.slot == *slot)
            };
            if let Some(number) = self.connections.iter().position(is_it)
                && let Some(end) = wires.end_mut(number)
            {
                end.awaits_room = false;
            }
        }
    }

    /// Records that the engine has sent `count` bytes on a connection. `is_short`: there was no room for the rest.
    pub(super) fn note_sent(&mut self, number: usize, count: usize, is_short: bool) {
        if let Some(end) = self.wires.as_mut().and_then(|wires| wires.end_mut(number)) {
            end.sent += count as u64;
            end.awaits_room = is_short;
        }
        self.carry_to_client(number);
    }

    /// Records that the engine has ended its output.
    pub(super) fn note_end(&mut self, number: usize) {
        if let Some(end) = self.wires.as_mut().and_then(|wires| wires.end_mut(number)) {
            end.expects_end = true;
        }
    }

    /// Writes the bytes that have arrived at the server to the real socket, and then the end or the reset.
    pub(super) fn carry_to_server(&mut self, number: usize) {
        let now = self.shared.now();
        let shared = std::rc::Rc::clone(&self.shared);
        let Some(wires) = &mut self.wires else { return };
        let connection = &mut self.connections[number];
        let Some(end) = wires.ends.get_mut(number).and_then(Option::as_mut) else { return };
        let is_heard = connection.dropped.is_none() && connection.watched.is_some() && !connection.is_cut;
        if connection.reset_of_server.here().is_some() {
            // An error here, or in `shutdown` below, means that the server has reset the connection, so there is
            // nothing to end.
            sockopt::set_socket_linger(&end.socket, Some(Duration::ZERO)).ok();
            // If one of the sides had already ended, there may be nothing to report.
            let is_over = end.is_shut || end.is_ended || end.expects_end;
            wires.ends[number] = None;
            if is_heard && !is_over {
                wires.await_event(&shared, "the client has reset its connection");
            }
            return;
        }
        // Bytes that are in the kernel and not read by the engine stay in the pipe until the engine reads them.
        let pipe = &mut connection.to_server;
        let in_kernel =
            if connection.dropped.is_some() { 0 } else { usize::try_from(end.written - pipe.taken).unwrap_or(0) };
        let bytes = &pipe.arrived[pipe.read + in_kernel.min(pipe.unread())..];
        let mut written = 0;
        let mut is_reset = false;
        while written < bytes.len() {
            match rustix::net::send(&end.socket, &bytes[written..], SendFlags::NOSIGNAL) {
                Ok(count) => written += count,
                Err(Errno::WOULDBLOCK) => break,
                Err(error) => {
                    // The kernel reports a reset once; after that, a read returns the end.
                    is_reset = error == Errno::CONNRESET;
                    break;
                }
            }
        }
        end.written += written as u64;
        let is_whole = written == bytes.len();
        let mut is_event = written > 0 && in_kernel == 0;
        if connection.dropped.is_some() {
            pipe.discard();
        } else if let (End::Here(_), false) = (pipe.end, end.is_shut) {
            // The end follows the last byte.
            if is_whole {
                end.is_shut = true;
                rustix::net::shutdown(&end.socket, Shutdown::Write).ok();
                is_event = true;
            } else {
                pipe.end = End::At(now);
            }
        }
        if is_reset {
            end.is_ended = true;
            self.reset_peer(number);
        } else if is_event && is_heard {
            wires.await_event(&shared, "the client has sent bytes or its end");
        }
    }

    /// Reads the bytes that the engine has sent on a connection, as many as the client's pipe has room for, and puts
    /// them into that pipe.
    fn carry_to_client(&mut self, number: usize) {
        let shared = std::rc::Rc::clone(&self.shared);
        let Some(wires) = &mut self.wires else { return };
        let connection = &mut self.connections[number];
        let mut buffer = std::mem::take(&mut wires.buffer);
        let mut is_reset = false;
        while let Some(end) = wires.end_mut(number)
            && !end.is_ended
            && !connection.has_vanished
            && connection.to_peer.room() > 0
            && !shared.has_failed()
        {
            let room = connection.to_peer.room().min(READ);
            match rustix::net::recv(&end.socket, &mut buffer[..room], RecvFlags::empty()) {
                Ok((0, _)) => {
                    end.is_ended = true;
                    let at = connection.to_peer.latest.max(shared.now() + connection.latency);
                    connection.to_peer.end = End::At(at);
                    shared.schedule(at, Event::ArriveAtPeer(number));
                }
                Ok((count, _)) => {
                    end.read += count as u64;
                    let (latency, packet) = (connection.latency, connection.packet);
                    for at in post(&shared, &mut connection.to_peer, &buffer[..count], latency, packet) {
                        shared.schedule(at, Event::ArriveAtPeer(number));
                    }
                }
                Err(Errno::WOULDBLOCK) if end.read < end.sent || end.expects_end => end.await_input(&shared),
                Err(Errno::WOULDBLOCK) => break,
                Err(_) => {
                    end.is_ended = true;
                    is_reset = true;
                }
            }
        }
        wires.buffer = buffer;
        if let Some(end) = wires.end_mut(number)
            && end.awaits_room
            && end.read == end.sent
            && !end.is_ended
            && connection.dropped.is_none()
            && connection.watched.is_some_and(|watched| watched.output)
        {
            wires.await_event(&shared, "there is room for output again");
        }
        if is_reset && self.connections[number].reset_of_peer == Reset::None {
            self.reset_peer(number);
        }
    }

    /// Moves the bytes of all connections, as many as the kernel accepts. Called after each event.
    pub(crate) fn carry(&mut self) {
        if self.wires.is_none() {
            return;
        }
        for number in 0..self.connections.len() {
            if !self.connections[number].has_vanished && self.connections[number].arrived {
                if self.connections[number].to_server.unread() > 0 {
                    self.connections[number].to_server.deliver(self.shared.now());
                    self.carry_to_server(number);
                }
                self.carry_to_client(number);
            }
        }
    }
}
