//! Replays the worst clients that were found: none exceeds the ceilings of SECURITY.md. The memory of the whole process
//! is counted, so this test binary has one test.

use peak_alloc::PeakAlloc;
use sim::worst_case::{Gauges, Host, Measure, Plan, Protocol, ceiling, found, measure};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn live() -> u64 {
    ALLOCATOR.current_usage() as u64
}

fn peak() -> u64 {
    let peak = ALLOCATOR.peak_usage();
    ALLOCATOR.reset_peak_usage();
    peak as u64
}

/// Steps that an element of a protocol takes at least. This build counts elements.
fn steps_of_element(protocol: Protocol) -> f64 {
    // The elements of the other protocols include bytes that the engine discards after a refused request.
    if protocol == Protocol::WebSocket { 20.0 } else { 2.0 }
}

#[test]
fn worst_clients_stay_below_the_published_ceilings() {
    let gauges = Gauges { steps: None, live, peak };
    let mut failed = Vec::new();
    for of in [Measure::Kept, Measure::Delay] {
        let mut plans = found(of);
        for &protocol in Protocol::ALL {
            assert!(plans.iter().any(|(_, plan)| plan.protocol() == protocol), "{protocol} has no plan of {of}");
            plans.push((Host::Threads, Plan::honest(protocol)));
        }
        for (host, plan) in plans {
            let cost = measure(&plan, of, host, gauges);
            let (value, most) = match of {
                Measure::Kept => (cost.value, ceiling(plan.protocol(), of)),
                _ => (cost.value * steps_of_element(plan.protocol()), ceiling(plan.protocol(), of)),
            };
            println!("{value:.1} of {most}: {of} {host} {plan}");
            if value > most {
                failed.push(format!("{value:.1}, above {most}: {of} {host} {plan}"));
            }
            if cost.is_endless {
                failed.push(format!("the other client gets no answer while these send: {of} {host} {plan}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
