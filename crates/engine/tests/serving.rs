//! Requests in, answers out: however the bytes are cut, whatever the body's size, until either side closes.

use crate::common::{Client, End, Event, Op, Plan, ReceivedBody, World, pattern, timeless};
use engine::Config;

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

fn post(id: usize, body: &[u8]) -> Vec<u8> {
    let head = format!("POST /{id} HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn one_request_gets_one_answer_byte_for_byte() {
    let mut world = World::new(timeless(), vec![Plan { fields: vec![("X-Plan", "0")], ..Plan::sized(&[3]) }]);
    let mut client = world.client();
    world.ask(&mut client, get(0).as_bytes(), 1);
    let head = "HTTP/1.1 200 OK\r\nX-Plan: 0\r\nContent-Length: 3\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                Server: kirsch\r\n\r\n";
    assert_eq!(client.received, [head.as_bytes(), &pattern(0, 0, 3)].concat());
    assert_eq!(
        world.app.log,
        [
            Event::Connect { listener: 0, has_address: true },
            Event::Begin { id: 0, repeated: false, retained: false },
            Event::Call { id: 0, body: ReceivedBody::Empty },
            Event::End { id: 0, how: crate::common::How::Done },
        ]
    );
    let statistics = world.statistics();
    assert_eq!((statistics.connections, statistics.accepted, statistics.requests), (1, 1, 1));
    assert_eq!(statistics.bytes_in, get(0).len() as u64);
    assert_eq!(statistics.bytes_out, client.received.len() as u64);
}

#[test]
fn date_field_follows_the_clock() {
    let mut world = World::new(timeless(), vec![Plan::sized(&[0])]);
    let mut client = world.client();
    world.ask(&mut client, get(0).as_bytes(), 1);
    world.advance(crate::common::ms(2500));
    world.ask(&mut client, get(0).as_bytes(), 2);
    assert!(client.answers[0].head.contains("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
    assert!(client.answers[1].head.contains("Date: Sun, 06 Nov 1994 08:49:39 GMT\r\n"));
}

#[test]
fn hundred_pipelined_requests_are_answered_in_order() {
    let plans: Vec<_> = (0..100).map(|id| Plan::sized(&[id, 7])).collect();
    let mut world = World::new(timeless(), plans);
    let mut client = world.client();
    let requests: String = (0..100).map(get).collect();
    world.ask(&mut client, requests.as_bytes(), 100);
    for (id, answer) in client.answers.iter().enumerate() {
        assert_eq!(answer.body, pattern(id, 0, id + 7));
        assert!(answer.keep_alive);
    }
    assert_eq!(world.app.called(), (0..100).collect::<Vec<_>>());
    assert_eq!(world.statistics().connections, 1);
}

#[test]
fn requests_are_read_when_they_come_byte_by_byte() {
    let mut world = World::new(timeless(), vec![Plan::sized(&[5]), Plan::of(vec![Op::Echo])]);
    let mut client = world.client();
    let mut bytes = get(0).into_bytes();
    bytes.extend(post(1, b"twelve bytes"));
    bytes.extend(b"POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nT: 1\r\n\r\n");
    bytes.extend(get(0).into_bytes());
    for (index, byte) in bytes.iter().enumerate() {
        client.send([*byte]);
        world.until_received(index + 1, &mut client);
    }
    world.until("four answers are here", &mut [&mut client], |_, clients| clients[0].answers.len() == 4);
    let bodies: Vec<_> = client.answers.iter().map(|answer| answer.body.clone()).collect();
    assert_eq!(bodies, [pattern(0, 0, 5), b"twelve bytes".to_vec(), b"abcdefg".to_vec(), pattern(0, 0, 5)]);
    assert_eq!(world.app.body(1), Some(&ReceivedBody::Memory(b"twelve bytes".to_vec())));
}

#[test]
fn body_that_arrived_with_its_head_is_borrowed() {
    let mut world = World::new(timeless(), vec![Plan::of(vec![Op::Echo])]);
    let mut client = world.client();
    world.ask(&mut client, &post(0, b"hello"), 1);
    assert_eq!(world.app.body(0), Some(&ReceivedBody::Borrowed(b"hello".to_vec())));
    assert_eq!(client.answers[0].body, b"hello");
}

#[test]
fn body_that_comes_in_parts_is_collected() {
    let mut world = World::new(timeless(), vec![Plan::of(vec![Op::Echo])]);
    let mut client = world.client();
    let request = post(0, b"hello, world");
    client.send(&request[..request.len() - 5]);
    world.until_received(request.len() - 5, &mut client);
    assert!(world.app.called().is_empty(), "called before the body was whole");
    assert_eq!(world.app.alive(), 1);
    world.ask(&mut client, &request[request.len() - 5..], 1);
    assert_eq!(world.app.body(0), Some(&ReceivedBody::Memory(b"hello, world".to_vec())));
}

#[test]
fn body_that_exceeds_memory_goes_to_a_file() {
    let config = Config { body_memory: 1000, ..timeless() };
    let mut world = World::new(config, vec![Plan::of(vec![Op::Echo]); 4]);
    let mut client = world.client();
    // The body arrives with its head, in parts, and in chunks; and one body just fits.
    let body = pattern(9, 0, 1001);
    world.ask(&mut client, &post(0, &body), 1);
    assert_eq!(world.app.body(0), Some(&ReceivedBody::File(body)));

    let body = pattern(9, 0, 150_000);
    world.ask(&mut client, &post(1, &body), 2);
    assert_eq!(world.app.body(1), Some(&ReceivedBody::File(body.clone())));
    assert_eq!(client.answers[1].body, body);

    let body = pattern(8, 0, 1200);
    let mut chunked = b"POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(400) {
        chunked.extend(b"190\r\n");
        chunked.extend(chunk);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\n\r\n");
    world.ask(&mut client, &chunked, 3);
    assert_eq!(world.app.body(2), Some(&ReceivedBody::File(body)));

    let body = pattern(7, 0, 1000);
    world.ask(&mut client, &post(3, &body), 4);
    assert_eq!(world.app.body(3), Some(&ReceivedBody::Borrowed(body)));
}

#[test]
fn chunked_body_is_decoded() {
    let mut world = World::new(timeless(), vec![Plan::of(vec![Op::Echo]), Plan::sized(&[1])]);
    let mut client = world.client();
    let request =
        "POST /0 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n";
    world.ask(&mut client, format!("{request}{}", get(1)).as_bytes(), 2);
    assert_eq!(client.answers[0].body, b"hello, world");
    assert!(client.answers[0].chunked);
    let empty = "POST /0 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    world.ask(&mut client, empty.as_bytes(), 3);
    assert_eq!(
        world.app.log.iter().filter(|event| matches!(event, Event::Call { body: ReceivedBody::Empty, .. })).count(),
        2
    );
    assert_eq!(client.answers[2].body, b"");
}

#[test]
fn peer_that_expects_continue_gets_it() {
    let mut world = World::new(timeless(), vec![Plan::of(vec![Op::Echo])]);
    let mut client = world.client();
    client.send("PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    world.until("100 Continue is here", &mut [&mut client], |_, clients| clients[0].interims == 1);
    assert_eq!(client.received, b"HTTP/1.1 100 Continue\r\n\r\n");
    world.ask(&mut client, b"hello", 1);
    assert_eq!((client.interims, client.answers[0].body.as_slice()), (1, &b"hello"[..]));
}

#[test]
fn peer_that_does_not_expect_continue_gets_none() {
    let mut world = World::new(timeless(), vec![Plan::of(vec![Op::Echo])]);
    let mut client = world.client();
    let head = "PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    world.ask(&mut client, format!("{head}hello").as_bytes(), 1);
    client.send(format!("{head}he"));
    world.until_received(2 * head.len() + 7, &mut client);
    world.ask(&mut client, b"llo", 2);
    assert_eq!(client.interims, 0);
    // HTTP/1.0 has no interim responses (RFC 9110 section 15.2).
    let mut old = world.client();
    let head = "PUT /0 HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let before = world.statistics().bytes_in;
    old.send(head);
    world.until_received(usize::try_from(before).unwrap() + head.len(), &mut old);
    world.ask(&mut old, b"hello", 1);
    assert_eq!(old.interims, 0);
}

#[test]
fn body_that_is_too_large_is_refused_before_it_arrives() {
    let mut config = timeless();
    config.limits.body = 1000;
    let mut world = World::new(config, vec![]);
    let mut client = world.client();
    world.ask(&mut client, b"PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n", 1);
    assert_eq!((client.answers[0].status, client.interims), (413, 0));
    assert_eq!(world.app.log[1..], [Event::Refused { status: 413, fault: Some("BodyTooLarge") }]);
}

#[test]
fn connection_is_kept_alive_or_closed_as_requested() {
    // The request's lines; whether the connection is kept alive.
    let cases = [
        ("HTTP/1.1\r\nHost: a", true),
        ("HTTP/1.1\r\nHost: a\r\nConnection: close", false),
        ("HTTP/1.0", false),
        ("HTTP/1.0\r\nConnection: keep-alive", true),
    ];
    for (lines, goes_on) in cases {
        let mut world = World::new(timeless(), vec![Plan::sized(&[4])]);
        let mut client = world.client();
        world.ask(&mut client, format!("GET /0 {lines}\r\n\r\n").as_bytes(), 1);
        assert_eq!(client.answers[0].keep_alive, goes_on, "{lines}");
        if goes_on {
            world.settle();
            assert_eq!(world.statistics().connections, 1, "{lines}");
            world.ask(&mut client, format!("GET /0 {lines}\r\n\r\n").as_bytes(), 2);
        } else {
            assert_eq!(world.end(&mut client), End::Closed, "{lines}");
            world.until_empty(&mut [&mut client]);
        }
    }
}

#[test]
fn application_may_close_a_connection() {
    let plan = Plan { fields: vec![("Connection", "close")], ..Plan::sized(&[4]) };
    let mut world = World::new(timeless(), vec![plan, Plan::sized(&[1])]);
    let mut client = world.client();
    world.ask(&mut client, (get(0) + &get(1)).as_bytes(), 1);
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((client.answers.len(), client.answers[0].keep_alive), (1, false));
    assert_eq!(world.app.called(), [0]);
    drop(client);
    world.until_empty(&mut []);
}

#[test]
fn bytes_after_the_last_request_are_not_read_as_a_request() {
    let mut world = World::new(timeless(), vec![Plan::sized(&[4]); 2]);
    let mut client = world.client();
    let last = "GET /0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.send(format!("{last}{}", get(1)));
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((client.answers.len(), client.fault), (1, None));
    assert_eq!(world.app.called(), [0]);
}

/// For example an old client's CRLF after a body. It arrives while the answer is being sent. The answer still arrives
/// whole (RFC 9112 section 9.6), although closing with unread bytes would be a reset.
#[test]
fn bytes_after_the_last_request_do_not_destroy_its_answer() {
    let length = 400_000;
    let mut world = World::with_send_buffer(timeless(), vec![Plan::sized(&[length])], Some(16 << 10));
    let mut client = Client::connect(&world.addresses[0], Some(16 << 10));
    client.reads = false;
    client.send("GET /0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    world.until("the answer waits for the client", &mut [&mut client], |world, _| world.statistics().requests == 1);
    world.settle();
    client.send("\r\n");
    world.until("all is sent", &mut [&mut client], |_, clients| clients[0].unsent() == 0);
    world.settle();
    client.reads = true;
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers.len(), 1, "the answer was cut after {} bytes", client.received.len());
    assert!(client.answers[0].body == pattern(0, 0, length));
    client.hang_up();
    world.until_empty(&mut [&mut client]);
}

#[test]
fn peer_that_closed_its_sending_side_gets_its_answers() {
    let mut world = World::new(timeless(), vec![Plan::sized(&[100_000]), Plan::chunked(&[3])]);
    let mut client = world.client();
    client.send(get(0) + &get(1));
    client.end_sending();
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers.len(), 2);
    assert_eq!(client.answers[0].body, pattern(0, 0, 100_000));
    world.until_empty(&mut [&mut client]);
}

#[test]
fn request_that_ends_early_gets_400() {
    for (half, abandoned) in
        [("GET /0 HTTP/1.1\r\nHos", 0), ("PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhel", 1)]
    {
        let mut world = World::new(timeless(), vec![Plan::sized(&[0])]);
        let mut client = world.client();
        client.send(half);
        client.end_sending();
        assert_eq!(world.end(&mut client), End::Closed);
        assert_eq!(client.answers[0].status, 400, "{half}");
        assert!(client.text().ends_with("400 Bad Request\nThe request ended early.\n"), "{}", client.text());
        let abandonments = world.app.count(|event| *event == Event::AbandonRequest { id: 0, status: Some(400) });
        assert_eq!(abandonments, abandoned);
        world.until_empty(&mut [&mut client]);
    }
}

#[test]
fn peer_that_leaves_between_requests_is_not_reported() {
    let mut world = World::new(timeless(), vec![Plan::sized(&[0])]);
    let mut never_asked = world.client();
    let mut asked = world.client();
    world.ask(&mut asked, (get(0) + "\r\n").as_bytes(), 1);
    never_asked.end_sending();
    asked.end_sending();
    world.until_empty(&mut [&mut never_asked, &mut asked]);
    assert_eq!((never_asked.received.len(), asked.answers.len()), (0, 1));
    assert_eq!(world.statistics().refused, 0);
}

#[test]
fn faults_get_their_statuses_and_close_the_connection() {
    let cases = [
        ("GET /0 HTTP/1.1\r\n\r\n", 400, "HostMissing"),
        ("GET /0 HTTP/2.0\r\nHost: a\r\n\r\n", 505, "VersionUnsupported"),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 501, "ConnectRefused"),
        ("GET /0 HTTP/1.1\r\nHost: a\r\nExpect: gold\r\n\r\n", 417, "ExpectationUnknown"),
        (
            "GET /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            "TransferEncodingWithContentLength",
        ),
    ];
    for (request, status, fault) in cases {
        let mut world = World::new(timeless(), vec![Plan::sized(&[1]); 2]);
        let mut client = world.client();
        // The request before is answered; bytes after the fault are not read.
        client.send(format!("{}{request}{}", get(0), get(1)));
        assert_eq!(world.end(&mut client), End::Closed, "{request}");
        let statuses: Vec<_> = client.answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [200, status], "{request}");
        assert!(!client.answers[1].keep_alive);
        assert_eq!(world.app.log.last(), Some(&Event::Refused { status, fault: Some(fault) }));
        assert_eq!(world.statistics().refused, 1);
        drop(client);
        world.until_empty(&mut []);
    }
}

#[test]
fn refusal_has_a_page_unless_the_method_is_head() {
    // The refused bytes; whether the answer has a body.
    let cases = [
        ("GET /0 HTTP/1.1\r\n\r\n", true),
        ("HEAD /0 HTTP/1.1\r\n\r\n", false),
        // It does not matter that the previous request was HEAD.
        ("HEAD /0 HTTP/1.1\r\nHost: a\r\n\r\nGET /0 HTTP/9.9\r\n\r\n", true),
        ("HEAD /0 HTTP/1.1\r\nHost: a\r\n\r\nGET", true),
    ];
    for (requests, has_page) in cases {
        let mut world = World::new(timeless(), vec![Plan::sized(&[5])]);
        let mut client = world.client();
        client.send(requests);
        client.end_sending();
        world.end(&mut client);
        let text = client.text();
        let last = text.split("\r\n\r\n").last().unwrap();
        assert_eq!(last.contains(".\n"), has_page, "{requests:?} got {text}");
    }
}

#[test]
fn fault_in_a_body_abandons_its_request() {
    let mut world = World::new(timeless(), vec![Plan::sized(&[1])]);
    let mut client = world.client();
    client.send("POST /0 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX");
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers[0].status, 400);
    assert_eq!(world.app.log.last(), Some(&Event::AbandonRequest { id: 0, status: Some(400) }));
    assert!(world.app.called().is_empty());
    // The answer to HEAD has no body, nor has this one.
    let mut client = world.client();
    client.expect_head_at(0);
    client.send("HEAD /0 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno");
    world.end(&mut client);
    assert_eq!((client.answers[0].status, client.fault, client.has_part()), (400, None, false));
}

