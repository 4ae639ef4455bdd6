//! A panic ends one exchange, not the engine.

use crate::common::{Client, End, Event, Op, Plan, World, pattern, timeless};
use engine::Config;
use std::time::Duration;
use wire::http1::client::ServerFault;
use wire::message::Fault;

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

fn quiet() {
    crate::common::quiet(|message| message.starts_with("a panic of plan") || message.starts_with("as planned"));
}

/// A world in which one request panics while another connection is in use.
fn panicking(plan: Plan) -> (World, Client, Client) {
    quiet();
    let mut world = World::unix(timeless(), vec![plan, Plan::sized(&[100_000; 10]), Plan::sized(&[7])]);
    let mut bystander = world.client();
    bystander.reads = false;
    bystander.send(get(1));
    bystander.pump();
    world.settle();
    assert_eq!(world.app.alive(), 1);
    let client = world.client();
    (world, client, bystander)
}

/// Checks that the other connection is unaffected.
fn check_bystander(mut world: World, mut bystander: Client, message: &str) {
    assert_eq!(world.app.panics(), [message]);
    bystander.reads = true;
    world.until("the other one is answered", &mut [&mut bystander], |_, clients| clients[0].answers.len() == 1);
    assert!(bystander.answers[0].body == pattern(1, 0, 1_000_000));
    let mut next = world.client();
    world.ask(&mut next, get(2).as_bytes(), 1);
    drop((bystander, next));
    world.until_empty(&mut []);
}

#[test]
fn panic_before_the_head_becomes_500() {
    let (mut world, mut client, bystander) = panicking(Plan::of(vec![Op::Panic("as planned: early")]));
    client.send(get(2) + &get(0) + &get(2));
    assert_eq!(world.end(&mut client), End::Closed);
    let statuses: Vec<_> = client.answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 500]);
    assert!(client.text().ends_with("500 Internal Server Error\nThe server has failed.\n"));
    drop(client);
    check_bystander(world, bystander, "as planned: early");
}

#[test]
fn panic_after_the_head_is_a_cut() {
    for ops in [
        vec![Op::Write(10), Op::Panic("as planned: late")],
        vec![Op::Write(10), Op::SendSoon, Op::Write(10), Op::SendSoon, Op::Panic("as planned: late")],
        vec![Op::Write(200_000), Op::Flush, Op::Panic("as planned: late")],
    ] {
        let (mut world, mut client, bystander) = panicking(Plan::of(ops));
        client.send(get(0) + &get(2));
        assert_eq!(world.end(&mut client), End::Closed);
        assert_eq!((client.answers.len(), client.fault), (0, Some(ServerFault::Message(Fault::Truncated))));
        assert!(!client.text().contains("500"));
        drop(client);
        check_bystander(world, bystander, "as planned: late");
    }
}

#[test]
fn panic_in_a_resumed_response_is_a_cut() {
    let (mut world, mut client, bystander) =
        panicking(Plan::of(vec![Op::Write(10), Op::Yield, Op::Panic("as planned: resumed")]));
    client.send(get(0));
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.fault, Some(ServerFault::Message(Fault::Truncated)));
    assert_eq!((world.app.resumed(0), world.app.abandoned(0)), (1, 0));
    drop(client);
    check_bystander(world, bystander, "as planned: resumed");
}

#[test]
fn panic_in_a_resumed_response_without_a_head_becomes_500() {
    let (mut world, mut client, bystander) = panicking(Plan::of(vec![Op::Yield, Op::Panic("as planned: resumed")]));
    client.send(get(0));
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers[0].status, 500);
    drop(client);
    check_bystander(world, bystander, "as planned: resumed");
}

#[test]
fn panic_when_a_head_arrives_closes_the_connection() {
    let (mut world, mut client, bystander) = panicking(Plan { panics_early: true, ..Plan::sized(&[1]) });
    client.send(get(0));
    world.end(&mut client);
    assert!(client.answers.iter().all(|answer| answer.status == 500), "{:?}", client.answers);
    assert_eq!(world.app.count(|event| matches!(event, Event::Call { id: 0, .. })), 0);
    drop(client);
    check_bystander(world, bystander, "a panic of plan 0");
}

#[test]
fn panic_in_a_body_until_close_is_a_reset() {
    quiet();
    let mut world = World::new(timeless(), vec![Plan::of(vec![Op::Write(10), Op::Panic("as planned: old")])]);
    let mut client = world.client();
    client.send("GET /0 HTTP/1.0\r\n\r\n");
    assert_eq!(world.end(&mut client), End::Reset);
    assert!(client.answers.is_empty());
    world.until_empty(&mut [&mut client]);
    assert_eq!(world.app.panics(), ["as planned: old"]);
}

#[test]
fn panic_outside_of_requests_is_contained() {
    let (mut world, client, bystander) = panicking(Plan::sized(&[1]));
    drop(client);
    world.settle();
    world.app.panics_at_next = Some("as planned: at the door");
    let mut refused = world.client();
    world.settle();
    assert_eq!(world.end(&mut refused), End::Closed);
    drop(refused);
    check_bystander(world, bystander, "as planned: at the door");
}

#[test]
fn panic_in_a_sweep_keeps_later_deadlines() {
    quiet();
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[7])]);
    let mut client = world.client();
    world.ask(&mut client, get(0).as_bytes(), 1);
    world.app.panics_at_next = Some("as planned: at rest");
    world.advance(Duration::from_secs(3));
    world.settle();
    assert_eq!(world.app.panics(), ["as planned: at rest"]);
    // The connection is still open, and its deadline still applies.
    world.ask(&mut client, get(0).as_bytes(), 2);
    world.advance(Duration::from_secs(80));
    assert_eq!(world.end(&mut client), End::Closed);
}
