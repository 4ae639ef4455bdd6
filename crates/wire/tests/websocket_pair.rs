//! A client and a server of WebSocket, joined: what the corpus cannot say, because it has one side of a connection.
#![cfg(not(miri))]

use crate::websocket::{OFFER, Random, agreed, answer, latin1, open, stamp};
use wire::websocket::client::Offer;
use wire::websocket::{
    CloseCode, Compression, Connection, ControlPayload, DeflateSettings, Event, Keys, Kind, Outgoing, Prepared, Role,
    SendError, Wait, WebSocketFault, WebSocketLimits,
};

struct Pair {
    client: Connection,
    server: Connection,
    compression: Compression,
}

/// The messages that an end has received, and the end of the connection.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    messages: Vec<(Kind, Vec<u8>)>,
    pongs: Vec<Vec<u8>>,
    close: Option<(u16, String)>,
    fault: Option<WebSocketFault>,
}

/// Gives `bytes` to `end`, whose answers are returned.
fn hear(end: &mut Connection, bytes: &[u8], compression: &mut Compression) -> (Heard, Vec<u8>) {
    let (mut heard, mut out, mut at) = (Heard::default(), Vec::new(), 0);
    let mut input = bytes.to_vec();
    while at < input.len() {
        let (used, event) = end.next(&mut input[at..], compression);
        at += used;
        match event {
            Event::Nothing => {}
            Event::Message { kind, bytes } => heard.messages.push((kind, bytes.into_owned())),
            Event::Pong(payload) => heard.pongs.push(payload.to_vec()),
            Event::Close(frame) => heard.close = Some((frame.number(), frame.reason.to_string())),
            Event::Fault(fault) => heard.fault = Some(fault),
        }
        end.flush(0, &mut out);
    }
    (heard, out)
}

fn pair(settings: Option<DeflateSettings>) -> Pair {
    let offer = Offer { deflate: settings.is_some(), ..OFFER };
    let (mut request, mut head) = (Vec::new(), Vec::new());
    assert!(offer.write(&mut request));
    let agreement = open(&request, |opening| opening.agree(None, settings).unwrap()).unwrap();
    agreement.write([], &stamp(), &mut head).unwrap();
    let found = answer(&offer, &head).unwrap();
    assert_eq!(found.deflate.is_some(), settings.is_some());
    let limits = WebSocketLimits::default();
    Pair {
        client: Connection::new(Role::Client(Keys::new(5)), found.deflate, limits),
        server: Connection::new(Role::Server, agreement.deflate, limits),
        compression: Compression::new(6),
    }
}

fn all_settings() -> Vec<Option<DeflateSettings>> {
    let some = |window_bits, client_context_bits| Some(DeflateSettings { window_bits, client_context_bits });
    vec![None, some(15, None), some(9, None), some(12, Some(9)), some(9, Some(12)), some(15, Some(15))]
}

#[test]
fn any_message_arrives_in_both_directions_with_any_agreement() {
    let mut random = Random::seeded();
    for settings in all_settings() {
        let Pair { mut client, mut server, mut compression } = pair(settings);
        for round in 0..60 {
            let length = random.below([10, 300, 3000, 200_000][round % 4]);
            let letters = [2, 30, 256][random.below(3)];
            let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(random.below(letters)).expect("a byte")).collect();
            let text = latin1(&bytes);
            let message = if round % 3 == 0 { Outgoing::Text(&text) } else { Outgoing::Binary(&bytes) };
            let (from, to) = if round % 2 == 0 { (&mut client, &mut server) } else { (&mut server, &mut client) };
            let mut out = Vec::new();
            from.send(message, &mut compression, 0, &mut out).unwrap();
            assert!(out.len() <= message.bytes().len() + 14, "what does not get shorter is sent as it is");
            let (heard, answer) = hear(to, &out, &mut compression);
            assert_eq!(heard.messages, [(message.kind(), message.bytes().to_vec())], "{settings:?} round {round}");
            assert!(answer.is_empty());
        }
    }
}

#[test]
fn text_that_repeats_itself_is_sent_compressed() {
    let text = "the quick brown fox ".repeat(200);
    for (settings, is_smaller) in all_settings().into_iter().map(|settings| (settings, settings.is_some())) {
        let Pair { mut server, mut compression, .. } = pair(settings);
        let mut out = Vec::new();
        server.send(Outgoing::Text(&text), &mut compression, 0, &mut out).unwrap();
        assert_eq!(out.len() < text.len() / 10, is_smaller, "{settings:?}: {} bytes", out.len());
        assert_eq!(out[0] & 0x40 != 0, is_smaller);
    }
}

