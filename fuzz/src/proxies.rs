//! The invariants of what proxies say: headers of the PROXY protocol, and the fields that name the client.

use crate::Random;
use wire::forwarded::{Family, Forwarding, Trust, Trusted};
use wire::http1::Receiver;
use wire::message::{Client, Fault, Limits};
use wire::proxy::{HEADER_MAX, Header, ProxyFault, read};

/// A header is read with each number of its bytes up to here.
const EACH_BYTE: usize = 300;

/// Invariant: a header is the same whole and in any pieces; nothing that was decided changes with more input; the
/// header does not depend on what stands behind it.
pub fn check_proxy(data: &[u8]) {
    let whole = read(data);
    let mut decided: Option<Result<Header, ProxyFault>> = None;
    // A connection reads no more than that.
    let most = data.len().min(HEADER_MAX + 1);
    // Each byte counts where lines and addresses lie; behind them a header can only become whole.
    let ends = (0..=most.min(EACH_BYTE)).chain((EACH_BYTE + 1..most).step_by(61)).chain([most]);
    let mut before = 0;
    for end in ends {
        let found = read(&data[..end]).transpose();
        match (&decided, found) {
            (None, found) => decided = found,
            // More bytes change neither an error nor a header.
            (Some(first), found) => assert_eq!(Some(first), found.as_ref(), "with {end} bytes"),
        }
        if let Some(Ok(header)) = &decided {
            assert!(header.length <= end && (header.length > before || header.length == end));
            assert!(header.info.unique_id.as_ref().is_none_or(|id| id.len() <= 128));
            break;
        }
        if decided.is_some() && end > EACH_BYTE {
            break;
        }
        before = end;
    }
    if data.len() <= HEADER_MAX + 1 {
        assert_eq!(whole.transpose(), decided);
    }
}

/// Invariants, for the fields in `data`: a stranger's fields do not change the client and are all removed. Whatever
/// stands left of the entry that a trusted proxy has added changes nothing, in both families. The result is the same
/// for a head that comes again, and is kept.
pub fn check_forwarded(data: &[u8]) {
    let limits = Limits::default();
    let plain = [&b"GET / HTTP/1.1\r\nHost: a\r\n"[..], data].concat();
    let proxy = || Client::at(Some(([10, 0, 0, 1], 4000).into()));
    let stranger = || Client::at(Some(([192, 0, 2, 1], 4000).into()));
    let proxies = Trusted::read("10.0.0.0/8,unix").expect("valid");
    // The input decides which family is read: more inputs in the same time show more than both for each.
    let choice = Random::of(data, 0).next();
    let family = if choice % 2 == 0 { Family::X } else { Family::Rfc7239 };
    let (host, prefix) = (data.len() % 2 == 0, data.len() % 3 == 0);
    let trust = Trust { proxies, family, host, prefix };
    for peer in [proxy(), stranger()] {
        let (mut receiver, mut fields) = (Receiver::default(), Vec::new());
        let mut forwarding = Forwarding::new(peer.clone(), Some(&trust));
        let mut first: Option<Result<(Client, usize), Fault>> = None;
        for _ in 0..4 {
            let Ok(Some(head)) = receiver.head(&plain, &mut fields, &limits) else { return };
            let mut head = head.request;
            if head.body != wire::message::BodyLength::None {
                return;
            }
            let found = forwarding.apply(&mut head, Some(&trust)).map(|()| {
                let client = head.client.expect("it is set").clone();
                if peer == stranger() {
                    assert_eq!(client, peer);
                    assert!(!head.fields.iter().any(|field| wire::forwarded::is_forwarding(field.name(head.block))));
                }
                (client, head.fields.len())
            });
            assert_eq!(first.get_or_insert_with(|| found.clone()), &found);
            if found.is_err() {
                assert_eq!(peer, proxy());
                break;
            }
        }
    }
    check_left_is_ignored(data, choice / 2);
}

/// Checks that the client's own part of the field is ignored: it is in front of the proxy's part. `choice` selects the
/// proxy.
fn check_left_is_ignored(data: &[u8], choice: u64) {
    if data.iter().any(|&byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f) || data.len() > 4000 {
        return;
    }
    let proxies = [
        (Family::X, &b"X-Forwarded-For: "[..], &b", 192.0.2.7"[..]),
        (Family::Rfc7239, b"Forwarded: ", b", for=192.0.2.7;proto=https"),
        (Family::Rfc7239, b"Forwarded: ", b", for=\"192.0.2.7\";ext=\"a\\\"b\";proto=https"),
    ];
    let (family, name, entry) = proxies[(choice % 3) as usize];
    let trust = Trust { proxies: Trusted::read("10.0.0.0/8").expect("valid"), family, ..Trust::default() };
    let input = [b"GET / HTTP/1.1\r\nHost: a\r\n", name, data, entry, b"\r\n\r\n"].concat();
    let (mut receiver, mut fields) = (Receiver::default(), Vec::new());
    let head = receiver.head(&input, &mut fields, &Limits::default());
    let mut head = head.expect("valid").expect("whole").request;
    let mut forwarding = Forwarding::new(Client::at(Some(([10, 0, 0, 1], 4000).into())), Some(&trust));
    forwarding.apply(&mut head, Some(&trust)).expect("what the proxy has added is valid");
    let client = head.client.expect("it is set");
    assert_eq!(client.address, Some([192, 0, 2, 7].into()));
    assert_eq!(client.is_https, (family == Family::Rfc7239).then_some(true));
}
