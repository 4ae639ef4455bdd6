//! A client with rustls, for the tests of the server in `tests/test_tls_clients.py` and `tests/test_tls_load.py`.
//!
//! `client AUTHORITY PORT` asks for `/hello` three times on one connection to localhost, and prints the version of TLS
//! and the status of each response. AUTHORITY is the file of the certificate that is trusted.
//!
//! `client AUTHORITY PORT flood` uploads bytes one by one and changes its keys 30 times before each, as fast as the
//! server reads, until the server or the standard input ends. It prints the number of changes.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// One more of them without data in between ends the connection: rustls allows 32.
const KEY_UPDATES: usize = 30;

type Connection = StreamOwned<ClientConnection, TcpStream>;

fn connect(authority: &str, port: &str) -> Result<Connection, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpStream::connect(("127.0.0.1", port.parse()?))?;
    let name = ServerName::try_from("localhost")?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, socket))
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
    }
    writeln!(io::stdout(), "{changes}")?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [authority, port] => ask(connect(authority, port)?),
        [authority, port, word] if word == "flood" => flood(connect(authority, port)?),
        _ => Err("usage: client AUTHORITY PORT [flood]".into()),
    }
}
