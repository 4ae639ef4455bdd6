//! Responses of all kinds in all pieces, connections kept and closed, and the bytes of requests.

use crate::common::{Answering, MS, Say, error, errors, ok, plan, quantile, run, say};
use load::{Answer, Answers, Nanos, Wanted};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A name, the bytes, whether the connection ends after them, whether they answer HEAD.
const RESPONSES: &[(&str, &str, bool, bool)] = &[
    ("length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false, false),
    ("empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, false),
    ("no content", "HTTP/1.1 204 No Content\r\n\r\n", false, false),
    ("not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\n", false, false),
    ("to HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, true),
    (
        "chunked",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nX-Sum: 1\r\n\r\n",
        false,
        false,
    ),
    (
        "interim",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        false,
        false,
    ),
    ("close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", true, false),
    ("until close", "HTTP/1.1 200 OK\r\n\r\nhello", true, false),
    ("until close, empty", "HTTP/1.1 200 OK\r\n\r\n", true, false),
    ("old", "HTTP/1.0 200 OK\r\n\r\nhello", true, false),
];

/// Reads `pieces` one after another, as a connection does.
fn read(pieces: &[&[u8]], wanted: Wanted, ends: bool) -> Answer {
    let mut answers = Answers::default();
    let mut rest = Vec::new();
    let mut found = None;
    for piece in pieces {
        rest.extend_from_slice(piece);
        assert!(found.is_none(), "bytes behind the response");
        let (used, answer) = answers.next(&rest, wanted).unwrap();
        rest.drain(..used);
        found = answer;
    }
    if ends && found.is_none() {
        found = answers.end(&rest).unwrap();
    }
    assert_eq!(rest, b"");
    found.expect("a response")
}

#[test]
fn response_reads_the_same_however_it_is_cut() {
    for &(name, text, ends, answers_head) in RESPONSES {
        let bytes = text.as_bytes();
        let wanted = Wanted { answers_head, hash: true, head: true, content: true };
        let whole = read(&[bytes], wanted, ends);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single, wanted, ends), whole, "{name}, byte by byte");
        for first in 1..bytes.len() {
            assert_eq!(read(&[&bytes[..first], &bytes[first..]], wanted, ends), whole, "{name}, cut at {first}");
            for second in first + 1..bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(read(&pieces, wanted, ends), whole, "{name}, cut at {first} and {second}");
            }
        }
    }
}

/// The same through a generator, with two requests one after the other; time passes between the pieces.
#[test]
fn counts_are_the_same_however_responses_are_cut() {
    for &(name, text, ends, answers_head) in RESPONSES {
        let method = if answers_head { "HEAD" } else { "GET" };
        let run_cut = |cut: usize| {
            let server = Answering(move |now: Nanos, _, _, _: &[u8]| {
                let (first, second) = text.split_at(cut);
                let mut said = vec![(now + MS, say(first)), (now + 2 * MS, say(second))];
                said.retain(|(_, say)| !matches!(say, Say::Bytes(bytes) if bytes.is_empty()));
                if ends {
                    said.push((now + 3 * MS, Say::End));
                }
                said
            });
            let requests = json!([{"method": method, "path": "/"}]);
            let measured = run(&plan(&json!({"count": 2, "requests": requests, "timeout": 1})), server);
            assert_eq!(errors(&measured), [], "{name}, cut at {cut}");
            (
                measured.ok,
                measured.statuses.clone(),
                measured.bytes,
                measured.samples.clone(),
                measured.connections.opened,
            )
        };
        let whole = run_cut(text.len());
        assert_eq!((whole.0, whole.4), (2, if ends { 2 } else { 1 }), "{name}");
        for cut in 1..text.len() {
            assert_eq!(run_cut(cut), whole, "{name}, cut at {cut}");
        }
    }
}

