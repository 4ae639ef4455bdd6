//! Real sockets for scripted worlds: listeners, and their clients' sockets.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The address of a listener.
#[derive(Clone, Debug)]
pub enum Address {
    /// An address on the loopback interface.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Creates a listening TCP socket on the loopback interface. Its connections inherit `send_buffer` in bytes; the kernel
/// buffers about twice as many.
///
/// # Panics
/// If the loopback interface has no free port.
pub fn listen(send_buffer: Option<usize>) -> (OwnedFd, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
    let address = listener.local_addr().expect("it is bound");
    if let Some(bytes) = send_buffer {
        sockopt::set_socket_send_buffer_size(&listener, bytes).expect("a size that the kernel bounds itself");
    }
    (listener.into(), Address::Tcp(address))
}

/// Creates a listening Unix socket.
///
/// # Panics
/// If there is a file at `path`.
pub fn listen_at(path: &Path) -> (OwnedFd, Address) {
    let listener = UnixListener::bind(path).expect("a new path");
    (listener.into(), Address::Unix(path.to_owned()))
}

/// Connects a non-blocking socket to `address`. The kernel completes the connection, so the engine need not be polled.
/// `receive_buffer` limits how many unread bytes the kernel buffers.
///
/// # Errors
/// The listener is closed.
///
/// # Panics
/// If no descriptor is free.
pub fn connect(address: &Address, receive_buffer: Option<usize>) -> io::Result<OwnedFd> {
    let family = match address {
        Address::Tcp(_) => AddressFamily::INET,
        Address::Unix(_) => AddressFamily::UNIX,
    };
    let socket = rustix::net::socket(family, SocketType::STREAM, None).expect("a socket");
    if let Some(bytes) = receive_buffer {
        sockopt::set_socket_recv_buffer_size(&socket, bytes).expect("a size that the kernel bounds itself");
    }
    match address {
        Address::Tcp(address) => {
            rustix::net::connect(&socket, address)?;
            sockopt::set_tcp_nodelay(&socket, true).expect("a TCP socket");
        }
        Address::Unix(path) => rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("a short path"))?,
    }
    rustix::io::ioctl_fionbio(&socket, true).expect("a socket");
    Ok(socket)
}
