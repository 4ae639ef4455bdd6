//! Tests that request bodies share one limit on memory, and that each returns its memory however it ends.

use crate::common::{Client, GRAIN, Op, Plan, ReceivedBody, World, ms, pattern, seconds, timeless};
use engine::{BodyMemory, Config};

fn head(length: usize) -> String {
    format!("PUT /0 HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n")
}

const CHUNKED: &str = "PUT /0 HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Returns a world whose bodies may use `most` bytes of memory together, and the counter of these bytes.
fn world(most: usize, config: Config, ops: Vec<Op>) -> (World, BodyMemory) {
    let memory = BodyMemory::new(most);
    let config = Config { body_memory_total: memory.clone(), ..config };
    (World::unix(config, vec![Plan::of(ops)]), memory)
}

fn send(world: &mut World, client: &mut Client, bytes: impl AsRef<[u8]>) {
    client.send(bytes);
    while client.unsent() > 0 {
        client.pump();
        world.settle();
    }
    world.settle();
    client.pump();
}

#[test]
fn stalled_uploads_share_a_limit_and_others_go_to_files() {
    const LENGTH: usize = 20_000;
    let (mut world, memory) = world(50_000, timeless(), vec![Op::Echo]);
    let mut clients: Vec<_> = (0..10).map(|_| world.client()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        let body = pattern(index, 0, LENGTH - 1);
        let sent = if index % 2 == 0 { head(LENGTH) } else { format!("{CHUNKED}{LENGTH:x}\r\n") };
        send(&mut world, client, [sent.as_bytes(), &body].concat());
        assert!(memory.used() <= 50_000, "{} bytes", memory.used());
    }
    assert!(memory.used() > 30_000, "what fits stays in memory: {} bytes", memory.used());
    for (index, client) in clients.iter_mut().enumerate() {
        let end = if index % 2 == 0 { "" } else { "\r\n0\r\n\r\n" };
        send(&mut world, client, [&pattern(index, LENGTH - 1, 1), end.as_bytes()].concat());
        world.until("it is answered", &mut [client], |_, clients| clients[0].answers.len() == 1);
        assert!(client.answers[0].body == pattern(index, 0, LENGTH), "body {index}");
    }
    assert_eq!(memory.used(), 0);
}

#[test]
fn body_counts_until_its_response_is_complete() {
    // First a body that arrives with its head, then one in parts.
    for parts in [1, 2] {
        let (mut world, memory) = world(10_000, timeless(), vec![Op::Write(5), Op::Yield, Op::Write(5)]);
        world.keeps = true;
        world.callers = 1;
        let mut first = world.client();
        let mut queued = world.client();
        for client in [&mut first, &mut queued] {
            let request = [head(4000).as_bytes(), &pattern(0, 0, 4000)].concat();
            for part in request.chunks(request.len().div_ceil(parts)) {
                send(&mut world, client, part);
            }
        }
        assert_eq!((world.calls.len(), world.statistics().queued, memory.used()), (1, 1, 8000));
        // There is no memory for a third body. Its request is queued after the others all the same.
        let mut third = world.client();
        send(&mut world, &mut third, [head(4000).as_bytes(), &pattern(0, 0, 4000)].concat());
        assert_eq!((world.statistics().queued, memory.used()), (2, 8000));
        world.go_on(0);
        assert_eq!(memory.used(), 8000, "its response is not complete");
        while world.app.called().len() < 2 {
            world.settle();
            world.go_on(0);
        }
        assert!(memory.used() <= 8000);
        world.keeps = false;
        world.callers = usize::MAX;
        world.until("all are answered", &mut [&mut first, &mut queued, &mut third], |_, clients| {
            clients.iter().all(|client| client.answers.len() == 1)
        });
        assert_eq!(memory.used(), 0);
        let bodies: Vec<_> = world
            .app
            .log
            .iter()
            .filter_map(|event| if let crate::common::Event::Call { body, .. } = event { Some(body) } else { None })
            .collect();
        assert!(matches!(bodies[2], ReceivedBody::File(bytes) if *bytes == pattern(0, 0, 4000)), "{bodies:?}");
    }
}

#[test]
fn bodies_go_to_files_when_there_is_no_memory_for_them() {
    let (mut world, memory) = world(0, timeless(), vec![Op::Echo]);
    let mut client = world.client();
    world.ask(&mut client, (head(5) + "hello" + CHUNKED + "5\r\nhello\r\n0\r\n\r\n").as_bytes(), 2);
    for answer in &client.answers {
        assert_eq!(answer.body, b"hello");
    }
    assert!(
        world
            .app
            .log
            .iter()
            .any(|event| matches!(event, crate::common::Event::Call { body: ReceivedBody::File(_), .. }))
    );
    assert_eq!(memory.used(), 0);
}

