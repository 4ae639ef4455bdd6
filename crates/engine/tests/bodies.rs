//! Tests of bodies that are streamed to the application: whole and in pieces, as fast as the application reads, until
//! their end or until it is clear that the end will not arrive.

use crate::common::{
    Client, End, Event, GRAIN, How, Manner, Op, Plan, ReceivedBody, World, pattern, seconds, timeless,
};
use engine::Config;
use std::time::Duration;

/// The maximum number of bytes that the engine buffers while the application does not read: the read-ahead and one
/// receive beyond it.
const AHEAD: u64 = 128 << 10;

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

fn head(id: usize, length: usize) -> String {
    format!("PUT /{id} HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n")
}

fn chunked(id: usize) -> String {
    format!("PUT /{id} HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n")
}

fn streaming() -> Config {
    Config { buffer_bodies: false, ..timeless() }
}

/// Returns a world whose waiting calls continue by themselves when woken.
fn world(config: Config, ops: Vec<Op>) -> World {
    World::unix(config, vec![Plan::of(ops), Plan::sized(&[7])])
}

/// Returns a world in which the test runs the operations of calls.
fn keeping(config: Config, ops: Vec<Op>) -> World {
    let mut world = world(config, ops);
    world.keeps = true;
    world
}

fn send(world: &mut World, client: &mut Client, bytes: impl AsRef<[u8]>) {
    client.send(bytes);
    client.pump();
    assert_eq!(client.unsent(), 0);
    world.settle();
    client.pump();
}

/// Sends as much as the engine takes.
fn push(world: &mut World, client: &mut Client) {
    while client.pump_out(usize::MAX) > 0 {
        world.settle();
    }
}

/// Runs the only call until it waits or is complete.
fn go_on(world: &mut World) {
    world.note_woken();
    while let [call] = &world.calls[..]
        && !call.waits
    {
        world.step(0);
        world.note_woken();
    }
    world.settle();
}

#[test]
fn body_that_arrived_with_its_head_is_available_at_once() {
    let mut world = world(streaming(), vec![Op::ReadAll(10)]);
    let mut client = world.client();
    world.ask(&mut client, format!("{}hello{}", head(0, 5), get(1)).as_bytes(), 2);
    assert_eq!(world.app.body(0), Some(&ReceivedBody::Borrowed(b"hello".to_vec())));
    assert_eq!(world.app.body_read(0), Some(&b"hello"[..]));
    assert!(client.answers[0].keep_alive);
    assert_eq!(client.answers[1].body, pattern(1, 0, 7));
}

#[test]
fn request_without_a_body_has_an_empty_one() {
    let mut world = world(streaming(), vec![Op::ReadAll(10)]);
    let mut client = world.client();
    world.ask(&mut client, (get(0) + &head(0, 0) + &get(1)).as_bytes(), 3);
    assert_eq!(world.app.body_read(0), Some(&b""[..]));
}

#[test]
fn body_is_read_when_it_comes_byte_by_byte() {
    let in_chunks = b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nT: 1\r\n\r\n";
    let bodies = [(head(0, 12), &b"twelve bytes"[..], &b"twelve bytes"[..]), (chunked(0), &in_chunks[..], b"abcdefg")];
    for (head, body, decoded) in bodies {
        let mut world = world(streaming(), vec![Op::ReadAll(5)]);
        let mut client = world.client();
        let mut sent = 0;
        // Another request follows the body.
        for byte in [head.as_bytes(), body, get(1).as_bytes()].concat() {
            send(&mut world, &mut client, [byte]);
            sent += 1;
            assert_eq!(world.statistics().bytes_in, sent, "each byte is received as it comes");
            assert_eq!(world.app.called().is_empty(), sent < head.len() as u64, "called when its head is whole");
        }
        assert_eq!(world.app.body_read(0), Some(decoded));
        assert_eq!((client.answers.len(), client.answers[0].keep_alive), (2, true));
        assert_eq!(client.answers[1].body, pattern(1, 0, 7));
    }
}

