//! The encrypted transport, over a cipher without cryptography: a drained socket and a drained transport differ, a
//! record may be incomplete, and the transport has bytes of its own to send while it reads. HTTP/1 over it is unchanged.

use crate::common::{Client, End, Event, Kind, Op, Plan, World, ms, pattern, seconds, timeless};
use engine::{Accepted, Config, Encrypted, EngineSocket, Http1, Local, Net, OnlySerial, Os, Poller, Tcp, Waker};
use sim::cipher::{self, ALERT, CLOSE, DATA, ECHO, HELLO, RECORD, RecordCipher, record};
use std::io;

fn hello() -> Vec<u8> {
    record(HELLO, b"http/1.1\nother")
}

/// Returns `bytes` as records of at most `size` bytes.
fn records(bytes: &[u8], size: usize) -> Vec<u8> {
    bytes.chunks(size).flat_map(|part| record(DATA, part)).collect()
}

/// Returns the bytes in the records that a client has received, and the kinds of the other records.
fn opened(received: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut bytes, mut kinds, mut rest) = (Vec::new(), Vec::new(), received);
    while let Some((kind, payload, length)) = cipher::read(rest) {
        rest = &rest[length..];
        if kind == DATA { bytes.extend(payload) } else { kinds.push(kind) }
    }
    assert!(rest.is_empty() || cipher::read(rest).is_none());
    (bytes, kinds)
}

/// The operating system's network with encrypted connections, and true if each begins with a header of the PROXY
/// protocol.
struct RecordNet(Os, bool);

impl Net for RecordNet {
    type Listener = EngineSocket;
    type Transport = Encrypted<EngineSocket, RecordCipher>;

    fn listen(&mut self, listener: &EngineSocket, index: usize) -> io::Result<Local> {
        self.0.listen(listener, index)
    }

    fn unlisten(&mut self, listener: &EngineSocket) {
        self.0.unlisten(listener);
    }

    fn accept(&mut self, listener: &EngineSocket) -> io::Result<Accepted<Self::Transport>> {
        let has_proxy_header = self.1;
        let sealed =
            |transport: Tcp<EngineSocket>| Encrypted::new(transport, RecordCipher::default(), has_proxy_header);
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

    fn watch(&mut self, transport: &Self::Transport, slot: usize, output: bool, again: bool) -> io::Result<()> {
        self.0.watch_descriptor(transport.socket(), slot, output, again)
    }

    fn room(&self) -> usize {
        self.0.room()
    }

    fn drain_wakes(&mut self) {
        self.0.drain_wakes();
    }
}

struct Sealed<const HAS_PROXY_HEADER: bool>;

impl<const HAS_PROXY_HEADER: bool> Kind for Sealed<HAS_PROXY_HEADER> {
    type Net = RecordNet;
    type Protocols = OnlySerial<Http1>;