/// Returns a world in which half of a body has arrived.
fn half(config: Config) -> (World, BodyMemory, Client) {
    let (mut world, memory) = world(100_000, config, vec![Op::Echo]);
    let mut client = world.client();
    send(&mut world, &mut client, format!("{CHUNKED}1000\r\n{}", "x".repeat(2000)));
    assert!(memory.used() >= 2000, "{} bytes", memory.used());
    (world, memory, client)
}

#[test]
fn memory_is_returned_however_an_upload_ends() {
    let (mut world, memory, client) = half(timeless());
    client.reset();
    world.until_empty(&mut []);
    assert_eq!(memory.used(), 0, "the client is gone");

    let (mut world, memory, mut client) = half(timeless());
    client.end_sending();
    world.end(&mut client);
    assert_eq!((client.answers[0].status, memory.used()), (400, 0), "the client has closed its sending side");

    let (mut world, memory, mut client) = half(timeless());
    send(&mut world, &mut client, "x".repeat(3000));
    assert_eq!((client.answers[0].status, memory.used()), (400, 0), "the chunk is malformed");

    let (mut world, memory, mut client) = half(Config { body_timeout: Some(seconds(1)), ..timeless() });
    world.advance(seconds(1) + GRAIN);
    world.settle();
    client.pump();
    assert_eq!((client.answers[0].status, memory.used()), (408, 0), "it was too slow");

    let (mut world, memory, client) = half(timeless());
    let now = world.now();
    world.engine.stop(now, Some(ms(0)), ms(0));
    world.settle();
    assert!(world.engine.is_stopped());
    assert_eq!(memory.used(), 0, "the engine has stopped");
    drop(client);

    let (world, memory, client) = half(timeless());
    drop(world);
    assert_eq!(memory.used(), 0, "the engine is gone");
    drop(client);
}

#[test]
fn memory_of_a_body_is_returned_however_its_call_ends() {
    crate::common::quiet(|message| message.starts_with("as planned"));
    let request = [head(4000).as_bytes(), &pattern(0, 0, 4000)].concat();
    for ops in [vec![Op::Panic("as planned")], vec![Op::Write(10), Op::Cut], vec![Op::Refuse(500)]] {
        let (mut world, memory) = world(100_000, timeless(), ops.clone());
        world.keeps = true;
        let mut client = world.client();
        send(&mut world, &mut client, &request);
        assert_eq!(memory.used(), 4000);
        world.go_on(0);
        assert_eq!(memory.used(), 0, "{ops:?}");
    }

    // Its client leaves while the response is suspended.
    let (mut world, memory) = world(100_000, timeless(), vec![Op::Write(4 << 20), Op::Write(5)]);
    let mut client = world.client();
    client.reads = false;
    send(&mut world, &mut client, &request);
    assert_eq!((world.statistics().suspended, memory.used()), (1, 4000));
    client.reset();
    world.until_empty(&mut []);
    assert_eq!(memory.used(), 0);

    // It has waited too long in the queue.
    let config = Config { queue_timeout: Some(seconds(1)), ..timeless() };
    let (mut world, memory) = self::world(100_000, config, vec![Op::Echo]);
    world.callers = 0;
    let mut client = world.client();
    send(&mut world, &mut client, &request);
    assert_eq!((world.statistics().queued, memory.used()), (1, 4000));
    world.advance(seconds(1) + GRAIN);
    world.settle();
    client.pump();
    assert_eq!((client.answers[0].status, memory.used()), (503, 0));
}

#[test]
fn streamed_body_progresses_without_memory_and_with_less_read_ahead() {
    const LENGTH: usize = 300_000;
    let unread = |most: usize| {
        let config = Config { buffer_bodies: false, ..timeless() };
        let (mut world, memory) = world(most, config, vec![Op::ReadAll(1 << 20)]);
        world.keeps = true;
        let mut client = world.client();
        send(&mut world, &mut client, head(LENGTH));
        // The call waits for the first bytes; more are read ahead with them.
        world.step(0);
        client.send(pattern(0, 0, LENGTH));
        while client.pump_out(usize::MAX) > 0 {
            world.settle();
        }
        let ahead = memory.used();
        assert!(ahead > 0, "something is read ahead");
        world.note_woken();
        while world.is_out(0) {
            world.step(0);
            world.settle();
            client.pump();
            world.note_woken();
        }
        assert_eq!(world.app.body_read(0), Some(&pattern(0, 0, LENGTH)[..]));
        assert_eq!(memory.used(), 0);
        ahead
    };
    assert!(unread(usize::MAX) >= 64 << 10);
    assert!(unread(0) <= 4 << 10);
}
