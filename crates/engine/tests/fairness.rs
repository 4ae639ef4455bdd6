//! Tests that no connection, and no group of connections, delays others by input that is expensive to process.

use crate::common::{Client, Op, Plan, World, timeless};
use engine::Config;

/// Number of simultaneous uploads.
const UPLOADS: usize = 32;
/// The upper limit of the number of bytes that the engine receives in a round if they are expensive to decode: a stage
/// of the meter allows less.
const ROUND_AT_MOST: u64 = 1 << 20;

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

/// An upload in chunks of one byte, longer than the kernel's buffers.
fn tiny_chunks() -> Vec<u8> {
    let mut bytes = b"PUT /0 HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    bytes.extend(b"1\r\nx\r\n".repeat(100_000));
    bytes
}

/// Uploads that fill the kernel's buffers, and the number of bytes in them. The engine has not been polled.
fn uploads(world: &World) -> (Vec<Client>, u64) {
    let mut sent = 0;
    let clients = (0..UPLOADS)
        .map(|_| {
            let mut client = world.client();
            client.send(tiny_chunks());
            while client.pump_out(usize::MAX) > 0 {}
            sent += (tiny_chunks().len() - client.unsent()) as u64;
            client
        })
        .collect();
    (clients, sent)
}

#[test]
fn get_is_answered_in_its_round_while_others_send_tiny_chunks() {
    let in_file = Config { body_memory: 100, ..timeless() };
    for (place, config) in [("in memory", timeless()), ("in a file", in_file)] {
        let mut world = World::unix(config, vec![Plan::of(vec![]), Plan::sized(&[5])]);
        let mut other = world.client();
        world.ask(&mut other, get(1).as_bytes(), 1);
        let (_clients, sent) = uploads(&world);
        assert!(sent > 3 * ROUND_AT_MOST, "{place}: only {sent} bytes fit into the kernel");
        let mut rounds = 0;
        let mut answers = 1;
        while world.statistics().bytes_in < sent {
            let before = world.statistics().bytes_in;
            other.send(get(1));
            other.pump();
            world.poll();
            other.pump();
            answers += 1;
            assert_eq!(other.answers.len(), answers, "{place}: round {rounds}");
            let received = world.statistics().bytes_in - before;
            assert!(received <= ROUND_AT_MOST, "{place}: {received} bytes are received in round {rounds}");
            rounds += 1;
            assert!(rounds < 10_000, "{place}: uploads make no progress");
        }
        assert!(rounds > 3, "{place}: all is read in {rounds} rounds");
    }
}

#[test]
fn new_connection_is_answered_while_others_send_tiny_chunks() {
    let mut world = World::unix(timeless(), vec![Plan::of(vec![]), Plan::sized(&[5])]);
    let (_clients, sent) = uploads(&world);
    let mut new = world.client();
    new.send(get(1));
    new.pump();
    // It is behind the uploads in the backlog, so each of them is served once before.
    for _ in 0..2 * UPLOADS {
        world.poll();
        new.pump();
        if !new.answers.is_empty() {
            break;
        }
    }
    assert_eq!(new.answers.len(), 1);
    assert!(world.statistics().bytes_in < sent, "all uploads were read before it was answered");
}

/// Number of `write(2)` calls of this thread, as the kernel counts them; sends to sockets are not included.
#[cfg(target_os = "linux")]
fn writes() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/io").expect("the kernel accounts for input and output");
    let line = counts.lines().find_map(|line| line.strip_prefix("syscw: ")).expect("writes are counted");
    line.parse().expect("a number")
}

#[test]
#[cfg(target_os = "linux")]
fn body_in_tiny_chunks_is_written_to_its_file_in_few_writes() {
    let config = Config { body_memory: 1000, ..timeless() };
    let mut world = World::unix(config, vec![Plan::of(vec![Op::Echo])]);
    let mut client = world.client();
    let before = writes();
    let mut request = tiny_chunks();
    request.extend(b"0\r\n\r\n");
    world.ask(&mut client, &request, 1);
    let count = writes() - before;
    assert_eq!(client.answers[0].body, vec![b'x'; 100_000]);
    assert!(count < 200, "{count} writes for 100,000 chunks");
}