#[test]
fn times_are_taken_at_the_first_and_the_last_byte() {
    let server = Answering(|now: Nanos, _, _, _: &[u8]| {
        vec![
            (now + 10 * MS, say("HTTP/1.1 200 OK\r\nContent-Le")),
            (now + 20 * MS, say("ngth: 5\r\n\r\nhel")),
            (now + 30 * MS, say("lo")),
        ]
    });
    let measured = run(&plan(&json!({"count": 3})), server);
    assert!((measured.first_byte.mean.unwrap() - 0.010).abs() < 1e-9);
    assert!((measured.service.mean.unwrap() - 0.030).abs() < 1e-9);
    assert!((measured.latency.mean.unwrap() - 0.030).abs() < 1e-9);
}

/// The requests of each connection, as the server received them.
type Seen = Rc<RefCell<Vec<Vec<String>>>>;

fn seen(changes: &Value, answer: &'static str, ends: bool) -> (load::Measured, Vec<Vec<String>>) {
    let seen: Seen = Rc::default();
    let noted = seen.clone();
    let server = Answering(move |now: Nanos, connection: usize, _, request: &[u8]| {
        let mut noted = noted.borrow_mut();
        let connections = noted.len().max(connection + 1);
        noted.resize(connections, Vec::new());
        noted[connection].push(String::from_utf8(request.to_vec()).unwrap());
        let mut said = vec![(now + MS, say(answer))];
        if ends {
            said.push((now + MS, Say::End));
        }
        said
    });
    let measured = run(&plan(changes), server);
    let seen = seen.borrow().clone();
    (measured, seen)
}

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn connection_is_used_for_as_many_requests_as_planned() {
    for (keep_alive, connections) in [(json!(true), 1), (json!(false), 12), (json!(5), 3), (json!(1), 12)] {
        let (measured, seen) = seen(&json!({"count": 12, "keep_alive": keep_alive}), HELLO, false);
        assert_eq!((measured.ok, measured.connections.opened, seen.len()), (12, connections, seen.len()));
        assert_eq!(seen.len() as u64, connections, "{keep_alive}");
        for requests in &seen {
            let (last, others) = requests.split_last().unwrap();
            let is_whole = requests.len() as u64 == 12 / connections || connections == 3 && requests.len() == 5;
            assert!(others.iter().all(|request| !request.contains("Connection")));
            assert_eq!(last.contains("Connection: close\r\n"), is_whole && connections > 1, "{keep_alive} {last}");
        }
    }
}

#[test]
fn http10_request_states_whether_to_keep_the_connection() {
    let answer = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello";
    let (measured, seen) = seen(&json!({"count": 4, "keep_alive": true, "version": "1.0"}), answer, false);
    assert_eq!((measured.ok, measured.connections.opened), (4, 1));
    assert_eq!(seen[0][0], "GET / HTTP/1.0\r\nHost: example.test\r\nConnection: Keep-Alive\r\n\r\n");
    let answer = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let (measured, seen) = self::seen(&json!({"count": 4, "keep_alive": false, "version": "1.0"}), answer, true);
    assert_eq!((measured.ok, measured.connections.opened, errors(&measured)), (4, 4, vec![]));
    assert_eq!(seen[0][0], "GET / HTTP/1.0\r\nHost: example.test\r\n\r\n");
    // A server that does not keep connections alive is no error, whatever was requested.
    let (measured, _) = self::seen(&json!({"count": 4, "keep_alive": true, "version": "1.0"}), answer, true);
    assert_eq!((measured.ok, measured.connections.opened, errors(&measured)), (4, 4, vec![]));
}