/// The engine keeps an incomplete chunk-size line, which is no reason to poll.
#[test]
fn chunk_size_is_read_when_it_comes_in_halves() {
    let mut world = world(streaming(), vec![Op::ReadAll(5)]);
    let mut client = world.client();
    send(&mut world, &mut client, chunked(0) + "3\r\nabc\r\n0000");
    assert_eq!(world.timeout(), None);
    send(&mut world, &mut client, "5\r\nde");
    send(&mut world, &mut client, "fgh\r");
    assert_eq!(world.timeout(), None);
    send(&mut world, &mut client, format!("\n0\r\n\r\n{}", get(1)));
    assert_eq!((world.app.body_read(0), client.answers.len()), (Some(&b"abcdefgh"[..]), 2));
}

#[test]
fn waiting_call_is_woken_only_when_body_bytes_come() {
    let mut world = keeping(streaming(), vec![Op::ReadAll(5)]);
    let mut client = world.client();
    send(&mut world, &mut client, chunked(0) + "3\r\nabc");
    go_on(&mut world);
    assert!(world.calls[0].waits);
    let wakes = |world: &World| world.app.count(|event| matches!(event, Event::Wake { .. }));
    let before = wakes(&world);
    // These bytes contain no byte of the body.
    for byte in b"\r\n5\r\n" {
        send(&mut world, &mut client, [*byte]);
    }
    assert_eq!(wakes(&world), before);
    send(&mut world, &mut client, "d");
    assert_eq!(wakes(&world), before + 1);
    // The call is not woken twice before it has read.
    send(&mut world, &mut client, "e");
    assert_eq!(wakes(&world), before + 1);
    world.note_woken();
    world.engine.stop_waiting(&world.calls[0].ticket);
    send(&mut world, &mut client, "fgh\r\n0\r\n\r\n");
    assert_eq!(wakes(&world), before + 1);
    go_on(&mut world);
    assert_eq!(world.app.body_read(0), Some(&b"abcdefgh"[..]));
}

#[test]
fn body_is_received_no_faster_than_it_is_read() {
    let length = 4 << 20;
    let body = pattern(9, 0, length);
    let mut in_chunks = Vec::new();
    for chunk in body.chunks(10_000) {
        in_chunks.extend(format!("{:x}\r\n", chunk.len()).bytes());
        in_chunks.extend(chunk);
        in_chunks.extend(b"\r\n");
    }
    in_chunks.extend(b"0\r\n\r\n");
    for (head, sent) in [(head(0, length), &body), (chunked(0), &in_chunks)] {
        let mut world = keeping(streaming(), vec![Op::ReadAll(3000)]);
        let mut client = world.client();
        client.send(&head);
        client.send(sent);
        push(&mut world, &mut client);
        let bytes_in = world.statistics().bytes_in;
        assert!(client.unsent() > length / 2 && bytes_in <= AHEAD, "{bytes_in} bytes");
        assert_eq!(world.timeout(), None, "no reason to poll");
        let overhead = (head.len() + sent.len() - length) as u64;
        while world.is_out(0) {
            assert!(!world.calls[0].waits, "there is always something: {:?}", world.statistics());
            let read = world.calls[0].course.body.len() as u64;
            assert!(world.statistics().bytes_in <= read + overhead + AHEAD, "{:?}", world.statistics());
            world.step(0);
            push(&mut world, &mut client);
            world.note_woken();
        }
        assert!(world.app.body_read(0).is_some_and(|read| read == body));
        client.pump();
        assert_eq!((client.answers.len(), client.answers[0].keep_alive), (1, true));
    }
}

