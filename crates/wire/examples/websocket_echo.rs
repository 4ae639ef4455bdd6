//! A WebSocket server that sends each message back, for `make autobahn`: it proves [`wire::websocket`] alone, over
//! blocking sockets and a thread for each connection. It is not part of any distribution.
//!
//! `websocket_echo [ADDRESS] [--client-context BITS]` prints the address that it listens on, and serves until it is
//! killed. By default it listens on a free port of the loopback interface.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use wire::http1::{self, Head};
use wire::message::{Limits, Stamp};
use wire::websocket::{
    Carrier, Compression, Connection, DeflateSettings, Event, Kind, Opening, Outgoing, Role, Wait, WebSocketLimits,
};

/// How long a peer may take for anything.
const DEADLINE: Duration = Duration::from_secs(60);

fn main() -> io::Result<()> {
    let (mut address, mut settings) = ("127.0.0.1:0".to_owned(), DeflateSettings::default());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--client-context" {
            let bits = arguments.next().and_then(|bits| bits.parse().ok());
            settings.client_context_bits = Some(bits.expect("--client-context is followed by a number of bits"));
        } else {
            address = argument;
        }
    }
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    io::stdout().flush()?;
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            if let Err(error) = serve(stream, settings) {
                eprintln!("a connection ended: {error}");
            }
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream, settings: DeflateSettings) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let Some(mut connection) = open(&mut stream, settings, &mut input, &mut out)? else { return Ok(()) };
    let mut compression = Compression::new(6);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let mut at = 0;
        while at < input.len() {
            let (used, event) = connection.next(&mut input[at..], &mut compression);
            at += used;
            if let Event::Message { kind, bytes } = event {
                let message = match kind {
                    Kind::Text => Outgoing::Text(str::from_utf8(&bytes).expect("text is UTF-8")),
                    Kind::Binary => Outgoing::Binary(&bytes),
                };
                connection.send(message, &mut compression, 0, &mut out).map_err(io::Error::other)?;
            }
            connection.flush(0, &mut out);
        }
        stream.write_all(&out)?;
        out.clear();
        if connection.waits_for() == Wait::End {
            return Ok(());
        }
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        input.clear();
        input.extend_from_slice(&buffer[..length]);
    }
}

/// Reads the opening handshake and answers it. What follows it stays in `input`.
fn open(
    stream: &mut TcpStream,
    settings: DeflateSettings,
    input: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> io::Result<Option<Connection>> {
    let stamp = Stamp::new("", 0).expect("an empty name is valid");
    let limits = Limits::default();
    let (mut receiver, mut fields) = (http1::Receiver::default(), Vec::new());
    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(None);
        }
        input.extend_from_slice(&buffer[..length]);
        let head = receiver.head(input, &mut fields, &limits).map_err(|fault| io::Error::other(fault.explanation()))?;
        let Some(Head { request, length, .. }) = head else { continue };
        let opening = Opening::read(&request, Carrier::Http1).map(|opening| {
            let subprotocol = opening.subprotocols().first().copied();
            let agreement = opening.agree(subprotocol, Some(settings)).expect("the subprotocol is offered");
            agreement.write([], &stamp, out).expect("there are no fields of an application");
            agreement.deflate
        });
        input.drain(..length);
        match opening {
            Ok(deflate) => {
                return Ok(Some(Connection::new(Role::Server, deflate, WebSocketLimits::default())));
            }
            Err(refusal) => {
                let text = refusal.text();
                let mut sender =
                    http1::Sender::begin(&refusal.draft(&text), http1::close_after(false), None, &stamp, out);
                let _ = sender.open(text.len() as u64, out);
                out.extend_from_slice(text.as_bytes());
                stream.write_all(out)?;
                return Ok(None);
            }
        }
    }
}