/// A compressor that looked back further than was agreed on would be read by a peer that keeps more, and not by one
/// that keeps what was agreed on.
#[test]
fn compressor_looks_back_no_further_than_the_window_that_is_agreed_on() {
    let mut random = Random::seeded();
    for bits in 9..=15u8 {
        // Noise that comes again at a distance just within the window, and just beyond it.
        for distance in [(1usize << bits) - 290, (1 << bits) + 1] {
            let noise: Vec<u8> = (0..distance).map(|_| u8::try_from(random.below(256)).expect("a byte")).collect();
            let message = [&noise[..], &noise[..200]].concat();
            let Pair { mut server, mut compression, .. } =
                pair(Some(DeflateSettings { window_bits: bits, client_context_bits: None }));
            let mut out = Vec::new();
            server.send(Outgoing::Binary(&message), &mut compression, 0, &mut out).unwrap();
            let looks_back = out.len() < message.len() - 100;
            assert_eq!(looks_back, distance < 1 << bits, "{bits} bits, distance {distance}, {} bytes", out.len());
        }
    }
}

#[test]
fn message_in_parts_may_be_interrupted_by_pings_but_not_by_messages() {
    let Pair { mut client, mut server, mut compression } = pair(Some(DeflateSettings::default()));
    let mut out = Vec::new();
    server.part(Outgoing::Text("one "), false, 0, &mut out).unwrap();
    server.ping(&ControlPayload::new(b"p").unwrap(), &mut out).unwrap();
    let prepared = Prepared::new(Outgoing::Text("prepared"));
    assert_eq!(server.send(Outgoing::Text("x"), &mut compression, 0, &mut out), Err(SendError::MessageOpen));
    assert_eq!(server.head(Kind::Text, 1, 0).unwrap_err(), SendError::MessageOpen);
    assert_eq!(server.prepared(&prepared, &mut compression, 0), Err(SendError::MessageOpen));
    assert_eq!(server.part(Outgoing::Binary(b"x"), true, 0, &mut out), Err(SendError::KindChanged));
    server.part(Outgoing::Text("two "), false, 0, &mut out).unwrap();
    server.part(Outgoing::Text(""), true, 0, &mut out).unwrap();
    server.send(Outgoing::Binary(b"next"), &mut compression, 0, &mut out).unwrap();
    let (heard, answer) = hear(&mut client, &out, &mut compression);
    assert_eq!(heard.messages, [(Kind::Text, b"one two ".to_vec()), (Kind::Binary, b"next".to_vec())]);
    let (heard, _) = hear(&mut server, &answer, &mut compression);
    assert_eq!(heard.pongs, [b"p"]);
}

#[test]
fn head_and_payload_make_the_frame_that_send_writes() {
    let Pair { mut client, mut server, mut compression } = pair(None);
    for length in [0usize, 125, 126, 65_535, 65_536] {
        let bytes = vec![b'x'; length];
        let mut out = Vec::new();
        server.send(Outgoing::Binary(&bytes), &mut compression, 0, &mut out).unwrap();
        let head = server.head(Kind::Binary, length as u64, 0).unwrap().expect("nothing is compressed or masked");
        assert_eq!([&head, &bytes[..]].concat(), out);
    }
    assert!(client.head(Kind::Binary, 1, 0).unwrap().is_none(), "a client masks the payload");
    let Pair { mut server, .. } = pair(Some(DeflateSettings::default()));
    assert!(server.head(Kind::Binary, 100_000, 0).unwrap().is_none(), "it may be compressed");
}

#[test]
fn prepared_message_is_what_send_writes_for_each_agreement() {
    let mut compression = Compression::new(6);
    let text = "to all of you ".repeat(100);
    for message in [Outgoing::Text(&text), Outgoing::Binary(b"short"), Outgoing::Text("")] {
        let prepared = Prepared::new(message);
        assert_eq!(prepared.payload(), message.bytes());
        for settings in all_settings() {
            let Pair { mut client, mut server, .. } = pair(settings);
            let mut out = Vec::new();
            server.send(message, &mut compression, 0, &mut out).unwrap();
            let bytes = server.prepared(&prepared, &mut compression, 0).unwrap().to_vec();
            assert_eq!(bytes, out, "{settings:?}");
            let (heard, _) = hear(&mut client, &bytes, &mut compression);
            assert_eq!(heard.messages, [(message.kind(), message.bytes().to_vec())]);
        }
    }
}

