//! HTTP/2 through real sockets: what the session adds to the state machines of `wire`.

use crate::common::{Call, Client, Event, Op, OverSockets, Plan, World, ms, pattern, seconds, timeless};
use engine::{AllProtocols, Config, Expired, Work};
use wire::http2::PREFACE;
use wire::http2::hpack::{Decoder, Encoder, Indexing, Literals};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

pub(crate) const END_STREAM: u8 = 1;
const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// HTTP/1 and HTTP/2 on one listener.
pub(crate) type Versions = OverSockets<AllProtocols>;

fn world(plans: Vec<Plan>) -> World<Versions> {
    World::of_kind(timeless(), plans)
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the bytes that a client sends first.
pub(crate) fn preface() -> Vec<u8> {
    [&PREFACE[..], &frame(SETTINGS, 0, 0, b"")].concat()
}

/// Returns a request for plan `id`.
fn ask(stream: u32, id: usize, method: &str, flags: u8) -> Vec<u8> {
    ask_for(stream, &format!("/{id}"), method, flags)
}

/// Returns a request, without a table, so that each block can be decoded alone.
fn ask_for(stream: u32, path: &str, method: &str, flags: u8) -> Vec<u8> {
    let (mut encoder, mut block) = (Encoder::default(), Vec::new());
    for (name, value) in [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a.example")] {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Never, &mut block);
    }
    frame(HEADERS, END_HEADERS | flags, stream, &block)
}

pub(crate) fn get(stream: u32, id: usize) -> Vec<u8> {
    ask(stream, id, "GET", END_STREAM)
}

/// One frame that a client has received.
pub(crate) type Frame = (u8, u8, u32, Vec<u8>);

pub(crate) fn frames(client: &Client) -> Vec<Frame> {
    let (mut found, mut rest) = (Vec::new(), &client.received[..]);
    while let Some([a, b, c, kind, flags, stream @ ..]) = rest.first_chunk::<9>() {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let Some(payload) = rest[9..].get(..length) else { break };
        found.push((*kind, *flags, u32::from_be_bytes(*stream), payload.to_vec()));
        rest = &rest[9 + length..];
    }
    found
}

/// Returns the body of a response, and true if it is whole.
pub(crate) fn body(client: &Client, stream: u32) -> (Vec<u8>, bool) {
    let of_stream = frames(client).into_iter().filter(|frame| frame.2 == stream);
    let mut is_whole = false;
    let mut bytes = Vec::new();
    for (kind, flags, _, payload) in of_stream {
        if matches!(kind, DATA | HEADERS) {
            assert!(!is_whole, "nothing follows the end of a response");
            is_whole = flags & END_STREAM != 0;
        }
        if kind == DATA {
            bytes.extend_from_slice(&payload);
        }
    }
    (bytes, is_whole)
}

/// Returns the status of each response, in the order of their heads.
pub(crate) fn statuses(client: &Client) -> Vec<(u32, String)> {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    for (_, _, stream, block) in frames(client).into_iter().filter(|frame| frame.0 == HEADERS) {
        let mut status = String::new();
        let end = decoder.decode(&block, &mut Literals::default(), |name, value| {
            if name == b":status" {
                status = String::from_utf8_lossy(value).into_owned();
            }
        });
        decoder.end_block(block.len() - end.unwrap().used).unwrap();
        found.push((stream, status));
    }
    found
}

fn count(client: &Client, kind: u8) -> usize {
    frames(client).iter().filter(|frame| frame.0 == kind).count()
}

pub(crate) fn until_whole(world: &mut World<Versions>, client: &mut Client, streams: &[u32]) {
    world.until("the responses are whole", &mut [client], |_, clients| {
        streams.iter().all(|&stream| body(clients[0], stream).1)
    });
}

#[test]
fn requests_of_both_versions_are_answered_on_one_listener() {
    let mut world = world((0..3).map(|_| Plan::sized(&[5])).collect());
    let (mut new, mut old) = (world.client(), world.client());
    new.send([preface(), get(1, 0), get(3, 1)].concat());
    until_whole(&mut world, &mut new, &[1, 3]);
    assert_eq!((body(&new, 1).0, body(&new, 3).0), (pattern(0, 0, 5), pattern(1, 0, 5)));
    assert_eq!(statuses(&new), [(1, "200".to_owned()), (3, "200".to_owned())]);
    world.ask(&mut old, b"GET /2 HTTP/1.1\r\nHost: a.example\r\n\r\n", 1);
    assert_eq!(old.answers[0].body, pattern(2, 0, 5));
}

#[test]
fn window_of_one_stream_delays_no_other() {
    let mut world = world(vec![Plan::sized(&[1000]), Plan::sized(&[3])]);
    let mut client = world.client();
    let small = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]);
    client.send([preface(), small, get(1, 0), get(3, 1)].concat());
    until_whole(&mut world, &mut client, &[3]);
    assert_eq!(body(&client, 1), (pattern(0, 0, 1000)[..10].to_vec(), false));
    client.send(frame(WINDOW_UPDATE, 0, 1, &[0, 0, 4, 0]));
    until_whole(&mut world, &mut client, &[1]);
    assert_eq!(body(&client, 1).0, pattern(0, 0, 1000));
}