#[test]
fn requests_are_sent_as_given() {
    let requests = json!([
        {"path": "/a?b=c", "fields": [["User-Agent", "x"], ["host", "other"], ["Accept", "*/*"]]},
        {"method": "POST", "path": "/form", "body": "aGVsbG8="},
        {"method": "POST", "path": "/"},
        {"method": "DELETE", "path": "/x"},
        {"path": "/browser", "fields": [["Connection", "keep-alive"]]},
    ]);
    let (measured, seen) = seen(&json!({"count": 6, "requests": requests}), HELLO, false);
    assert_eq!(measured.ok, 6);
    let expected = [
        "GET /a?b=c HTTP/1.1\r\nUser-Agent: x\r\nhost: other\r\nAccept: */*\r\n\r\n",
        "POST /form HTTP/1.1\r\nHost: example.test\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: example.test\r\nContent-Length: 0\r\n\r\n",
        "DELETE /x HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "GET /browser HTTP/1.1\r\nHost: example.test\r\nConnection: keep-alive\r\n\r\n",
        "GET /a?b=c HTTP/1.1\r\nUser-Agent: x\r\nhost: other\r\nAccept: */*\r\n\r\n",
    ];
    assert_eq!(seen, [expected]);
    assert_eq!(measured.bytes.sent, expected.iter().map(|request| request.len() as u64).sum::<u64>());
}

#[test]
fn chunked_body_is_sent_in_chunks() {
    let requests = json!([{"method": "POST", "path": "/", "body": "aGVsbG8=", "chunked": true}]);
    let (_, seen) = seen(&json!({"count": 1, "requests": requests, "timeout": 0.5}), HELLO, false);
    // The server of these tests knows no chunks, and reads only the head.
    assert_eq!(seen[0][0], "POST / HTTP/1.1\r\nHost: example.test\r\nTransfer-Encoding: chunked\r\n\r\n");
}

#[test]
fn requests_are_drawn_by_their_weight() {
    let requests = json!([{"path": "/a", "weight": 1}, {"path": "/never", "weight": 0}, {"path": "/b", "weight": 3}]);
    let (_, seen) = seen(&json!({"count": 4000, "requests": requests, "order": "random", "seed": 9}), HELLO, false);
    let count = |path: &str| seen[0].iter().filter(|request| request.starts_with(&format!("GET {path} "))).count();
    assert_eq!(count("/never"), 0);
    assert_eq!(count("/a") + count("/b"), 4000);
    assert!(count("/a").abs_diff(1000) < 100, "{}", count("/a"));
}

/// Counts how many requests are at the server at a time, and checks that all of a batch arrive together.
#[test]
fn pipelined_requests_are_unanswered_at_the_same_time() {
    let server = Answering(|now: Nanos, _, nth, _: &[u8]| vec![(now + MS + (nth % 8) as u64, ok("hello"))]);
    let changes = json!({"model": {"closed": {"connections": 2, "pipeline": 8}}, "duration": 1});
    let measured = run(&plan(&changes), server);
    // 16 requests are unanswered for a ms each.
    assert!((measured.rate - 16_000.0).abs() < 200.0, "{}", measured.rate);
    assert_eq!((measured.connections.opened, errors(&measured)), (2, vec![]));
}

/// In the open model requests are sent ahead when they are due. `pipeline` limits how many; only then another
/// connection is opened, up to the limit of connections.
#[test]
fn arrivals_are_pipelined_before_a_connection_is_opened() {
    // One request every 10 ms. Each connection answers one after the other, and takes 35 ms for each.
    let run_with = |pipeline: usize, most: usize| {
        let under_way = Rc::new(RefCell::new(BTreeMap::<usize, (Nanos, usize)>::new()));
        let deepest = Rc::new(RefCell::new(0));
        let (seen, deep) = (Rc::clone(&under_way), Rc::clone(&deepest));
        let server = Answering(move |now: Nanos, connection, _, _: &[u8]| {
            let mut seen = seen.borrow_mut();
            let (until, _) = seen.entry(connection).or_default();
            *until = now.max(*until) + 35 * MS;
            let waiting = usize::try_from((*until - now).div_ceil(35 * MS)).unwrap();
            let mut deep = deep.borrow_mut();
            *deep = waiting.max(*deep);
            vec![(*until, ok("hello"))]
        });
        let open = json!({"rate": 100, "pipeline": pipeline, "max_connections": most, "max_wait": 60});
        let measured = run(&plan(&json!({"model": {"open": open}, "count": 100, "timeout": 60})), server);
        assert_eq!((measured.ok, errors(&measured)), (100, vec![]));
        let deepest = *deepest.borrow();
        (measured, deepest)
    };
    // There are enough connections: 3.5 requests are unanswered on average.
    let (measured, deepest) = run_with(1, 100);
    assert_eq!((measured.connections.opened, deepest), (4, 1));
    assert!(quantile(&measured.latency, 1.0) < 0.036);
    let (measured, deepest) = run_with(8, 1);
    assert_eq!((measured.connections.opened, deepest), (1, 8));
    // The last request is due after 0.99 s and answered after 3.5 s, whether it waited in the generator or at the
    // server.
    let slowest = quantile(&measured.latency, 1.0);
    assert!((slowest - 2.51).abs() < 0.01, "{slowest}");
    let in_service = quantile(&measured.service, 1.0);
    assert!((in_service - 8.0 * 0.035).abs() < 0.01, "{in_service}");
    // As few connections as possible, and no deeper pipelining than allowed.
    let (measured, deepest) = run_with(4, 100);
    assert!(measured.connections.opened > 1 && deepest <= 4, "{} {deepest}", measured.connections.opened);
}

