//! Replays the worst clients that were found and searches for worse ones: see `sim::worst_case`. `make worst-case`
//! builds it twice: with `--cfg steps` and the compiler's coverage instrumentation, to count steps and hold the ceilings; and
//! without, to print nanoseconds of processor time.
//!
//! ```text
//! worst_case SECONDS [SEED [PROTOCOL [MEASURE [HOST]]]]      `all` is any of them
//! ```

use peak_alloc::PeakAlloc;
use sim::worst_case::{Cost, Gauges, Host, Measure, Plan, Protocol, Search, ceiling, found};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

#[cfg(steps)]
mod steps {
    use std::sync::atomic::{AtomicU64, Ordering};

    static STEPS: AtomicU64 = AtomicU64::new(0);

    /// Called at each basic block. The compiler does not instrument functions whose names begin so.
    // SAFETY: only the instrumentation calls it, and nothing else in the program defines the name.
    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_trace_pc_guard(_: *mut u32) {
        // There is one thread.
        STEPS.store(STEPS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    // SAFETY: as above.
    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_trace_pc_guard_init(_: *mut u32, _: *mut u32) {}

    pub(crate) fn count() -> u64 {
        STEPS.load(Ordering::Relaxed)
    }
}

#[cfg(not(steps))]
mod steps {
    /// Nanoseconds of processor time of this thread.
    pub(crate) fn count() -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
    }
}

fn live() -> u64 {
    ALLOCATOR.current_usage() as u64
}

fn peak() -> u64 {
    let peak = ALLOCATOR.peak_usage();
    ALLOCATOR.reset_peak_usage();
    peak as u64
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |index: usize| arguments.get(index).map(String::as_str);
    let seconds: f64 = text(0).unwrap_or("0").parse().expect("a number of seconds");
    let seed: u64 = text(1).unwrap_or("1").parse().expect("a seed");
    let is = |index: usize, name: String| text(index).is_none_or(|wanted| wanted == "all" || wanted == name);
    let mut cases = Vec::new();
    for &protocol in Protocol::ALL {
        for &measure in Measure::ALL {
            let hosts = if measure == Measure::Delay { Host::ALL } else { &Host::ALL[..1] };
            cases.extend(hosts.iter().map(|&host| (protocol, measure, host)));
        }
    }
    cases.retain(|(protocol, measure, host)| {
        is(2, protocol.to_string()) && is(3, measure.to_string()) && is(4, host.to_string())
    });
    let each = Duration::from_secs_f64(seconds / cases.len() as f64);
    let unit = if cfg!(steps) { "steps" } else { "ns" };
    let mut is_exceeded = false;
    for (protocol, measure, host) in cases {
        let mut known = vec![Plan::honest(protocol)];
        let plans = found(measure).into_iter().filter(|(_, plan)| plan.protocol() == protocol);
        known.extend(plans.map(|(_, plan)| plan));
        let began = Instant::now();
        let mut search = Search::new(seed, known, (measure, host), Gauges { steps: Some(steps::count), live, peak });
        search.run(each);
        let (plan, Cost { value, received, is_endless }) = search.worst();
        let unit = match measure {
            Measure::Work => format!("{unit} per byte"),
            Measure::Kept => "bytes kept per byte".to_owned(),
            Measure::Delay => format!("{unit} of delay{}", if *is_endless { " without an end" } else { "" }),
        };
        let (tried, time) = (search.tried, began.elapsed().as_secs_f64());
        println!("# {value:.1} {unit}, {received} bytes sent; {tried} plans in {time:.1} s from seed {seed}");
        println!("{measure} {host} {plan}");
        let ceiling = ceiling(protocol, measure);
        if *is_endless {
            println!("# The other client gets no answer while these send");
            is_exceeded = true;
        }
        if cfg!(steps) && *value > ceiling {
            println!("# ABOVE the ceiling of SECURITY.md, which is {ceiling}");
            is_exceeded = true;
        }
    }
    ExitCode::from(u8::from(is_exceeded))
}