#[test]
fn close_is_answered_and_the_server_ends_the_transport() {
    let Pair { mut client, mut server, mut compression } = pair(None);
    let (mut out, mut late) = (Vec::new(), Vec::new());
    client.send(Outgoing::Text("on its way"), &mut compression, 0, &mut late).unwrap();
    server.close(CloseCode::SERVICE_RESTART, "restart", &mut out).unwrap();
    assert_eq!((server.waits_for(), server.is_open()), (Wait::Close, false));
    assert_eq!(server.send(Outgoing::Text("x"), &mut compression, 0, &mut out), Err(SendError::Closed));
    assert_eq!(server.ping(&ControlPayload::default(), &mut out), Err(SendError::Closed));
    assert_eq!(server.close(CloseCode::NORMAL, "", &mut out), Err(SendError::Closed));
    // Messages on their way are discarded, and a ping is no longer answered.
    client.ping(&ControlPayload::default(), &mut late).unwrap();
    assert_eq!(hear(&mut server, &late, &mut compression), (Heard::default(), Vec::new()));
    let (heard, answer) = hear(&mut client, &out, &mut compression);
    assert_eq!(heard.close, Some((1012, "restart".into())));
    assert_eq!((client.waits_for(), client.close_code()), (Wait::End, 1012));
    let (heard, nothing) = hear(&mut server, &answer, &mut compression);
    assert_eq!((heard.close, nothing), (Some((1012, String::new())), Vec::new()));
    assert_eq!((server.waits_for(), server.close_code()), (Wait::End, 1012));
}

#[test]
fn answer_to_a_fault_can_be_put_off() {
    let Pair { mut server, mut compression, .. } = pair(None);
    let mut out = Vec::new();
    let mut unknown = b"\x83\x80\0\0\0\0".to_vec();
    assert_eq!(server.next(&mut unknown, &mut compression).1, Event::Fault(WebSocketFault::OpcodeUnknown));
    server.postpone(WebSocketFault::OpcodeUnknown);
    assert_eq!((server.waits_for(), server.is_open(), server.owes_answer()), (Wait::Caller, true, false));
    server.send(Outgoing::Text("x"), &mut compression, 0, &mut out).unwrap();
    server.flush(0, &mut out);
    assert_eq!(out, b"\x81\x01x");
    // The bytes after it are not read.
    let mut text = b"\x81\x80\0\0\0\0".to_vec();
    assert_eq!(server.next(&mut text, &mut compression), (6, Event::Nothing));
    assert_eq!(server.take_up(), Some(WebSocketFault::OpcodeUnknown));
    assert_eq!((server.take_up(), server.is_open(), server.waits_for()), (None, false, Wait::End));
    out.clear();
    server.flush(0, &mut out);
    assert_eq!(&out[2..4], 1002u16.to_be_bytes());
    // Nothing is put off where there is nothing to answer.
    server.postpone(WebSocketFault::OpcodeUnknown);
    assert_eq!((server.take_up(), server.waits_for()), (None, Wait::End));
}

#[test]
fn both_sides_may_close_at_once() {
    let Pair { mut client, mut server, mut compression } = pair(None);
    let (mut from_server, mut from_client) = (Vec::new(), Vec::new());
    server.close(CloseCode::GOING_AWAY, "", &mut from_server).unwrap();
    client.close(CloseCode::NORMAL, "", &mut from_client).unwrap();
    assert!(hear(&mut client, &from_server, &mut compression).1.is_empty());
    assert!(hear(&mut server, &from_client, &mut compression).1.is_empty());
    assert_eq!((client.close_code(), server.close_code()), (1001, 1000));
    assert_eq!((client.waits_for(), server.waits_for()), (Wait::End, Wait::End));
}

#[test]
fn pings_are_answered_by_one_pong_while_output_waits() {
    let limits = WebSocketLimits { backlog: 1000, ..WebSocketLimits::default() };
    let mut server = Connection::new(Role::Server, None, limits);
    let Pair { mut client, mut compression, .. } = pair(None);
    let mut out = Vec::new();
    for number in 0..100u8 {
        let mut ping = Vec::new();
        client.ping(&ControlPayload::new(&[number]).unwrap(), &mut ping).unwrap();
        let (used, event) = server.next(&mut ping, &mut compression);
        assert_eq!((used, event), (7, Event::Nothing));
        server.flush(1001, &mut out);
    }
    assert!(out.is_empty() && server.owes_answer());
    assert!(server.kept_bytes() < 200, "unanswered pings do not pile up: {} bytes", server.kept_bytes());
    server.flush(1000, &mut out);
    assert_eq!(out, [0x8a, 1, 99]);
    assert!(!server.owes_answer());
}