/// A server may close after any response; unanswered requests go to another connection (RFC 9112 section 9.3.2).
#[test]
fn requests_left_by_an_orderly_close_are_sent_again() {
    for last in
        ["HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\n\r\nhello"]
    {
        let server = Answering(move |now: Nanos, _, nth, _: &[u8]| match nth {
            0..3 => vec![(now + MS, ok("hello"))],
            3 => vec![(now + MS, say(last)), (now + MS, Say::End)],
            _ => vec![],
        });
        let changes = json!({"model": {"closed": {"connections": 1, "pipeline": 8}}, "count": 40});
        let measured = run(&plan(&changes), server);
        assert_eq!((measured.ok, errors(&measured)), (40, vec![]));
        assert_eq!(measured.connections.opened, 10);
        assert!(measured.resent > 0);
    }
}

/// The same in the open model. The times at which the requests were due do not change.
#[test]
fn requests_left_by_an_orderly_close_are_sent_again_in_the_open_model() {
    let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    let server = Answering(move |now: Nanos, _, nth, _: &[u8]| match nth {
        0..3 => vec![(now + 5 * MS, ok("hello"))],
        3 => vec![(now + 5 * MS, say(last)), (now + 5 * MS, Say::End)],
        _ => vec![],
    });
    let open = json!({"rate": 1000, "pipeline": 8, "max_connections": 2});
    let measured = run(&plan(&json!({"model": {"open": open}, "count": 40})), server);
    assert_eq!((measured.ok, errors(&measured)), (40, vec![]));
    assert!(measured.connections.opened >= 10, "{}", measured.connections.opened);
    assert!(measured.resent > 0);
}

/// A server that resets the connection fails them.
#[test]
fn requests_left_by_a_reset_fail() {
    let server = Answering(|now: Nanos, connection, nth, _: &[u8]| match (connection, nth) {
        (0, 2) => vec![(now + MS, Say::End)],
        (0, 3..) => vec![],
        _ => vec![(now + MS, ok("hello"))],
    });
    let changes = json!({"model": {"closed": {"connections": 1, "pipeline": 4}}, "count": 20});
    let measured = run(&plan(&changes), server);
    assert_eq!(errors(&measured), [error("unanswered", "", 4)]);
    assert_eq!((measured.ok, measured.failed), (16, 4));
}

#[test]
fn idle_connection_may_be_closed_by_the_server() {
    let server = || Answering(|now: Nanos, _, _, _: &[u8]| vec![(now + MS, ok("hello")), (now + 20 * MS, Say::End)]);
    for model in [json!({"closed": {"connections": 1, "think": 0.1}}), json!({"open": {"rate": 10}})] {
        let measured = run(&plan(&json!({"model": model, "count": 10})), server());
        assert_eq!((measured.ok, errors(&measured)), (10, vec![]));
        assert_eq!((measured.connections.opened, measured.connections.closed_idle), (10, 9));
    }
}

