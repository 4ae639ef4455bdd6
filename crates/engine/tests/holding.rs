//! Tests of deferred output: bytes that wait in the coalescing buffer for more output, and the ticks that send them.

use crate::common::{Client, End, Op, Plan, World, pattern, timeless};
use std::time::Duration;

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

/// Returns a world in which the test runs the operations of calls, and a client that has sent requests for `ids` at
/// once.
fn asked(plans: Vec<Plan>, ids: &[usize]) -> (World, Client) {
    let mut world = World::unix(timeless(), plans);
    world.keeps = true;
    let mut client = world.client();
    client.send(ids.iter().map(|&id| get(id)).collect::<String>());
    client.pump();
    world.settle();
    assert_eq!(world.ids_out(), [ids[0]]);
    (world, client)
}

fn steps(world: &mut World, count: usize) {
    for _ in 0..count {
        assert!(world.step(0));
    }
}

/// Returns the number of bytes sent since the last call.
fn left(world: &World, before: &mut u64) -> u64 {
    let out = world.statistics().bytes_out;
    out - std::mem::replace(before, out)
}

#[test]
fn answers_to_pipelined_requests_leave_together() {
    let (mut world, mut client) = asked((0..5).map(|id| Plan::sized(&[id + 5])).collect(), &[0, 1, 2, 3, 4]);
    assert!(!world.engine.has_deferred_output());
    for id in 0..4 {
        world.go_on_with(id);
        world.settle();
        assert_eq!((world.ids_out(), world.statistics().bytes_out), (vec![id + 1], 0));
        assert!(world.engine.has_deferred_output());
    }
    world.go_on_with(4);
    client.pump();
    assert_eq!(client.answers.len(), 5);
    for (id, answer) in client.answers.iter().enumerate() {
        assert_eq!(answer.body, pattern(id, 0, id + 5));
    }
    world.engine.tick();
    assert!(!world.engine.has_deferred_output());
}

#[test]
fn answer_waits_at_most_two_ticks_for_the_next_one() {
    let (mut world, mut client) = asked(vec![Plan::sized(&[5]), Plan::sized(&[6])], &[0, 1]);
    world.go_on_with(0);
    world.settle();
    world.engine.tick();
    assert_eq!((world.statistics().bytes_out, world.engine.has_deferred_output()), (0, true));
    world.engine.tick();
    client.pump();
    assert_eq!((client.answers.len(), world.engine.has_deferred_output()), (1, false));
    assert_eq!(world.statistics().bytes_out, client.received.len() as u64);
    for _ in 0..5 {
        world.engine.tick();
    }
    world.go_on_with(1);
    client.pump();
    assert_eq!((client.answers.len(), client.fault), (2, None));
    assert_eq!(client.answers[1].body, pattern(1, 0, 6));
    assert_eq!(world.statistics().bytes_out, client.received.len() as u64);
}

#[test]
fn answer_does_not_wait_for_a_queued_request() {
    let (mut world, mut client) = asked(vec![Plan::sized(&[5]), Plan::sized(&[6])], &[0, 1]);
    world.callers = 0;
    world.go_on_with(0);
    world.settle();
    client.pump();
    assert_eq!((client.answers.len(), world.statistics().queued), (1, 1));
}

