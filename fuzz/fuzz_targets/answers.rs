//! Invariant: the load generator reads a connection's bytes the same whole and in pieces. Reading never panics and
//! never uses more bytes than there are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use load::{Answer, Answers, Wanted};
use wire::http1::client::ServerFault;
use wire_fuzz::{End, Random};

/// Reads as a connection of the generator does: unused bytes are offered again with those that follow.
fn read(data: &[u8], cuts: &[usize], heads: u64) -> (Vec<Answer>, End<ServerFault>) {
    let mut answers = Answers::default();
    let mut found = Vec::new();
    let mut used = 0;
    for &end in cuts.iter().chain([&data.len()]) {
        while used < end {
            let wanted =
                Wanted { answers_head: heads >> (found.len() % 64) & 1 == 1, hash: true, head: true, content: true };
            let input = &data[used..end];
            match answers.next(input, wanted) {
                Ok((taken, answer)) => {
                    assert!(taken <= input.len());
                    used += taken;
                    match answer {
                        Some(answer) => found.push(answer),
                        None => break,
                    }
                }
                Err(fault) => return (found, End::Fault(fault)),
            }
        }
    }
    let complete = match answers.end(&data[used..]) {
        Ok(last) => {
            found.extend(last);
            true
        }
        Err(_) => false,
    };
    let bodies: u64 = found.iter().map(|answer| answer.length).sum();
    let heads: u64 = found.iter().map(|answer| answer.heads).sum();
    assert!(heads + bodies <= data.len() as u64, "more came out than went in");
    (found, End::Waiting { used, complete })
}

fuzz_target!(|data: &[u8]| {
    let mut random = Random::of(data, 3);
    // Mostly zero, because the body of an answer to HEAD is not read.
    let heads = random.next() & random.next() & random.next();
    wire_fuzz::check_cuts(data, |data, cuts| read(data, cuts, heads));
});
