//! Certificates that Kirsch obtains or creates.
//!
//! [`Account`] and [`Order`] implement the client of ACME (RFC 8555) with renewal information (RFC 9773) and profiles,
//! based on the crate `instant-acme`. The caller sends the requests ([`Http`]) and waits between them, so this crate
//! opens no socket, reads no clock and needs no runtime. The caller also stores all data.
//!
//! [`make`] creates keys, certificate requests, challenge certificates and development certificates. [`confine`]
//! restricts the rights of the process.
#![forbid(unsafe_code)]

mod account;
mod confine;
mod error;
mod http_client;
pub mod make;
mod order;

pub use account::{Account, ExternalAccount, Renewal};
pub use confine::{Confinement, confine};
pub use error::AcmeError;
pub use http_client::{Http, Request, Response};
pub use order::{Challenge, Order};
