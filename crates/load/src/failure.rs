//! The ways in which a request can fail.

use crate::net::TlsFault;
use rustix::io::Errno;
use std::io;
use wire::http1::client::ServerFault;
use wire::http2::{ErrorCode, Violation};

/// A class of failures, as listed in [`result`](crate::result).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Refused,
    Connect,
    Local,
    Tls,
    Reset,
    Stream,
    GoAway,
    Unanswered,
    ClosedEarly,
    Timeout,
    Malformed,
    Status,
    Length,
    Hash,
}

impl Class {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Connect => "connect",
            Self::Local => "local",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::Stream => "stream",
            Self::GoAway => "goaway",
            Self::Unanswered => "unanswered",
            Self::ClosedEarly => "closed_early",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::Status => "status",
            Self::Length => "length",
            Self::Hash => "hash",
        }
    }
}

/// A failure: its class, and a detail that distinguishes it within the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) detail: Detail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    None,
    Name(&'static str),
    System(i32),
    Status(u16),
}

impl Failure {
    pub(crate) fn of(class: Class) -> Self {
        Self { class, detail: Detail::None }
    }

    pub(crate) fn named(class: Class, name: &'static str) -> Self {
        Self { class, detail: Detail::Name(name) }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { class: Class::Status, detail: Detail::Status(status) }
    }

    pub(crate) fn malformed(fault: ServerFault) -> Self {
        Self::named(Class::Malformed, fault.name())
    }

    pub(crate) fn violation(violation: Violation) -> Self {
        Self::named(Class::Malformed, violation.name())
    }

    /// Returns the failure for an error code that an HTTP/2 server has sent.
    pub(crate) fn code(class: Class, code: u32) -> Self {
        Self::named(class, ErrorCode::name_of(code))
    }

    /// Returns the failure for a connection that could not be opened.
    pub(crate) fn to_connect(error: &io::Error) -> Self {
        if let Some(fault) = error.get_ref().and_then(|error| error.downcast_ref::<TlsFault>()) {
            return Self::named(Class::Tls, fault.kind);
        }
        match Errno::from_io_error(error) {
            Some(Errno::CONNREFUSED) => Self::of(Class::Refused),
            Some(Errno::TIMEDOUT) => Self::named(Class::Timeout, "connect"),
            Some(
                errno @ (Errno::MFILE
                | Errno::NFILE
                | Errno::NOBUFS
                | Errno::NOMEM
                | Errno::ADDRNOTAVAIL
                | Errno::ADDRINUSE),
            ) => Self { class: Class::Local, detail: Detail::System(errno.raw_os_error()) },
            Some(errno) => Self { class: Class::Connect, detail: Detail::System(errno.raw_os_error()) },
            None => Self::of(Class::Connect),
        }
    }

    /// Returns the detail; empty if the class has no details.
    pub(crate) fn detail(self) -> String {
        match self.detail {
            Detail::None => String::new(),
            Detail::Name(name) => name.to_owned(),
            Detail::Status(status) => status.to_string(),
            Detail::System(number) => error_name(number),
        }
    }
}

/// Returns the name of an error of connect(2), or the number of any other error.
fn error_name(number: i32) -> String {
    let name = match Errno::from_raw_os_error(number) {
        Errno::ACCESS => "EACCES",
        Errno::ADDRINUSE => "EADDRINUSE",
        Errno::ADDRNOTAVAIL => "EADDRNOTAVAIL",
        Errno::CONNABORTED => "ECONNABORTED",
        Errno::CONNRESET => "ECONNRESET",
        Errno::HOSTUNREACH => "EHOSTUNREACH",
        Errno::INVAL => "EINVAL",
        Errno::LOOP => "ELOOP",
        Errno::MFILE => "EMFILE",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::NETDOWN => "ENETDOWN",
        Errno::NETUNREACH => "ENETUNREACH",
        Errno::NFILE => "ENFILE",
        Errno::NOBUFS => "ENOBUFS",
        Errno::NOENT => "ENOENT",
        Errno::NOMEM => "ENOMEM",
        Errno::NOTDIR => "ENOTDIR",
        Errno::NOTSOCK => "ENOTSOCK",
        Errno::PERM => "EPERM",
        Errno::PROTOTYPE => "EPROTOTYPE",
        _ => return format!("errno {number}"),
    };
    name.to_owned()
}
