//! Failures of the server are classified, and no run hangs. Time is virtual.

use crate::common::{
    Answering, Connecting, MS, SECOND, Say, Server, error, errors, ok, plan, quantile, run, run_until, say,
};
use load::result::Ended;
use load::{Measured, Nanos};
use rustix::io::Errno;
use serde_json::{Value, json};

/// Makes one request, to which the server sends these parts, each 1 ms after the one before.
fn respond(parts: Vec<Say>, changes: &Value) -> Measured {
    let mut changes = changes.clone();
    if changes.get("count").is_none() && changes.get("duration").is_none() {
        changes["count"] = json!(1);
    }
    let server = Answering(move |now: Nanos, _, _, _: &[u8]| {
        parts.iter().zip(1..).map(|(part, after)| (now + after * MS, part.clone())).collect()
    });
    run(&plan(&changes), server)
}

fn assert_fails(parts: Vec<Say>, class: &str, detail: &str, words: &str) -> Measured {
    let measured = respond(parts, &json!({"timeout": 2}));
    assert_eq!(errors(&measured), [error(class, detail, 1)]);
    let example = &measured.errors[0].example;
    assert!(example.contains(words), "{example}");
    assert_eq!((measured.requests, measured.failed, measured.ended), (1, 1, Ended::Complete));
    measured
}

#[test]
fn each_failure_has_its_class() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    assert_fails(vec![Say::End], "unanswered", "", "without an answer");
    assert_fails(vec![Say::Reset], "reset", "", "GET /");
    assert_fails(vec![say("HTTP/1.1 2"), Say::End], "closed_early", "", "in its head: b\"HTTP/1.1 2\"");
    assert_fails(vec![say(head), say("hell"), Say::End], "closed_early", "", "after 4 of 10 bytes");
    assert_fails(vec![say(head), say("hell"), Say::Reset], "reset", "", "broke");
    assert_fails(vec![], "timeout", "head", "within 2 s");
    assert_fails(vec![say("HTTP/1.1 200 OK\r\n")], "timeout", "head", "within 2 s");
    assert_fails(vec![say(head), say("hell")], "timeout", "body", "4 bytes of its body");
    assert_fails(vec![say("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")], "status", "500", "status 500: GET /");
    assert_fails(
        vec![say("SSH-2.0-OpenSSH_9.9\r\n")],
        "malformed",
        "VersionMalformed",
        "b\"SSH-2.0-OpenSSH_9.9\\r\\n\"",
    );
    assert_fails(vec![say("\x16\x03\x01\0\0 no HTTP at all\r\n")], "malformed", "VersionMalformed", "\\x16\\x03");
    assert_fails(
        vec![say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")],
        "malformed",
        "ChunkSizeInvalid",
        "after 0 answers",
    );
    assert_fails(
        vec![say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), Say::End],
        "closed_early",
        "",
        "after 5 bytes",
    );
    assert_fails(vec![say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello")], "malformed", "Unasked", "b\"lo\"");
}

/// The same with each response of `tests/corpus/responses.json`, at once and byte by byte.
#[test]
fn malformed_response_is_reported_by_the_broken_rule() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../../tests/corpus/responses.json")).unwrap();
    assert!(cases.len() > 50);
    for case in cases {
        let piece = |piece: &Value| match piece {
            Value::String(text) => text.clone(),
            _ => piece[0].as_str().unwrap().repeat(usize::try_from(piece[1].as_u64().unwrap()).unwrap()),
        };
        let text: String = case["said"].as_array().unwrap().iter().map(piece).collect();
        let bytes: Vec<u8> = text.chars().map(|character| u8::try_from(character).unwrap()).collect();
        let end = case["ends"].as_bool().unwrap_or_default().then_some(Say::End);
        let method = case["method"].as_str().unwrap_or("GET");
        let fault = case["fault"].as_str().unwrap();
        let (class, detail) = if fault == "Truncated" { ("closed_early", "") } else { ("malformed", fault) };
        let plan = json!({"requests": [{"method": method, "path": "/"}], "timeout": 1000});
        let measured = respond([Say::Bytes(bytes.clone())].into_iter().chain(end.clone()).collect(), &plan);
        assert_eq!(errors(&measured), [error(class, detail, 1)], "{}", case["name"]);
        // Bytes that follow a whole response a little later could belong to an answer without a request.
        if fault != "Unasked" {
            let single = bytes.iter().map(|&byte| Say::Bytes(vec![byte])).chain(end).collect();
            assert_eq!(errors(&respond(single, &plan)), [error(class, detail, 1)], "{}, byte by byte", case["name"]);
        }
    }
}

