//! Tests of answers: in order, as fast as the peer reads, and visibly cut if they cannot be complete.

use crate::common::{Client, End, Event, How, Op, Plan, World, ms, pattern, timeless};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::mpsc;
use wire::http1::client::ServerFault;
use wire::message::Fault;

/// The size of the send buffer in bytes, so small that the answers below do not fit.
const SEND_BUFFER: Option<usize> = Some(16 << 10);

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

/// Returns a client that reads only when the test calls it, with small kernel buffers.
fn slow_client(world: &World) -> Client {
    let mut client = Client::connect(&world.addresses[0], Some(16 << 10));
    client.reads = false;
    client
}

/// Returns parts of all kinds and sizes, so that every kind follows every other.
fn mixed() -> Vec<Op> {
    let file = |length| Op::File { length, missing: 0 };
    let mut ops = vec![Op::Begin];
    ops.extend([Op::Write(10), Op::Write(70_000), Op::Write(5), file(50_000), Op::Write(3), file(1), file(20_000)]);
    ops.extend([Op::Write(4096), Op::Write(4097), Op::Flush, Op::Write(0), file(0), Op::Write(200_000), file(90_000)]);
    ops.extend([Op::Yield, Op::Write(1), Op::SendSoon, Op::Write(60_000), Op::SendSoon, Op::Write(9), Op::Flush]);
    ops.extend(std::iter::repeat_n(Op::Write(5000), 40));
    ops
}

#[test]
fn parts_of_all_kinds_keep_their_order() {
    let length = Plan::of(mixed()).length();
    let impolite = Plan::of(mixed()).impolite();
    let plans =
        vec![Plan::of(mixed()), Plan::of(mixed()).declaring(length), impolite.clone(), impolite.declaring(length)];
    let worlds = [World::with_send_buffer(timeless(), plans.clone(), SEND_BUFFER), World::unix(timeless(), plans)];
    for mut world in worlds {
        let mut client = Client::connect(&world.addresses[0], Some(16 << 10));
        for id in 0..4 {
            world.ask(&mut client, get(id).as_bytes(), id + 1);
            let answer = &client.answers[id];
            assert!(answer.body == pattern(id, 0, length), "plan {id}: the body differs");
            assert_eq!(answer.chunked, id % 2 == 0);
        }
        assert!(world.app.resumed(0) > 1 && world.app.resumed(1) > 1);
        drop(client);
        world.until_empty(&mut []);
    }
}