/// The body ends with its last byte, even if the buffer is full, and whatever follows.
#[test]
fn body_as_long_as_the_read_ahead_limit_ends() {
    for length in [64 << 10, (64 << 10) + 1, 76_717, 128 << 10, 200_000] {
        for ends in [false, true] {
            let mut world = keeping(streaming(), vec![Op::ReadAll(100_000)]);
            let mut client = world.client();
            client.send(head(0, length));
            push(&mut world, &mut client);
            client.send(pattern(9, 0, length));
            if ends {
                client.end_sending();
            }
            push(&mut world, &mut client);
            for _ in 0..10 {
                go_on(&mut world);
                push(&mut world, &mut client);
            }
            assert!(world.app.body_read(0).is_some_and(|read| read == pattern(9, 0, length)), "{length} bytes");
            client.pump();
            assert_eq!((client.answers.len(), client.answers[0].status, client.answers[0].keep_alive), (1, 200, true));
        }
    }
}

#[test]
fn body_that_ends_early_fails() {
    for (head, sent, got) in
        [(head(0, 100), "only this", "only this"), (chunked(0), "5\r\nhello\r\n5\r\nwor", "hellowor")]
    {
        for waits in [false, true] {
            let mut world = keeping(streaming(), vec![Op::ReadAll(5), Op::Write(5)]);
            let mut client = world.client();
            send(&mut world, &mut client, format!("{head}{sent}"));
            if waits {
                go_on(&mut world);
                assert!(world.calls[0].waits);
            }
            client.end_sending();
            client.pump();
            // The application first reads what had arrived.
            while world.app.broken(0).is_none() {
                world.settle();
                world.note_woken();
                assert!(!world.calls[0].waits);
                if world.calls[0].course.body.len() == got.len() {
                    assert_eq!(world.calls[0].course.body, got.as_bytes());
                }
                world.step(0);
            }
            assert_eq!(world.app.broken(0), Some(400));
            assert_eq!(world.end(&mut client), End::Closed);
            assert_eq!((client.answers.len(), client.answers[0].status), (1, 400));
            world.until_empty(&mut [&mut client]);
        }
    }
}

#[test]
fn body_fails_when_its_peer_is_gone() {
    for waits in [false, true] {
        let plans = vec![Plan::of(vec![Op::ReadAll(5), Op::Write(5)])];
        let mut world = World::new(streaming(), plans);
        world.keeps = true;
        let mut client = world.client();
        client.send(head(0, 100) + "some of it");
        world.until("it is called", &mut [&mut client], |world, _| world.is_out(0));
        if waits {
            go_on(&mut world);
            assert!(world.calls[0].waits);
        } else {
            // The first read of the body makes the engine check the connection.
            world.step(0);
        }
        client.reset();
        world.until("the engine notices", &mut [], |world, _| world.engine.is_gone(&world.calls[0].ticket));
        world.note_woken();
        assert!(!world.calls[0].waits);
        go_on(&mut world);
        assert_eq!(world.app.broken(0), Some(400));
        world.until_empty(&mut []);
        assert_eq!(world.statistics().bytes_out, 0);
    }
}

/// The application may notice by a failed write that the client is gone, before the engine has checked.
#[test]
fn body_fails_after_a_failed_write() {
    let ops = vec![Op::Write(5), Op::Flush, Op::ReadAll(5)];
    let plan = Plan { manner: Manner::Impolite, ..Plan::of(ops) };
    let mut world = World::unix(streaming(), vec![plan]);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, head(0, 100));
    drop(client);
    world.step(0);
    world.step(0);
    let ticket = &world.calls[0].ticket;
    assert!(world.engine.reply(ticket, |reply| reply.is_gone()));
    world.step(0);
    assert_eq!(world.app.broken(0), Some(400));
    world.until_empty(&mut []);
}

