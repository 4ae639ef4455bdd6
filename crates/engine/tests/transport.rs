//! A transport that is not plain: it converts records into bytes, so that a drained socket and a drained transport
//! differ, and it has its own bytes to send while it reads. HTTP/1 over this transport is unchanged.
//!
//! A record is its length (2 bytes) and its payload with each bit inverted. A record of length 0 asks for an echo: the
//! transport answers with a record of length 0, whatever the connection does.

use crate::common::{Client, Kind, Op, Plan, World, ms, pattern, seconds, timeless};
use engine::{
    Accepted, Config, EngineSocket, Http1, Local, Moved, Net, OnlySerial, Os, Poller, Received, Socket, Tcp, Transport,
    Waker,
};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

/// The maximum number of bytes in a record's payload.
const RECORD: usize = 5000;

fn turned(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

fn record(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a record is short");
    [&length.to_be_bytes()[..], &turned(bytes)].concat()
}

fn records(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(RECORD).flat_map(record).collect()
}

/// Returns the payloads of the records in `received`, and the number of empty records.
fn opened(received: &[u8]) -> (Vec<u8>, usize) {
    let (mut bytes, mut empty, mut rest) = (Vec::new(), 0, received);
    while let Some(([high, low], behind)) = rest.split_first_chunk::<2>().map(|(length, behind)| (*length, behind)) {
        let length = usize::from(u16::from_be_bytes([high, low]));
        if behind.len() < length {
            break;
        }
        empty += usize::from(length == 0);
        bytes.extend(turned(&behind[..length]));
        rest = &behind[length..];
    }
    (bytes, empty)
}

struct Records {
    socket: EngineSocket,
    /// The bytes received and not decoded.
    sealed: Vec<u8>,
    /// The bytes decoded and not passed to the connection.
    opened: Vec<u8>,
    /// The bytes to be sent.
    unsent: Vec<u8>,
    has_ended: bool,
}

impl Records {
    /// Decodes the complete records received, and answers those that ask for an echo.
    fn open(&mut self) {
        let mut used = 0;
        while let Some(header) = self.sealed.get(used..used + 2) {
            let length = usize::from(u16::from_be_bytes([header[0], header[1]]));
            let Some(payload) = self.sealed.get(used + 2..used + 2 + length) else { break };
            if length == 0 {
                self.unsent.extend(record(b""));
            }
            self.opened.extend(turned(payload));
            used += 2 + length;
        }
        self.sealed.drain(..used);
    }

    fn seal(&mut self, bytes: &[u8]) -> io::Result<Moved> {
        self.flush()?;
        if !self.unsent.is_empty() {
            return Ok(Moved::WouldBlock);
        }
        let count = bytes.len().min(RECORD);
        self.unsent.extend(record(&bytes[..count]));
        self.flush()?;
        Ok(Moved::Bytes(count))
    }
}

impl Transport for Records {
    type Security = Infallible;

    fn note_read_closed(&mut self) {}

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        // The transport reads more than the caller asks for, until the socket is drained.
        let mut is_drained = false;
        while self.opened.is_empty() && !is_drained && !self.has_ended {
            let mut received = [0; 10_000];
            match self.socket.receive(&mut received)? {
                Moved::Bytes(0) => self.has_ended = true,
                Moved::Bytes(count) => self.sealed.extend_from_slice(&received[..count]),
                Moved::WouldBlock => is_drained = true,
            }
            self.open();
        }
        let count = self.opened.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.opened[..count]);
        self.opened.drain(..count);
        Ok(match count {
            0 if self.has_ended => Received::End,
            0 => Received::WouldBlock,
            // The transport does not know whether the socket has more.
            count => Received::Bytes { count, is_drained: false },
        })
    }

    fn send(&mut self, slices: &[IoSlice<'_>], _more: bool) -> io::Result<Moved> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(RECORD).collect();
        self.seal(&bytes)
    }

    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<Moved> {
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(RECORD).min(RECORD)];
        let read = file.read_at(&mut bytes, offset)?;
        if read == 0 { Ok(Moved::Bytes(0)) } else { self.seal(&bytes[..read]) }
    }

    fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.socket.send(&[IoSlice::new(&self.unsent)], false)? {
                Moved::Bytes(count) => drop(self.unsent.drain(..count)),
                Moved::WouldBlock => break,
            }
        }
        Ok(())
    }

    fn end_output(&mut self) {
        self.socket.end_output();
    }

    fn reset_on_drop(&mut self) {
        self.socket.reset_on_drop();
    }

    fn cut(&mut self) {
        self.socket.cut();
    }

    fn has_peer_left(&self) -> bool {
        self.socket.has_peer_left()
    }
}

/// The operating system's network with records on top.
struct RecordNet(Os);

impl Net for RecordNet {
    type Listener = EngineSocket;
    type Transport = Records;

    fn listen(&mut self, listener: &EngineSocket, index: usize) -> io::Result<Local> {
        self.0.listen(listener, index)
    }

    fn unlisten(&mut self, listener: &EngineSocket) {
        self.0.unlisten(listener);
    }

