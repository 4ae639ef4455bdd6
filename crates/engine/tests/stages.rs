//! Tests of the time that a request spends in each stage, by a clock that only the test advances.

use crate::common::{Client, Op, Plan, World, timeless};
use engine::{Config, Stage, StageClock, Times};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Two clocks that do not advance, or advance by `step` each time that the first is read.
#[derive(Clone, Default)]
struct Virtual {
    time: Arc<AtomicU64>,
    worked: Arc<AtomicU64>,
    step: u64,
}

impl Virtual {
    fn pass(&self, time: u64) {
        self.time.fetch_add(time, Relaxed);
    }
}

impl StageClock for Virtual {
    fn time(&mut self) -> u64 {
        self.time.fetch_add(self.step, Relaxed)
    }

    fn worked(&mut self) -> u64 {
        self.worked.load(Relaxed)
    }
}

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

fn timed(config: Config, plans: Vec<Plan>, step: u64) -> (World, Virtual) {
    let mut world = World::unix(config, plans);
    let clock = Virtual { step, ..Virtual::default() };
    world.engine.take_times(Box::new(clock.clone()), 100);
    (world, clock)
}

fn send(world: &mut World, client: &mut Client, bytes: impl AsRef<[u8]>) {
    client.send(bytes);
    client.pump();
    world.settle();
}

/// Moves the only running call to another stage.
fn switch(world: &mut World, stage: Stage) {
    world.engine.switch_stage(&world.calls[0].ticket, stage).expect("times are taken");
}

fn taken(world: &mut World) -> Vec<Times> {
    let (times, dropped) = world.engine.times();
    assert_eq!(dropped, 0);
    times
}

fn spent(of: &[(Stage, u64)]) -> [u64; Stage::ALL.len()] {
    let mut spent = [0; Stage::ALL.len()];
    for &(stage, time) in of {
        spent[stage as usize] += time;
    }
    spent
}

#[test]
fn time_is_counted_for_the_stage_it_passed_in() {
    let (mut world, clock) = timed(timeless(), vec![Plan::sized(&[5])], 0);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, get(0));
    clock.pass(100);
    switch(&mut world, Stage::Environ);
    clock.pass(10);
    switch(&mut world, Stage::App);
    clock.pass(1000);
    clock.worked.fetch_add(700, Relaxed);
    switch(&mut world, Stage::Other);
    clock.pass(5);
    world.go_on(0);
    client.pump();
    assert_eq!(client.answers.len(), 1);
    let [times] = taken(&mut world)[..] else { panic!("one request") };
    let expected = [(Stage::Queue, 100), (Stage::Environ, 10), (Stage::App, 1000), (Stage::Other, 5)];
    assert_eq!(times.spent, spent(&expected));
    assert_eq!((times.worked, times.total()), (700, 1115));
    assert_eq!(taken(&mut world), [], "they are reported once");
}

#[test]
fn all_stages_are_measured_and_add_up_to_the_total() {
    let (mut world, clock) = timed(timeless(), vec![Plan::sized(&[5]), Plan::of(vec![Op::Echo])], 1);
    let mut client = world.client();
    let post = "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
    for (number, request) in [get(0), post.to_owned()].into_iter().enumerate() {
        world.ask(&mut client, request.as_bytes(), number + 1);
        let [times] = taken(&mut world)[..] else { panic!("one request") };
        for stage in [Stage::Read, Stage::Parse, Stage::Environ, Stage::Queue, Stage::Write, Stage::Other] {
            assert!(times.of(stage) > 0, "{stage:?} of {times:?}");
        }
        assert_eq!(times.of(Stage::Peer), 0);
        // The clock advances at each reading. The first reading is where the request begins.
        assert_eq!(times.total(), times.stamps - 1);
    }
    assert!(clock.time.load(Relaxed) > 0);
}

#[test]
fn slow_sender_is_counted_as_waiting_for_input() {
    let (mut world, clock) = timed(timeless(), vec![Plan::of(vec![Op::Echo])], 0);
    let mut client = world.client();
    let request = b"POST /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nfive.four";
    let mut sent = 0;
    for end in [20, request.len() - 4, request.len()] {
        send(&mut world, &mut client, &request[sent..end]);
        sent = end;
        clock.pass(300);
    }
    world.ask(&mut client, b"", 1);
    let [times] = taken(&mut world)[..] else { panic!("one request") };
    assert_eq!(times.spent, spent(&[(Stage::Peer, 600)]));
}