#[test]
fn refusal_reaches_a_peer_that_is_still_sending() {
    let mut config = timeless();
    config.limits.body = 1000;
    let mut world = World::new(config, vec![]);
    let mut client = world.client();
    // More than the sockets' buffers hold, so that the engine has to read it.
    let upload = 3 << 20;
    client.send("PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 3145728\r\n\r\n");
    client.send(vec![b'x'; upload]);
    world.until("all is sent", &mut [&mut client], |_, clients| clients[0].unsent() == 0 || clients[0].refused);
    assert!(!client.refused, "the connection was reset while the peer was sending");
    client.end_sending();
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers[0].status, 413);
    world.until_empty(&mut [&mut client]);
}

#[test]
fn peer_that_never_stops_sending_is_cut() {
    let mut config = timeless();
    config.limits.body = 1000;
    let mut world = World::new(config, vec![]);
    let mut client = world.client();
    client.send("PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
    client.send(vec![b'x'; 16 << 20]);
    world.until("the connection is over", &mut [&mut client], |world, _| world.statistics().connections == 0);
    assert_eq!(client.answers[0].status, 413);
    assert!(world.statistics().bytes_in < 5 << 20, "took {} bytes", world.statistics().bytes_in);
}

#[test]
fn responses_without_bodies_have_none() {
    let plans = vec![
        Plan::sized(&[5000]),
        Plan { status: "304 Not Modified", ..Plan::chunked(&[10]) },
        Plan { status: "204 No Content", ..Plan::chunked(&[]) },
    ];
    let mut world = World::new(timeless(), plans);
    let mut client = world.client();
    client.expect_head_at(0);
    let requests = format!("HEAD /0 HTTP/1.1\r\nHost: a\r\n\r\n{}{}{}", get(1), get(2), get(0));
    world.ask(&mut client, requests.as_bytes(), 4);
    let lengths: Vec<_> = client.answers.iter().map(|answer| answer.body.len()).collect();
    assert_eq!(lengths, [0, 0, 0, 5000]);
    assert!(client.answers[0].head.contains("Content-Length: 5000\r\n"));
}

/// Statuses of the engine's own responses are counted too, and interim ones.
#[test]
fn statuses_are_counted_by_their_class() {
    let of = |status, ops| Plan { status, ..Plan::of(ops) };
    let plans = vec![
        Plan::sized(&[3]),
        of("204 No Content", vec![]),
        of("302 Found", vec![]),
        of("404 Not Found", vec![Op::Write(3)]),
        of("503 Service Unavailable", vec![]),
        of("999 Beyond", vec![]),
        Plan::of(vec![Op::Refuse(504)]),
        Plan::of(vec![Op::Done]),
        Plan::of(vec![Op::Begin, Op::Refuse(500)]),
    ];
    let mut world = World::new(timeless(), plans);
    for id in 0..9 {
        let mut client = world.client();
        world.ask(&mut client, get(id).as_bytes(), 1);
    }
    assert_eq!(
        world.statistics().statuses,
        [0, 2, 1, 1, 5],
        "a head that was not sent is replaced by that of the page"
    );
    let mut client = world.client();
    client.send("PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    world.until("100 Continue arrives", &mut [&mut client], |_, clients| clients[0].interims == 1);
    assert_eq!(world.statistics().statuses, [1, 2, 1, 1, 5]);
    world.ask(&mut client, b"abc", 1);
    assert_eq!(world.statistics().statuses, [1, 3, 1, 1, 5]);
    let mut client = world.client();
    world.ask(&mut client, b"GET / HTTP/5.0\r\n\r\n", 1);
    let mut client = world.client();
    world.ask(&mut client, b"GET / HTTP/1.1\r\n\r\n", 1);
    assert_eq!((world.statistics().statuses, world.statistics().refused), ([1, 3, 1, 2, 6], 2));
}

#[test]
fn http10_client_gets_a_body_until_the_close() {
    let mut world = World::new(timeless(), vec![Plan::chunked(&[10, 20_000])]);
    let mut client = world.client();
    client.send("GET /0 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers[0].body, pattern(0, 0, 20_010));
    assert!(!client.answers[0].head.contains("Transfer-Encoding"));
}

#[test]
fn repeated_head_is_recognised() {
    let mut world = World::new(timeless(), vec![Plan::sized(&[1]); 5]);
    let mut client = world.client();
    for id in 0..5 {
        world.ask(&mut client, get(id).as_bytes(), id + 1);
    }
    let begun: Vec<_> = world
        .app
        .log
        .iter()
        .filter_map(|event| {
            if let Event::Begin { repeated, retained, .. } = event { Some((*repeated, *retained)) } else { None }
        })
        .collect();
    assert_eq!(begun, [(false, false), (false, true), (true, false), (true, false), (true, false)]);
}
