//! Tests of the load generator, in one binary, because linking takes long.

mod accuracy;
mod arrivals;
mod common;
mod failures;
mod null;
mod protocol;
mod sockets;
