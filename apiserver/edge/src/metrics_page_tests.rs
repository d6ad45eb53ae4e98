//! The metrics page of a whole server: every family shows up, under upstream's names, and the page is well formed.

use crate::flowcontrol::FlowControl;
use coracle_component_base::health::Health;
use coracle_component_base::metrics::{Answered, Figures, Metrics, Request, RequestKind, stability};
use coracle_store::{self as store, SledStore};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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

/// One of everything.
fn full(metrics: &Metrics) {
    metrics.answered(get(), took(1, 200));
    metrics.lasting(Request { verb: "WATCH", ..get() }, 1);
    metrics.aborted(get());
    drop(metrics.in_flight(RequestKind::ReadOnly));
    metrics.authenticated(Some("somebody"), Duration::from_micros(3));
    metrics.authenticated(None, Duration::from_micros(3));
    metrics.authorized(true, Duration::from_micros(3));
    metrics.admission_plugin("NamespaceLifecycle", "CREATE", "admit", false, Duration::from_micros(3));
    metrics.admission_step("CREATE", "validate", true, Duration::from_micros(3));
    metrics.admission_webhook("hook", "CREATE", "admit", true, Duration::from_micros(3));
    metrics.webhook_failed_open("hook", "admit");
    metrics.webhook_rejected("hook", "CREATE", "admit", "no_error", 403);
    metrics.policy_checked("p", "b", "deny", "no_error", Duration::from_micros(3));
    metrics.cel_compiled(Duration::from_micros(3));
    metrics.cel_evaluated(Duration::from_micros(3));
    metrics.deprecated("", "v1", "endpoints", "");
    metrics.certificate_issued("kubernetes.io/kubelet-serving", true);
    let watch = metrics.watching("apps", "v1", "deployments");
    watch.sent(2000);
    watch.sent(100);
    metrics.store_request("get", "", "pods", Duration::from_millis(1));
    metrics.objects("deployments.apps", 7);
    metrics.objects("pods", 7);
    metrics.cached("nodes", Figures { objects: 1, bytes: 2, history_bytes: 3, watches: 4 });
    let flow = FlowControl::new(Default::default());
    metrics.collect(move |text| flow.render(text));
}

/// The page of a server's health, asked once.
fn objectives() -> String {
    let health = Health::default();
    health.examine("livez", |_| false);
    health.render_metrics()
}

/// A new store has a journal, before its first checkpoint.
fn check_sizes(page: &str) {
    for name in ["apiserver_storage_size_bytes{", "coracle_store_disk_bytes "] {
        let line = samples(page, name).concat();
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok());
        assert!(value.is_some_and(|bytes| bytes > 0), "{name}: {line}");
    }
}

/// One line of each, as it begins.
const FAMILIES: [&str; 46] = [
    "apiserver_request_total{",
    "apiserver_request_duration_seconds_count{",
    "apiserver_request_sli_duration_seconds_count{",
    "apiserver_response_sizes_count{",
    "apiserver_longrunning_requests{",
    "apiserver_request_aborts_total{",
    r#"apiserver_current_inflight_requests{request_kind="readOnly"} 0"#,
    r#"authentication_attempts{result="success"} 1"#,
    r#"authentication_attempts{result="failure"} 1"#,
    r#"authentication_duration_seconds_count{result="failure"} 1"#,
    r#"authenticated_user_requests{username="other"} 1"#,
    r#"authorization_attempts_total{result="allowed"} 1"#,
    r#"apiserver_admission_controller_admission_duration_seconds_count{name="NamespaceLifecycle","#,
    r#"apiserver_admission_step_admission_duration_seconds_count{operation="CREATE",rejected="true","#,
    r#"apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints","#,
    r#"apiserver_watch_events_total{group="apps",version="v1",resource="deployments"} 2"#,
    r#"apiserver_watch_events_sizes_count{group="apps",version="v1",resource="deployments"} 2"#,
    r#"apiserver_watch_events_sizes_bucket{group="apps",version="v1",resource="deployments",le="1024"} 1"#,
    r#"etcd_request_duration_seconds_count{operation="get",group="",resource="pods"} 1"#,
    r#"apiserver_storage_objects{resource="pods"} 7"#,
    r#"apiserver_resource_objects{group="apps",resource="deployments"} 7"#,
    "apiserver_storage_size_bytes{",
    r#"apiserver_flowcontrol_nominal_limit_seats{priority_level="system"}"#,
    "kubernetes_build_info{",
    r#"kubernetes_feature_enabled{name="WatchList","#,
    r#"apiserver_admission_webhook_rejection_count{error_type="no_error",name="hook",operation="CREATE",rejection_code="403","#,
    r#"apiserver_admission_webhook_fail_open_count{name="hook",type="admit"} 1"#,
    r#"apiserver_certificates_registry_csr_requested_duration_total{signerName="kubernetes.io/kubelet-serving"} 1"#,
    r#"apiserver_certificates_registry_csr_honored_duration_total{signerName="kubernetes.io/kubelet-serving"} 1"#,
    "disabled_metrics_total 0",
    r#"registered_metrics_total{deprecated_version="",stability_level="BETA"} "#,
    "coracle_store_commits_total 0",
    "coracle_store_read_only 0",
    "coracle_store_history_bytes 0",
    r#"coracle_cache_bytes{resource="nodes"} 2"#,
    r#"coracle_cache_history_bytes{resource="nodes"} 3"#,
    r#"coracle_cache_watches{resource="nodes"} 4"#,
    r#"coracle_process_descriptors{kind="file"}"#,
    "coracle_process_inotify_watches ",
    "coracle_process_threads ",
    "process_cpu_seconds_total ",
    "process_resident_memory_bytes ",
    "process_virtual_memory_bytes ",
    "process_open_fds ",
    "process_max_fds ",
    "process_start_time_seconds ",
];

