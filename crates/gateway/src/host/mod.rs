//! The host of an application: an engine with its threads or its loop, the calls and their deadlines, and the reports
//! of them. It is generic over the [`Interface`](crate::interface::Interface) that calls the application.
//!
//! ```text
//!   engines    all engines of a server
//!   control    stop, drain, reopen logs; reports    ┐
//!   listening  WebSockets whose messages are work   ├ the work of a Host
//!   hijack     connections that are the application's │
//!   call       one call, to the end of its response │
//!   suspended  calls that go on beside others      │
//!   websockets exchanges that become WebSockets     │
//!   waiting    reads, writes and waits of exchanges ┘
//!   threads    Host: one engine as its threads see it
//!   state      the state that the engine's lock guards
//!   app        the host's state that the engine calls
//!   job        the jobs to be run                   ┐
//!   calls      the calls that have not ended        │
//!   exchange   one request and its response         ├ on their own
//!   shared     data shared by a server's engines    │
//!   index, limits, sleepers                         ┘
//! ```
//!
//! Each imports those below it only.

mod app;
mod call;
mod calls;
mod control;
mod engines;
pub(crate) mod exchange;
mod hijack;
mod index;
mod job;
mod limits;
mod listening;
mod shared;
mod sleepers;
mod state;
mod suspended;
mod threads;
mod waiting;
mod websockets;

#[cfg(test)]
mod tests;

pub(crate) use app::AppParts;
pub(crate) use calls::Call;
pub(crate) use engines::{AnyEngines, Engines, HostedJob, RunJob, RunsIn, share};
pub(crate) use index::EngineIndex;
pub(crate) use limits::Limits;
pub(crate) use shared::{Hooks, Replacement, ServerShared, Stop};
pub(crate) use threads::{Host, Iteration, Plan};