#[test]
fn response_is_suspended_until_its_peer_has_read() {
    let plan = Plan::sized(&[50_000; 40]);
    let mut world = World::with_send_buffer(timeless(), vec![plan], SEND_BUFFER);
    let mut client = slow_client(&world);
    client.send(get(0));
    world.until("the application is called", &mut [&mut client], |world, _| !world.app.called().is_empty());
    world.settle();
    let (resumed, sent) = (world.app.resumed(0), world.statistics().bytes_out);
    assert!(sent < 500_000, "{sent} bytes sent although the peer does not read");
    for _ in 0..50 {
        world.poll();
    }
    assert_eq!((world.app.resumed(0), world.statistics().bytes_out), (resumed, sent), "resumed without reason");
    // The script itself checks that output has drained when a response is resumed.
    client.reads = true;
    world.until("the answer is here", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
    assert!(client.answers[0].body == pattern(0, 0, 2_000_000));
    assert!(world.app.resumed(0) > resumed);
    assert_eq!(world.app.log.last(), Some(&Event::End { id: 0, how: How::Done }));
}

#[test]
fn requests_wait_while_answers_are_unread() {
    let count = 50;
    // An application that never stops by itself gets no further request either.
    let plan = Plan::sized(&[60_000]).impolite();
    let mut world = World::with_send_buffer(timeless(), vec![plan; count], SEND_BUFFER);
    let mut client = slow_client(&world);
    client.send((0..count).map(get).collect::<String>());
    world.until("a request is served", &mut [&mut client], |world, _| !world.app.called().is_empty());
    world.settle();
    assert!(world.app.called().len() < 10, "{:?}", world.app.called());
    client.reads = true;
    world.until("all are answered", &mut [&mut client], |_, clients| clients[0].answers.len() == count);
    for (id, answer) in client.answers.iter().enumerate() {
        assert!(answer.body == pattern(id, 0, 60_000), "answer {id} differs");
    }
}

#[test]
fn response_that_yields_lets_others_run_first() {
    let plans =
        vec![Plan::of(vec![Op::Write(10), Op::Yield, Op::Write(10), Op::Yield, Op::Write(10)]), Plan::sized(&[5])];
    let mut world = World::unix(timeless(), plans);
    let mut first = world.client();
    let mut second = world.client();
    world.settle();
    assert_eq!(world.statistics().connections, 2);
    first.send(get(0));
    second.send(get(1));
    first.pump();
    second.pump();
    world.poll();
    assert_eq!(world.app.called(), [0, 1]);
    assert_eq!(world.app.resumed(0), 0, "a response that yields continues in the next poll: {:?}", world.app.log);
    assert_eq!(world.timeout(), Some(ms(0)));
    world.poll();
    assert_eq!(world.app.resumed(0), 1, "{:?}", world.app.log);
    world.poll();
    assert_eq!(world.app.resumed(0), 2, "{:?}", world.app.log);
    assert_ne!(world.timeout(), Some(ms(0)));
    world.until("both are answered", &mut [&mut first, &mut second], |_, clients| {
        clients.iter().all(|client| client.answers.len() == 1)
    });
    assert_eq!(first.answers[0].body, pattern(0, 0, 30));
}

/// New connections are accepted however small the response's parts are, and although there is always work to do.
#[test]
fn response_that_yields_lets_new_connections_in() {
    let mut ops = vec![Op::Begin];
    for _ in 0..1000 {
        ops.extend([Op::Write(1), Op::Yield]);
    }
    let mut world = World::unix(timeless(), vec![Plan::of(ops), Plan::sized(&[5])]);
    let mut busy = world.client();
    let mut quick = world.client();
    world.settle();
    busy.send(get(0));
    busy.pump();
    world.poll();
    for _ in 0..5 {
        world.poll();
    }
    quick.send(get(1));
    quick.pump();
    world.poll();
    quick.pump();
    assert_eq!((quick.answers.len(), world.app.resumed(0)), (1, 6));
}

#[test]
fn many_pipelined_requests_do_not_delay_others() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[5]); 2]);
    let mut busy = world.client();
    let mut quick = world.client();
    world.settle();
    busy.send(get(0).repeat(1000));
    busy.pump();
    assert_eq!(busy.unsent(), 0);
    world.poll();
    let before = world.app.called().len();
    quick.send(get(1));
    quick.pump();
    world.poll();
    quick.pump();
    assert_eq!(quick.answers.len(), 1);
    let after = world.app.called().len();
    assert!(before > 1 && after < 200, "{before} before, {after} after");
    world.until("all are answered", &mut [&mut busy], |_, clients| clients[0].answers.len() == 1000);
}

#[test]
fn busy_response_does_not_delay_others() {
    // Much more than a share of a round, for a peer that always reads.
    let mut ops = vec![Op::Begin];
    for _ in 0..100 {
        ops.extend([Op::Write(100_000), Op::Yield]);
    }
    let mut world = World::unix(timeless(), vec![Plan::of(ops), Plan::sized(&[5])]);
    let mut busy = world.client();
    let mut quick = world.client();
    busy.send(get(0));
    world.until("the response has begun", &mut [&mut busy], |world, _| world.app.resumed(0) > 3);
    quick.send(get(1));
    world.until("the other is answered", &mut [&mut busy, &mut quick], |_, clients| clients[1].answers.len() == 1);
    assert!(busy.answers.is_empty(), "the busy response must not be complete first");
    world.until("so is the busy one", &mut [&mut busy], |_, clients| clients[0].answers.len() == 1);
    assert!(busy.answers[0].body == pattern(0, 0, 10_000_000));
}

