//! Tests of the host with a minimal interface that is not WSGI, so they show that the host does not depend on WSGI.

use super::{AnyEngines, AppParts, EngineIndex, Engines, Hooks, Host, Limits, Plan, ServerShared, Stop};
use crate::clock;
use crate::interface::{
    Acceptance, Answer, Exchange, ExchangeHost, Handles, Input, Interface, Remote, RequestBody, RequestObject,
    Requests, ResponseBody, Route, Summary,
};
use crate::object::{Chunk, Object};
use crate::testing::attach;
use engine::{Config, Engine, Os, WebSocketConfig};
use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyCFunction, PyDict, PyList};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tls::{TlsListener, TlsNet};
use wire::message::RequestHead;

/// An interface that calls a Python callable with a dict of method and target, and with the request body. The callable
/// returns the body of a response with status 200: `bytes` for the whole body, or a list of parts. If it returns True,
/// the interface accepts a WebSocket and then panics.
struct Plain {
    application: Object,
    /// All exchanges that the interface has handed out, for tests that keep one.
    kept: Arc<Mutex<Vec<Arc<Exchange>>>>,
}

struct PlainRequests;

struct PlainHandles(Arc<Exchange>);

struct Parts(std::vec::IntoIter<Object>);

impl Requests for PlainRequests {
    type Connection = ();

    fn begin(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        _: Route,
        _: &Remote,
        (): &mut (),
    ) -> Option<RequestObject> {
        let request = PyDict::new(py);
        request.set_item("method", String::from_utf8_lossy(head.method)).ok()?;
        request.set_item("target", String::from_utf8_lossy(head.target.raw)).ok()?;
        Some(Object::from(request.into_any().unbind()).into())
    }
}

