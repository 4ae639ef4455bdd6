//! Tests that the measured values are right, as far as the right ones can be calculated. Time is virtual and random
//! choices are seeded, so every run gives the same values.

use crate::common::{Answering, MS, SECOND, Server, nanos, ok, plan, quantile, run, run_until};
use load::Nanos;
use serde_json::json;

fn assert_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    let off = (found / expected - 1.0).abs();
    assert!(off <= tolerance, "{what}: {found} instead of {expected}, {:.2} % off", off * 100.0);
}

/// Returns a server that answers after 1 ms, except in the last second of every ten, in which it stalls.
fn stalling() -> impl Server {
    Answering(|now: Nanos, _, _, _: &[u8]| {
        let within = now % (10 * SECOND);
        let answer = if within >= 9 * SECOND { now - within + 10 * SECOND } else { now };
        vec![(answer + MS, ok("hello"))]
    })
}

/// A tenth of the requests is due while the server stalls, and waits for up to a second, evenly distributed. One
/// request in a hundred, a tenth of these, waits for longer than 0.9 s.
#[test]
fn stall_raises_latency_in_the_open_model() {
    for arrivals in ["constant", "poisson"] {
        let open = json!({"rate": 100, "arrivals": arrivals, "max_connections": 1000});
        let measured = run(&plan(&json!({"model": {"open": open}, "duration": 600, "seed": 5})), stalling());
        assert_eq!(measured.failed + measured.dropped, 0);
        let tolerance = if arrivals == "constant" { 0.005 } else { 0.02 };
        assert_near("p99", quantile(&measured.latency, 0.99), 0.9, tolerance);
        assert_near("p95", quantile(&measured.latency, 0.95), 0.5, tolerance * 2.0);
        assert_near("p50", quantile(&measured.latency, 0.5), 0.001, 0.01);
        assert_near("mean", measured.latency.mean.unwrap(), 0.1 * 0.5 + 0.001, tolerance * 2.0);
        assert_near("rate", measured.rate, 100.0, 0.02);
    }
}

/// With one connection at a time, the requests that were due meanwhile wait for it, and for each other.
#[test]
fn stall_raises_latency_in_the_open_model_with_one_connection() {
    let open = json!({"rate": 100, "max_connections": 1});
    let measured = run(&plan(&json!({"model": {"open": open}, "duration": 600})), stalling());
    assert_eq!((measured.requests, measured.dropped, measured.connections.opened), (60_000, 0, 1));
    // After the stall, the queued requests are sent every ms and not every 10, so the wait shrinks by 9 of 10 ms for
    // each: 100 wait during the stall and 11 more after it, evenly distributed over a second. One in a hundred is 10 of
    // 1000.
    assert_near("p99", quantile(&measured.latency, 0.99), 0.91, 0.02);
    // A request takes the server a ms, except the one that it received when it stalled.
    assert_near("service p99", quantile(&measured.service, 0.99), 0.001, 0.01);
    assert!(measured.late > 60 * 90, "{}", measured.late);
    assert_eq!(measured.late_by_generator, 0);
}

/// The closed model sends nothing while the server stalls, and so hardly notices.
#[test]
fn stall_hardly_raises_latency_in_the_closed_model() {
    let closed = json!({"connections": 1, "think": 0.009});
    let measured = run(&plan(&json!({"model": {"closed": closed}, "duration": 600})), stalling());
    assert_near("p99", quantile(&measured.latency, 0.99), 0.001, 0.01);
    assert_near("max", measured.latency.max.unwrap(), 1.0, 0.01);
}

/// Returns a server that answers after exponentially distributed times with this mean.
fn exponential(mean: f64, seed: u64) -> impl Server {
    let mut random = fastrand::Rng::with_seed(seed);
    Answering(move |now: Nanos, _, _, _: &[u8]| {
        let takes = -(1.0 - random.f64()).ln() * mean;
        vec![(now + nanos(takes), ok("hello"))]
    })
}

#[test]
fn exponential_latencies_are_measured_exactly() {
    let models = [
        json!({"closed": {"connections": 50}}),
        json!({"closed": {"connections": 50, "think": 0.01, "thinking": "exponential"}}),
        json!({"open": {"rate": 1000}}),
        json!({"open": {"rate": 1000, "arrivals": "poisson"}}),
    ];
    for model in models {
        let plan = plan(&json!({"model": model, "count": 300_000, "seed": 11}));
        let measured = run(&plan, exponential(0.010, 12));
        assert_eq!((measured.ok, measured.requests), (300_000, 300_000));
        for times in [&measured.latency, &measured.service, &measured.first_byte] {
            for share in [0.5, 0.75, 0.9, 0.95, 0.99] {
                assert_near(&format!("{model} {share}"), quantile(times, share), -0.010 * (1.0 - share).ln(), 0.02);
            }
            assert_near("mean", times.mean.unwrap(), 0.010, 0.01);
            assert_near("sd", times.sd.unwrap(), 0.010, 0.02);
        }
    }
}