#[test]
fn malformed_chunk_fails_the_body_and_closes_the_connection() {
    let mut config = streaming();
    config.limits.body = 1000;
    for (wrong, status) in [("XYZ\r\n", 400), ("3e9\r\n", 413)] {
        let mut world = world(config.clone(), vec![Op::ReadAll(50)]);
        let mut client = world.client();
        client.send(format!("{}5\r\nhello\r\n{wrong}{}", chunked(0), get(1)));
        assert_eq!(world.end(&mut client), End::Closed);
        assert_eq!((client.answers.len(), client.answers[0].status), (1, status));
        assert_eq!((world.app.broken(0), world.app.called()), (Some(status), vec![0]));
    }
}

#[test]
fn body_times_out_only_while_the_application_waits_for_it() {
    let config = Config { body_timeout: Some(seconds(30)), ..streaming() };
    let mut world = keeping(config, vec![Op::ReadAll(5)]);
    let mut client = world.client();
    send(&mut world, &mut client, head(0, 100) + "abc");
    // While the application does not read, the peer is not slow.
    world.advance(seconds(100));
    go_on(&mut world);
    for _ in 0..5 {
        world.advance(seconds(29));
        send(&mut world, &mut client, "d");
        world.note_woken();
        world.advance(seconds(100));
        go_on(&mut world);
        assert!(world.calls[0].waits);
    }
    world.advance(seconds(29));
    assert!(world.app.woken.is_empty());
    world.sleep_until(seconds(1) + GRAIN, |world| !world.app.woken.is_empty());
    assert_eq!(world.statistics().timeouts, 1);
    go_on(&mut world);
    assert_eq!(world.app.broken(0), Some(408));
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers[0].status, 408);
}

/// Lets a peer send `rate` bytes in each second in which the application waits for it; the application is busy in
/// between. Returns the number of seconds for which the application waited, until the peer was cut or the body had
/// arrived, and the status with which the body failed.
fn sends_at(rate: usize, length: usize) -> (u32, Option<u16>) {
    let config = Config { body_timeout: Some(seconds(30)), min_rate: 500, ..streaming() };
    let mut world = keeping(config, vec![Op::ReadAll(100_000)]);
    let mut client = world.client();
    send(&mut world, &mut client, head(0, length));
    let mut waited = 0;
    loop {
        go_on(&mut world);
        if world.calls.is_empty() {
            return (waited, world.app.broken(0));
        }
        assert!(waited < 1000, "neither cut nor complete");
        world.advance(seconds(1));
        waited += 1;
        let left = length.saturating_sub(rate * waited as usize) + rate;
        send(&mut world, &mut client, vec![b'x'; rate.min(left)]);
        if !world.app.woken.is_empty() {
            world.note_woken();
            // The application is busy.
            world.advance(seconds(20));
        }
    }
}

#[test]
fn body_below_its_rate_times_out_over_all_waits_together() {
    let (waited, broken) = sends_at(600, 60_000);
    assert_eq!((waited, broken), (100, None));
    // 30 s, and the time that 200 bytes a second have earned until then, at 500 bytes for a second.
    let (waited, broken) = sends_at(200, 60_000);
    assert!((45..=55).contains(&waited) && broken == Some(408), "{broken:?} after {waited} s");
}

#[test]
fn continue_is_sent_when_the_application_reads_the_body() {
    let expecting = format!("{}Expect: 100-continue\r\n\r\n", head(0, 5).strip_suffix("\r\n").unwrap());
    let mut world = keeping(streaming(), vec![Op::ReadAll(5), Op::Echo]);
    let mut client = world.client();
    send(&mut world, &mut client, &expecting);
    assert_eq!((world.ids_out(), client.received.len()), (vec![0], 0), "the application has not read the body");
    world.step(0);
    client.pump();
    assert_eq!(client.text(), "HTTP/1.1 100 Continue\r\n\r\n");
    // The interim response is sent once.
    world.note_woken();
    world.calls[0].waits = false;
    world.engine.stop_waiting(&world.calls[0].ticket);
    world.step(0);
    client.pump();
    assert_eq!(client.interims, 1);
    send(&mut world, &mut client, "hello");
    go_on(&mut world);
    client.pump();
    assert_eq!((client.interims, client.answers[0].body.as_slice()), (1, &b"hello"[..]));
    assert!(client.answers[0].keep_alive);
}

