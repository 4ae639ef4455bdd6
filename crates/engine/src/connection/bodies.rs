//! Request bodies that are received completely before the application is called, on sessions of both kinds.

use crate::app::{App, CallId, Refusal, Report};
use crate::context::EngineContext;
use crate::exchange::Exchange;
use crate::observe::{Observer, Stage};
use crate::spool::Body;
use rustix::io::Errno;
use std::io::{self, ErrorKind};

/// Gives the body of a request to the application.
pub(super) fn hand_over<A: App>(
    call: CallId,
    request: &mut A::Request,
    body: Body<'_>,
    context: &mut EngineContext<A>,
    app: &mut A,
) {
    context.observer.switch(call, Stage::Environ);
    app.receive(request, body);
    context.observer.switch(call, Stage::Parse);
}

/// Ends a body that has been received. Returns the request, which is now ready; `None` if no body was being received.
///
/// # Errors
/// If the body's file cannot be read.
pub(super) fn body_ended<A: App>(
    exchange: &mut Exchange<A>,
    call: CallId,
    context: &mut EngineContext<A>,
    app: &mut A,
) -> io::Result<Option<A::Request>> {
    let Some((mut request, body, reserved)) = exchange.state.end_body(&context.config.body_memory_total)? else {
        return Ok(None);
    };
    exchange.body_memory = Some(reserved);
    hand_over(call, &mut request, body, context, app);
    Ok(Some(request))
}

/// Reports a body that could not be stored. Returns the refusal of its request.
pub(super) fn spool_refusal<A: App>(error: io::Error, app: &mut A) -> Refusal {
    let status = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => 507,
        // No descriptor is free for a file. This is temporary: other users of descriptors will close theirs.
        _ if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)) => 503,
        _ => 500,
    };
    app.report(Report::SpoolFailed(error));
    Refusal::of_status(status)
}
