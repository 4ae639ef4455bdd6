//! The rules of RFC 9113 that the other files have no case for. `tests/http2/musts.toml` lists all of them, with the
//! case of each.

use super::*;

const HEAD: &str = "head 1 GET / host: a\n";
const POST: &str = "head 1 POST / host: a body\n";

fn check(name: &str, frames: &[Vec<u8>], expected: &str) {
    assert_outcome(name, &connection(frames), expected);
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// Everything that a server sends by itself after these frames.
fn sent(input: &[Vec<u8>]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let (mut server, limits, input) = (ServerConnection::default(), limits(), connection(input));
    server.open(10, &limits);
    let (mut at, mut out) = (0, Vec::new());
    while at < input.len() {
        at += server.next(&input[at..], &mut HeadScratch::default(), &limits).expect("valid").0;
    }
    server.write_control(&mut out);
    frames(&out)
}

#[test]
fn server_begins_with_its_settings_and_acknowledges_those_of_the_client() {
    let found = sent(&[]);
    let (kind, flags, stream, payload) = &found[0];
    assert_eq!((*kind, *flags, *stream), (SETTINGS, 0, 0));
    for setting in payload.as_chunks::<6>().0 {
        let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
        match u16::from_be_bytes([setting[0], setting[1]]) {
            2 => assert_eq!(value, 0, "a server allows no push"),
            4 => assert!(value < 1 << 31),
            5 => assert!((16_384..1 << 24).contains(&value)),
            _ => {}
        }
    }
    let acknowledged = |found: &[(u8, u8, u32, Vec<u8>)]| {
        found.iter().filter(|it| (it.0, it.1, it.2, it.3.len()) == (SETTINGS, ACK, 0, 0)).count()
    };
    assert_eq!(acknowledged(&found), 1);
    assert_eq!(acknowledged(&sent(&[frame(SETTINGS, 0, 0, &setting(4, 7)), frame(SETTINGS, ACK, 0, b"")])), 2);
}

#[test]
fn server_uses_no_flag_and_no_bit_that_is_not_defined() {
    let (mut server, mut out, stamp) = (opened(&[get(1)]), Vec::new(), Stamp::new("k", 0).unwrap());
    server.begin(1, &draft(&[("X-A", "b")]), terms(false), None, &stamp, &mut out);
    server.frame(1, b"hello", &mut out);
    server.end_response(1, &mut out);
    let all = sent(&[get(1), frame(PING, 0, 0, b"12345678"), frame(WINDOW_UPDATE, 0, 1, &[0; 4])]);
    for (kind, flags, stream, _) in all.into_iter().chain(frames(&out)) {
        let defined = match kind {
            DATA => END_STREAM,
            HEADERS => END_STREAM | END_HEADERS,
            SETTINGS | PING => ACK,
            RST_STREAM | WINDOW_UPDATE => 0,
            _ => panic!("an unexpected frame {kind}"),
        };
        assert_eq!((flags & !defined, stream >> 31), (0, 0), "frame {kind}");
    }
}

#[test]
fn server_sends_no_frame_beyond_16_384_bytes_whatever_the_client_allows() {
    let large = [setting(4, 1 << 20), setting(5, 1 << 20)].concat();
    let window = frame(WINDOW_UPDATE, 0, 0, &[0, 0x10, 0, 0]);
    let (mut server, mut out) = (opened(&[frame(SETTINGS, 0, 0, &large), window, get(1)]), Vec::new());
    let long = "v".repeat(40_000);
    server.begin(1, &draft(&[("x", &long)]), terms(false), None, &Stamp::new("", 0).unwrap(), &mut out);
    server.frame(1, &vec![0; 100_000], &mut out);
    let found = frames(&out);
    assert!(found.iter().all(|it| it.3.len() <= 16_384));
    // The block is whole before anything else is sent.
    let block: Vec<_> = found.iter().take_while(|it| it.0 != DATA).map(|it| (it.0, it.1 & END_HEADERS, it.2)).collect();
    assert_eq!(block.first(), Some(&(HEADERS, 0, 1)));
    assert_eq!(block.last(), Some(&(CONTINUATION, END_HEADERS, 1)));
    assert!(block[1..].iter().all(|it| (it.0, it.2) == (CONTINUATION, 1)));
    assert_eq!(found.iter().filter(|it| it.0 == DATA).map(|it| it.3.len()).sum::<usize>(), 100_000);
}

#[test]
fn frames_are_read_and_ignored_as_far_as_the_rfc_says() {
    let mut reserved = get(1);
    reserved[5] |= 0x80;
    check("reserved bit is ignored", &[reserved], HEAD);
    let fields = block(&fields("GET", &[]));
    check("undefined flags are ignored", &[frame(HEADERS, 0xd2 | 5, 1, &fields)], HEAD);
    check("unknown frame is ignored", &[frame(0xee, 0xff, 9, b"abc"), get(1)], HEAD);
    check("unknown setting is ignored", &[frame(SETTINGS, 0, 0, &setting(0xeeee, 7)), get(1)], HEAD);
    let data = "a".repeat(16_384);
    let whole = format!("{POST}data 1 {data}\nend 1");
    check("frame of 16,384 bytes", &[post(1), frame(DATA, END_STREAM, 1, data.as_bytes())], &whole);
    let reset = |code: u32| frame(RST_STREAM, 0, 1, &code.to_be_bytes());
    let over = format!("{HEAD}reset 1\n");
    check("unknown error code is one like others", &[get(1), reset(0xeeee_eeee)], &over);
    check("reset is not answered", &[get(1), reset(8), reset(8)], &over);
    check("goaway with an unknown code", &[frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0xee, 0, 0, 0]), get(1)], HEAD);
    check("window update behind the end", &[get(1), frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 9])], HEAD);
    check("priority of an idle stream", &[frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 9]), get(1)], HEAD);
}