#[test]
fn message_is_refused_while_too_much_waits_to_be_sent() {
    let limits = WebSocketLimits { backlog: 1000, ..WebSocketLimits::default() };
    let mut server = Connection::new(Role::Server, None, limits);
    let (mut compression, mut out) = (Compression::new(6), Vec::new());
    assert_eq!(server.send(Outgoing::Text("x"), &mut compression, 1001, &mut out), Err(SendError::QueueFull));
    assert_eq!(server.part(Outgoing::Text("x"), true, 1001, &mut out), Err(SendError::QueueFull));
    assert_eq!(server.head(Kind::Text, 1, 1001).unwrap_err(), SendError::QueueFull);
    let prepared = Prepared::new(Outgoing::Text("x"));
    assert_eq!(server.prepared(&prepared, &mut compression, 1001), Err(SendError::QueueFull));
    assert!(out.is_empty());
    // A message larger than the limit can be sent when nothing waits, and a close always.
    assert_eq!(server.send(Outgoing::Binary(&[0; 5000]), &mut compression, 1000, &mut out), Ok(()));
    assert_eq!(server.close(CloseCode::POLICY, "", &mut out), Ok(()));
}

#[test]
fn close_reason_is_cut_where_a_character_ends() {
    let Pair { mut client, mut server, mut compression } = pair(None);
    let mut out = Vec::new();
    server.close(CloseCode::new(4000).unwrap(), &"é".repeat(100), &mut out).unwrap();
    let (heard, _) = hear(&mut client, &out, &mut compression);
    assert_eq!(heard.close, Some((4000, "é".repeat(61))));
}

#[test]
fn close_codes_that_no_frame_may_carry_cannot_be_made() {
    let allowed: Vec<u16> = (0..=u16::MAX).filter(|&number| CloseCode::new(number).is_some()).collect();
    let expected: Vec<u16> = (1000..=1003).chain(1007..=1014).chain(3000..=4999).collect();
    assert_eq!(allowed, expected);
}

/// A bomb is refused when the limit is passed: what it would become is never in memory.
#[test]
fn bomb_does_not_grow_beyond_the_limit() {
    let settings = DeflateSettings::default();
    let Pair { mut client, mut compression, .. } = pair(Some(settings));
    let mut out = Vec::new();
    client.send(Outgoing::Binary(&vec![0; 64 << 20]), &mut compression, 0, &mut out).unwrap();
    assert!(out.len() < 100_000);
    let limits = WebSocketLimits { message: 100_000, ..WebSocketLimits::default() };
    let mut server = Connection::new(Role::Server, agreed("permessage-deflate", settings), limits);
    let mut most = 0;
    let mut fault = None;
    for part in out.chunks_mut(10) {
        if let (_, Event::Fault(found)) = server.next(part, &mut compression) {
            fault = Some(found);
            break;
        }
        most = most.max(server.kept_bytes());
    }
    assert_eq!(fault, Some(WebSocketFault::MessageTooLarge));
    assert!(most < 300_000, "{most} bytes");
}

/// Bounds the memory of an idle connection. The engine's part of a connection is not included.
#[test]
fn idle_connection_is_small_and_has_nothing_on_the_heap() {
    println!("a connection takes {} bytes", size_of::<Connection>());
    assert!(size_of::<Connection>() <= 256);
    let Pair { mut client, mut server, mut compression } = pair(Some(DeflateSettings::default()));
    let text = "and then it is over ".repeat(1000);
    let mut out = Vec::new();
    client.send(Outgoing::Text(&text), &mut compression, 0, &mut out).unwrap();
    assert!(out.len() < 1000, "it is compressed");
    for byte in &mut out {
        server.next(std::slice::from_mut(byte), &mut compression);
    }
    assert_eq!(server.kept_bytes(), 0, "after a message nothing is kept");
}

#[test]
fn context_of_a_client_takes_no_more_than_its_window() {
    let Pair { mut client, mut server, mut compression } =
        pair(Some(DeflateSettings { window_bits: 15, client_context_bits: Some(12) }));
    for round in 0..50usize {
        let text = format!("message {round} ").repeat(1 + round * 20);
        let mut out = Vec::new();
        client.send(Outgoing::Text(&text), &mut compression, 0, &mut out).unwrap();
        hear(&mut server, &out, &mut compression);
    }
    assert_eq!(server.kept_bytes(), 4096);
}
