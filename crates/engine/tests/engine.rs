//! Tests of the engine through real sockets, in one binary, because linking takes long. Tests that limit the whole
//! process are in a binary of their own (`process.rs`).

mod accept;
mod bodies;
mod calls;
mod choice;
mod common;
mod deadlines;
mod fairness;
mod fastcgi;
mod health;
mod health_pending;
mod hijack;
mod holding;
mod http2;
mod http2_websocket;
mod memory;
mod multiplexed;
mod multiplexed_pending;
mod output;
mod panics;
mod proxies;
mod queue;
mod serving;
mod stages;
mod stop;
mod time;
mod transport;
mod watching;
mod websocket;
mod websocket_calls;