/// A client of two responses, the first of which fills the window of the connection, with a write timeout of 5 s.
fn client_of_two_responses() -> (World<Versions>, Client) {
    let config = Config { write_timeout: Some(seconds(5)), min_rate: 100, ..timeless() };
    let mut world: World<Versions> = World::of_kind(config, vec![Plan::sized(&[200_000]), Plan::sized(&[3])]);
    let mut client = world.client();
    let wide = frame(SETTINGS, 0, 0, &[0, 4, 0, 16, 0, 0]);
    client.send([preface(), wide, get(1, 0), get(3, 1)].concat());
    world.until("the window is full", &mut [&mut client], |_, clients| {
        body(clients[0], 1).0.len() == 65_535 && !statuses(clients[0]).iter().all(|it| it.0 == 1)
    });
    (world, client)
}

#[test]
fn response_that_waits_for_others_is_in_time_while_the_client_takes_these() {
    let (mut world, mut client) = client_of_two_responses();
    for _ in 0..8 {
        client.send(frame(WINDOW_UPDATE, 0, 0, &[0, 0, 4, 0]));
        world.settle();
        world.advance(seconds(3));
        client.pump();
    }
    assert_eq!((count(&client, RST_STREAM), body(&client, 3).0.len()), (0, 0));
    assert!(body(&client, 1).0.len() >= 65_535 + 7 * 1024);
    client.send(frame(WINDOW_UPDATE, 0, 0, &[0, 16, 0, 0]));
    until_whole(&mut world, &mut client, &[1, 3]);
    assert_eq!(body(&client, 3).0, pattern(1, 0, 3));
}

#[test]
fn body_that_finds_no_room_beside_unread_ones_is_not_late() {
    let config = Config { buffer_bodies: false, body_timeout: Some(seconds(5)), ..timeless() };
    let plans = (0..5).map(|_| Plan::of(vec![Op::ReadAll(100_000)])).collect();
    let mut world: World<Versions> = World::of_kind(config, plans);
    world.keeps = true;
    let mut client = world.client();
    client.send(preface());
    for id in 0..4 {
        let stream = 1 + 2 * u32::try_from(id).unwrap();
        // The window of a stream; four of them are that of the connection.
        client.send([ask(stream, id, "POST", 0), frame(DATA, 0, stream, &[b'a'; 16_384]).repeat(16)].concat());
        world.until("the body has arrived", &mut [&mut client], |world, clients| {
            world.is_out(id) && clients[0].unsent() == 0
        });
    }
    client.send(ask(9, 4, "POST", 0));
    world.until("the call runs", &mut [&mut client], |world, _| world.is_out(4));
    world.go_on_with(4);
    world.settle();
    world.advance(seconds(8));
    world.settle();
    assert_eq!((world.statistics().timeouts, count(&client, RST_STREAM)), (0, 0));
    // As soon as one has been read, the client could send.
    world.go_on_with(0);
    world.settle();
    world.advance(seconds(8));
    world.settle();
    assert!(world.statistics().timeouts > 0);
}

