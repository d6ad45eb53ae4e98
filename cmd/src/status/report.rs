//! What is well and what is wrong: a function of what was gathered.

use super::gather::Gathered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, Pod};
use kube::ResourceExt;
use serde::Serialize;
use std::collections::BTreeMap;

/// Starting takes a while, and so long nothing is wrong with it.
const STARTING_SECONDS: i64 = 120;
/// Warnings are of the last hour, which is how long events live.
const WARNINGS: usize = 5;
const PODS: usize = 20;
/// A certificate that ends so soon has not been renewed in time: theirs are renewed days before.
const CERTIFICATE_SECONDS: i64 = 24 * 3600;
/// Below this share of the disk pods are evicted soon, and below some of it the store refuses writes.
const DISK_SHARE: f64 = 0.10;
/// Requests that take this long on the average are told.
const SLOW_SECONDS: f64 = 0.1;
const SLOW: usize = 3;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// One sentence each; empty where all is well.
    pub wrong: Vec<String>,
    pub kubernetes: String,
    pub coracle: &'static str,
    pub nodes: Vec<NodeLine>,
    pub pods: Option<Pods>,
    pub warnings: Option<Vec<Warning>>,
    pub disk: Option<Disk>,
    pub store: Option<Store>,
    /// Seconds since 1970 by the name of the certificate.
    pub certificates: BTreeMap<String, i64>,
    /// Seconds since 1970; absent where there was none.
    pub last_backup: Option<i64>,
    pub slow: Vec<Slow>,
    #[serde(skip)]
    pub now: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLine {
    pub name: String,
    pub ready: bool,
    pub version: String,
    /// Why it is not Ready, or what it is short of.
    pub problem: Option<String>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    pub by_phase: BTreeMap<String, usize>,
    /// Those that should be ready and are not, with why.
    pub not_ready: Vec<PodLine>,
}

#[derive(Serialize)]
pub struct PodLine {
    pub pod: String,
    pub why: String,
}

#[derive(Serialize)]
pub struct Warning {
    pub object: String,
    pub reason: String,
    pub message: String,
    pub count: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    pub free_bytes: f64,
    pub bytes: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Store {
    pub objects: f64,
    pub bytes: f64,
    pub read_only: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Slow {
    pub request: String,
    pub mean_seconds: f64,
    pub count: f64,
}

impl Report {
    pub fn of(found: &Gathered) -> Self {
        let mut report = Self {
            wrong: Vec::new(),
            kubernetes: found.version.clone(),
            coracle: env!("CARGO_PKG_VERSION"),
            nodes: found.nodes.iter().map(node).collect(),
            pods: found.pods.as_ref().map(|pods| of_pods(pods, found.now)),
            warnings: found.warnings.as_ref().map(|events| warnings(events)),
            disk: disk(found),
            store: store(found),
            certificates: certificates(found),
            last_backup: last_backup(found),
            slow: slow(found),
            now: found.now,
        };
        report.wrong = report.judged(&found.failing);
        report
    }

    pub fn is_well(&self) -> bool {
        self.wrong.is_empty()
    }

    pub fn nodes_are_ready(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.ready)
    }

    fn judged(&self, failing: &[String]) -> Vec<String> {
        let mut wrong: Vec<String> =
            failing.iter().map(|check| format!("health check {check} fails")).collect();
        if self.nodes.is_empty() {
            wrong.push("there is no node".to_owned());
        }
        let of_nodes = self.nodes.iter().filter_map(|node| Some((node, node.problem.as_ref()?)));
        wrong.extend(of_nodes.map(|(node, why)| format!("node {}: {why}", node.name)));
        let pods = self.pods.as_ref().map_or(0, |pods| pods.not_ready.len());
        match pods {
            0 => {}
            1 => wrong.push("1 pod is not ready".to_owned()),
            many => wrong.push(format!("{many} pods are not ready")),
        }
        if self.store.as_ref().is_some_and(|store| store.read_only) {
            wrong.push("the store takes no writes".to_owned());
        }
        if let Some(Disk { free_bytes, bytes }) = self.disk
            && free_bytes < bytes * DISK_SHARE
        {
            wrong.push("the disk of the data directory is nearly full".to_owned());
        }
        let now = self.now.as_second();
        let ending = self.certificates.iter().filter(|(_, end)| **end < now + CERTIFICATE_SECONDS);
        wrong.extend(ending.map(|(name, end)| {
            let when = if *end < now { "is over" } else { "ends within a day" };
            format!("certificate {name} {when}")
        }));
        wrong
    }
}

fn node(node: &Node) -> NodeLine {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let words = |message: &Option<String>| message.clone().unwrap_or_else(|| "no reason given".to_owned());
    let short = conditions.iter().find(|c| c.type_.ends_with("Pressure") && c.status == "True");
    let problem = match ready {
        None => Some("its kubelet has not reported yet".to_owned()),
        Some(condition) if condition.status != "True" => Some(words(&condition.message)),
        Some(_) => short.map(|condition| format!("{}: {}", condition.type_, words(&condition.message))),
    };
    NodeLine {
        name: node.name_any(),
        ready: ready.is_some_and(|condition| condition.status == "True"),
        version: status
            .and_then(|s| s.node_info.as_ref())
            .map(|info| info.kubelet_version.clone())
            .unwrap_or_default(),
        problem,
    }
}

fn of_pods(pods: &[Pod], now: Timestamp) -> Pods {
    let mut all = Pods::default();
    for pod in pods {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_else(|| "Unknown".to_owned());
        *all.by_phase.entry(phase).or_default() += 1;
        if let Some(why) = trouble(pod, now)
            && all.not_ready.len() < PODS
        {
            all.not_ready.push(PodLine {
                pod: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
                why,
            });
        }
    }
    all
}

/// Why a pod that should be ready is not.
fn trouble(pod: &Pod, now: Timestamp) -> Option<String> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let condition = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let words = |reason: &Option<String>, message: &Option<String>| {
        let message = message.iter().map(|text| format!(": {text}"));
        format!("{}{}", reason.as_deref().unwrap_or("not ready"), message.collect::<String>())
    };
    let stuck = containers
        .filter_map(waits)
        .find(|reason| !matches!(*reason, "ContainerCreating" | "PodInitializing"));
    if let Some(reason) = stuck {
        return Some(reason.to_owned());
    }
    let began = pod.metadata.creation_timestamp.as_ref().map_or(now, |at| at.0);
    let since =
        condition("Ready").and_then(|ready| ready.last_transition_time.as_ref()).map_or(began, |at| at.0);
    let is_new = now.as_second() - since.max(began).as_second() < STARTING_SECONDS;
    match status.phase.as_deref().unwrap_or_default() {
        "Failed" => Some(words(&status.reason.clone().or(Some("Failed".to_owned())), &status.message)),
        "Pending" if !is_new => {
            match condition("PodScheduled").filter(|scheduled| scheduled.status == "False") {
                Some(scheduled) => Some(words(&scheduled.reason, &scheduled.message)),
                None => Some("Pending".to_owned()),
            }
        }
        "Running" if !is_new && pod.metadata.deletion_timestamp.is_none() => {
            let ready = condition("Ready").filter(|ready| ready.status != "True")?;
            Some(words(&ready.reason, &ready.message))
        }
        _ => None,
    }
}