#[test]
fn unsolicited_bytes_are_an_error() {
    let server = Answering(|now: Nanos, _, nth, _: &[u8]| {
        let mut said = vec![(now + MS, ok("hello"))];
        if nth == 0 {
            said.push((now + 5 * MS, say("HTTP/1.1 408 Request Timeout\r\n\r\n")));
        }
        said
    });
    let measured = run(&plan(&json!({"model": {"closed": {"connections": 1, "think": 0.05}}, "count": 3})), server);
    // No request has failed because of them.
    assert_eq!((measured.ok, measured.failed), (3, 0));
    assert_eq!(errors(&measured), [error("malformed", "Unasked", 2)]);
    assert!(measured.errors[0].example.contains("408"), "{}", measured.errors[0].example);
}

#[test]
fn invalid_plans_are_refused() {
    let base = json!({
        "target": {"host": "a", "addresses": ["127.0.0.1:80"]},
        "model": {"closed": {"connections": 1}},
        "count": 1,
        "requests": [{"path": "/"}],
    });
    let read = |changes: &Value| {
        let mut plan = base.clone();
        for (key, value) in changes.as_object().unwrap() {
            plan[key] = value.clone();
        }
        load::Plan::read(&plan.to_string())
    };
    assert!(read(&json!({})).is_ok());
    for (changes, words) in [
        (json!({"count": 0}), "count: at least 1"),
        (json!({"count": null}), "duration: give this or count"),
        (json!({"duration": 1}), "duration: give this or count"),
        (json!({"target": {"host": "a"}}), "target: give addresses or a Unix socket"),
        (json!({"target": {"host": "a", "addresses": ["example.test:80"]}}), "invalid socket address"),
        (json!({"model": {"closed": {"connections": 0}}}), "model.closed.connections"),
        (json!({"model": {"open": {"rate": 0}}}), "model.open.rate"),
        (json!({"model": {"open": {"rate": 1e300}}}), "model.open.rate"),
        (json!({"model": {"open": {"rate": 1, "connections": 5, "max_connections": 4}}}), "more than max_connections"),
        (json!({"model": {"open": {"rate": 1, "pipeline": 0}}}), "model.open.pipeline"),
        (json!({"model": {"open": {"rate": 1, "think": 4}}}), "unknown field `think`"),
        (json!({"timeout": 0}), "timeout: 0 is not from 0.001"),
        (json!({"timeout": -1}), "timeout"),
        (json!({"keep_alive": 0}), "keep_alive"),
        (json!({"requests": []}), "requests: at least one"),
        (json!({"nonsense": 1}), "unknown field `nonsense`"),
        (json!({"interval": 1e-9}), "interval"),
    ] {
        let error = read(&changes).expect_err(&changes.to_string()).to_string();
        assert!(error.contains(words), "{changes}: {error}");
    }
    assert!(load::Plan::read("{").is_err());
}

#[test]
fn invalid_requests_are_refused() {
    for (request, words) in [
        (json!({"path": "no slash"}), "requests[0]: the target must be"),
        (json!({"path": "/", "method": "GE T"}), "requests[0]: the method must be a token"),
        (json!({"path": "/", "fields": [["A B", "x"]]}), "requests[0]: field \"A B\""),
        (json!({"path": "/", "fields": [["A", "x\r\nB: y"]]}), "requests[0]: field \"A\""),
        (json!({"path": "/", "fields": [["Content-Length", "5"]]}), "follow from the body"),
        (json!({"path": "/", "fields": [["Host", "a"], ["Host", "b"]]}), "Host is given twice"),
        (json!({"path": "/", "body": "?"}), "body: not base64"),
        (json!({"path": "/", "checks": {"sha256": "abc"}}), "64 hexadecimal digits"),
    ] {
        let plan = plan(&json!({"count": 1, "requests": [request]}));
        let error = load::run(&plan, |_| load::Control::GoOn).expect_err(&request.to_string()).to_string();
        assert!(error.contains(words), "{request}: {error}");
    }
}
