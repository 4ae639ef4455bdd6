//! The gateway's files that know no Python, tested where there is no interpreter to link. The tests are those in the
//! files, which `cargo test -p gateway` runs with the rest of the crate wherever it can be linked.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs, reason = "the files are parts of the crate")]

#[path = "../src/text.rs"]
mod text;

#[path = "../src/limit.rs"]
mod limit;

#[path = "../src/mounts.rs"]
mod mounts;

#[path = "../src/refusals.rs"]
mod refusals;

#[path = "../src/access_log"]
mod access_log {
    mod format;
}

#[path = "../src/host"]
mod host {
    mod index;
    mod limits;
}

#[path = "../src/log_writer"]
mod log_writer {
    mod ending;
    mod forks;
    mod log;
    mod target;
}

#[path = "../src/quarantine"]
mod quarantine {
    mod layout;
}

#[path = "../src/rate_limit"]
mod rate_limit {
    mod buckets;
}

#[path = "../src/scoreboard"]
mod scoreboard {
    mod layout;
}