#[test]
fn response_that_does_not_end_times_out() {
    let endless = |piece: &'static str| {
        Answering(move |now: Nanos, _, _, _: &[u8]| {
            let mut said = vec![(now, say("HTTP/1.1 200 OK\r\n"))];
            said.extend((1..100_000).map(|n| (now + n * MS, say(piece))));
            said
        })
    };
    let measured = run(&plan(&json!({"count": 1})), endless("X-Field: value\r\n"));
    assert_eq!(errors(&measured), [error("malformed", "FieldsTooMany", 1)]);
    let measured = run(&plan(&json!({"count": 1})), endless("xxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
    assert_eq!(errors(&measured), [error("malformed", "FieldLineTooLong", 1)]);
    let measured = run(&plan(&json!({"count": 1})), endless("\r\n"));
    assert_eq!(errors(&measured), [error("timeout", "body", 1)]);
    assert!((measured.failed_latency.max.unwrap() - 30.0).abs() < 0.01);
}

#[test]
fn wrong_body_is_reported() {
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let with = |checks: Value, bodies: &'static [&'static str]| {
        let server = Answering(move |now: Nanos, _, nth, _: &[u8]| vec![(now + MS, ok(bodies[nth % bodies.len()]))]);
        let measured = run(&plan(&json!({"count": 10, "checks": checks})), server);
        assert_eq!(measured.answered, 10);
        (measured.ok, errors(&measured))
    };
    assert_eq!(with(json!({"length": "first"}), &["hello", "world"]), (10, vec![]));
    assert_eq!(with(json!({"length": "first"}), &["hello", "bye"]), (5, vec![error("length", "", 5)]));
    assert_eq!(with(json!({"length": 3}), &["hello", "bye"]), (5, vec![error("length", "", 5)]));
    assert_eq!(with(json!({"sha256": "first"}), &["hello", "world"]), (5, vec![error("hash", "", 5)]));
    assert_eq!(with(json!({"sha256": hello}), &["world", "hello"]), (5, vec![error("hash", "", 5)]));
    assert_eq!(with(json!({"status": [404, [500, 599]]}), &["hello"]), (0, vec![error("status", "200", 10)]));
    assert_eq!(with(json!({"status": []}), &["hello"]), (10, vec![]));
}