#[test]
fn rules_of_frames_have_the_code_that_the_rfc_names() {
    let broken = |violation: Violation, last: u32| {
        format!("broken {}\n> goaway {last} {}", violation.name(), violation.code() as u32)
    };
    for (name, frames, violation, code) in [
        ("priority on the connection", frame(PRIORITY, 0, 0, &[0; 5]), Violation::StreamZeroMisused, 1),
        ("reset on the connection", frame(RST_STREAM, 0, 0, &[0; 4]), Violation::StreamZeroMisused, 1),
        ("settings of 7", frame(SETTINGS, 0, 0, &[0; 7]), Violation::FrameLengthInvalid, 6),
        ("ping of 9", frame(PING, 0, 0, &[0; 9]), Violation::FrameLengthInvalid, 6),
        ("window update of 5", frame(WINDOW_UPDATE, 0, 0, &[0; 5]), Violation::FrameLengthInvalid, 6),
        ("continuation on the connection", frame(CONTINUATION, 4, 0, b""), Violation::ContinuationUnexpected, 1),
    ] {
        assert_eq!(violation.code() as u32, code, "{name}");
        check(name, &[frames], &broken(violation, 0));
    }
    let ended = frame(CONTINUATION, END_HEADERS, 1, b"");
    let expected = HEAD.to_owned() + &broken(Violation::ContinuationUnexpected, 1);
    check("continuation behind a whole block", &[get(1), ended], &expected);
    let wrong =
        [(V::CompressionInvalid, 9), (V::WindowTooLarge, 3), (V::SettingWindowTooLarge, 3), (V::StreamEnded, 5)];
    for (violation, code) in wrong.into_iter().chain([(V::FrameTooLarge, 6), (V::StreamsTooMany, 7)]) {
        assert_eq!(violation.code() as u32, code);
    }
}

use Violation as V;

/// Returns the report of ten uploads with these fields.
fn ten_heads(fields: &str) -> String {
    let mut heads = String::new();
    for at in 0..10 {
        writeln!(heads, "head {} POST / host: a{fields} body", 2 * at + 1).unwrap();
    }
    heads
}

#[test]
fn stream_beyond_the_limit_is_refused_and_not_processed() {
    // The limit is 10.
    let frames: Vec<Vec<u8>> = (0..11).map(|at| post(2 * at + 1)).collect();
    check("eleven streams", &frames, &(ten_heads("") + "> reset 21 7"));
}

