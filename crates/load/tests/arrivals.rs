//! Tests of when requests begin in the open model: stages of the rate, and recorded schedules.

use crate::common::{Answering, MS, SECOND, nanos, ok, plan, quantile, run, run_until};
use load::{Measured, Nanos};
use serde_json::{Value, json};
use std::cell::RefCell;

/// Carries out an open model. Returns the result, and when each request arrived and its path.
fn arrivals(open: &Value, changes: &Value) -> (Measured, Vec<(Nanos, String)>) {
    let seen = RefCell::new(Vec::new());
    let mut all = json!({"model": {"open": open}});
    for (key, value) in changes.as_object().unwrap() {
        all[key] = value.clone();
    }
    let measured = run(
        &plan(&all),
        Answering(|now: Nanos, _, _, request: &[u8]| {
            let line = String::from_utf8_lossy(request).lines().next().unwrap_or_default().to_owned();
            seen.borrow_mut().push((now, line.split(' ').nth(1).unwrap_or_default().to_owned()));
            vec![(now + MS, ok("hello"))]
        }),
    );
    (measured, seen.into_inner())
}

fn times(open: &Value, duration: f64) -> Vec<Nanos> {
    arrivals(open, &json!({"duration": duration})).1.into_iter().map(|(at, _)| at).collect()
}

fn up_to(times: &[Nanos], seconds: f64) -> usize {
    times.iter().filter(|&&at| at < nanos(seconds)).count()
}

/// The number of requests up to a time is the area below the rate: a triangle of 30 s, then a trapezoid, then another.
#[test]
fn rate_changes_evenly_within_each_stage() {
    let stages = json!([{"seconds": 30, "rate": 100}, {"seconds": 60, "rate": 500}, {"seconds": 30, "rate": 0}]);
    let times = times(&json!({"stages": stages}), 120.0);
    for (until, expected) in
        [(15.0, 375), (30.0, 1500), (60.0, 1500 + 6000), (90.0, 1500 + 18_000), (120.0, 1500 + 18_000 + 7500)]
    {
        assert!(up_to(&times, until).abs_diff(expected) <= 1, "{} instead of {expected}", up_to(&times, until));
    }
    assert!(times.is_sorted());
    // The k-th request of the first stage is due at sqrt(2 k / slope).
    for k in [1_u32, 10, 1000] {
        let expected = (2.0 * f64::from(k) / (100.0 / 30.0)).sqrt();
        assert!(times[k as usize].abs_diff(nanos(expected)) <= 2, "{k}: {}", times[k as usize]);
    }
}

#[test]
fn stage_without_time_changes_the_rate_at_once() {
    let stages = json!([{"seconds": 10, "rate": 10}, {"seconds": 0, "rate": 1000}, {"seconds": 1, "rate": 1000}]);
    let times = times(&json!({"rate": 10, "stages": stages}), 11.0);
    assert_eq!(up_to(&times, 10.0), 100);
    assert_eq!(times.len(), 1100);
}

#[test]
fn rate_of_zero_sends_nothing_and_ends_with_the_run() {
    let stages = json!([{"seconds": 5, "rate": 0}, {"seconds": 0, "rate": 20}, {"seconds": 5, "rate": 20},
                        {"seconds": 0, "rate": 0}]);
    let (measured, seen) = arrivals(&json!({"stages": stages}), &json!({"duration": 20}));
    assert_eq!((measured.requests, measured.ok), (100, 100));
    assert_eq!((seen[0].0, seen[99].0), (5 * SECOND, nanos(9.95)));
    assert!((measured.window.seconds - 20.0).abs() < 1e-9, "{}", measured.window.seconds);
}

#[test]
fn processes_with_phases_share_a_ramp_evenly() {
    let process = |share: f64, phase: f64| {
        times(&json!({"stages": [{"seconds": 20, "rate": 100.0 * share}], "phase": phase}), 20.0)
    };
    let whole = process(1.0, 0.0);
    let mut shared: Vec<_> = (0..4).flat_map(|index| process(0.25, f64::from(index) / 4.0)).collect();
    shared.sort_unstable();
    assert_eq!(shared.len(), whole.len());
    assert!(shared.iter().zip(&whole).all(|(one, other)| one.abs_diff(*other) <= 2));
}