/// Every family shows up once something is recorded in it.
#[test]
fn every_metric_is_rendered() {
    let dir = tempfile::TempDir::new().unwrap();
    let store = SledStore::open(dir.path(), Default::default()).unwrap();
    let metrics = Metrics::default();
    full(&metrics);
    store::metrics::collect(&metrics, std::sync::Arc::downgrade(&store));
    let page = metrics.render();
    for name in FAMILIES {
        assert_eq!(samples(&page, name).len(), 1, "{name}\n{page}");
    }
    check_sizes(&page);
    let objectives = objectives();
    assert_eq!(samples(&objectives, r#"kubernetes_healthcheck{name="ping",type="livez"} 1"#).len(), 1);
    assert_eq!(samples(&objectives, "kubernetes_healthchecks_total{").len(), 1);
    drop(store);
    assert!(samples(&metrics.render(), "coracle_store").is_empty(), "it does not keep the store open");
}

/// What upstream promises to keep is there, and says so.
#[test]
fn every_stable_and_beta_metric_is_shown() {
    let dir = tempfile::TempDir::new().unwrap();
    let store = SledStore::open(dir.path(), Default::default()).unwrap();
    let metrics = Metrics::default();
    full(&metrics);
    store::metrics::collect(&metrics, std::sync::Arc::downgrade(&store));
    let page = metrics.render() + &objectives();
    for (level, names) in [("STABLE", stability::STABLE), ("BETA", stability::BETA)] {
        for name in names {
            let head = format!("# HELP {name} [{level}] ");
            assert!(page.lines().any(|line| line.starts_with(&head)), "{head}");
        }
    }
}

/// The labels of a sample, unescaped; panics on anything that Prometheus would not read.
fn labels(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect("a label has a value");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "label {name:?}");
        let (mut value, mut escaped, mut end) = (String::new(), false, None);
        for (at, c) in after.char_indices() {
            match (escaped, c) {
                (true, 'n') => value.push('\n'),
                (true, '\\' | '"') => value.push(c),
                (true, _) => panic!("bad escape in {after:?}"),
                (false, '\\') => {}
                (false, '"') => {
                    end = Some(at);
                    break;
                }
                (false, _) => value.push(c),
            }
            escaped = !escaped && c == '\\';
        }
        let end = end.expect("a value ends");
        assert!(all.insert(name.to_owned(), value).is_none(), "label {name} twice in {text}");
        rest = after[end + 1..].strip_prefix(',').unwrap_or(&after[end + 1..]);
    }
    all
}

/// Reads a page as Prometheus does: heads before samples, every family once, no sample twice, buckets that grow.
fn parse(page: &str) -> BTreeMap<String, String> {
    let (mut kinds, mut helps) = (BTreeMap::<String, String>::new(), BTreeSet::new());
    let (mut current, mut seen) = (String::new(), BTreeSet::new());
    let mut bucket: Option<(BTreeMap<String, String>, f64)> = None;
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(!text.is_empty() && helps.insert(name.to_owned()), "{line}");
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind) && helps.contains(name), "{line}");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
            name.clone_into(&mut current);
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(seen.insert(series.to_owned()), "twice: {series}");
        let (name, mut labels) = match series.split_once('{') {
            Some((name, rest)) => (name, labels(rest.strip_suffix('}').expect("labels end"))),
            None => (series, BTreeMap::new()),
        };
        if kinds[&current] != "histogram" {
            assert_eq!(name, current, "{line}");
            continue;
        }
        let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("{line} in {current}"));
        match suffix {
            "_bucket" => {
                labels.remove("le").expect("a bucket has a bound");
                if let Some((before, count)) = &bucket
                    && *before == labels
                {
                    assert!(value >= *count, "{line}");
                }
                bucket = Some((labels, value));
            }
            "_count" => assert_eq!(bucket.take().map(|b| b.1), Some(value), "{line}"),
            "_sum" => {}
            _ => panic!("{line} in {current}"),
        }
    }
    kinds
}

#[test]
fn the_page_is_well_formed() {
    let metrics = Metrics::default();
    full(&metrics);
    metrics.objects("odd\"\\\nname", 1);
    let kinds = parse(&metrics.render());
    assert_eq!(kinds["apiserver_request_duration_seconds"], "histogram");
    assert_eq!(kinds["apiserver_current_inflight_requests"], "gauge");
    assert!(kinds.len() > 40, "{}", kinds.len());
    parse(&objectives());
}
