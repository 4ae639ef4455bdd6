//! The generator with the operating system's sockets, which a simulated network cannot replace.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use load::result::Ended;
use load::{Control, Measured, Plan};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn plan(target: &Value, changes: &Value) -> Plan {
    let mut plan = json!({
        "target": target,
        "model": {"closed": {"connections": 4}},
        "requests": [{"path": "/"}],
        "timeout": 20,
    });
    for (key, value) in changes.as_object().unwrap() {
        plan[key] = value.clone();
    }
    Plan::read(&plan.to_string()).unwrap_or_else(|error| panic!("{error}"))
}

fn run(target: &Value, changes: &Value) -> Measured {
    load::run(&plan(target, changes), |_| Control::GoOn).unwrap()
}

fn at(listener: &TcpListener) -> Value {
    json!({"host": "localhost", "addresses": [listener.local_addr().unwrap().to_string()]})
}

fn classes(measured: &Measured) -> Vec<&str> {
    measured.errors.iter().map(|error| error.class.as_str()).collect()
}

/// Reads one request without a body; `None` at the end.
fn request(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        request.push(byte[0]);
    }
    Some(request)
}

/// Answers each request of a connection in a thread.
fn serve(mut stream: impl Read + Write + Send + 'static) {
    thread::spawn(move || {
        while let Some(request) = request(&mut stream) {
            if stream.write_all(HELLO).is_err() || request.windows(5).any(|part| part == b"close") {
                break;
            }
        }
    });
}

fn tcp_server() -> (TcpListener, Value) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = at(&listener);
    let accepting = listener.try_clone().unwrap();
    thread::spawn(move || accepting.incoming().flatten().for_each(serve));
    (listener, target)
}

#[test]
fn run_over_tcp_measures_all_requests() {
    let (_listener, target) = tcp_server();
    for (keep_alive, opened) in [(json!(true), 4), (json!(false), 200)] {
        let changes = json!({"count": 200, "keep_alive": keep_alive, "checks": {"sha256": "first"}});
        let measured = run(&target, &changes);
        assert_eq!((measured.ok, classes(&measured)), (200, vec![]));
        assert_eq!(measured.connections.opened, opened);
        assert_eq!(measured.connect.count, opened);
        // Opening connections takes time, and requests have waited for it.
        assert!(measured.connect.min.unwrap() > 0.0);
        assert!(measured.latency.max.unwrap() >= measured.connect.max.unwrap());
        assert_eq!(measured.bytes.received, 200 * HELLO.len() as u64);
    }
}

#[test]
fn addresses_are_used_in_turn() {
    let Ok(six) = TcpListener::bind("[::1]:0") else {
        eprintln!("not tested: this machine has no IPv6");
        return;
    };
    let four = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [six.local_addr().unwrap().to_string(), four.local_addr().unwrap().to_string()];
    let (sender, receiver) = mpsc::channel();
    for listener in [six, four] {
        let sender = sender.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                sender.send(stream.peer_addr().unwrap().is_ipv6()).ok();
                serve(stream);
            }
        });
    }
    let measured = run(&json!({"host": "localhost", "addresses": addresses}), &json!({"count": 20}));
    assert_eq!(measured.ok, 20);
    assert_eq!(receiver.try_iter().filter(|&is_six| is_six).count(), 2);
}

#[test]
fn run_over_unix_sockets_measures_all_requests() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(serve));
    let target = json!({"host": "localhost", "unix": path});
    let measured = run(&target, &json!({"count": 100, "keep_alive": 10, "model": {"closed": {"connections": 1}}}));
    assert_eq!((measured.ok, measured.connections.opened, classes(&measured)), (100, 10, vec![]));

    let missing = json!({"host": "localhost", "unix": directory.path().join("none")});
    let measured = run(&missing, &json!({"count": 1}));
    assert_eq!((measured.errors[0].class.as_str(), measured.errors[0].detail.as_str()), ("connect", "ENOENT"));
}

#[cfg(target_os = "linux")]
#[test]
fn run_over_an_abstract_socket_measures_all_requests() {
    use std::os::linux::net::SocketAddrExt;

    let name = format!("kirsch-load-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(serve));
    let measured = run(&json!({"host": "localhost", "unix": format!("@{name}")}), &json!({"count": 10}));
    assert_eq!((measured.ok, classes(&measured)), (10, vec![]));
}

/// The system does not wait for space in the queue of a Unix socket; the generator does.
#[test]
fn connecting_to_a_full_unix_queue_is_retried() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        UnixListener::from(socket).incoming().flatten().for_each(serve);
    });
    let changes = json!({"count": 40, "model": {"closed": {"connections": 20}}});
    let measured = run(&json!({"host": "localhost", "unix": path}), &changes);
    assert_eq!((measured.ok, classes(&measured)), (40, vec![]));
    assert!(measured.connect.max.unwrap() > 0.05, "{:?}", measured.connect);
}