fn waits(container: &ContainerStatus) -> Option<&str> {
    container.state.as_ref()?.waiting.as_ref()?.reason.as_deref()
}

fn last_seen(event: &Event) -> Option<Timestamp> {
    let of_series =
        event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|at| at.0);
    let single = event.last_timestamp.as_ref().map(|at| at.0);
    of_series.or(single).or(event.event_time.as_ref().map(|at| at.0))
}

fn warnings(events: &[Event]) -> Vec<Warning> {
    let mut all: Vec<&Event> = events.iter().collect();
    all.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
    let of = |event: &&Event| {
        let object = &event.involved_object;
        let namespace = object.namespace.iter().map(|namespace| format!("{namespace}/")).collect::<String>();
        Warning {
            object: format!(
                "{} {namespace}{}",
                object.kind.as_deref().unwrap_or_default(),
                object.name.as_deref().unwrap_or_default()
            ),
            reason: event.reason.clone().unwrap_or_default(),
            message: event.message.clone().unwrap_or_default(),
            count: event.series.as_ref().and_then(|series| series.count).or(event.count).unwrap_or(1),
        }
    };
    all.iter().take(WARNINGS).map(of).collect()
}

fn disk(found: &Gathered) -> Option<Disk> {
    let free_bytes = found.metrics.value("coracle_data_dir_free_bytes")?;
    Some(Disk { free_bytes, bytes: found.metrics.value("coracle_data_dir_bytes")? })
}

fn store(found: &Gathered) -> Option<Store> {
    let metrics = &found.metrics;
    Some(Store {
        objects: metrics.value("coracle_store_objects")?,
        bytes: metrics.value("coracle_store_disk_bytes").unwrap_or(0.0),
        read_only: metrics.value("coracle_store_read_only") == Some(1.0),
    })
}

/// Whole seconds; a page of metrics has no others that are of use.
#[allow(clippy::cast_possible_truncation)]
fn seconds(value: f64) -> i64 {
    value as i64
}

fn certificates(found: &Gathered) -> BTreeMap<String, i64> {
    let all = found.metrics.samples("coracle_certificate_expiration_timestamp_seconds");
    all.map(|sample| (sample.label("certificate").to_owned(), seconds(sample.value))).collect()
}

fn last_backup(found: &Gathered) -> Option<i64> {
    found.metrics.value("coracle_backup_last_success_timestamp_seconds").map(seconds).filter(|at| *at > 0)
}

