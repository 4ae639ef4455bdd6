//! Certificates that Kirsch obtains or makes.
//!
//! [`Account`] and [`Order`] are the client's side of ACME (RFC 8555), of renewal information (RFC 9773) and of profiles,
//! by the crate `instant-acme`. The caller sends the requests ([`Http`]) and waits between them, so nothing here opens a
//! socket, reads a clock or needs a runtime. The caller also stores what has to be stored.
//!
//! [`make`] makes keys, certificate requests, the certificates of challenges, and those of development. [`confine`]
//! takes rights from the process.
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
