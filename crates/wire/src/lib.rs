//! Protocols as pure state machines: bytes in, events out.
//!
//! Nothing here knows sockets, clocks, files or Python; the crate's dependencies enforce that. The owner of a socket
//! passes in the received bytes and sends the bytes that are returned. Only this crate writes protocol bytes, error
//! pages included.
//!
//! [`message`] has what all protocols share: the heads of requests and responses, limits, and the rules that a peer can
//! break. [`http1`] reads and writes them as HTTP/1.1 does, [`http2`] as HTTP/2 does; [`cgi`] and [`fastcgi`] as web
//! servers pass them on. [`files`] decides what of a file a request gets, and [`edge`] what
//! authorities and clients without https get. [`proxy`] reads the header that a load balancer
//! sends before the first request, and [`forwarded`] finds the client of a request behind proxies. [`websocket`] is what
//! a connection of HTTP can turn into.
#![forbid(unsafe_code)]

pub mod cgi;
pub mod edge;
pub mod fastcgi;
pub mod files;
pub mod forwarded;
mod grammar;
pub mod http1;
pub mod http2;
pub mod message;
mod other_protocols;
pub mod proxy;
pub mod websocket;
