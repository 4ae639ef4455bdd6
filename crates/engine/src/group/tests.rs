use super::*;
use crate::os::{Os, Poller};

const NOW: Duration = Duration::from_secs(100);

/// Returns the memberships of the engines of one process, with room for one call each, and their pollers.
fn members(count: usize) -> (Vec<Membership>, Vec<(Os, Poller)>) {
    let (systems, wakers): (Vec<_>, Vec<_>) =
        (0..count).map(|_| Os::new().unwrap()).map(|(net, poller, waker)| ((net, poller), waker)).unzip();
    let group = EngineGroup::new(wakers, None);
    let mut members: Vec<_> = (0..count).map(|index| group.membership(index, 1)).collect();
    for member in &mut members {
        publish(member, 0, 0);
    }
    (members, systems)
}

fn state(calls: u64, connections: usize) -> PublishedState {
    PublishedState { calls, begun: 0, queued: 0, connections, accepted: connections as u64, is_accepting: true }
}

fn publish(member: &mut Membership, calls: u64, connections: usize) {
    member.publish(state(calls, connections), NOW);
}

/// Returns the index of the engine in this process that should accept the connection.
fn better(member: &mut Membership, now: Duration) -> Option<usize> {
    member.better(now, SLACK).map(|address| address.engine)
}

fn is_woken(poller: &mut Poller) -> bool {
    let mut ready = Vec::new();
    poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
    !ready.is_empty()
}

#[test]
fn engine_accepts_while_it_has_at_most_one_connection_more() {
    let (mut members, _systems) = members(3);
    assert_eq!(better(&mut members[0], NOW), None);
    publish(&mut members[0], 0, 1);
    assert_eq!(better(&mut members[0], NOW), None, "one more is allowed");
    publish(&mut members[0], 0, 2);
    publish(&mut members[2], 0, 1);
    assert_eq!(better(&mut members[0], NOW), Some(1), "the one that has the fewest");
    publish(&mut members[1], 0, 1);
    assert_eq!(better(&mut members[0], NOW), None);
    publish(&mut members[0], 0, 1000);
    publish(&mut members[1], 0, 998);
    publish(&mut members[2], 0, 999);
    assert_eq!(better(&mut members[0], NOW), Some(1), "a share of a large number is not allowed");
}

#[test]
fn numbers_may_differ_by_more_when_connections_carry_one_request() {
    let (mut members, _systems) = members(2);
    assert_eq!((slack(0), slack(BRIEF_IN_A_ROW - 1), slack(BRIEF_IN_A_ROW)), (SLACK, SLACK, SLACK_IF_BRIEF));
    publish(&mut members[0], 0, 32);
    assert!(members[0].better(NOW, SLACK_IF_BRIEF).is_none() && members[0].better(NOW, SLACK).is_some());
    publish(&mut members[0], 0, 33);
    assert!(members[0].better(NOW, SLACK_IF_BRIEF).is_some());
}

#[test]
fn notified_engine_is_woken_once_until_it_checks() {
    let (mut members, mut systems) = members(3);
    publish(&mut members[0], 0, 2);
    publish(&mut members[1], 0, 2);
    let other = members[0].better(NOW, SLACK).unwrap();
    members[0].notify(other, NOW);
    assert!(is_woken(&mut systems[2].1) && !is_woken(&mut systems[1].1) && !is_woken(&mut systems[0].1));
    members[1].notify(other, NOW);
    assert!(!is_woken(&mut systems[2].1), "it was notified already");
    assert!(members[2].take_notification() && !members[2].take_notification());
    assert!(!members[0].take_notification() && !members[1].take_notification());
    members[1].notify(other, NOW);
    assert!(is_woken(&mut systems[2].1));
}

#[test]
fn busy_engine_gets_no_connection_while_another_is_free() {
    let (mut members, _systems) = members(2);
    let later = NOW + BUSY_AFTER;
    publish(&mut members[1], 1, 0);
    publish(&mut members[0], 0, 5);
    assert_eq!(better(&mut members[0], NOW), Some(1), "its call may return at once");
    assert_eq!(better(&mut members[0], later), None);
    assert_eq!(better(&mut members[1], later), Some(0), "numbers do not count");
    members[1].publish(state(1, 0), later);
    assert_eq!(better(&mut members[0], later), None, "it has been busy all the time");
    members[1].publish(state(0, 0), later);
    assert_eq!(better(&mut members[0], later), Some(1));
    let queued = PublishedState { queued: 1, ..state(0, 0) };
    members[1].publish(queued, later);
    let later_still = later + BUSY_AFTER;
    assert_eq!(better(&mut members[0], later), Some(1), "its queue may be empty soon");
    assert_eq!(better(&mut members[0], later_still), None, "requests are queued and no call begins");
    members[1].publish(PublishedState { begun: 1, ..queued }, later_still);
    assert_eq!(better(&mut members[0], later_still), Some(1), "its calls are short");
}

#[test]
fn engine_that_leaves_a_connection_checks_again_when_the_other_is_busy() {
    let (mut members, _systems) = members(2);
    publish(&mut members[0], 0, 5);
    let other = members[0].better(NOW, SLACK).unwrap();
    publish(&mut members[1], 1, 0);
    assert_eq!(members[0].notify(other, NOW), NOW + BUSY_AFTER);
    let later = NOW + BUSY_AFTER;
    assert_eq!(better(&mut members[0], later), None);
}

