//! What is recorded is shown, under upstream's names, and the page is well formed.

use super::*;

fn samples(page: &str, prefix: &str) -> Vec<String> {
    page.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
}

fn get() -> Request<'static> {
    Request {
        verb: "GET",
        version: "v1",
        resource: "pods",
        scope: "resource",
        component: "apiserver",
        ..Request::default()
    }
}

fn took(millis: u64, code: u16) -> Answered {
    Answered { code, duration: Duration::from_millis(millis), bytes: Some(3000) }
}

#[test]
fn requests_are_counted_by_labels() {
    let metrics = Metrics::default();
    for _ in 0..2 {
        metrics.answered(get(), took(30, 200));
    }
    metrics.answered(get(), took(90_000, 404));
    let watch = Request { verb: "WATCH", ..get() };
    metrics.lasting(watch, 1);
    metrics.answered(watch, Answered { code: 200, ..Answered::default() });
    let page = metrics.render();
    let rest = r#"dry_run="",group="",version="v1",resource="pods",subresource="",scope="resource",component="apiserver""#;
    let totals = [
        format!(r#"apiserver_request_total{{verb="GET",{rest},code="200"}} 2"#),
        format!(r#"apiserver_request_total{{verb="GET",{rest},code="404"}} 1"#),
        format!(r#"apiserver_request_total{{verb="WATCH",{rest},code="200"}} 1"#),
    ];
    assert_eq!(samples(&page, "apiserver_request_total{"), totals);
    let buckets =
        samples(&page, &format!(r#"apiserver_request_duration_seconds_bucket{{verb="GET",{rest},le="#));
    assert_eq!(buckets.len(), SECONDS.len() + 1);
    assert!(
        buckets[1].ends_with(r#"le="0.025"} 0"#) && buckets[2].ends_with(r#"le="0.05"} 2"#),
        "{buckets:?}"
    );
    assert!(
        buckets[22].ends_with(r#"le="60"} 2"#) && buckets[23].ends_with(r#"le="+Inf"} 3"#),
        "{buckets:?}"
    );
    assert!(samples(&page, "apiserver_request_duration_seconds_sum")[0].ends_with(" 90.06"));
    let counts = samples(&page, "apiserver_request_sli_duration_seconds_count");
    assert_eq!(counts.len(), 1, "objectives are not about watches: {counts:?}");
    assert!(samples(&page, "apiserver_response_sizes_sum")[0].ends_with(" 9000"));
    assert!(samples(&page, "apiserver_longrunning_requests{")[0].ends_with(" 1"));
}

#[test]
fn requests_in_flight_come_and_go() {
    let metrics = Metrics::default();
    let line = |metrics: &Metrics| samples(&metrics.render(), "apiserver_current_inflight_requests{");
    let (first, second) =
        (metrics.in_flight(RequestKind::Mutating), metrics.in_flight(RequestKind::Mutating));
    let zero = r#"apiserver_current_inflight_requests{request_kind="readOnly"} 0"#;
    assert_eq!(line(&metrics), [r#"apiserver_current_inflight_requests{request_kind="mutating"} 2"#, zero]);
    drop((first, second));
    assert_eq!(line(&metrics), [r#"apiserver_current_inflight_requests{request_kind="mutating"} 0"#, zero]);
}

/// What is told of one resource, by family.
fn of_things(metrics: &Metrics) {
    let request = Request { group: "example.com", resource: "things", ..get() };
    metrics.answered(request, took(1, 200));
    metrics.watching("example.com", "v1", "things").sent(10);
    metrics.store_request("create", "example.com", "things", Duration::from_millis(1));
    metrics.cached("things.example.com", Figures { objects: 1, bytes: 500, history_bytes: 700, watches: 2 });
}

#[test]
fn nothing_is_told_of_a_resource_that_is_served_no_more() {
    let metrics = Metrics::default();
    of_things(&metrics);
    metrics.cached("pods", Figures { objects: 1, bytes: 500, ..Figures::default() });
    let lines = |page: &str| page.lines().filter(|line| line.contains("things")).count();
    assert!(lines(&metrics.render()) > 20);
    metrics.resource_gone("things.example.com");
    assert_eq!(lines(&metrics.render()), 0);
    of_things(&metrics);
    let page = metrics.render();
    assert_eq!(lines(&page), 0, "a watch that ended late counts no more");
    assert_eq!(samples(&page, r#"coracle_cache_bytes{resource="pods"} 500"#).len(), 1);
    metrics.resource_served("things.example.com");
    of_things(&metrics);
    assert!(lines(&metrics.render()) > 20, "defined again");
    metrics.begin_cached();
    assert_eq!(samples(&metrics.render(), r#"coracle_cache_bytes{resource="pods"} 0"#).len(), 1);
}

#[test]
fn a_label_without_bounds_is_bounded() {
    let metrics = Metrics::default();
    for index in 0..10_050 {
        metrics.objects(&index.to_string(), 1);
    }
    assert_eq!(samples(&metrics.render(), "apiserver_storage_objects{").len(), 10_001);
}

#[test]
fn exemptions_from_pod_security_are_shown_before_there_is_one() {
    let page = Metrics::default().render();
    assert_eq!(samples(&page, "pod_security_exemptions_total").len(), 4);
    assert_eq!(
        samples(&page, "pod_security_evaluations_total{decision=\"allow\"").len(),
        2,
        "pods that are made and changed where nothing is asked of them"
    );
}