#[test]
fn continue_is_not_sent_when_it_is_too_late_or_not_asked_for() {
    let expecting = format!("{}Expect: 100-continue\r\n\r\n", head(0, 5).strip_suffix("\r\n").unwrap());
    // The peer sends at once; the answer has begun; the application does not read.
    let mut one = keeping(streaming(), vec![Op::ReadAll(5), Op::Echo]);
    let mut client = one.client();
    send(&mut one, &mut client, format!("{expecting}he"));
    go_on(&mut one);
    send(&mut one, &mut client, "llo");
    go_on(&mut one);
    client.pump();
    assert_eq!((client.interims, client.answers[0].body.as_slice()), (0, &b"hello"[..]));

    let mut one = world(streaming(), vec![Op::Begin, Op::Flush, Op::ReadAll(5), Op::Echo]);
    let mut client = one.client();
    send(&mut one, &mut client, &expecting);
    assert!(client.text().starts_with("HTTP/1.1 200 OK\r\n") && client.interims == 0);
    send(&mut one, &mut client, "hello");
    assert_eq!(one.end(&mut client), End::Closed);
    assert_eq!((client.interims, client.answers[0].body.as_slice()), (0, &b"hello"[..]));
    assert!(!client.answers[0].keep_alive);

    let mut one = world(streaming(), vec![Op::Write(5)]);
    let mut client = one.client();
    send(&mut one, &mut client, &expecting);
    assert_eq!(one.end(&mut client), End::Closed);
    assert_eq!((client.interims, client.answers.len()), (0, 1));

    // HTTP/1.0 has no interim responses (RFC 9110 section 15.2).
    let mut one = world(streaming(), vec![Op::ReadAll(5), Op::Echo]);
    let mut client = one.client();
    send(&mut one, &mut client, expecting.replace("HTTP/1.1", "HTTP/1.0"));
    send(&mut one, &mut client, "hello");
    assert_eq!((client.interims, client.answers[0].body.as_slice()), (0, &b"hello"[..]));
}

#[test]
fn unread_body_is_not_taken_for_a_request() {
    let body = get(1).repeat(100);
    for (head, body) in
        [(head(0, body.len()), body.clone()), (chunked(0), format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()))]
    {
        for ops in [vec![Op::Write(5)], vec![Op::Read(10), Op::Write(5)]] {
            // The connection closes, because the rest has not arrived.
            let mut world = keeping(streaming(), ops);
            let mut client = world.client();
            send(&mut world, &mut client, format!("{head}{}", &body[..body.len() / 2]));
            go_on(&mut world);
            client.pump();
            assert_eq!((client.answers.len(), client.answers[0].keep_alive), (1, false));
            client.send(&body[body.len() / 2..]);
            client.send(get(1));
            assert_eq!(world.end(&mut client), End::Closed);
            assert_eq!((client.answers.len(), client.fault, world.app.called()), (1, None, vec![0]));
            drop(client);
            world.until_empty(&mut []);
        }
    }
}

#[test]
fn unread_body_that_has_arrived_is_skipped() {
    let body = get(1).repeat(10);
    let mut world = world(streaming(), vec![Op::Write(5)]);
    let mut client = world.client();
    for request in
        [format!("{}{body}", head(0, body.len())), format!("{}{:x}\r\n{body}\r\n0\r\n\r\n", chunked(0), body.len())]
    {
        let answers = client.answers.len() + 2;
        world.ask(&mut client, format!("{request}{}", get(1)).as_bytes(), answers);
    }
    assert!(client.answers.iter().all(|answer| answer.keep_alive));
    assert_eq!(world.app.called(), [0, 1, 0, 1]);
}

