//! A client with rustls, for the tests of the server in `tests/test_tls_clients.py` and `tests/test_tls_load.py`, and for
//! `scripts/tls_speed.py`. `kirsch bench` cannot stand in for it: users of a load generator need neither the resumption of
//! sessions, nor one key exchange alone, nor changes of keys.
//!
//! `client AUTHORITY PORT` asks for `/hello` three times on one connection to localhost, and prints the version of TLS
//! and the status of each response. AUTHORITY is the file of the certificate that is trusted.
//!
//! `client AUTHORITY PORT flood` uploads bytes one by one and changes its keys 30 times before each, as fast as the
//! server reads, until the server or the standard input ends. It prints `begun` after 1,000 changes, and their number at
//! the end.
//!
//! `client AUTHORITY PORT handshakes SECONDS full|resumed x25519|all` asks for `/`, each time on a new connection, with a
//! full handshake or with a session of before, and with one key exchange or all. It prints the number of connections, and
//! how many of them were resumed.
//!
//! `client AUTHORITY PORT hold COUNT` asks once on each of so many connections, prints `held`, and keeps them open until
//! the standard input ends.

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One more of them without data in between ends the connection: rustls allows 32.
const KEY_UPDATES: usize = 30;

type Connection = StreamOwned<ClientConnection, TcpStream>;

fn config(authority: &str, key_exchange: &str) -> Result<ClientConfig, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let mut provider = default_provider();
    if key_exchange == "x25519" {
        provider.kx_groups = vec![kx_group::X25519];
    }
    Ok(ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn connect(config: &Arc<ClientConfig>, port: &str) -> Result<Connection, Box<dyn Error>> {
    let socket = TcpStream::connect(("127.0.0.1", port.parse()?))?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from("localhost")?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::clone(config), name)?, socket))
}

/// Asks three times, and ends with `close_notify`, for which the server's is awaited.
fn ask(mut connection: Connection) -> Result<(), Box<dyn Error>> {
    let mut statuses = Vec::new();
    for more in ["keep-alive", "keep-alive", "close"] {
        write!(connection, "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: {more}\r\n\r\n")?;
        let mut reader = BufReader::new(&mut connection);
        let (mut line, mut length) = (String::new(), 0);
        reader.read_line(&mut line)?;
        statuses.push(line.split(' ').nth(1).unwrap_or_default().to_owned());
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        reader.read_exact(&mut vec![0; length])?;
    }
    // Without the server's close_notify this is an error (UnexpectedEof).
    connection.read_to_end(&mut Vec::new())?;
    let version = connection.conn.protocol_version().ok_or("no version has been agreed on")?;
    writeln!(io::stdout(), "{version:?} {}", statuses.join(" "))?;
    Ok(())
}

fn flood(mut connection: Connection) -> Result<(), Box<dyn Error>> {
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    thread::spawn(move || {
        io::copy(&mut io::stdin(), &mut io::sink()).ok();
        told.store(true, Ordering::Relaxed);
    });
    connection.write_all(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n")?;
    let mut changes = 0;
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..KEY_UPDATES {
            connection.conn.refresh_traffic_keys()?;
        }
        changes += KEY_UPDATES;
        if connection.write_all(b"a").is_err() {
            break;
        }
        if (1000..1000 + KEY_UPDATES).contains(&changes) {
            writeln!(io::stdout(), "begun")?;
        }
    }
    writeln!(io::stdout(), "{changes}")?;
    Ok(())
}

/// Asks once, and returns whether the session is one of before.
fn ask_once(connection: &mut Connection) -> Result<bool, Box<dyn Error>> {
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = Vec::new();
    // Not every server tells its end.
    let end = connection.read_to_end(&mut response);
    if !response.starts_with(b"HTTP/1.1 200") {
        end?;
        return Err(String::from_utf8_lossy(&response).into());
    }
    Ok(connection.conn.handshake_kind() == Some(HandshakeKind::Resumed))
}

fn shake_hands(config: ClientConfig, port: &str, seconds: f64) -> Result<(), Box<dyn Error>> {
    let config = Arc::new(config);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut count, mut resumed) = (0, 0);
    while Instant::now() < end {
        count += 1;
        resumed += u32::from(ask_once(&mut connect(&config, port)?)?);
    }
    writeln!(io::stdout(), "{count} {resumed}")?;
    Ok(())
}

fn hold(config: ClientConfig, port: &str, count: usize) -> Result<(), Box<dyn Error>> {
    let config = Arc::new(config);
    let mut held = Vec::new();
    for _ in 0..count {
        let mut connection = connect(&config, port)?;
        // A server that does not accept so many leaves the others waiting.
        connection.sock.set_read_timeout(Some(Duration::from_secs(10)))?;
        connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        if connection.read(&mut [0; 4096])? == 0 {
            return Err("the server has closed the connection".into());
        }
        held.push(connection);
    }
    writeln!(io::stdout(), "held")?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [authority, port] => ask(connect(&Arc::new(config(authority, "all")?), port)?),
        [authority, port, "flood"] => flood(connect(&Arc::new(config(authority, "all")?), port)?),
        [authority, port, "handshakes", seconds, kind @ ("full" | "resumed"), key_exchange @ ("x25519" | "all")] => {
            let mut config = config(authority, key_exchange)?;
            if *kind == "full" {
                config.resumption = Resumption::disabled();
            }
            shake_hands(config, port, seconds.parse()?)
        }
        [authority, port, "hold", count] => {
            let mut config = config(authority, "all")?;
            config.resumption = Resumption::disabled();
            hold(config, port, count.parse()?)
        }
        _ => Err("usage: client AUTHORITY PORT [flood | handshakes SECONDS KIND KEYS | hold COUNT]".into()),
    }
}