#[test]
fn slow_reader_is_counted_as_waiting_for_output() {
    for plan in [Plan::chunked(&[4 << 20]), Plan::chunked(&[2 << 20, 2 << 20]), Plan::sized(&[2 << 20, 2 << 20])] {
        let (mut world, clock) = timed(timeless(), vec![plan], 0);
        let mut client = world.client();
        client.send(get(0));
        client.pump();
        world.settle();
        assert!(world.statistics().bytes_out > 0);
        assert_eq!(taken(&mut world), []);
        clock.pass(50_000);
        world.ask(&mut client, b"", 1);
        let [times] = taken(&mut world)[..] else { panic!("one request") };
        assert_eq!(times.spent, spent(&[(Stage::Peer, 50_000)]));
    }
}

#[test]
fn response_that_yields_is_counted_as_waiting_for_its_turn() {
    let (mut world, clock) = timed(timeless(), vec![Plan::of(vec![Op::Write(3), Op::Yield, Op::Write(3)])], 0);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, get(0));
    switch(&mut world, Stage::App);
    world.go_on(0);
    clock.pass(40);
    world.settle();
    world.go_on(0);
    let [times] = taken(&mut world)[..] else { panic!("one request") };
    assert_eq!(times.spent, spent(&[(Stage::Queue, 40)]));
}

#[test]
fn pipelined_requests_are_timed_separately() {
    let (mut world, clock) = timed(timeless(), vec![Plan::sized(&[5]), Plan::sized(&[6])], 0);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, get(0) + &get(1));
    for app in [30, 7] {
        switch(&mut world, Stage::App);
        clock.pass(app);
        switch(&mut world, Stage::Other);
        world.go_on(0);
        world.settle();
    }
    let [first, second] = taken(&mut world)[..] else { panic!("two requests") };
    // The first answer is deferred until the second one is ready.
    assert_eq!(first.spent, spent(&[(Stage::App, 30), (Stage::Other, 7)]));
    assert_eq!(second.spent, spent(&[(Stage::App, 7)]));
}

#[test]
fn answer_sent_by_a_tick_ends_at_that_tick() {
    let (mut world, clock) = timed(timeless(), vec![Plan::sized(&[5]), Plan::sized(&[6])], 0);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, get(0) + &get(1));
    world.go_on(0);
    world.settle();
    clock.pass(2);
    world.engine.tick();
    world.engine.tick();
    client.pump();
    assert_eq!((client.answers.len(), taken(&mut world).len()), (1, 1));
}

#[test]
fn refused_and_cut_requests_are_not_timed() {
    let plans = vec![Plan::of(vec![Op::Write(3), Op::Cut]), Plan::sized(&[5]), Plan::of(vec![Op::Refuse(500)])];
    let (mut world, clock) = timed(timeless(), plans, 0);
    for request in [
        "GARBAGE\r\n\r\n".to_owned(),
        get(0),
        "GET / HT".to_owned(),
        "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab".to_owned(),
    ] {
        let mut client = world.client();
        send(&mut world, &mut client, &request);
        client.hang_up();
        clock.pass(1000);
        world.until_empty(&mut [&mut client]);
    }
    assert_eq!(taken(&mut world), []);
    // The client gets the slot that all of them had.
    let mut client = world.client();
    world.ask(&mut client, get(1).as_bytes(), 1);
    assert_eq!(taken(&mut world).iter().map(Times::total).collect::<Vec<_>>(), [0]);
    // A failure of the application counts as an answer.
    world.ask(&mut client, get(2).as_bytes(), 2);
    assert_eq!(taken(&mut world).len(), 1);
}

#[test]
fn times_beyond_the_limit_are_dropped_and_counted() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[5])]);
    world.engine.take_times(Box::new(Virtual::default()), 2);
    let mut client = world.client();
    for number in 1..=5 {
        world.ask(&mut client, get(0).as_bytes(), number);
    }
    let (times, dropped) = world.engine.times();
    assert_eq!((times.len(), dropped), (2, 3));
}

#[test]
fn clock_is_not_read_unless_timing_is_enabled() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[5])]);
    let mut client = world.client();
    world.keeps = true;
    send(&mut world, &mut client, get(0));
    assert_eq!(world.engine.switch_stage(&world.calls[0].ticket, Stage::App), None);
    world.go_on(0);
    assert_eq!(world.engine.times(), (Vec::new(), 0));
}
