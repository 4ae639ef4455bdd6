//! Tests of the protocols from outside, in one binary, because linking is what takes long.

mod corpus;
mod faults;
mod forwarded;
mod gateways;
mod glance;
mod http2;
mod pair;
mod proxy;
mod repeat;
mod repeat_fastcgi;
mod sender;
mod websocket;
mod websocket_pair;