#[test]
fn poisson_arrivals_follow_the_stages() {
    let stages = json!([{"seconds": 100, "rate": 200}, {"seconds": 100, "rate": 0}]);
    let (measured, seen) = arrivals(&json!({"stages": stages, "arrivals": "poisson"}), &json!({"duration": 200}));
    let seen: Vec<_> = seen.into_iter().map(|(at, _)| at).collect();
    // Three standard deviations of Poisson's distribution.
    for (from, until, expected) in [(0.0, 50.0, 2500.0), (50.0, 150.0, 15_000.0), (150.0, 200.0, 2500.0_f64)] {
        let found = u32::try_from(up_to(&seen, until) - up_to(&seen, from)).unwrap();
        assert!((f64::from(found) - expected).abs() < 3.0 * expected.sqrt(), "{from} to {until}: {found}");
    }
    assert_eq!(measured.dropped + measured.failed, 0);
}

/// A server that stalls during a ramp delays all requests that are due meanwhile.
#[test]
fn latency_in_a_ramp_counts_from_when_each_request_was_due() {
    let open = json!({"stages": [{"seconds": 10, "rate": 100}], "max_connections": 1});
    let stalls = Answering(|now: Nanos, _, _, _: &[u8]| {
        let answer = if (8 * SECOND..9 * SECOND).contains(&now) { 9 * SECOND } else { now };
        vec![(answer + MS, ok("hello"))]
    });
    let measured = run(&plan(&json!({"model": {"open": open}, "duration": 10})), stalls);
    // 320 requests are due up to 8 s, 85 within the stall, and 500 in all: 15 wait for longer than 0.82 s.
    assert_eq!(measured.requests, 500);
    assert!((quantile(&measured.latency, 0.97) - 0.82).abs() < 0.03, "{}", quantile(&measured.latency, 0.97));
    assert!(measured.late >= 84, "{}", measured.late);
    assert_eq!(measured.late_by_generator, 0);
}

#[test]
fn requests_of_a_schedule_begin_at_their_times() {
    let open = json!({"schedule": [[0.5, 1], [0.5, 0], [2.25, 1], [7.0, 2]]});
    let changes = json!({"count": 4, "requests": [{"path": "/a"}, {"path": "/b"}, {"path": "/c"}]});
    let (measured, seen) = arrivals(&open, &changes);
    let expected = [(0.5, "/b"), (0.5, "/a"), (2.25, "/b"), (7.0, "/c")];
    let expected: Vec<_> = expected.map(|(at, path)| (nanos(at), path.to_owned())).into();
    assert_eq!(seen, expected);
    assert_eq!((measured.requests, measured.ok, measured.late), (4, 4, 0));
    assert!((measured.window.seconds - 7.001).abs() < 1e-9, "{}", measured.window.seconds);
}

/// A generator that is handled 30 ms late says so, and counts latency from the schedule all the same.
#[test]
fn late_start_of_a_scheduled_request_counts_as_late() {
    let open = json!({"schedule": [[0.5, 0], [1.0, 0]]});
    let plan = plan(&json!({"model": {"open": open}, "count": 2}));
    let measured = run_until(&plan, Answering(|now, _, _, _: &[u8]| vec![(now + MS, ok(""))]), Nanos::MAX, 30 * MS);
    assert_eq!((measured.late, measured.late_by_generator), (2, 2));
    assert!(measured.latency.min.unwrap() > 0.030, "{:?}", measured.latency.min);
}

#[test]
fn impossible_arrivals_are_refused() {
    for (open, place) in [
        (json!({"rate": 0}), "model.open.rate"),
        (json!({"rate": 10, "phase": 1}), "model.open.phase"),
        (json!({"stages": [{"seconds": -1, "rate": 1}]}), "model.open.stages"),
        (json!({"stages": [{"seconds": 1, "rate": 1e9}]}), "model.open.stages"),
        (json!({"schedule": [[0.0, 0]]}), "model.open.schedule"),
    ] {
        let text = json!({
            "target": {"host": "a", "addresses": ["127.0.0.1:80"]}, "model": {"open": open}, "duration": 1,
            "requests": [{"path": "/"}],
        });
        assert_eq!(load::Plan::read(&text.to_string()).unwrap_err().place, place, "{open}");
    }
    for schedule in [json!([[0.0, 1]]), json!([[2.0, 0], [1.0, 0]])] {
        let text = json!({
            "target": {"host": "a", "addresses": ["127.0.0.1:80"]}, "model": {"open": {"schedule": schedule}},
            "count": schedule.as_array().unwrap().len(), "requests": [{"path": "/"}],
        });
        assert_eq!(load::Plan::read(&text.to_string()).unwrap_err().place, "model.open.schedule");
    }
}