/// Requests that last are no slow ones.
fn slow(found: &Gathered) -> Vec<Slow> {
    let key = |labels: &super::page::Sample<'_>| {
        let (verb, resource) = (labels.label("verb").to_owned(), labels.label("resource").to_owned());
        (verb, resource, labels.label("subresource").to_owned())
    };
    let mut all: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    for sample in found.metrics.samples("apiserver_request_duration_seconds_sum") {
        all.entry(key(&sample)).or_default().0 += sample.value;
    }
    for sample in found.metrics.samples("apiserver_request_duration_seconds_count") {
        all.entry(key(&sample)).or_default().1 += sample.value;
    }
    let lasts = |verb: &str| matches!(verb, "WATCH" | "CONNECT");
    let mut slow: Vec<Slow> = all
        .into_iter()
        .filter(|((verb, ..), (_, count))| !lasts(verb) && *count > 0.0)
        .map(|((verb, resource, sub), (sum, count))| {
            let below = if sub.is_empty() { String::new() } else { format!("/{sub}") };
            Slow { request: format!("{verb} {resource}{below}"), mean_seconds: sum / count, count }
        })
        .filter(|slow| slow.mean_seconds >= SLOW_SECONDS)
        .collect();
    slow.sort_by(|one, other| other.mean_seconds.total_cmp(&one.mean_seconds));
    slow.truncate(SLOW);
    slow
}

#[cfg(test)]
mod tests {
    use super::super::page::Page;
    use super::*;
    use serde_json::json;

    fn pod(status: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "creationTimestamp": "2030-01-01T00:00:00Z"},
            "status": status,
        }))
        .unwrap()
    }

    fn why(status: serde_json::Value, now: &str) -> Option<String> {
        trouble(&pod(status), now.parse().unwrap())
    }

    const SOON: &str = "2030-01-01T00:00:10Z";
    const LATER: &str = "2030-01-01T00:10:00Z";

    #[test]
    fn pods_that_start_are_no_trouble_and_those_that_cannot_are() {
        let waiting = |reason: &str| json!({"phase": "Pending", "containerStatuses": [{"name": "c", "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": {"waiting": {"reason": reason}}}]});
        assert_eq!(why(waiting("ContainerCreating"), SOON), None);
        assert_eq!(why(waiting("ContainerCreating"), LATER), Some("Pending".into()));
        assert_eq!(why(waiting("ImagePullBackOff"), SOON), Some("ImagePullBackOff".into()));
        let unschedulable = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]});
        assert_eq!(why(unschedulable.clone(), SOON), None);
        assert_eq!(why(unschedulable, LATER), Some("Unschedulable: 0/1 nodes".into()));
        assert_eq!(why(json!({"phase": "Succeeded"}), LATER), None);
        assert_eq!(why(json!({"phase": "Failed", "reason": "Evicted"}), SOON), Some("Evicted".into()));
        let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": "2030-01-01T00:09:55Z"}]});
        assert_eq!(why(running.clone(), LATER), None, "for five seconds");
        assert_eq!(why(running, "2030-01-01T01:00:00Z"), Some("ContainersNotReady".into()));
    }

    fn gathered(metrics: &str) -> Gathered {
        let ready = json!({"metadata": {"name": "one"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        Gathered {
            now: LATER.parse().unwrap(),
            version: "v1".into(),
            nodes: vec![serde_json::from_value(ready).unwrap()],
            pods: Some(Vec::new()),
            warnings: None,
            failing: Vec::new(),
            metrics: Page::new(metrics.to_owned()),
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(Report::of(&gathered("")).is_well());
        let now = LATER.parse::<Timestamp>().unwrap().as_second();
        let text = format!(
            "coracle_store_objects 5\ncoracle_store_read_only 1\ncoracle_data_dir_free_bytes 1\ncoracle_data_dir_bytes 100\ncoracle_certificate_expiration_timestamp_seconds{{certificate=\"a\"}} {}\ncoracle_certificate_expiration_timestamp_seconds{{certificate=\"b\"}} {}\n",
            now - 1,
            now + 900_000
        );
        let mut found = gathered(&text);
        found.failing = vec!["scheduler".into()];
        let report = Report::of(&found);
        let wrong = [
            "health check scheduler fails",
            "the store takes no writes",
            "the disk of the data directory is nearly full",
            "certificate a is over",
        ];
        assert_eq!(report.wrong, wrong);
        assert_eq!(report.certificates["b"], now + 900_000);
        assert_eq!(report.last_backup, None);
    }

    #[test]
    fn slow_requests_are_found_and_watches_are_none() {
        let text = "apiserver_request_duration_seconds_sum{verb=\"POST\",resource=\"pods\",subresource=\"\"} 4\napiserver_request_duration_seconds_count{verb=\"POST\",resource=\"pods\",subresource=\"\"} 8\napiserver_request_duration_seconds_sum{verb=\"WATCH\",resource=\"pods\",subresource=\"\"} 400\napiserver_request_duration_seconds_count{verb=\"WATCH\",resource=\"pods\",subresource=\"\"} 1\n";
        let slow = Report::of(&gathered(text)).slow;
        assert_eq!(slow.iter().map(|slow| slow.request.as_str()).collect::<Vec<_>>(), ["POST pods"]);
    }
}