    fn net() -> io::Result<(RecordNet, Poller, Waker)> {
        let (os, poller, waker) = Os::new()?;
        Ok((RecordNet(os, HAS_PROXY_HEADER), poller, waker))
    }
}

fn world(config: Config, plans: Vec<Plan>) -> World<Sealed<false>> {
    World::of_kind(config, plans)
}

fn answers(client: &Client) -> usize {
    let (bytes, _) = opened(&client.received);
    bytes.windows(15).filter(|window| window == b"HTTP/1.1 200 OK").count()
}

fn until_answered<K: Kind>(world: &mut World<K>, client: &mut Client, count: usize) {
    world.until("the answers are here", &mut [client], |world, clients| {
        answers(clients[0]) == count && world.statistics().running + world.statistics().suspended == 0
    });
}

const GET: &[u8] = b"GET /0 HTTP/1.1\r\nHost: a.example\r\n\r\n";
const LAST: &[u8] = b"GET /0 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 203.0.113.1 56324 443\r\n";

#[test]
fn requests_are_served_however_their_records_are_cut() {
    let stream = [hello(), records(GET, 7), record(DATA, GET)].concat();
    for cut in 0..stream.len() {
        let mut world = world(timeless(), vec![Plan::sized(&[3])]);
        let mut client = world.client();
        client.send(&stream[..cut]);
        client.pump();
        world.settle();
        client.send(&stream[cut..]);
        until_answered(&mut world, &mut client, 2);
    }
}

#[test]
fn header_of_the_proxy_protocol_comes_before_the_encryption() {
    let stream = [HEADER, &hello(), &record(DATA, GET)].concat();
    for cut in 0..stream.len() {
        let config = Config { proxy_listeners: vec![true], ..timeless() };
        let mut world: World<Sealed<true>> = World::of_kind(config, vec![Plan::sized(&[3])]);
        let mut client = world.client();
        client.send(&stream[..cut]);
        client.pump();
        world.settle();
        client.send(&stream[cut..]);
        until_answered(&mut world, &mut client, 1);
    }
}

#[test]
fn plaintext_in_the_transport_is_served_although_the_socket_is_drained() {
    let mut world = world(timeless(), vec![Plan::sized(&[3])]);
    let mut client = world.client();
    client.send(hello());
    // One record holds many requests, of which the engine reads only some at a time.
    for count in [1, 40, 140] {
        client.received.clear();
        client.send(record(DATA, &GET.repeat(count)));
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
        client.send([hello(), records(&[head.as_bytes(), &body].concat(), size)].concat());
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
    client.send([hello(), record(DATA, GET)].concat());
    world.until("all of it is here", &mut [&mut client], |_, clients| {
        opened(&clients[0].received).0.ends_with(&pattern(0, 249_000, 1000))
    });
    assert_eq!(world.statistics().cut, 0);
}

#[test]
fn head_and_small_body_leave_in_one_record() {
    let mut world = world(timeless(), vec![Plan::sized(&[500])]);
    let mut client = world.client();
    client.send([hello(), record(DATA, GET)].concat());
    until_answered(&mut world, &mut client, 1);
    let (_, _, hello) = cipher::read(&client.received).expect("a hello");
    let (kind, payload, length) = cipher::read(&client.received[hello..]).expect("a record");
    assert_eq!((kind, hello + length), (DATA, client.received.len()));
    assert!(payload.ends_with(&pattern(0, 0, 500)));
}

#[test]
fn transport_answers_while_it_reads() {
    let mut world = world(timeless(), vec![Plan::sized(&[3])]);
    let mut client = world.client();
    let echoes = |client: &Client| opened(&client.received).1.split(|kind| *kind == ECHO).count() - 1;
    // Before any request, between two parts of one, and while nothing else comes.
    client.send([hello(), record(ECHO, b"")].concat());
    world.until("the transport has answered", &mut [&mut client], |_, clients| echoes(clients[0]) == 1);
    client.send([record(DATA, &GET[..9]), record(ECHO, b"")].concat());
    world.until("it has answered again", &mut [&mut client], |_, clients| echoes(clients[0]) == 2);
    client.send(record(DATA, &GET[9..]));
    until_answered(&mut world, &mut client, 1);
}

#[test]
fn answers_behind_the_end_of_output_are_not_sent() {
    let mut world = world(timeless(), vec![Plan::sized(&[3])]);
    let mut client = world.client();
    client.send([hello(), record(DATA, LAST)].concat());
    until_answered(&mut world, &mut client, 1);
    client.send(record(ECHO, b"late"));
    client.pump();
    // A socket whose output has ended would refuse the answer, and the engine reset the connection.
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((answers(&client), opened(&client.received).1), (1, vec![HELLO, CLOSE]));
}

#[test]
fn peer_that_asks_without_reading_is_not_read_further() {
    let mut world = world(Config { write_timeout: Some(seconds(5)), ..timeless() }, vec![Plan::sized(&[3])]);
    let mut client = world.client();
    client.send(hello());
    client.reads = false;
    let question = record(ECHO, &[b'e'; 1000]);
    for _ in 0..20 {
        client.send(question.repeat(1000));
        client.pump();
        world.settle();
    }
    // Only the kernel's buffers are full. The deadline of output ends the connection.
    world.advance(ms(5200));
    world.settle();
    assert_eq!((world.statistics().timeouts, world.statistics().connections), (1, 0));
}

#[test]
fn handshakes_of_many_clients_do_not_delay_those_that_have_theirs_behind_them() {
    let mut world = world(timeless(), vec![Plan::sized(&[3])]);
    let mut known = world.client();
    known.send([hello(), record(DATA, GET)].concat());
    until_answered(&mut world, &mut known, 1);
    let mut others: Vec<_> = (0..200).map(|_| world.client()).collect();
    world.settle();
    for other in &mut others {
        other.send(hello());
        other.pump();
    }
    known.send(record(DATA, GET));
    known.pump();
    world.until("the known client has its answer", &mut [&mut known], |_, clients| answers(clients[0]) == 2);
    let begun = |others: &mut Vec<Client>| {
        for other in others.iter_mut() {
            other.pump();
        }
        others.iter().filter(|other| !other.received.is_empty()).count()
    };
    assert!(begun(&mut others) < 100, "{} handshakes came first", begun(&mut others));
    world.settle();
    assert_eq!(begun(&mut others), 200);
}

#[test]
fn bytes_of_the_transport_count_as_output_of_the_connection() {
    let config = Config { write_timeout: Some(seconds(5)), ..timeless() };
    let mut world = world(config, vec![Plan::sized(&[100_000; 40])]);
    let mut client = world.client();
    client.send([hello(), record(DATA, GET)].concat());
    client.reads = false;
    world.until("the client's side is full", &mut [&mut client], |world, _| world.statistics().suspended == 1);
    world.settle();
    // Nothing is read meanwhile.
    let received = world.statistics().bytes_in;
    client.send(record(DATA, GET));
    client.pump();
    world.settle();
    assert_eq!(world.statistics().bytes_in, received);
    world.advance(ms(5200));
    world.settle();
    assert_eq!((world.statistics().timeouts, world.statistics().connections), (1, 0));
}

#[test]
fn ends_are_told_behind_the_last_response_and_not_after_a_cut() {
    let mut world = world(timeless(), vec![Plan::sized(&[3]), Plan::of(vec![Op::Write(3), Op::Cut])]);
    let mut client = world.client();
    client.send([hello(), record(DATA, LAST)].concat());
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(opened(&client.received).1, [HELLO, CLOSE]);
    // The server answers the end of a client with its own.
    let mut client = world.client();
    client.send([hello(), record(DATA, GET), record(CLOSE, b"")].concat());
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((answers(&client), opened(&client.received).1), (1, vec![HELLO, CLOSE]));
    // A response that ends with its connection must not look complete if it is cut.
    let mut client = world.client();
    client.send([hello(), record(DATA, b"GET /1 HTTP/1.0\r\n\r\n")].concat());
    world.end(&mut client);
    assert_eq!(opened(&client.received).1, [HELLO]);
}

#[test]
fn faults_are_told_to_the_client_and_to_the_application() {
    for stream in [record(b'x', b""), record(DATA, GET), [hello(), record(b'x', b"?")].concat()] {
        let mut world = world(timeless(), vec![Plan::sized(&[3])]);
        let mut client = world.client();
        client.send(&stream);
        assert_eq!(world.end(&mut client), End::Closed);
        assert_eq!(opened(&client.received).1.last(), Some(&ALERT));
        assert_eq!(world.app.insecure(), 1);
        drop(client);
        world.until_empty(&mut []);
    }
}

#[test]
fn oldest_handshake_is_given_up_for_a_new_one_if_there_are_too_many() {
    let mut world = world(Config { handshakes: 2, ..timeless() }, vec![Plan::sized(&[3])]);
    let full = |world: &World<_>| world.app.count(|event| *event == Event::HandshakesFull(2));
    // A connection whose handshake is over does not count, and the one whose handshake has failed does not either.
    let mut ready = world.client();
    ready.send(hello());
    let mut failed = world.client();
    failed.send(record(b'x', b""));
    ready.pump();
    failed.pump();
    world.settle();
    let mut waiting: Vec<_> = (0..2).map(|_| world.client()).collect();
    waiting[1].send(&hello()[..5]);
    waiting[1].pump();
    world.settle();
    assert_eq!((world.statistics().connections, full(&world)), (4, 0));
    let mut new = world.client();
    new.send([hello(), record(DATA, GET)].concat());
    until_answered(&mut world, &mut new, 1);
    assert_eq!((world.end(&mut waiting[0]), waiting[0].received.len()), (End::Closed, 0));
    assert_eq!(full(&world), 1);
    // There is room again for the others.
    ready.send(record(DATA, GET));
    until_answered(&mut world, &mut ready, 1);
    waiting[1].send([&hello()[5..], &record(DATA, GET)].concat());
    until_answered(&mut world, &mut waiting[1], 1);
}

#[test]
fn handshake_that_does_not_end_is_under_the_deadline_of_heads() {
    let config = Config { header_timeout: Some(ms(500)), ..timeless() };
    let mut world = world(config, vec![Plan::sized(&[3])]);
    let mut client = world.client();
    client.send(&hello()[..5]);
    client.pump();
    world.settle();
    world.advance(ms(700));
    world.end(&mut client);
    assert_eq!(client.received, b"", "there is nobody yet who could read an answer");
    drop(client);
    world.until_empty(&mut []);
}