#[test]
fn response_is_not_late_if_all_threads_were_busy() {
    let (mut world, mut client) = client_of_two_responses();
    world.advance_while_busy(seconds(7));
    client.send(frame(WINDOW_UPDATE, 0, 0, &[0, 16, 0, 0]));
    until_whole(&mut world, &mut client, &[1, 3]);
    assert_eq!(body(&client, 3).0, pattern(1, 0, 3));
}

#[test]
fn time_of_a_body_is_held_while_output_of_its_connection_waits() {
    let config = Config { body_timeout: Some(seconds(5)), ..timeless() };
    let plans = vec![Plan::of(vec![Op::ReadAll(100)]), Plan::sized(&[8_000_000])];
    let mut world: World<Versions> = World::of_kind(config, plans);
    let mut client = world.client();
    let wide = [frame(SETTINGS, 0, 0, &[0, 4, 0, 255, 0, 0]), frame(WINDOW_UPDATE, 0, 0, &[0, 255, 0, 0])].concat();
    client.send([preface(), wide, ask(1, 0, "POST", 0)].concat());
    world.until("the body is awaited", &mut [&mut client], |world, _| world.statistics().http2_streams == 1);
    world.advance(seconds(3));
    client.send(get(3, 1));
    client.reads = false;
    world.until("the kernel takes no more", &mut [&mut client], |world, _| world.statistics().suspended == 1);
    world.advance(seconds(4));
    client.reads = true;
    world.until("all is read", &mut [&mut client], |_, clients| body(clients[0], 3).0.len() == 8_000_000);
    world.advance(ms(1500));
    assert_eq!(world.statistics().timeouts, 0);
    world.advance(ms(700));
    assert_eq!(world.statistics().timeouts, 1, "3 s had passed before the output waited");
}

#[test]
fn client_that_takes_no_response_is_cut_on_all_streams() {
    // It takes nothing, or a byte now and then.
    for each in [0, 1] {
        let (mut world, mut client) = client_of_two_responses();
        for _ in 0..4 {
            if each > 0 {
                client.send(frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, each]));
            }
            world.settle();
            world.advance(seconds(2));
            client.pump();
        }
        world.settle();
        client.pump();
        assert_eq!(count(&client, RST_STREAM), 2, "{each} bytes at a time");
    }
}

#[test]
fn broken_rule_ends_the_connection_after_running_calls_are_answered() {
    let mut world = world(vec![Plan::sized(&[5])]);
    let mut client = world.client();
    client.send([preface(), get(1, 0), frame(PING, 0, 0, &[0; 7])].concat());
    until_whole(&mut world, &mut client, &[1]);
    world.end(&mut client);
    let found = frames(&client);
    let goaway = found.iter().find(|frame| frame.0 == GOAWAY).expect("the client learns why");
    assert_eq!(goaway.3[..8], [0, 0, 0, 1, 0, 0, 0, 6], "FRAME_SIZE_ERROR");
    assert_eq!(body(&client, 1).0, pattern(0, 0, 5));
    assert_eq!(world.statistics().refused, 1);
}

