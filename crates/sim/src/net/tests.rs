//! Tests of the simulated network.

use super::server::SimSocket;
use super::transport::SimTransport;
use super::*;
use engine::{Accepted, Moved, Net, Socket};
use std::cell::RefCell;
use std::io::{self, IoSlice};

const CALM: Conditions = Conditions {
    descriptors: 10,
    reserve: 1,
    failing_accepts: 0,
    failing_watches: 0,
    short_sends: 0,
    cuts_at_once: true,
    events: 256,
};

struct Rig {
    shared: Rc<Shared>,
    network: Rc<RefCell<Network>>,
    side: Side,
    listener: Listening,
}

impl Rig {
    fn new() -> Self {
        let shared = Shared::new(1, false);
        let network = Rc::new(RefCell::new(Network::new(Rc::clone(&shared), CALM, Medium::Simulated)));
        let listener = Listening::new(&network);
        let mut side = Side(Rc::clone(&network));
        side.listen(&listener, 0).unwrap();
        Self { shared, network, side, listener }
    }

    /// Opens a connection with a capacity of 10 bytes.
    fn connect(&mut self) -> (usize, SimSocket) {
        let route = Route { peer: 0, listener: 0, latency: 5, packet: usize::MAX, capacity: 10, is_encrypted: false };
        let number = self.network.borrow_mut().connect(route);
        self.settle();
        let Ok(Accepted::Connection(transport, address)) = self.side.accept(&self.listener) else {
            panic!("no connection waits to be accepted");
        };
        assert_eq!(address.map(number_of), Some(number));
        self.side.watch(&transport, 7, true, false).unwrap();
        (number, transport.into_socket())
    }

    /// Delivers everything under way.
    fn settle(&mut self) {
        while let Some(event) = self.shared.advance() {
            let mut network = self.network.borrow_mut();
            match event {
                Event::ArriveAtServer(number) => network.arrive_at_server(number),
                Event::ArriveAtPeer(number) => {
                    network.arrive_at_peer(number);
                }
                Event::RoomAtServer(number) => network.room_at_server(number),
                _ => {}
            }
        }
    }

    fn poll(&self) -> Vec<Readiness> {
        let mut ready = Vec::new();
        self.network.borrow_mut().poll(&mut ready);
        ready
    }

    fn peer_sends(&mut self, number: usize, bytes: &[u8]) -> usize {
        let count = self.network.borrow_mut().peer_sends(number, bytes);
        self.settle();
        count
    }

    fn peer_reads(&mut self, number: usize) -> Got {
        let got = self.network.borrow_mut().peer_reads(number, usize::MAX);
        self.settle();
        got
    }
}

fn readable(read_closed: bool) -> Readiness {
    Readiness::Connection { slot: 7, readable: true, read_closed }
}

#[test]
fn readiness_is_reported_once_and_again_with_news() {
    let mut rig = Rig::new();
    let (number, socket) = rig.connect();
    rig.poll();
    assert_eq!(rig.poll(), []);
    rig.peer_sends(number, b"ab");
    assert_eq!(rig.poll(), [readable(false)]);
    assert_eq!(rig.poll(), []);
    rig.peer_sends(number, b"c");
    rig.network.borrow_mut().peer_ends(number);
    rig.settle();
    assert_eq!(rig.poll(), [readable(true)]);
    let mut buffer = [0; 10];
    assert_eq!(socket.receive(&mut buffer).unwrap(), Moved::Bytes(3));
    assert_eq!(socket.receive(&mut buffer).unwrap(), Moved::Bytes(0));
    assert_eq!(rig.poll(), []);
    // Watching again reports the current state.
    let socket = SimTransport::new(socket, &rig.network, number, false);
    rig.side.watch(&socket, 7, true, true).unwrap();
    assert_eq!(rig.poll(), [readable(true)]);
}

#[test]
fn free_space_is_reported_after_a_short_send() {
    let mut rig = Rig::new();
    let (number, socket) = rig.connect();
    rig.poll();
    assert_eq!(socket.send(&[IoSlice::new(&[b'x'; 8])], false).unwrap(), Moved::Bytes(8));
    rig.settle();
    assert!(matches!(rig.peer_reads(number), Got::Bytes(bytes) if bytes.len() == 8));
    assert_eq!(rig.poll(), [], "no send was short");
    assert_eq!(socket.send(&[IoSlice::new(&[b'x'; 15])], false).unwrap(), Moved::Bytes(10));
    assert_eq!(socket.send(&[IoSlice::new(b"x")], false).unwrap(), Moved::WouldBlock);
    rig.settle();
    assert_eq!(rig.poll(), []);
    assert!(matches!(rig.peer_reads(number), Got::Bytes(bytes) if bytes.len() == 10));
    assert_eq!(rig.poll(), [Readiness::Connection { slot: 7, readable: false, read_closed: false }]);
}

#[test]
fn closing_with_unread_input_destroys_what_the_peer_has_not_read() {
    for (sends, unread_at_close) in [(&b"more"[..], true), (b"more", false), (b"", false)] {
        let mut rig = Rig::new();
        let (number, socket) = rig.connect();
        if unread_at_close {
            rig.peer_sends(number, sends);
        }
        socket.send(&[IoSlice::new(b"answer")], false).unwrap();
        rig.settle();
        drop(socket);
        if !unread_at_close {
            rig.peer_sends(number, sends);
        }
        rig.settle();
        if sends.is_empty() {
            assert_eq!(rig.peer_reads(number), Got::Bytes(b"answer".to_vec()));
            assert_eq!(rig.peer_reads(number), Got::End);
        } else {
            assert_eq!(rig.peer_reads(number), Got::Reset);
        }
    }
}

#[test]
fn reset_is_reported_after_received_bytes() {
    let mut rig = Rig::new();
    let (number, socket) = rig.connect();
    rig.peer_sends(number, b"abc");
    rig.network.borrow_mut().peer_resets(number);
    rig.settle();
    assert!(socket.has_peer_left());
    let mut buffer = [0; 10];
    assert_eq!(socket.receive(&mut buffer).unwrap(), Moved::Bytes(3));
    assert_eq!(socket.receive(&mut buffer).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(socket.send(&[IoSlice::new(b"x")], false).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn nothing_arrives_from_a_peer_that_vanished() {
    let mut rig = Rig::new();
    let (number, socket) = rig.connect();
    rig.poll();
    rig.network.borrow_mut().peer_sends(number, b"lost");
    rig.network.borrow_mut().peer_vanishes(number);
    assert_eq!(socket.send(&[IoSlice::new(&[b'x'; 12])], false).unwrap(), Moved::Bytes(10));
    rig.settle();
    assert_eq!(rig.poll(), []);
    assert_eq!(socket.receive(&mut [0; 4]).unwrap(), Moved::WouldBlock);
    assert!(!socket.has_peer_left());
}

#[test]
fn cut_resets_a_connection_whose_socket_is_open() {
    let mut rig = Rig::new();
    let (number, socket) = rig.connect();
    socket.send(&[IoSlice::new(b"half")], false).unwrap();
    socket.cut();
    rig.settle();
    assert_eq!(rig.peer_reads(number), Got::Reset);
    assert!(socket.has_peer_left());
}

#[test]
fn accept_fails_without_descriptors() {
    let mut rig = Rig::new();
    rig.network.borrow_mut().other_files = CALM.descriptors;
    assert!(matches!(rig.side.accept(&rig.listener), Ok(Accepted::Exhausted(_))));
    rig.network.borrow_mut().other_files = 0;
    assert!(matches!(rig.side.accept(&rig.listener), Ok(Accepted::None)));
}