#[test]
fn run_ends_as_unreachable_when_the_port_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = at(&listener);
    drop(listener);
    let began = Instant::now();
    let measured = run(&target, &json!({"duration": 60, "patience": 0.5}));
    assert_eq!((measured.ended, classes(&measured)), (Ended::Unreachable, vec!["refused"]));
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn failures_are_counted_when_the_server_is_killed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = at(&listener);
    let dead = Arc::new(AtomicBool::new(false));
    let is_dead = dead.clone();
    thread::spawn(move || {
        let mut streams: Vec<TcpStream> = Vec::new();
        for stream in listener.incoming().flatten().take(4) {
            streams.push(stream.try_clone().unwrap());
            serve(stream);
        }
        drop(listener);
        thread::sleep(Duration::from_millis(200));
        is_dead.store(true, Ordering::SeqCst);
        for stream in streams {
            stream.shutdown(Shutdown::Both).ok();
        }
    });
    let measured = run(&target, &json!({"duration": 60, "patience": 0.5}));
    assert!(dead.load(Ordering::SeqCst));
    assert_eq!(measured.ended, Ended::Unreachable);
    assert!(measured.ok > 0);
    assert!(classes(&measured).contains(&"refused"), "{:?}", measured.errors);
}

fn hex_digit(digit: u8) -> char {
    char::from_digit(digit.into(), 16).unwrap()
}

/// More than the socket buffers hold, in both directions at once.
#[test]
fn large_bodies_arrive_whole_in_both_directions() {
    const LENGTH: usize = 9_000_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = at(&listener);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut body = vec![0; LENGTH];
                while request(&mut stream).is_some() {
                    stream.read_exact(&mut body).unwrap();
                    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").unwrap();
                    stream.write_all(&body).unwrap();
                }
            });
        }
    });
    // This long period is no multiple of any buffer's size.
    let body: Vec<u8> = (0..=250).cycle().take(LENGTH).collect();
    let hash: String = Sha256::digest(&body).iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_digit).collect();
    let requests = json!([{"method": "POST", "path": "/", "body": STANDARD.encode(body)}]);
    let changes = json!({
        "count": 6, "requests": requests, "checks": {"sha256": hash}, "model": {"closed": {"connections": 2}},
    });
    let measured = run(&target, &changes);
    assert_eq!((measured.ok, classes(&measured)), (6, vec![]));
    assert_eq!((measured.connections.opened, measured.bytes.bodies), (2, 6 * LENGTH as u64));
    assert!(measured.service.min.unwrap() > measured.first_byte.min.unwrap());
}

/// A server that refuses a body answers and closes while the body is still being sent: the answer counts.
#[test]
fn answer_sent_before_the_request_is_complete_counts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = at(&listener);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            request(&mut stream);
            stream.write_all(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            // Held open for a moment, as careful servers do, so that no reset overtakes the answer.
            thread::sleep(Duration::from_millis(50));
        }
    });
    let requests = json!([{"method": "POST", "path": "/", "body": "A".repeat(12_000_000)}]);
    let changes = json!({"count": 2, "requests": requests, "model": {"closed": {"connections": 1}}});
    let measured = run(&target, &changes);
    assert_eq!(measured.errors.len(), 1, "{:?}", measured.errors);
    assert_eq!((measured.errors[0].class.as_str(), measured.errors[0].detail.as_str()), ("status", "413"));
}

#[test]
fn observer_of_the_progress_can_stop_the_run() {
    let (_listener, target) = tcp_server();
    for (answer, ended) in [(Control::Stop, Ended::Stopped), (Control::Interrupt, Ended::Interrupted)] {
        let plan = plan(&target, &json!({"duration": 60, "progress": 0.05, "warmup": {"seconds": 0.1}}));
        let mut reports = Vec::new();
        let measured = load::run(&plan, |progress| {
            reports.push(progress.clone());
            if progress.elapsed > 0.4 { answer } else { Control::GoOn }
        })
        .unwrap();
        assert_eq!(measured.ended, ended);
        assert!(measured.ok > 0 && measured.window.seconds < 30.0);
        assert!(reports.len() >= 3);
        assert!(
            reports.windows(2).all(|pair| pair[0].elapsed < pair[1].elapsed && pair[0].answered <= pair[1].answered)
        );
        let answered: u64 = reports.iter().map(|progress| progress.latest.answered).sum();
        assert_eq!(answered, reports.last().unwrap().answered);
        assert_eq!(measured.series.iter().map(|interval| interval.answered).sum::<u64>(), answered);
    }
}

#[test]
fn generator_is_punctual_and_reports_its_processor_time() {
    let (_listener, target) = tcp_server();
    let open = json!({"open": {"rate": 300, "connections": 4}});
    let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let start = began + 0.3;
    let measured = run(&target, &json!({"model": open, "duration": 1, "start_at": start}));
    assert_eq!((measured.requests, measured.failed), (300, 0));
    assert!(measured.started >= start - 0.001 && measured.started < start + 10.0);
    // A poller alone waits for whole milliseconds, so that all requests would be half a millisecond late on average.
    // Other processes use this machine, so only the better half of the requests is checked.
    let lag = load::Histogram::decode(&measured.lag.histogram).unwrap();
    assert!(lag.quantile(0.25).unwrap() < 400_000, "{:?}", lag.quantile(0.25));
    assert_eq!(lag.len(), 300);
    assert!(measured.processor.used > 0.0 && measured.processor.used < measured.window.seconds * 1.1);
    assert!(measured.processor.idle > 0.0);
}