#[test]
fn drain_ends_a_connection_in_two_steps_and_loses_no_request() {
    let mut world = world((0..2).map(|_| Plan::sized(&[5])).collect());
    let mut client = world.client();
    client.send([preface(), get(1, 0)].concat());
    until_whole(&mut world, &mut client, &[1]);
    world.engine.drain();
    world.until("the client learns of it", &mut [&mut client], |_, clients| count(clients[0], GOAWAY) == 1);
    let found = frames(&client);
    let ping = found.iter().find(|frame| frame.0 == PING).expect("a ping follows the first GOAWAY");
    // A request that was on its way is answered.
    client.send([get(3, 1), frame(PING, ACK, 0, &ping.3)].concat());
    until_whole(&mut world, &mut client, &[3]);
    world.end(&mut client);
    let last = frames(&client).into_iter().rfind(|frame| frame.0 == GOAWAY).expect("the second GOAWAY");
    assert_eq!(last.3, [0, 0, 0, 3, 0, 0, 0, 0]);
}

#[test]
fn client_that_does_not_answer_a_drain_is_closed_when_it_was_idle_for_too_long() {
    let config = Config { keep_alive: Some(seconds(2)), ..timeless() };
    let mut world: World<Versions> = World::of_kind(config, vec![Plan::sized(&[5])]);
    let mut client = world.client();
    client.send([preface(), get(1, 0)].concat());
    until_whole(&mut world, &mut client, &[1]);
    world.settle();
    world.advance(seconds(3));
    world.until("the client learns of it", &mut [&mut client], |_, clients| count(clients[0], GOAWAY) == 1);
    assert!(client.end.is_none(), "a request may be on its way");
    world.settle();
    world.advance(seconds(3));
    world.end(&mut client);
}

#[test]
fn body_is_received_and_reset_streams_give_their_calls_up() {
    let mut world = world((0..2).map(|_| Plan::sized(&[5])).collect());
    let mut client = world.client();
    let upload = [ask(1, 0, "POST", 0), frame(DATA, 0, 1, &[b'a'; 100]), frame(DATA, END_STREAM, 1, &[b'b'; 100])];
    client.send([preface(), upload.concat()].concat());
    until_whole(&mut world, &mut client, &[1]);
    assert_eq!(body(&client, 1).0, pattern(0, 0, 5));
    // A body that never ends, and a reset.
    client.send([ask(3, 1, "POST", 0), frame(DATA, 0, 3, &[b'a'; 100])].concat());
    client.pump();
    world.settle();
    client.send([frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]), get(5, 0)].concat());
    until_whole(&mut world, &mut client, &[5]);
    assert_eq!(world.app.called(), [0, 0]);
}

#[test]
fn request_that_is_reset_before_it_is_queued_is_given_up() {
    let config = Config { buffer_bodies: false, ..timeless() };
    let reading = Plan { ops: vec![Op::Read(10), Op::Read(10), Op::Write(5)], ..Plan::sized(&[5]) };
    let mut world: World<Versions> = World::of_kind(config, vec![reading, Plan::sized(&[5])]);
    world.keeps = true;
    world.callers = 1;
    let mut client = world.client();
    client.send(preface());
    client.pump();
    world.settle();
    let parts = [frame(DATA, 0, 1, &[b'a'; 10]), frame(DATA, END_STREAM, 1, &[b'b'; 10])];
    let reset = frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]);
    client.send([ask(1, 0, "POST", 0), parts[0].clone(), get(3, 1), reset, parts[1].clone()].concat());
    client.pump();
    world.take_events();
    let now = world.now();
    let Some(Work::Call(ticket, request)) = world.engine.poll(now, &mut world.app, true) else { panic!("no call") };
    let course = world.app.call(request);
    world.calls.push(Call { ticket, course, waits: false });
    // Reads of the first call find the second request, and then its reset. Nothing is polled meanwhile.
    assert!(world.step(0) && world.step(0), "the body has arrived");
    world.poll();
    let given_up = |event: &Event| matches!(event, Event::AbandonRequest { id: 1, status: None });
    assert_eq!(world.app.count(given_up), 1);
    world.go_on_with(0);
    until_whole(&mut world, &mut client, &[1]);
    assert_eq!(world.statistics().http2_streams, 0);
    client.hang_up();
    world.until_empty(&mut [&mut client]);
    assert_eq!(world.app.called(), [0]);
}