/// Bytes that a tick has sent are not sent again, whatever follows them.
#[test]
fn bytes_sent_by_a_tick_are_not_sent_again() {
    // The next answer, refusals, and an error page of the application.
    let plans = vec![Plan::sized(&[5]), Plan::sized(&[6]), Plan::of(vec![Op::Refuse(503)]), Plan::of(vec![Op::Done])];
    for (behind, status) in [(1, 200), (2, 503), (3, 500)] {
        let (mut world, mut client) = asked(plans.clone(), &[0, behind]);
        world.go_on_with(0);
        world.settle();
        world.engine.tick();
        world.engine.tick();
        world.go_on_with(behind);
        world.until("both are answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 2);
        assert_eq!((client.answers[0].body.len(), client.answers[1].status, client.fault), (5, status, None));
        assert_eq!(world.statistics().bytes_out, client.received.len() as u64);
    }
}

/// The first part is sent at once. Later ones are sent together, unless the application is slow to produce the next.
#[test]
fn parts_in_quick_succession_are_sent_together() {
    let mut ops = vec![Op::Begin];
    ops.extend([Op::Write(100), Op::SendSoon].repeat(8));
    let plan = Plan::of(ops).declaring(800);
    let (mut world, mut client) = asked(vec![plan], &[0]);
    let mut before = 0;
    steps(&mut world, 3);
    let head = left(&world, &mut before) - 100;
    assert!(head > 50, "the first part is sent at once, with the head");
    // The next two parts are deferred, the second of them anew.
    steps(&mut world, 2);
    world.engine.tick();
    steps(&mut world, 2);
    world.engine.tick();
    assert_eq!((left(&world, &mut before), world.engine.has_deferred_output()), (0, true));
    world.engine.tick();
    assert_eq!((left(&world, &mut before), world.engine.has_deferred_output()), (200, false));
    // The application has proved to be slow: from now on each part is sent at once.
    for _ in 0..2 {
        steps(&mut world, 2);
        assert_eq!((left(&world, &mut before), world.engine.has_deferred_output()), (100, false));
    }
    world.go_on_with(0);
    client.pump();
    assert_eq!(client.answers[0].body, pattern(0, 0, 800));
    assert_eq!(world.statistics().bytes_out, client.received.len() as u64);
}

#[test]
fn first_part_is_deferred_after_a_response_with_quick_parts() {
    let parts: Vec<_> = std::iter::once(Op::Begin).chain([Op::Write(100), Op::SendSoon].repeat(3)).collect();
    let (mut world, mut client) = asked(vec![Plan::of(parts.clone()), Plan::of(parts)], &[0]);
    world.go_on_with(0);
    for slow in [false, true, false] {
        client.send(get(1));
        client.pump();
        world.settle();
        let mut before = world.statistics().bytes_out;
        steps(&mut world, 3);
        // A response after a slow one starts anew.
        assert_eq!(left(&world, &mut before) > 0, client.answers.len() == 3);
        if slow {
            world.engine.tick();
            world.engine.tick();
            assert!(left(&world, &mut before) > 100);
        }
        let count = client.answers.len();
        world.go_on_with(1);
        client.pump();
        assert_eq!(client.answers.len(), count.max(1) + 1);
    }
}

/// A part may be a Python object, which the ticker must not drop without the GIL.
#[test]
fn tick_sends_output_and_drops_no_object() {
    let mut ops = vec![Op::Begin];
    ops.extend([Op::Write(10_000), Op::SendSoon].repeat(3));
    let (mut world, mut client) = asked(vec![Plan::of(ops)], &[0]);
    steps(&mut world, 3);
    assert_eq!(world.app.parts_alive(), 0, "the application has sent it itself");
    steps(&mut world, 4);
    assert_eq!(world.app.parts_alive(), 2);
    let before = world.statistics().bytes_out;
    for _ in 0..4 {
        world.engine.tick();
    }
    assert!(world.statistics().bytes_out > before + 20_000);
    assert!(!world.engine.has_deferred_output());
    assert_eq!(world.app.parts_alive(), 2);
    client.pump();
    world.go_on_with(0);
    assert_eq!(world.app.parts_alive(), 0);
    client.pump();
    assert_eq!(client.answers[0].body, pattern(0, 0, 30_000));
}

#[test]
fn ticks_continue_after_a_partial_send() {
    let ops = vec![Op::Write(10), Op::SendSoon, Op::Write(100_000), Op::SendSoon, Op::Write(10)];
    let mut world = World::with_send_buffer(timeless(), vec![Plan::of(ops).impolite()], Some(16 << 10));
    world.keeps = true;
    let mut client = Client::connect(&world.addresses[0], Some(16 << 10));
    client.send(get(0));
    world.until("it is called", &mut [&mut client], |world, _| world.is_out(0));
    steps(&mut world, 4);
    for _ in 0..3 {
        world.engine.tick();
    }
    let sent = world.statistics().bytes_out;
    assert!(sent > 1000 && sent < 100_000, "{sent} bytes");
    assert_eq!((world.engine.has_deferred_output(), world.app.parts_alive()), (true, 1));
    // No poll of the engine is needed.
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while client.received.len() < 100_000 {
        client.pump_in(10_000);
        world.engine.tick();
        assert!(std::time::Instant::now() < patience, "{} bytes came", client.received.len());
    }
    world.engine.tick();
    assert_eq!((world.engine.has_deferred_output(), world.app.parts_alive()), (false, 1));
    world.go_on_with(0);
    world.until("it is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
    assert!(client.answers[0].body == pattern(0, 0, 100_020));
    assert_eq!(world.statistics().bytes_out, client.received.len() as u64);
}

#[test]
fn tick_notices_that_the_peer_is_gone() {
    let ops = vec![Op::Write(10), Op::SendSoon, Op::Write(10_000), Op::SendSoon, Op::Write(10), Op::SendSoon];
    let (mut world, client) = asked(vec![Plan::of(ops).impolite()], &[0]);
    steps(&mut world, 4);
    drop(client);
    world.engine.tick();
    world.engine.tick();
    assert!(!world.engine.has_deferred_output());
    steps(&mut world, 1);
    assert!(world.engine.reply(&world.calls[0].ticket, |reply| reply.is_gone()));
    world.go_on_with(0);
    world.until_empty(&mut []);
    assert_eq!(world.app.parts_alive(), 0);
}

#[test]
fn peer_that_leaves_with_deferred_output_leaves_nothing_behind() {
    let (mut world, mut client) = asked(vec![Plan::sized(&[5]), Plan::of(vec![Op::Write(5), Op::Cut])], &[0, 1]);
    world.go_on_with(0);
    world.settle();
    assert!(world.engine.has_deferred_output());
    world.go_on_with(1);
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers.len(), 1);
    drop(client);
    world.until_empty(&mut []);
    world.engine.tick();
    world.engine.tick();
    assert!(!world.engine.has_deferred_output());
}

/// If a response ended soon after part n, part n of the next response is deferred until its end. If that was wrong, a
/// tick sends it, and the connection does not try again.
#[test]
fn last_part_is_sent_together_with_the_end() {
    // The parts of each response, and the number of times that bytes are sent: the head is sent with the first part.
    let responses = [(2, 3), (2, 2), (2, 2), (1, 2), (1, 1), (2, 3), (2, 3), (1, 2)];
    let parts = |(count, _)| Plan::of([&[Op::Begin][..], &[Op::Write(100), Op::SendSoon].repeat(count)].concat());
    let mut world = World::unix(timeless(), responses.map(parts).to_vec());
    world.keeps = true;
    world.advance(Duration::from_secs(1));
    let mut client = world.client();
    let mut before = 0;
    for (id, (count, expected)) in responses.into_iter().enumerate() {
        client.send(get(id));
        client.pump();
        world.settle();
        steps(&mut world, 1);
        let mut sends = 0;
        for part in 1..=count {
            steps(&mut world, 2);
            sends += u32::from(left(&world, &mut before) > 0);
            if part < count {
                // The next part is late.
                world.engine.tick();
                world.engine.tick();
                sends += u32::from(left(&world, &mut before) > 0);
                world.advance(Duration::from_secs(1));
            }
        }
        world.go_on_with(id);
        sends += u32::from(left(&world, &mut before) > 0);
        client.pump();
        assert_eq!((client.answers.len(), client.fault, sends), (id + 1, None, expected), "response {id}");
    }
}