    fn accept(&mut self, listener: &EngineSocket) -> io::Result<Accepted<Records>> {
        let sealed = |transport: Tcp<EngineSocket>| Records {
            socket: transport.into_socket(),
            sealed: Vec::new(),
            opened: Vec::new(),
            unsent: Vec::new(),
            has_ended: false,
        };
        Ok(match self.0.accept(listener)? {
            Accepted::Connection(transport, address) => Accepted::Connection(sealed(transport), address),
            Accepted::None => Accepted::None,
            Accepted::Failed(error) => Accepted::Failed(error),
            Accepted::Exhausted(error) => Accepted::Exhausted(error),
        })
    }

    fn is_awaited(&self, listener: &EngineSocket) -> bool {
        self.0.is_awaited(listener)
    }

    fn watch(&mut self, transport: &Records, slot: usize, output: bool, again: bool) -> io::Result<()> {
        self.0.watch_descriptor(&transport.socket, slot, output, again)
    }

    fn room(&self) -> usize {
        self.0.room()
    }

    fn drain_wakes(&mut self) {
        self.0.drain_wakes();
    }
}

struct Sealed;

impl Kind for Sealed {
    type Net = RecordNet;
    type Protocols = OnlySerial<Http1>;

    fn net() -> io::Result<(RecordNet, Poller, Waker)> {
        let (os, poller, waker) = Os::new()?;
        Ok((RecordNet(os), poller, waker))
    }
}

fn world(config: Config, plans: Vec<Plan>) -> World<Sealed> {
    World::of_kind(config, plans)
}

fn answers(client: &Client) -> usize {
    let (bytes, _) = opened(&client.received);
    bytes.windows(15).filter(|window| window == b"HTTP/1.1 200 OK").count()
}

fn until_answered(world: &mut World<Sealed>, client: &mut Client, count: usize) {
    world.until("the answers are here", &mut [client], |world, clients| {
        answers(clients[0]) == count && world.statistics().running + world.statistics().suspended == 0
    });
}

const GET: &[u8] = b"GET /0 HTTP/1.1\r\nHost: a.example\r\n\r\n";

#[test]
fn plaintext_in_the_transport_is_served_although_the_socket_is_drained() {
    let mut world = world(timeless(), vec![Plan::sized(&[3])]);
    let mut client = world.client();
    // One record holds many requests, of which the engine reads only some at a time.
    for count in [1, 40, 140] {
        client.received.clear();
        client.send(record(&GET.repeat(count)));
        until_answered(&mut world, &mut client, count);
    }
}

#[test]
fn body_longer_than_any_buffer_comes_as_a_whole_in_records_of_any_size() {
    for size in [1, 7, 1000, RECORD] {
        let config = Config { buffer_bodies: false, ..timeless() };
        let mut world = world(config, vec![Plan::of(vec![Op::ReadAll(3000), Op::Echo])]);
        let body = pattern(1, 0, if size < 10 { 2000 } else { 300_000 });
        let head = format!("PUT /0 HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut client = world.client();
        let bytes = [head.as_bytes(), &body].concat();
        client.send(bytes.chunks(size).flat_map(record).collect::<Vec<_>>());
        until_answered(&mut world, &mut client, 1);
        assert!(world.app.body_read(0) == Some(&body[..]), "records of {size} bytes");
    }
}

#[test]
fn files_and_large_parts_are_sealed_too() {
    let plan = Plan::sized(&[200_000]).declaring(200_000 + 50_000);
    let plan = Plan { ops: [plan.ops, vec![Op::File { length: 50_000, missing: 0 }]].concat(), ..Plan::of(Vec::new()) };
    let mut world = world(timeless(), vec![plan.declaring(250_000)]);
    let mut client = world.client();
    client.send(record(GET));
    world.until("all of it is here", &mut [&mut client], |_, clients| {
        opened(&clients[0].received).0.ends_with(&pattern(0, 249_000, 1000))
    });
    assert_eq!(world.statistics().cut, 0);
}

#[test]
fn transport_answers_while_it_reads() {
    let mut world = world(timeless(), vec![Plan::sized(&[3])]);
    let mut client = world.client();
    // Before any request, between two parts of one, and while nothing else comes.
    client.send(record(b""));
    world.until("the transport has answered", &mut [&mut client], |_, clients| opened(&clients[0].received).1 == 1);
    client.send([record(&GET[..9]), record(b"")].concat());
    world.until("it has answered again", &mut [&mut client], |_, clients| opened(&clients[0].received).1 == 2);
    client.send(record(&GET[9..]));
    until_answered(&mut world, &mut client, 1);
}

#[test]
fn bytes_of_the_transport_count_as_output_of_the_connection() {
    let config = Config { write_timeout: Some(seconds(5)), ..timeless() };
    let mut world = world(config, vec![Plan::sized(&[100_000; 40])]);
    let mut client = world.client();
    client.send(record(GET));
    client.reads = false;
    world.until("the client's side is full", &mut [&mut client], |world, _| world.statistics().suspended == 1);
    world.settle();
    // Nothing is read meanwhile.
    let received = world.statistics().bytes_in;
    client.send(records(GET));
    client.pump();
    world.settle();
    assert_eq!(world.statistics().bytes_in, received);
    world.advance(ms(5200));
    world.settle();
    assert_eq!((world.statistics().timeouts, world.statistics().connections), (1, 0));
}