#[test]
fn file_that_shrinks_cuts_the_response() {
    let ops = |last| vec![Op::Write(10), Op::File { length: 100_000, missing: 1 }, last];
    let plans: Vec<_> = [Op::Flush, Op::Write(7)]
        .into_iter()
        .flat_map(|last| [Plan::of(ops(last)).declaring(Plan::of(ops(last)).length()), Plan::of(ops(last))])
        .collect();
    for id in 0..plans.len() {
        for version in ["1.0", "1.1"] {
            let mut world = World::new(timeless(), plans.clone());
            let mut client = world.client();
            client.send(format!("GET /{id} HTTP/{version}\r\nHost: a\r\n\r\n"));
            let end = world.end(&mut client);
            assert!(client.answers.is_empty(), "plan {id}, HTTP/{version}: the cut is not visible");
            assert!(client.received.len() < 100_300);
            // If the close is the end of the body, only a reset makes the cut visible.
            let until_close = version == "1.0" && plans[id].declared.is_none();
            assert!(end == End::Reset || !until_close);
            world.until_empty(&mut [&mut client]);
            assert_eq!(world.app.count(|event| *event == Event::FileShrank), 1, "plan {id}, HTTP/{version}");
            assert_eq!(world.statistics().cut, 1);
            let mut next = world.client();
            next.send("GET / HTTP/0.9");
            next.end_sending();
            world.end(&mut next);
            assert_eq!(next.answers.len(), 1);
        }
    }
}

#[test]
fn response_is_abandoned_once_when_its_peer_leaves() {
    let mut yielding = vec![Op::Begin];
    for _ in 0..2000 {
        yielding.extend([Op::Write(5000), Op::Yield]);
    }
    let mut soon = vec![Op::Begin];
    for _ in 0..2000 {
        soon.extend([Op::Write(5000), Op::SendSoon]);
    }
    let plans = vec![Plan::sized(&[50_000; 40]), Plan::of(yielding), Plan::of(soon)];
    for id in 0..plans.len() {
        for leave in [Client::reset, drop] {
            let mut world = World::with_send_buffer(timeless(), plans.clone(), SEND_BUFFER);
            let mut client = slow_client(&world);
            let mut other = world.client();
            client.send(get(id));
            world.until("the response has begun", &mut [&mut client], |world, _| world.app.alive() == 1);
            world.settle();
            leave(client);
            world.until("it is abandoned", &mut [], |world, _| world.app.abandoned(id) == 1);
            let resumed = world.app.resumed(id);
            world.settle();
            assert_eq!((world.app.abandoned(id), world.app.resumed(id)), (1, resumed));
            assert_eq!(world.app.alive(), 0);
            assert_eq!(world.statistics().connections, 1);
            world.ask(&mut other, b"GET /x HTTP/3.0\r\n\r\n", 1);
        }
    }
}

#[test]
fn application_that_never_yields_is_notified_of_a_disconnect() {
    let mut ops = vec![Op::Begin];
    for _ in 0..5 {
        ops.extend([Op::Write(50_000), Op::Flush, Op::Yield]);
    }
    let plan = Plan::of(ops).impolite();
    let mut world = World::with_send_buffer(timeless(), vec![plan], SEND_BUFFER);
    let mut client = slow_client(&world);
    client.send(get(0));
    world.until("the response has begun", &mut [&mut client], |world, _| world.app.alive() == 1);
    client.reset();
    world.until_empty(&mut []);
    let ends = world.app.count(|event| matches!(event, Event::End { .. } | Event::Abandon { .. }));
    assert_eq!(ends, 1, "{:?}", world.app.log);
}

#[test]
fn cut_is_visible() {
    let plans = vec![
        Plan::of(vec![Op::Write(1000), Op::Cut]),
        Plan::of(vec![Op::Write(1000), Op::Cut]).declaring(1001),
        Plan::of(vec![Op::Write(300_000), Op::Cut]),
        Plan::of(vec![Op::Write(1000)]).declaring(1001),
    ];
    for (id, plan) in plans.iter().enumerate() {
        let mut world = World::new(timeless(), plans.clone());
        let mut client = world.client();
        client.send(get(id) + &get(0));
        assert_eq!(world.end(&mut client), End::Closed);
        assert_eq!(client.fault, Some(ServerFault::Message(Fault::Truncated)), "plan {id}");
        assert!(client.answers.is_empty());
        if plan.declared.is_none() {
            assert!(client.received.ends_with(b"\r\n") && !client.received.ends_with(b"0\r\n\r\n"));
        }
        assert_eq!(world.app.called(), [id], "nothing is read after a cut");
        assert_eq!(world.statistics().cut, 1);
        assert_eq!(world.app.log.last(), Some(&Event::End { id, how: How::Cut }));
        drop(client);
        world.until_empty(&mut []);
    }
}

