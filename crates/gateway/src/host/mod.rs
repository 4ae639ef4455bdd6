//! The host of an application: an engine with its threads or its event loop, the calls with their deadlines, and the
//! reports for the error log. It is generic over the [`Interface`](crate::interface::Interface) that calls the
//! application.
//!
//! ```text
//!   engines    all engines of a server
//!   control    stop, drain, reopen logs; delivers reports        ┐
//!   waiting    what exchanges ask of a Host; waits in calls      │
//!   call       one call, to the end of its response              ├ what runs, unlocked
//!   stream     a response that is made part by part              │
//!   listening  WebSockets whose messages are work                │
//!   upgraded   the end of calls that became WebSockets           ┘
//!   slices     long parts of bodies that are encoded
//!   threads    Host: one engine as its threads see it
//!   suspended, hosting, reports                                    parts of a Host
//!   responses, websockets  operations on exchanges               ┐
//!   state      the state that the engine's lock guards           ├ what is locked
//!   app        the host's state that the engine calls            ┘
//!   job        the jobs to be run, and the calls in them
//!   calls      the calls that have not ended; call_state: their states ┐
//!   exchange   one request and its response                      ├ on their own
//!   shared     data shared by a server's engines                 │
//!   exceptions, index, limits, sleepers                          ┘
//! ```
//!
//! Each module imports only modules below it. An unfinished call ([`job::InFlight`]) has one owner at a time: the
//! thread that runs it, a [`job::Stream`] or [`job::Listening`] that the engine keeps, or [`suspended`].

mod app;
mod call;
mod call_state;
mod calls;
mod control;
mod engines;
mod exceptions;
pub(crate) mod exchange;
mod hosting;
mod index;
mod job;
mod limits;
mod message_handlers;
mod reports;
mod responses;
mod shared;
mod sleepers;
mod slices;
mod state;
mod stream;
mod suspended;
mod threads;
mod upgraded;
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
