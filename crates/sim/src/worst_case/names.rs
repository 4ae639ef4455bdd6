//! The names of the measures, protocols and hosts.

use std::fmt::{self, Display};
use std::str::FromStr;

macro_rules! named {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident = $name:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type { $($(#[$doc])* $variant),* }

        impl $type {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
        }

        impl Display for $type {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.pad(match self { $(Self::$variant => $name),* })
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($name => Ok(Self::$variant),)*
                    _ => Err(format!("{} is none of {:?}", text, [$($name),*])),
                }
            }
        }
    };
}

named! {
    /// The protocol of the attackers. The innocent client always speaks HTTP/1.
    Protocol {
        /// HTTP/1.
        Http = "http",
        /// HTTP/2 without TLS.
        Http2 = "http2",
        /// WebSocket with permessage-deflate.
        WebSocket = "websocket",
        /// FastCGI.
        FastCgi = "fastcgi",
        /// SCGI.
        Scgi = "scgi",
        /// uwsgi.
        Uwsgi = "uwsgi",
        /// HTTP/1 after a header of the PROXY protocol.
        Proxy = "proxy",
    }
}

named! {
    /// The kind of program that polls the engine.
    Host {
        /// A thread that runs each call as soon as a poll returns it: the leader of the pool, or the only thread.
        Threads = "threads",
        /// A loop that takes all calls of one round of the engine, and then runs them: asyncio, or gevent's hub.
        Loop = "loop",
    }
}

named! {
    /// The measured quantity. The table in [`worst_case`](super) has the units.
    Measure {
        /// Steps per byte.
        Work = "work",
        /// Bytes of memory kept per byte.
        Kept = "kept",
        /// Steps by which another client is delayed.
        Delay = "delay",
    }
}
