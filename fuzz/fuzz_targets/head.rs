//! Invariant: a request head reads the same whole and in pieces. Written again from what was read, it reads as the
//! same. A head that repeats on its connection reads the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::http1::{BodyStep, Head, Receiver};
use wire::message::{Field, Limits};
use wire_fuzz::{Event, check_cuts, limit_sets, requests, version_text};

/// The head in its canonical form.
fn written(head: &Head) -> Vec<u8> {
    let mut out =
        [head.request.method, b" ", head.request.target.raw, b" ", version_text(head.request.version), b"\r\n"]
            .concat();
    for field in head.request.fields {
        out.extend_from_slice(
            &[field.name(head.request.block), b": ", field.value(head.request.block), b"\r\n"].concat(),
        );
    }
    out.extend_from_slice(b"\r\n");
    out
}

fn events(data: &[u8], limits: &Limits) -> Vec<Event> {
    requests(data, &[], 1, limits).0.into_iter().take(1).collect()
}

fuzz_target!(|data: &[u8]| {
    for limits in limit_sets() {
        check_cuts(data, |data, cuts| requests(data, cuts, 1, &limits));
    }
    // A rewritten line may be longer by the space after its colon.
    let limits = Limits { field_line: 9000, head: 100_000, ..Limits::default() };
    let mut receiver = Receiver::default();
    let mut fields: Vec<Field> = Vec::new();
    let Ok(Some(head)) = receiver.head(data, &mut fields, &limits) else { return };
    let out = written(&head);
    assert_eq!(events(data, &limits), events(&out, &limits));

    // The first head of a connection is not kept, the second is, and the third repeats it.
    let mut receiver = Receiver::default();
    for nth in 0..4 {
        let head = receiver.head(&out, &mut fields, &limits).expect("read before").expect("whole");
        assert_eq!(head.request.is_repeated(), nth >= 2);
        assert_eq!(written(&head), out);
        assert_eq!(head.length, out.len());
        // The body is left out: a connection of heads alone.
        let body = match head.request.body {
            wire::message::BodyLength::None | wire::message::BodyLength::Known(0) => continue,
            wire::message::BodyLength::Known(length) if length < 1 << 16 => vec![b'x'; length as usize],
            wire::message::BodyLength::Known(_) => return,
            wire::message::BodyLength::Unknown => b"0\r\n\r\n".to_vec(),
        };
        let mut rest = &body[..];
        loop {
            let (used, step) = receiver.body(rest, &limits).expect("a body of ours");
            rest = &rest[used..];
            if step == BodyStep::End {
                break;
            }
        }
        assert!(rest.is_empty());
    }
});