/// M/M/1: one queue, one server, both exponential. The total time is exponential with mean 1/(mu - lambda).
#[test]
fn queue_latency_agrees_with_theory() {
    let mut random = fastrand::Rng::with_seed(21);
    let mut free_at = 0;
    let server = Answering(move |now: Nanos, _, _, _: &[u8]| {
        let takes = -(1.0 - random.f64()).ln() / 100.0;
        free_at = now.max(free_at) + nanos(takes);
        vec![(free_at, ok("hello"))]
    });
    let open = json!({"rate": 60, "arrivals": "poisson", "max_connections": 10_000});
    let plan = plan(&json!({
        "model": {"open": open}, "count": 600_000, "warmup": {"requests": 1000}, "seed": 22, "interval": 100,
    }));
    let measured = run(&plan, server);
    for share in [0.5_f64, 0.9, 0.99] {
        assert_near(&format!("{share}"), quantile(&measured.latency, share), -(1.0 - share).ln() / 40.0, 0.03);
    }
    assert_near("rate", measured.rate, 60.0, 0.01);
}

/// Little's law: users = rate x (response + think).
#[test]
fn rate_of_thinking_users_agrees_with_littles_law() {
    let closed = json!({"connections": 30, "think": 0.04, "thinking": "exponential"});
    let plan = plan(&json!({"model": {"closed": closed}, "duration": 300, "seed": 3}));
    let measured = run(&plan, exponential(0.010, 4));
    assert_near("rate", measured.rate, 30.0 / 0.05, 0.01);
    assert_eq!(measured.connections.opened, 30);
}

#[test]
fn constant_arrivals_are_exact_and_poisson_arrivals_average_the_same() {
    let instant = || Answering(|now: Nanos, _, _, _: &[u8]| vec![(now, ok(""))]);
    let rate = |arrivals: &str, rate: f64, duration: f64| {
        let open = json!({"rate": rate, "arrivals": arrivals});
        run(&plan(&json!({"model": {"open": open}, "duration": duration, "seed": 1})), instant()).requests
    };
    assert_eq!(rate("constant", 1000.0, 10.0), 10_000);
    assert_eq!(rate("constant", 7.0, 100.0), 700);
    assert_eq!(rate("constant", 0.5, 10.0), 5);
    let poisson = rate("poisson", 1000.0, 100.0);
    // The standard deviation is 316.
    assert!(poisson.abs_diff(100_000) < 1000, "{poisson}");
}

/// A generator that is late reports it, and the requests count as late.
#[test]
fn lateness_of_the_generator_is_reported_separately() {
    let instant = Answering(|now: Nanos, _, _, _: &[u8]| vec![(now, ok(""))]);
    let open = json!({"rate": 10});
    let plan = plan(&json!({"model": {"open": open}, "duration": 10}));
    let measured = run_until(&plan, instant, Nanos::MAX, 5 * MS);
    assert!(measured.late_by_generator >= 99, "{}", measured.late_by_generator);
    assert_eq!(measured.late, measured.late_by_generator);
    assert_near("lag", quantile(&measured.lag, 0.5), 0.005, 0.01);
    assert!(quantile(&measured.latency, 0.5) >= 0.005);
    assert!(quantile(&measured.service, 0.5) < 0.001);
}

#[test]
fn counts_of_the_series_add_up_to_the_totals() {
    let open = json!({"rate": 100, "max_connections": 1000});
    let plan = plan(&json!({"model": {"open": open}, "duration": 60, "warmup": {"seconds": 15}, "interval": 10}));
    let measured = run(&plan, stalling());
    assert_eq!((measured.requests, measured.discarded.requests), (6000, 1500));
    assert_near("window", measured.window.from, 15.0, 1e-9);
    assert_near("window", measured.window.seconds, 60.0, 1e-9);
    assert_eq!(measured.series.iter().map(|interval| interval.warmup).collect::<Vec<_>>()[..3], [true, true, false]);
    let answered: u64 = measured.series.iter().map(|interval| interval.answered).sum();
    assert_eq!(answered, 7500);
    let mut merged = load::Histogram::new();
    for interval in &measured.series {
        if let Some(latency) = &interval.latency {
            merged.merge(&load::Histogram::decode(latency).unwrap());
        }
    }
    assert_eq!(merged.len(), 7500);
    // The answers of a stall arrive in the interval after it.
    assert!(measured.series[1].max.unwrap() > 0.9, "{:?}", measured.series[1]);
}