#[test]
fn calls_of_one_connection_are_bounded() {
    let config = Config { calls: 2, ..timeless() };
    let mut world: World<Versions> = World::of_kind(config, (0..6).map(|_| Plan::sized(&[5])).collect());
    world.keeps = true;
    let (mut greedy, mut other) = (world.client(), world.client());
    greedy.send([preface(), get(1, 0), get(3, 1), get(5, 2), get(7, 3), get(9, 4)].concat());
    world.until("two calls run", &mut [&mut greedy], |world, _| world.calls.len() == 2);
    world.settle();
    assert_eq!(world.ids_out(), [0, 1], "the others wait, although threads are free");
    other.send(b"GET /5 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    world.until("another connection is served", &mut [&mut other], |world, _| world.is_out(5));
    // A request that waits can be given up.
    greedy.send(frame(RST_STREAM, 0, 5, &[0, 0, 0, 8]));
    greedy.pump();
    world.settle();
    world.go_on_with(0);
    world.settle();
    assert_eq!(world.ids_out(), [1, 5, 3]);
    world.keeps = false;
    world.go_on_with_woken();
    until_whole(&mut world, &mut greedy, &[1, 3, 7, 9]);
    assert_eq!(world.app.called(), [0, 1, 5, 3, 4]);
}

#[test]
fn stream_of_a_late_call_ends_although_its_response_was_whole() {
    let config = Config { exchanges: 1, ..timeless() };
    let whole = Plan { declared: Some(9), ..Plan::of(vec![Op::Begin, Op::Write(9), Op::Flush, Op::Flush]) };
    let mut world: World<Versions> = World::of_kind(config, vec![whole, Plan::sized(&[5])]);
    world.keeps = true;
    let mut client = world.client();
    let small = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 4]);
    client.send([preface(), small, get(1, 0)].concat());
    world.until("the call runs", &mut [&mut client], |world, _| world.is_out(0));
    for _ in 0..2 {
        let index = world.index_of(0);
        world.step(index);
    }
    // A part of the response has to wait for its window.
    client.send(frame(WINDOW_UPDATE, 0, 1, &[0, 0, 4, 0]));
    until_whole(&mut world, &mut client, &[1]);
    let (now, call) = (world.now(), world.calls[world.index_of(0)].ticket.call());
    assert_eq!(world.engine.expire(call, now), Expired::Whole);
    world.settle();
    world.keeps = false;
    world.go_on_with(0);
    world.settle();
    // The call was the only one that the connection may have.
    client.send([get(3, 1), frame(WINDOW_UPDATE, 0, 3, &[0, 0, 4, 0])].concat());
    until_whole(&mut world, &mut client, &[3]);
    assert_eq!(body(&client, 3).0, pattern(1, 0, 5));
}

