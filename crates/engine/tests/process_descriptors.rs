//! The engine while the process has no descriptors left.

use crate::common::{Client, Event, How, Op, Pause, Plan, World, ms, pattern, timeless};
use engine::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;

fn get() -> &'static [u8] {
    b"GET /0 HTTP/1.1\r\nHost: a\r\n\r\n"
}

/// Opens every descriptor that is left.
fn exhaust() -> Vec<File> {
    let first = File::open("/dev/null").expect("some are left");
    let mut held = vec![first];
    while let Ok(another) = held[0].try_clone() {
        held.push(another);
    }
    held
}

fn limit_to(descriptors: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors), maximum }).expect("lower than before");
}

pub(crate) fn engine_waits_when_no_descriptor_is_left() {
    limit_to(64);
    the_system_refuses();
    limit_to(20);
    some_descriptors_stay_free();
}

/// The engine stops accepting before the system refuses: half of such a small limit is reserved for the rest of the
/// process.
fn some_descriptors_stay_free() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[5])]);
    // The clients live in this process too.
    limit_to(64);
    let mut clients: Vec<_> = (0..12).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send(get());
        client.pump();
    }
    world.settle();
    assert_eq!((world.statistics().connections, world.app.pauses()), (10, vec![Pause::Descriptors(10)]));
    clients.drain(..2);
    let mut waiting: Vec<_> = clients.iter_mut().skip(8).collect();
    world.until("all are answered", &mut waiting, |_, clients| clients.iter().all(|client| client.answers.len() == 1));
}

/// Longer than other tests: no other test may run while the process has no descriptors left.
fn the_system_refuses() {
    let config = Config { body_memory: 1000, ..timeless() };
    let relieved: Vec<_> = (0..60).map(|part| if part % 2 == 0 { Op::Write(100_000) } else { Op::Relieve }).collect();
    let relieved = Plan::of(relieved).impolite();
    let mut world = World::unix(config, vec![Plan::sized(&[5]), Plan::of(vec![Op::Echo]), relieved]);
    let mut inside = world.client();
    let mut greedy = world.client();
    greedy.reads = false;
    world.ask(&mut inside, get(), 1);
    world.settle();
    let mut waiting: Vec<Client> = (0..2).map(|_| world.client()).collect();
    let mut held = exhaust();

    for client in &mut waiting {
        client.send(get());
        client.pump();
    }
    world.settle();
    assert_eq!(world.statistics().accepted, 2);
    // One report, a bounded wait, and no poll in between that finds anything to do.
    for round in 0..10 {
        assert_eq!(world.app.pauses(), [Pause::Failed], "round {round}");
        let timeout = world.timeout().expect("it looks again");
        assert!(timeout > ms(0) && timeout <= ms(200), "round {round}: {timeout:?}");
        assert!(!world.take_events(), "round {round}: an event for nothing");
        world.advance(timeout);
    }
    // One of the turns may have been for something else.
    assert!((10..=11).contains(&world.statistics().accept_pauses), "{:?}", world.statistics());

    // Open connections are served. A body that needs a file gets 503, and nothing after it is read.
    world.ask(&mut inside, get(), 2);
    let mut request = b"PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n".to_vec();
    request.extend(pattern(1, 0, 2000));
    request.extend(get());
    inside.send(&request);
    world.end(&mut inside);
    let statuses: Vec<_> = inside.answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 503]);
    assert_eq!(world.app.called(), [0, 0]);
    let tail = &world.app.log[world.app.log.len() - 3..];
    assert!(matches!(&tail[0], Event::Begin { id: 1, .. }), "{tail:?}");
    assert_eq!(tail[1..], [Event::SpoolFailed, Event::AbandonRequest { id: 1, status: Some(503) }]);
    assert_eq!(world.app.alive(), 0);

    // The output that accumulates cannot be moved to a file either: the response is cut.
    greedy.send(b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    greedy.pump();
    world.settle();
    assert_eq!(world.app.log.last(), Some(&Event::End { id: 2, how: How::Cut }));
    greedy.reads = true;
    world.end(&mut greedy);
    assert!(greedy.answers.is_empty() && greedy.has_part());
    assert!(greedy.received.len() > 1_000_000, "what has been written still arrives");

    // A closing connection frees a descriptor, which is used at once and not only after the pause.
    inside.end_sending();
    inside.pump();
    drop(inside);
    world.until("the next is let in", &mut [], |world, _| world.statistics().accepted >= 3);
    world.until("it is answered", &mut [&mut waiting[0]], |_, clients| clients[0].answers.len() == 1);

    // The client's own end has freed another descriptor, so both clients may be connected already. Now free the other
    // held descriptors.
    drop(held.split_off(1));
    let timeout = world.timeout();
    world.advance(timeout.unwrap_or(ms(0)));
    world.until("the other is answered", &mut [&mut waiting[1]], |_, clients| clients[0].answers.len() == 1);

    // The next pause is reported again.
    let mut late = world.client();
    let held = exhaust();
    late.send(get());
    late.pump();
    world.settle();
    assert_eq!(world.app.pauses(), [Pause::Failed; 2]);
    drop(held);
    world.advance(ms(200));
    world.until("it is answered after the pause", &mut [&mut late], |_, clients| clients[0].answers.len() == 1);
    drop((waiting, late, greedy));
    world.until_empty(&mut []);
}