#[test]
fn body_can_be_echoed_while_it_arrives() {
    let length = 1 << 20;
    let body = pattern(9, 0, length);
    for manner in [Manner::Stops, Manner::Waits, Manner::Impolite] {
        let plan = Plan { manner, ..Plan::of(vec![Op::EchoAll(7000)]) };
        let mut world = World::with_send_buffer(streaming(), vec![plan], Some(16 << 10));
        let mut client = Client::connect(&world.addresses[0], Some(16 << 10));
        client.send(head(0, length));
        client.send(&body);
        let mut came = 0;
        world.until("it is answered", &mut [&mut client], |world, clients| {
            if world.statistics().bytes_in < length as u64 {
                came = clients[0].received.len();
            }
            clients[0].answers.len() == 1
        });
        assert!(came > length / 4, "{came} bytes arrived before the body was read");
        assert!(client.answers[0].body == body);
        assert!(!client.answers[0].keep_alive, "it began before the body had arrived");
        assert_eq!(world.app.log.last(), Some(&Event::End { id: 0, how: How::Done }));
        assert!(world.app.body_read(0).is_some_and(|read| read == body));
    }
}

#[test]
fn body_is_not_read_while_the_peer_does_not_read() {
    let length = 4 << 20;
    let plan = Plan { manner: Manner::Waits, ..Plan::of(vec![Op::EchoAll(7000)]) };
    let mut world = World::with_send_buffer(streaming(), vec![plan], Some(16 << 10));
    let mut client = Client::connect(&world.addresses[0], Some(16 << 10));
    client.reads = false;
    client.send(head(0, length));
    client.send(pattern(9, 0, length));
    world.until("it is called", &mut [&mut client], |world, _| world.is_out(0));
    // Many more polls than it takes to move everything.
    for _ in 0..500 {
        client.pump();
        world.settle();
    }
    let bytes_in = world.statistics().bytes_in;
    assert!(bytes_in < 1 << 20, "{bytes_in} bytes were read");
    assert!(world.engine.reply(&world.calls[0].ticket, |reply| reply.is_full()));
    client.reads = true;
    world.until("it is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
    assert!(client.answers[0].body == pattern(9, 0, length));
}

/// A body may arrive while its request is queued. The engine does not read it then.
#[test]
fn body_of_a_queued_request_is_not_read() {
    let mut world = keeping(streaming(), vec![Op::ReadAll(1000)]);
    world.callers = 1;
    let mut first = world.client();
    send(&mut world, &mut first, get(1));
    let mut client = world.client();
    client.send(head(0, 1 << 20));
    client.send(pattern(9, 0, 1 << 20));
    push(&mut world, &mut client);
    let bytes_in = world.statistics().bytes_in;
    assert!(bytes_in <= AHEAD && world.statistics().queued == 1, "{bytes_in} bytes");
    world.go_on_with(1);
    world.settle();
    assert_eq!(world.ids_out(), [0]);
    while world.is_out(0) {
        go_on(&mut world);
        push(&mut world, &mut client);
    }
    assert!(world.app.body_read(0).is_some_and(|read| read == pattern(9, 0, 1 << 20)));
}

/// Suspending and resuming a response does not lose the body.
#[test]
fn response_that_yields_can_read_the_body_afterwards() {
    let ops = vec![Op::Read(5), Op::Yield, Op::Read(5), Op::Yield, Op::ReadAll(5), Op::Write(3)];
    let mut world = world(streaming(), ops);
    let mut client = world.client();
    send(&mut world, &mut client, head(0, 20) + "hello");
    send(&mut world, &mut client, "world");
    send(&mut world, &mut client, "and the re");
    assert_eq!((world.app.resumed(0), client.answers.len()), (2, 1));
    assert_eq!(world.app.body_read(0), Some(&b"helloworldand the re"[..]));
    assert!(client.answers[0].keep_alive);
    let passed: Duration =
        world.sleep_until(seconds(3), |world| world.app.log.contains(&Event::Idle { connection: 0 }));
    assert!(passed >= seconds(1));
}