#[test]
fn many_requests_of_one_connection_do_not_delay_another_connection() {
    let mut world = world((0..12).map(|_| Plan::sized(&[5])).collect());
    (world.keeps, world.callers) = (true, 1);
    let (mut greedy, mut other) = (world.client(), world.client());
    greedy.send(
        [preface()].into_iter().chain((0..10).map(|id| get(id * 2 + 1, id as usize))).flatten().collect::<Vec<_>>(),
    );
    world.until("the first call runs", &mut [&mut greedy], |world, _| world.calls.len() == 1);
    world.settle();
    other.send(b"GET /10 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    other.pump();
    world.settle();
    world.keeps = false;
    world.go_on_with_woken();
    until_whole(&mut world, &mut greedy, &[19]);
    let place = world.app.called().iter().position(|&id| id == 10).expect("it is answered");
    assert!(place <= 2, "{:?}", world.app.called());
}

#[test]
fn preface_that_trickles_is_under_the_deadline_of_heads() {
    let cut = [&PREFACE[..], &frame(SETTINGS, 0, 0, b"")[..5]].concat();
    for (bytes, rest) in [(&PREFACE[..1], ms(1500)), (PREFACE, ms(100)), (&cut, ms(100))] {
        let config = Config { header_timeout: Some(seconds(2)), ..timeless() };
        let mut world: World<Versions> = World::of_kind(config, vec![Plan::sized(&[5])]);
        let mut client = world.client();
        for part in bytes.chunks(bytes.len().div_ceil(3)) {
            client.send(part);
            client.pump();
            world.settle();
            world.advance(ms(700));
        }
        world.advance(rest);
        world.end(&mut client);
        assert_eq!(world.statistics().timeouts, 1, "{bytes:?}");
    }
}

/// A client whose writes do not end with its frames, so that an incomplete frame always follows a complete one.
#[test]
fn upload_is_not_late_because_each_read_ends_in_the_header_of_a_frame() {
    let config = Config { header_timeout: Some(seconds(2)), ..timeless() };
    let mut world: World<Versions> = World::of_kind(config, vec![Plan::of(vec![Op::Echo])]);
    let mut client = world.client();
    client.send([preface(), ask(1, 0, "POST", 0)].concat());
    let parts: Vec<u8> = (0..6).flat_map(|_| frame(DATA, 0, 1, b"part")).collect();
    let mut sent = 0;
    while sent < parts.len() {
        // 13 bytes a frame: the first write ends after 4 bytes of the header of the second frame, and so on.
        let until = (sent + if sent == 0 { 17 } else { 13 }).min(parts.len());
        client.send(&parts[sent..until]);
        client.pump();
        world.settle();
        world.advance(ms(700));
        sent = until;
    }
    client.send(frame(DATA, END_STREAM, 1, b""));
    until_whole(&mut world, &mut client, &[1]);
    assert_eq!(body(&client, 1).0, b"part".repeat(6));
    assert_eq!(world.statistics().timeouts, 0);
}

/// The engine answers all requests of this client by itself, so none of them begins a call.
#[test]
fn connection_of_health_checks_has_the_time_of_an_idle_connection_between_them() {
    let config = Config { header_timeout: Some(seconds(2)), health_path: "/healthz".into(), ..timeless() };
    let mut world: World<Versions> = World::of_kind(config, Vec::new());
    let mut client = world.client();
    client.send(preface());
    for stream in [1, 3, 5] {
        client.send(ask_for(stream, "/healthz", "GET", END_STREAM));
        until_whole(&mut world, &mut client, &[stream]);
        world.advance(seconds(3));
    }
    assert_eq!((count(&client, GOAWAY), client.end), (0, None));
    assert_eq!((world.statistics().health_checks, world.statistics().timeouts), (3, 0));
}

#[test]
fn client_that_sends_no_request_learns_that_the_connection_ends() {
    let config = Config { header_timeout: Some(seconds(2)), ..timeless() };
    let mut world: World<Versions> = World::of_kind(config, vec![Plan::sized(&[5])]);
    let mut client = world.client();
    client.send(preface());
    client.pump();
    world.settle();
    world.advance(seconds(3));
    world.end(&mut client);
    let found = frames(&client);
    let goaway = found.iter().find(|frame| frame.0 == GOAWAY).expect("the client learns that no stream was processed");
    assert_eq!(goaway.3, [0; 8]);
}

#[test]
fn broken_connection_does_not_wait_for_windows_that_cannot_grow() {
    let mut world = world(vec![Plan::sized(&[1000]), Plan::sized(&[5])]);
    let mut client = world.client();
    let small = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]);
    client.send([preface(), small, get(1, 0), get(3, 1)].concat());
    until_whole(&mut world, &mut client, &[3]);
    client.send(frame(PING, 0, 0, &[0; 7]));
    world.end(&mut client);
    assert_eq!(count(&client, GOAWAY), 1);
    client.hang_up();
    world.until_empty(&mut [&mut client]);
}
