//! Protocols as pure state machines: bytes in, events out.
//!
//! This crate has no access to sockets, clocks, files or Python; its dependencies enforce that. The owner of a socket
//! passes in the received bytes and sends the bytes that are returned. No other crate writes protocol bytes, not even
//! those of error pages.
//!
//! [`message`] has the parts that all protocols share: the heads of requests and responses, limits, and the rules that
//! a peer can break. [`http1`] and [`http2`] read and write messages of HTTP/1.1 and HTTP/2, [`cgi`] and [`fastcgi`]
//! those that web servers forward. [`files`] decides which part of a file answers a request, and [`edge`] answers
//! certificate authorities and clients that do not use https. [`proxy`] reads the header that a load balancer sends
//! before the first request, and [`forwarded`] finds the client of a request behind proxies. [`websocket`] is the
//! protocol to which an HTTP connection can switch.
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