#[test]
fn cut_of_a_body_until_close_is_a_reset() {
    let plans = vec![Plan::of(vec![Op::Write(1000), Op::Cut]), Plan::of(vec![Op::Write(300_000), Op::Flush, Op::Cut])];
    for id in 0..plans.len() {
        let mut world = World::new(timeless(), plans.clone());
        let mut client = world.client();
        client.send(format!("GET /{id} HTTP/1.0\r\n\r\n"));
        assert_eq!(world.end(&mut client), End::Reset);
        assert!(client.answers.is_empty());
        world.until_empty(&mut [&mut client]);
    }
}

#[test]
fn body_longer_than_declared_lacks_its_end() {
    let mut world = World::new(timeless(), vec![Plan::of(vec![Op::Write(4), Op::Write(10)]).declaring(9)]);
    let mut client = world.client();
    client.send(get(0));
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((client.answers.len(), client.fault), (0, Some(ServerFault::Message(Fault::Truncated))));
    assert!(client.received.ends_with(&pattern(0, 0, 4)));
    assert_eq!(world.app.log.last(), Some(&Event::End { id: 0, how: How::Cut }));
}

#[test]
fn connection_is_reset_when_more_follows_a_body_of_the_declared_length() {
    let mut world = World::new(timeless(), vec![Plan::of(vec![Op::Write(9), Op::Write(1)]).declaring(9)]);
    let mut client = world.client();
    client.send(get(0));
    assert_eq!(world.end(&mut client), End::Reset);
    assert_eq!(world.app.log.last(), Some(&Event::End { id: 0, how: How::Cut }));
}

#[test]
fn empty_response_becomes_500_when_completed() {
    let mut world = World::new(timeless(), vec![Plan::of(vec![Op::Done])]);
    let mut client = world.client();
    client.send(get(0));
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((client.answers.len(), client.answers[0].status), (1, 500));
    assert_eq!(world.app.panics(), ["a response was called done and is empty"]);
}

#[test]
fn refusal_replaces_a_response_that_has_not_begun() {
    let plans = vec![Plan::of(vec![Op::Refuse(503)]), Plan::of(vec![Op::Write(5), Op::Refuse(503)])];
    let mut world = World::new(timeless(), plans);
    let mut client = world.client();
    client.send(get(0));
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers[0].status, 503);
    assert!(client.text().ends_with("503 Service Unavailable\nAs the plan says.\n"));
    let mut client = world.client();
    client.send(get(1));
    world.end(&mut client);
    assert_eq!((client.answers.len(), client.fault), (0, Some(ServerFault::Message(Fault::Truncated))));
    assert!(!client.text().contains("503"));
    // A refusal of HEAD has no body.
    let mut client = world.client();
    client.expect_head_at(0);
    client.send("HEAD /0 HTTP/1.1\r\nHost: a\r\n\r\n");
    world.end(&mut client);
    assert_eq!((client.answers[0].status, client.fault, client.has_part()), (503, None, false));
}

#[test]
fn many_small_parts_are_sent_together() {
    let mut ops = vec![Op::Begin];
    for _ in 0..3000 {
        ops.extend([Op::Write(100), Op::SendSoon]);
    }
    let mut world = World::new(timeless(), vec![Plan::of(ops.clone()), Plan::of(ops).declaring(300_000)]);
    let mut client = world.client();
    for id in 0..2 {
        world.ask(&mut client, get(id).as_bytes(), id + 1);
        assert!(client.answers[id].body == pattern(id, 0, 300_000));
    }
    assert_eq!(world.statistics().bytes_out, client.received.len() as u64);
}