impl Handles for PlainHandles {
    fn exchange(&self) -> &Exchange {
        &self.0
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl ResponseBody for Parts {
    fn start(&mut self, _: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Chunk>> {
        self.0.next().map(|part| Chunk::of(py, part)).transpose()
    }

    fn ends_at_length(&self) -> bool {
        false
    }

    fn regular_file(&self, _: Python<'_>) -> Option<(File, u64, u64)> {
        None
    }

    fn close(self, _: Python<'_>) -> PyResult<()> {
        Ok(())
    }
}

impl Interface for Plain {
    type Requests = PlainRequests;
    type Handles = PlainHandles;
    type Body = Parts;

    fn take_handles(&self, _: Python<'_>, _: Route, host: &Weak<dyn ExchangeHost>) -> PyResult<PlainHandles> {
        let exchange = Arc::new(Exchange::new(Weak::clone(host)));
        self.kept.lock().unwrap().push(Arc::clone(&exchange));
        Ok(PlainHandles(exchange))
    }

    fn return_handles(&self, _: Python<'_>, _: PlainHandles) {}

    fn prepare(
        &self,
        py: Python<'_>,
        request: &Object,
        handles: &PlainHandles,
        input: Input,
    ) -> PyResult<Option<Object>> {
        let body = match input.body {
            RequestBody::Empty | RequestBody::WebSocket => PyBytes::new(py, b"").into_any(),
            RequestBody::Bytes(bytes) => bytes.bind(py),
            RequestBody::File(spooled) => {
                let mut bytes = Vec::new();
                spooled.0.take(spooled.1).read_to_end(&mut bytes)?;
                PyBytes::new(py, &bytes).into_any()
            }
            RequestBody::Arriving => {
                let (mut bytes, mut buffer) = (Vec::new(), [0; 3]);
                while let Some(count @ 1..) = handles.exchange().read(py, &mut buffer)? {
                    bytes.extend_from_slice(&buffer[..count]);
                }
                PyBytes::new(py, &bytes).into_any()
            }
        };
        request.bind(py).set_item("body", body)?;
        Ok(None)
    }

    fn call(&self, py: Python<'_>, request: &Object, handles: &PlainHandles) -> PyResult<Answer<Parts>> {
        let returned = self.application.bind(py).call1((request.bind(py),))?;
        if returned.is(PyBool::new(py, true)) {
            assert_eq!(handles.exchange().accept(py, None, &[])?, Acceptance::Accepted);
            panic!("an interface that panics in a WebSocket");
        }
        assert!(!returned.is_none(), "an interface that panics");
        let exchange = handles.exchange();
        let mut draft = exchange.take_draft(py, false).map_err(|_| Self::unstarted())?;
        draft.start(b"200 OK").expect("it is a status");
        exchange.store_draft(py, false, draft, || ()).map_err(|_| Self::unstarted())?;
        Ok(match returned.cast::<PyList>() {
            Ok(list) => {
                let parts: Vec<Object> = list.iter().map(|part| part.unbind().into()).collect();
                Answer::Body(Parts(parts.into_iter()))
            }
            Err(_) => Answer::Whole(Chunk::of(py, returned.clone().unbind().into())?),
        })
    }

    fn unstarted() -> PyErr {
        PyAssertionError::new_err("the response has no head")
    }

    fn summary(py: Python<'_>, request: &Object) -> Summary {
        let text = |name| request.item_text(py, name);
        Summary { method: text("method"), target: text("target"), client: (None, None) }
    }
}

/// The messages that the host has reported.
#[derive(Default)]
struct Reports {
    messages: Mutex<Vec<String>>,
    has_grown: Condvar,
}

/// A server that runs on one thread, and stops when it is dropped.
struct Served {
    engines: Arc<Engines<Plain>>,
    address: SocketAddr,
    kept: Arc<Mutex<Vec<Arc<Exchange>>>>,
    /// The host's reports.
    reports: Arc<Reports>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Starts a server for the Python function `application`, which `code` defines.
    fn new(code: &std::ffi::CStr, buffers_bodies: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let kept = Arc::default();
        let reports: Arc<Reports> = Arc::default();
        let engines = attach(|py| {
            let names = PyDict::new(py);
            py.run(code, Some(&names), None).unwrap();
            let application: Object = names.get_item("application").unwrap().unwrap().unbind().into();
            let own = Arc::clone(&reports);
            let report = PyCFunction::new_closure(py, None, None, move |arguments, _| -> PyResult<()> {
                let (_, message, _): (u8, String, Py<PyAny>) = arguments.extract()?;
                own.messages.lock().unwrap().push(message);
                own.has_grown.notify_all();
                Ok(())
            });
            let (net, poller, waker) = Os::new().unwrap();
            let config = Config {
                buffer_bodies: buffers_bodies,
                websocket: Some(WebSocketConfig::default()),
                ..Config::default()
            };
            let shared = Arc::new(ServerShared::<Host<Plain>>::default());
            let host = Host::new(Plan {
                interface: Plain { application, kept: Arc::clone(&kept) },
                app: AppParts {
                    requests: PlainRequests,
                    access_log: None,
                    limits: Limits::new(None, Vec::new()),
                    buffers_bodies,
                    quarantine: None,
                    rate_limits: None,
                    multithread: false,
                    stopwatch: None,
                    is_hosted: false,
                    memories: Vec::new(),
                },
                engine: Engine::new(
                    TlsNet(net),
                    vec![TlsListener::clear(OwnedFd::from(listener).into())],
                    config,
                    clock::now(),
                )
                .unwrap(),
                poller,
                waker,
                report: Some(report.unwrap().into_any().unbind()),
                hooks: Hooks { spawn: None, waiter: None, wait: None, timeout_exception: None },
                threads: 1,
                calls_at_most: usize::MAX,
                limit: None,
                scoreboard: None,
                acceptor: None,
                engine_index: EngineIndex::first(1),
                shared: Arc::clone(&shared),
                answers_health: false,
                times_stages: false,
                compresses: false,
                replacement: None,
            });
            Arc::new(Engines::new(vec![host], shared))
        });
        let own = Arc::clone(&engines);
        let thread = std::thread::spawn(move || {
            attach(|py| {
                own.work_alone(py);
                own.finish(py).unwrap();
            });
        });
        Self { engines, address, kept, reports, thread: Some(thread) }
    }

    /// Sends these bytes, and returns everything that the server sends until it closes the connection.
    fn get(&self, request: &[u8]) -> String {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(request).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut response = Vec::new();
        socket.read_to_end(&mut response).unwrap();
        String::from_utf8(response).unwrap()
    }

    /// Waits up to 20 s for a report that contains these words, because a report may follow the response. Returns true
    /// if there is one.
    fn reported(&self, words: &str) -> bool {
        let lacks = |messages: &mut Vec<String>| !messages.iter().any(|message| message.contains(words));
        let messages = self.reports.messages.lock().unwrap();
        let patience = Duration::from_secs(20);
        !self.reports.has_grown.wait_timeout_while(messages, patience, lacks).unwrap().1.timed_out()
    }

    fn stop(&mut self) {
        attach(|py| self.engines.stop(py, Stop::NOW));
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
        }
    }
}

fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

const GET: &[u8] = b"GET /page HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

#[test]
fn test_interface_answers_as_a_whole_and_in_parts() {
    let served = Served::new(
        c"def application(request):
            text = f\"{request['method']} {request['target']}\".encode()
            return text if request['target'] == '/page' else [text, b'', b' in parts']",
        true,
    );
    let whole = served.get(GET);
    assert!(whole.starts_with("HTTP/1.1 200 OK\r\n") && whole.contains("Content-Length: 9\r\n"), "{whole}");
    assert_eq!(body(&whole), "GET /page");
    let parts = served.get(b"GET /parts HTTP/1.0\r\n\r\n");
    assert_eq!(body(&parts), "GET /parts in parts");
}

#[test]
fn test_request_body_reaches_the_interface_buffered_and_as_it_arrives() {
    for buffers_bodies in [true, false] {
        let served = Served::new(c"def application(request): return request['body']", buffers_bodies);
        let post = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 11\r\n\r\nhello world";
        assert_eq!(body(&served.get(post)), "hello world");
    }
}

#[test]
fn test_exception_of_the_application_is_a_500_and_a_report() {
    let served = Served::new(c"def application(request): raise ValueError", true);
    assert!(served.get(GET).starts_with("HTTP/1.1 500 "));
    assert!(served.reported("the application raised an exception on GET /page"));
}

#[test]
fn test_panic_in_an_interface_ends_one_exchange_only() {
    let served = Served::new(
        c"def application(request):
            if request['target'] == '/page': return None
            return b'fine'",
        true,
    );
    let response = served.get(GET);
    assert!(response.starts_with("HTTP/1.1 500 ") && response.contains("The server has failed."), "{response}");
    assert!(served.reported("this is a bug in kirsch"));
    assert_eq!(body(&served.get(b"GET / HTTP/1.0\r\n\r\n")), "fine");
}

#[test]
fn test_panic_in_a_websocket_closes_it_with_1011() {
    let served = Served::new(c"def application(request): return request['target'] == '/page' or b'fine'", true);
    let mut socket = TcpStream::connect(served.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let handshake = b"GET /page HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    socket.write_all(handshake).unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"\x88\x02\x03\xf3") {
        let mut buffer = [0; 1000];
        let count = socket.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&buffer[..count]);
    }
    assert!(received.starts_with(b"HTTP/1.1 101 "));
    let head = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(received.len() - head, 4, "nothing but a Close frame follows");
    assert!(served.reported("this is a bug in kirsch"));
    assert_eq!(body(&served.get(b"GET / HTTP/1.0\r\n\r\n")), "fine");
}

#[test]
fn test_kept_exchange_is_over_and_outlives_its_server() {
    let mut served = Served::new(c"def application(request): return b'fine'", true);
    assert_eq!(body(&served.get(GET)), "fine");
    let exchange = served.kept.lock().unwrap().pop().unwrap();
    let is_over = || {
        attach(|py| {
            let chunk = Chunk::of(py, PyBytes::new(py, b"late").into_any().unbind().into()).unwrap();
            assert!(!exchange.write(py, chunk).unwrap());
            assert_eq!(exchange.read(py, &mut [0; 3]).unwrap(), None);
            assert!(exchange.is_disconnected(py).unwrap());
            assert!(exchange.take_draft(py, true).is_err());
        });
    };
    is_over();
    served.stop();
    drop(served);
    is_over();
}
