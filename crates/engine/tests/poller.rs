//! The poller of the operating system, with a descriptor of an event loop beside the engine's.

use engine::Os;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[test]
fn waits_end_for_as_long_as_what_is_watched_beside_is_readable() {
    let (_net, mut poller, waker) = Os::new().unwrap();
    let (mut reader, mut writer) = UnixStream::pair().unwrap();
    poller.watch_beside(reader.try_clone().unwrap().into()).unwrap();
    let mut ready = Vec::new();
    poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
    assert!(!poller.take_beside());

    writer.write_all(b"x").unwrap();
    for _ in 0..3 {
        poller.wait(None, &mut ready).unwrap();
        assert!(poller.take_beside());
        // The poller reports the descriptor once for each wait.
        assert!(!poller.take_beside());
    }
    assert!(ready.is_empty());

    // Both at once.
    waker.wake();
    while ready.is_empty() {
        poller.wait(None, &mut ready).unwrap();
    }
    assert!(poller.take_beside());

    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 1);
    poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
    assert!(!poller.take_beside());
}