/// Sends `request` on a connection of its own, and reports the number of bytes received so far until it ends.
fn reading_thread(world: &World, request: String, sizes: mpsc::Sender<usize>) -> std::thread::JoinHandle<Vec<u8>> {
    let crate::common::Address::Tcp(address) = world.addresses[0].clone() else {
        unreachable!("tests with threads use TCP")
    };
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let (mut received, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
        loop {
            let count = stream.read(&mut buffer).unwrap();
            received.extend_from_slice(&buffer[..count]);
            sizes.send(received.len()).ok();
            if count == 0 {
                return received;
            }
        }
    })
}

/// PEP 3333, "Middleware Handling of Block Boundaries": no part may be delayed until the next one exists.
#[test]
fn written_parts_are_sent_while_the_application_works() {
    let mut ops = vec![Op::Begin];
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: kirsch\r\nConnection: \
         close\r\n\r\n",
        6 * 6010
    );
    for part in 1..=6 {
        ops.extend([Op::Write(10), Op::Write(6000), Op::SendSoon, Op::Await(head.len() + part * 6010)]);
    }
    let mut world = World::new(timeless(), vec![Plan::of(ops).declaring(6 * 6010)]);
    let (sender, receiver) = mpsc::channel();
    world.app.received = Some(receiver);
    let reader = reading_thread(&world, "GET /0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".into(), sender);
    world.until("it is answered", &mut [], |world, _| {
        world.statistics().requests == 1 && world.statistics().connections == 0
    });
    assert!(reader.join().unwrap() == [head.as_bytes(), &pattern(0, 0, 6 * 6010)].concat());
    assert_eq!(world.statistics().bytes_out, (head.len() + 6 * 6010) as u64);
}

/// Only a part of the output may be sent while the application works. That part is not sent again.
#[test]
fn bytes_sent_by_a_flush_are_not_sent_again() {
    let mut ops = vec![Op::Begin, Op::Write(10), Op::SendSoon, Op::Write(100_000), Op::SendSoon];
    // More than the head and the first part, and much less than everything: the peer does not read.
    ops.extend([Op::AwaitUnread(1000), Op::Write(7), Op::Write(90_000), Op::SendSoon, Op::Write(8)]);
    let length = Plan::of(ops.clone()).length();
    for plan in [Plan::of(ops.clone()).impolite(), Plan::of(ops).declaring(length)] {
        let mut world = World::with_send_buffer(timeless(), vec![plan], SEND_BUFFER);
        let mut client = slow_client(&world);
        world.app.peer = Some(client.as_fd().try_clone_to_owned().unwrap());
        client.send(get(0));
        world.until("the application is called", &mut [&mut client], |world, _| !world.app.called().is_empty());
        world.settle();
        assert!(world.statistics().bytes_out < length as u64);
        client.reads = true;
        world.until("it is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
        assert!(client.answers[0].body == pattern(0, 0, length));
        assert_eq!(world.statistics().bytes_out, client.received.len() as u64);
    }
}

/// An application that writes everything within one call cannot stop.
#[test]
fn unread_output_of_a_call_that_cannot_stop_goes_to_a_file() {
    let mut ops = vec![Op::Begin];
    for part in 0..60 {
        ops.extend([Op::Write(90_000 + part), Op::Relieve]);
        if part % 20 == 10 {
            ops.extend([Op::File { length: 5000, missing: 0 }, Op::Relieve]);
        }
    }
    let plan = Plan::of(ops).impolite();
    let length = plan.length();
    for plan in [plan.clone(), plan.declaring(length)] {
        for leaves in [false, true] {
            let mut world = World::with_send_buffer(timeless(), vec![plan.clone(), Plan::sized(&[5])], SEND_BUFFER);
            let mut client = slow_client(&world);
            client.send(get(0) + &get(1));
            world.until("the application is through", &mut [&mut client], |world, _| {
                world.app.log.last() == Some(&Event::End { id: 0, how: How::Done })
            });
            world.settle();
            assert!(world.statistics().bytes_out < 500_000);
            if leaves {
                client.reset();
                world.until_empty(&mut []);
            } else {
                client.reads = true;
                world.until("both are answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 2);
                assert!(client.answers[0].body == pattern(0, 0, length));
            }
        }
    }
}