#[test]
fn first_response_is_kept_as_a_sample() {
    let measured = respond(vec![ok("hello")], &json!({"requests": [{"path": "/a"}, {"path": "/b"}], "count": 5}));
    assert_eq!(measured.samples.len(), 2);
    let sample = &measured.samples[1];
    assert_eq!((sample.request, sample.status, sample.length), (1, 200, 5));
    assert_eq!(sample.head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(sample.sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    assert_eq!((measured.bytes.heads, measured.bytes.bodies), (5 * sample.head.len() as u64, 25));
    assert_eq!(measured.bytes.received, measured.bytes.heads + measured.bytes.bodies);
}

/// A server that treats each attempt to connect as listed; the last entry applies to all further ones. It answers after
/// 1 ms.
struct Door(Vec<Connecting>, usize);

impl Server for Door {
    fn connect(&mut self, _: Nanos, _: usize) -> Connecting {
        self.1 += 1;
        self.0[(self.1 - 1).min(self.0.len() - 1)]
    }

    fn request(&mut self, now: Nanos, _: usize, _: usize, _: &[u8]) -> Vec<(Nanos, Say)> {
        vec![(now + MS, ok("hello"))]
    }
}

#[test]
fn failed_connections_are_classified() {
    let with = |connecting| {
        let changes = json!({"count": 1, "timeout": 2, "patience": null});
        errors(&run(&plan(&changes), Door(vec![connecting], 0)))
    };
    assert_eq!(with(Connecting::Fails(0, Errno::CONNREFUSED)), [error("refused", "", 1)]);
    assert_eq!(with(Connecting::Fails(MS, Errno::CONNREFUSED)), [error("refused", "", 1)]);
    assert_eq!(with(Connecting::Fails(MS, Errno::NETUNREACH)), [error("connect", "ENETUNREACH", 1)]);
    assert_eq!(with(Connecting::Fails(0, Errno::ACCESS)), [error("connect", "EACCES", 1)]);
    assert_eq!(with(Connecting::Fails(0, Errno::MFILE)), [error("local", "EMFILE", 1)]);
    assert_eq!(with(Connecting::Hangs), [error("timeout", "connect", 1)]);
    assert_eq!(with(Connecting::Full), [error("timeout", "connect", 1)]);
}

#[test]
fn connecting_is_retried_when_the_queue_is_full() {
    let server = Door(vec![Connecting::Full, Connecting::Full, Connecting::Opens(0)], 0);
    let measured = run(&plan(&json!({"count": 1})), server);
    assert_eq!((measured.ok, errors(&measured)), (1, vec![]));
    assert!((measured.connect.max.unwrap() - 0.002).abs() < 1e-4, "{:?}", measured.connect);
    assert!(measured.latency.max.unwrap() >= 0.003);
}

#[test]
fn run_ends_when_the_server_is_unreachable() {
    for connecting in [Connecting::Fails(0, Errno::CONNREFUSED), Connecting::Hangs, Connecting::Full] {
        for model in [json!({"closed": {"connections": 10}}), json!({"open": {"rate": 50, "connections": 3}})] {
            let changes = json!({"model": model, "duration": 600, "patience": 3});
            let measured = run(&plan(&changes), Door(vec![connecting], 0));
            assert_eq!(measured.ended, Ended::Unreachable);
            assert!(!measured.errors.is_empty(), "{model} {connecting:?}: nothing says why");
            assert!((measured.window.seconds - 3.0).abs() < 0.1, "{:?}", measured.window);
            // A user that cannot connect waits longer and longer.
            assert!(measured.requests <= 200, "{}", measured.requests);
        }
    }
}

/// A server that serves, is gone for a while, and serves again.
struct Restarting {
    gone: std::ops::Range<Nanos>,
}

impl Server for Restarting {
    fn connect(&mut self, now: Nanos, _: usize) -> Connecting {
        if self.gone.contains(&now) {
            Connecting::Fails(MS / 10, Errno::CONNREFUSED)
        } else {
            Connecting::Opens(MS / 10)
        }
    }

    fn request(&mut self, now: Nanos, _: usize, _: usize, _: &[u8]) -> Vec<(Nanos, Say)> {
        if self.gone.contains(&now) { vec![(now + MS, Say::Reset)] } else { vec![(now + 10 * MS, ok("hello"))] }
    }
}

#[test]
fn run_continues_when_the_server_comes_back() {
    let closed = json!({"closed": {"connections": 10}});
    let server = Restarting { gone: 2 * SECOND..4 * SECOND };
    let measured = run(&plan(&json!({"model": closed, "duration": 10})), server);
    assert_eq!(measured.ended, Ended::Complete);
    let classes: Vec<_> = measured.errors.iter().map(|error| error.class.as_str()).collect();
    assert_eq!(classes, ["refused", "reset"]);
    assert_eq!(measured.errors[1].count, 10);
    assert!((measured.errors[1].at - 2.0).abs() < 0.1);
    let answered: Vec<_> = measured.series.iter().map(|interval| interval.answered).collect();
    assert_eq!(answered[3], 0);
    // A user that found the server gone may have to wait for a second.
    assert!(answered[5..10].iter().all(|&answered| answered >= 950), "{answered:?}");
    let failed: u64 = measured.series.iter().map(|interval| interval.failed).sum();
    assert_eq!(failed, measured.failed);
}

/// In the open model, only requests that are due meanwhile fail.
#[test]
fn requests_due_while_the_server_is_gone_fail() {
    let server = Restarting { gone: 2 * SECOND..4 * SECOND };
    let measured = run(&plan(&json!({"model": {"open": {"rate": 100}}, "duration": 10})), server);
    assert_eq!(measured.requests, 1000);
    assert!((195..=205).contains(&measured.failed), "{}", measured.failed);
}

#[test]
fn requests_that_find_no_connection_are_dropped_and_counted() {
    let slow = || Answering(|now: Nanos, _, _, _: &[u8]| vec![(now + SECOND, ok("hello"))]);
    // The server can answer 10 a second; 100 are due.
    let open = json!({"rate": 100, "max_connections": 10, "max_waiting": 20});
    let measured = run(&plan(&json!({"model": {"open": open}, "duration": 10})), slow());
    assert_eq!((measured.requests, measured.connections.opened), (1000, 10));
    assert!(measured.ok.abs_diff(120) <= 10, "{}", measured.ok);
    assert_eq!(measured.dropped, 1000 - measured.ok);
    assert!(quantile(&measured.latency, 0.99) <= 3.1);

    let open = json!({"rate": 100, "max_connections": 10, "max_wait": 0.5});
    let measured = run(&plan(&json!({"model": {"open": open}, "duration": 10})), slow());
    assert!(measured.latency.max.unwrap() <= 1.51, "{:?}", measured.latency.max);
    assert!((measured.failed_latency.max.unwrap() - 0.5).abs() < 0.01);
    assert_eq!(measured.requests, 1000);

    let open = json!({"rate": 100, "max_connections": 10, "max_waiting": 0});
    let measured = run(&plan(&json!({"model": {"open": open}, "duration": 10})), slow());
    assert_eq!((measured.late, measured.ok + measured.dropped), (0, 1000));
    assert!(measured.ok.abs_diff(100) <= 10, "{}", measured.ok);
}

#[test]
fn interrupted_run_keeps_its_counts() {
    let server = || Answering(|now: Nanos, _, _, _: &[u8]| vec![(now + 100 * MS, ok("hello"))]);
    let changes = json!({"model": {"closed": {"connections": 5}}, "duration": 100, "warmup": {"seconds": 1}});
    let measured = run_until(&plan(&changes), server(), 3_050 * MS, 0);
    assert_eq!((measured.ended, measured.unfinished), (Ended::Interrupted, 5));
    assert!((measured.window.seconds - 2.05).abs() < 0.01);
    assert!((measured.rate - 50.0).abs() < 3.0, "{}", measured.rate);
    let measured = run_until(&plan(&changes), server(), 500 * MS, 0);
    assert_eq!((measured.requests, measured.answered), (0, 0));
    assert!(measured.discarded.requests >= 20);
    assert!(measured.window.seconds.abs() < 1e-9);
    assert_eq!(measured.latency.mean, None);
}

#[test]
fn plan_with_a_count_measures_exactly_that_many() {
    let server = || Answering(|now: Nanos, _, _, _: &[u8]| vec![(now + MS, ok("hello"))]);
    for model in [json!({"closed": {"connections": 7}}), json!({"open": {"rate": 1000}})] {
        let changes = json!({"model": model, "count": 100, "warmup": {"requests": 33}});
        let measured = run(&plan(&changes), server());
        assert_eq!((measured.requests, measured.ok, measured.discarded.requests), (100, 100, 33));
        assert!((measured.rate / 7000.0 - 1.0).abs() < 0.1 || (measured.rate / 1000.0 - 1.0).abs() < 0.1);
    }
}

/// The generator waits for a server that answers slowly at the end: otherwise the slow answers would be missing.
#[test]
fn requests_unanswered_at_the_end_of_the_window_are_measured() {
    let server = Answering(|now: Nanos, _, _, _: &[u8]| {
        vec![(now + if now >= 9 * SECOND { 5 * SECOND } else { MS }, ok("hello"))]
    });
    let open = json!({"rate": 10, "max_connections": 1000});
    let measured = run(&plan(&json!({"model": {"open": open}, "duration": 10})), server);
    assert_eq!((measured.requests, measured.ok), (100, 100));
    assert!((measured.latency.max.unwrap() - 5.0).abs() < 0.01);
    // The rate still counts the answers of the window.
    assert_eq!(measured.answered, 90);
    assert!((measured.rate - 9.0).abs() < 0.01);
}
