//! The invariants for the client of a call that has missed its deadline.

use crate::app::Late;
use crate::clock::SLACK;
use crate::frames::Simulated;
use crate::peer::{Answer, Ending, Peer};
use crate::plan::Act;
use crate::response::pattern;
use crate::world::World;
use engine::Expired;

/// Checks the response to a request whose call was late.
pub(crate) fn check_late_answer<P: Simulated>(
    world: &World<P>,
    id: usize,
    late: Late,
    answer: &Answer,
) -> Result<(), String> {
    let request = &world.plan.requests[id];
    let script = &request.script;
    let wrong = |what: &str| Err(what.to_owned());
    let shown = |length: usize| if request.is_bodiless() { Vec::new() } else { pattern(id, 0, length) };
    match late.outcome {
        Expired::Answered { body_bytes } => {
            if answer.id.is_some() || answer.status != 504 {
                return wrong("its call was late, and this is not the 504 page");
            }
            if answer.keep_alive {
                return wrong("the connection is kept alive after 504");
            }
            let length = if request.is_head { 0 } else { body_bytes };
            if answer.body.len() as u64 != length || (length == 0) != request.is_head {
                return wrong("the 504 page is cut");
            }
            Ok(())
        }
        _ if answer.id != Some(id) || answer.status != script.status => {
            wrong("its call was late after the response had begun")
        }
        Expired::Whole => {
            let length = script.declared.map_or(script.length() as u64, |declared| declared);
            let is_whole = answer.body == shown(usize::try_from(length).unwrap_or(usize::MAX));
            if is_whole { Ok(()) } else { wrong("it was written in time, and its body is wrong") }
        }
        // A response that is cut after its last byte is complete for the client.
        Expired::Cut { .. } | Expired::Left if request.is_bodiless() => Ok(()),
        Expired::Cut { .. } | Expired::Left => {
            let is_whole = script.declared == Some(answer.body.len() as u64);
            if is_whole && answer.body == shown(answer.body.len()) {
                Ok(())
            } else {
                wrong("its deadline cut it, and the cut is not visible")
            }
        }
    }
}

/// Checks that the engine does not store output of a late call.
pub(crate) fn check_late_write<P: Simulated>(world: &World<P>, id: usize, deferred_before: i64) {
    let record = &world.records().requests[id];
    if record.late.is_none() {
        return;
    }
    let deferred = world.records().ledger.deferred[id].load(std::sync::atomic::Ordering::Relaxed);
    if deferred > deferred_before {
        world
            .shared
            .fail(|| format!("{} bytes written by the late call of {id} are stored", deferred - deferred_before));
    }
}

/// Checks that a client that always reads, and had received everything before, gets its 504 without delay.
pub(crate) fn check_late_time(peer: &Peer, index: usize, late: Late) -> Result<(), String> {
    let answer = &peer.answers[index];
    let is_answered = matches!(late.outcome, Expired::Answered { .. });
    let had_all = index == 0 || peer.answers[index - 1].at < late.at;
    let is_reader = peer.plan.reads.pause == 0 && peer.plan.packet == usize::MAX && peer.plan.capacity >= 8000;
    if is_answered && had_all && is_reader && answer.at > late.at + 2 * peer.plan.latency + SLACK {
        return Err(format!("its 504 was written at {} and arrived at {}", late.at, answer.at));
    }
    Ok(())
}

/// Decides whether a request whose call was late may have no complete answer: `Ok` if it may, an error if it may not.
/// `None`: the lateness is no reason, so other reasons decide.
pub(crate) fn excuse_late(peer: &Peer, late: Late) -> Option<Result<(), String>> {
    let is_reset = peer.ending == Some(Ending::Reset);
    match late.outcome {
        // Other checks verify that the cut is visible.
        Expired::Cut { .. } => Some(Ok(())),
        // A response that is delimited by the close is complete if the connection ends without a reset.
        Expired::Whole if is_reset => None,
        Expired::Answered { .. } | Expired::Whole => {
            let stalls = peer.acted.is_some_and(|(_, act)| act == Act::StallReading);
            (!is_reset && !stalls).then(|| Err(format!("it was late and has no answer: {late:?}")))
        }
        Expired::Left => None,
    }
}