#[test]
fn ping_is_answered_with_its_bytes_and_an_answer_is_not() {
    check("ping", &[frame(PING, 0, 0, b"\x01\x02345678")], "> ping 1 [1, 2, 51, 52, 53, 54, 55, 56]");
    check("answer to a ping", &[frame(PING, ACK, 0, b"12345678")], "");
}

#[test]
fn settings_are_taken_in_their_order_and_a_window_may_become_negative() {
    let twice = [setting(4, 1), setting(4, 100)].concat();
    let (mut server, mut out) = (opened(&[frame(SETTINGS, 0, 0, &twice), get(1)]), Vec::new());
    server.begin(1, &draft(&[]), terms(false), None, &Stamp::new("", 0).unwrap(), &mut out);
    assert_eq!(server.window(1), 100, "the last value counts");
    server.frame(1, &[0; 80], &mut out);
    let limits = limits();
    let mut read = |frame: &[u8]| {
        server.next(frame, &mut HeadScratch::default(), &limits).expect("valid");
        server.window(1)
    };
    assert_eq!(read(&frame(SETTINGS, 0, 0, &setting(4, 30))), 0, "it is -50");
    assert_eq!(read(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 50])), 0, "it is 0");
    assert_eq!(read(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 7])), 7);
}

#[test]
fn each_byte_of_a_field_is_judged_as_the_rfc_says() {
    let reset = "> reset 1 1";
    for byte in 0..=u8::MAX {
        let field = |name: &[u8], value: &[u8]| {
            let mut encoded = block(&fields("GET", &[]));
            Encoder::default().field(name, value, Indexing::Never, &mut encoded);
            connection(&[frame(HEADERS, 5, 1, &encoded)])
        };
        let is_refused = |input: &[u8]| outcome(input, &[input.len()], &limits()).contains(reset);
        // Section 8.2.1 names the least; a token (RFC 9110 section 5.1) has fewer characters still.
        if byte <= 0x20 || byte.is_ascii_uppercase() || byte >= 0x7f || byte == b':' {
            assert!(is_refused(&field(&[b'a', byte], b"v")), "name with {byte}");
        }
        let in_value = matches!(byte, 0 | b'\n' | b'\r');
        assert!(!in_value || is_refused(&field(b"a", &[b'v', byte, b'v'])), "value with {byte}");
        if matches!(byte, b' ' | b'\t') {
            assert!(is_refused(&field(b"a", &[byte, b'v'])) && is_refused(&field(b"a", &[b'v', byte])));
        }
        // Visible characters are allowed.
        assert!(!byte.is_ascii_graphic() || !is_refused(&field(b"a", &[byte])), "value of {byte}");
        assert!(!byte.is_ascii_lowercase() || !is_refused(&field(&[byte], b"")), "name of {byte}");
    }
}

#[test]
fn block_of_a_refused_stream_is_decoded() {
    let mut encoder = Encoder::default();
    let mut head = |stream: u32| {
        let mut encoded = Vec::new();
        for (name, value) in fields("POST", &[("x-a", "b")]) {
            encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Incremental, &mut encoded);
        }
        frame(HEADERS, END_HEADERS, stream, &encoded)
    };
    // Stream 21 is one too many, and its block refers to entries of the ones before; stream 23 to those of 21.
    let mut frames: Vec<Vec<u8>> = (0..11).map(|at| head(2 * at + 1)).collect();
    frames.extend([frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), head(23)]);
    let mut expected = ten_heads(" x-a: b");
    expected += "reset 1\nhead 23 POST / host: a x-a: b body\n> reset 21 7";
    check("refused block", &frames, &expected);
}

#[test]
fn late_frames_on_streams_closed_long_ago_are_ignored_if_the_client_began_with_3() {
    let (mut frames, mut expected) = (Vec::new(), String::new());
    for id in (3..143).step_by(2) {
        frames.extend([get(id), frame(RST_STREAM, 0, id, &[0, 0, 0, 8])]);
        expected += &(HEAD.to_owned() + "reset 1\n").replace('1', &id.to_string());
    }
    frames.extend([frame(WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]), frame(DATA, 0, 3, &[0; 20])]);
    // A number that was left out cannot be told from one of a stream that closed long ago behind a gap.
    frames.extend([frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), frame(RST_STREAM, 0, 1, &[0; 4])]);
    check("late frames", &frames, &expected);
}