#[test]
fn numbers_decide_when_all_engines_are_busy() {
    let (mut members, _systems) = members(2);
    publish(&mut members[0], 1, 1);
    publish(&mut members[1], 1, 3);
    let later = NOW + BUSY_AFTER;
    assert_eq!(better(&mut members[0], later), None);
    assert_eq!(better(&mut members[1], later), Some(0));
}

#[test]
fn full_engine_leaves_a_connection_to_one_that_has_as_many() {
    let (mut members, _systems) = members(2);
    publish(&mut members[0], 1, 1);
    publish(&mut members[1], 0, 1);
    assert_eq!(better(&mut members[0], NOW), None);
    publish(&mut members[1], 0, 0);
    assert_eq!(better(&mut members[0], NOW), Some(1), "it has a thread left");
    assert_eq!(better(&mut members[1], NOW), None);
}

#[test]
fn engine_that_does_not_accept_is_never_notified() {
    let (mut members, _systems) = members(2);
    members[1].publish(PublishedState { is_accepting: false, ..state(0, 0) }, NOW);
    publish(&mut members[0], 1, 9);
    assert!(!members[0].has_others());
    assert_eq!(better(&mut members[0], NOW + BUSY_AFTER), None);
    assert_eq!(better(&mut members[1], NOW), Some(0), "it has no room itself");
    assert!(members[1].has_others());
}

#[test]
fn engine_that_does_not_come_is_passed_over() {
    let (mut members, _systems) = members(2);
    publish(&mut members[0], 0, 5);
    let other = members[0].better(NOW, SLACK).unwrap();
    members[0].notify(other, NOW);
    assert!(members[0].better(NOW, SLACK).is_some(), "it may be on its way");
    let later = NOW + PATIENCE;
    assert_eq!(better(&mut members[0], later), None);
    members[0].has_accepted(later);
    members[0].has_found_none(later);
    assert_eq!(better(&mut members[0], later), None, "it is not waited for again");
    assert_eq!(better(&mut members[0], NOW + PASSED_OVER_FOR), Some(1), "but after a while");
    assert_eq!(members[0].notify(other, NOW + PASSED_OVER_FOR), NOW + PASSED_OVER_FOR + PATIENCE);
    let later = NOW + PASSED_OVER_FOR + PATIENCE;
    assert_eq!(better(&mut members[0], later), None);
    publish(&mut members[1], 0, 1);
    assert_eq!(better(&mut members[0], later), Some(1), "it has accepted");
}

#[test]
fn engine_in_a_call_is_waited_for_less() {
    let (mut members, _systems) = members(2);
    publish(&mut members[1], 1, 0);
    publish(&mut members[0], 9, 5);
    let other = Address { process: 0, engine: 1 };
    assert_eq!(members[0].notify(other, NOW), NOW + BUSY_AFTER, "it was polled just now");
    let later = NOW + PATIENCE + Duration::from_millis(1);
    members[0].has_found_none(later);
    assert_eq!(members[0].notify(other, later), later + PATIENCE_IN_CALLS);
    assert_eq!(
        members[0].notify(other, later + PATIENCE_IN_CALLS / 2),
        later + PATIENCE_IN_CALLS,
        "it was notified before"
    );
}

#[test]
fn engine_that_found_no_connection_is_not_passed_over() {
    let (mut members, _systems) = members(2);
    publish(&mut members[0], 0, 5);
    let other = members[0].better(NOW, SLACK).unwrap();
    members[0].notify(other, NOW);
    let later = NOW + PATIENCE;
    // A third engine has accepted the connection.
    members[0].has_found_none(later);
    assert_eq!(better(&mut members[0], later), Some(1));
}

#[test]
fn records_in_shared_memory_are_those_of_all_processes() {
    let records: [&'static ProcessRecord; 3] = std::array::from_fn(|_| &*Box::leak(Box::<ProcessRecord>::default()));
    let eventfd = || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let bells: Vec<_> = (0..3).map(|_| eventfd()).collect();
    let process = |own: usize| {
        let (mut net, poller, waker) = Os::new().unwrap();
        let bells = bells.iter().map(|bell| Bell::new(bell.try_clone().unwrap())).collect();
        let shared = SharedRecords::new(Box::new(records), bells, own, Box::new(()));
        net.watch_bell(shared.own_bell(), 3).unwrap();
        (EngineGroup::new(vec![waker], Some(shared)).membership(0, 1), net, poller)
    };
    let (mut first, _net, mut first_poller) = process(0);
    publish(&mut first, 0, 2);
    assert_eq!(first.better(NOW, SLACK), None, "records without engines do not count");
    let (mut second, _net, mut poller) = process(2);
    publish(&mut second, 0, 0);
    let other = first.better(NOW, SLACK).unwrap();
    assert_eq!(other, Address { process: 2, engine: 0 });
    for _ in 0..2 {
        first.notify(other, NOW);
        assert!(second.take_notification());
        assert!(is_woken(&mut poller) && !is_woken(&mut poller), "each ring is reported once");
        assert!(!is_woken(&mut first_poller));
    }
    // The worker has exited, and its successor counts from zero.
    publish(&mut second, 0, 7);
    let (mut successor, ..) = process(2);
    publish(&mut successor, 0, 0);
    assert!(first.better(NOW, SLACK).is_some());
}

#[test]
fn pause_is_reported_once_for_the_engines_of_a_process() {
    let (members, _systems) = members(2);
    members[0].has_room_for(3);
    members[1].has_room_for(4);
    assert_eq!(members[0].room_of_all(), 7);
    assert!(!members[0].note_pause(true));
    assert!(members[1].note_pause(true));
    assert!(members[1].note_pause(false));
    assert!(!members[0].note_pause(true), "the pause began anew");
}
