//! What every pod asks for and may take, as the scheduler counts it: upstream's page `/metrics/resources`.

use crate::cache::resources::{Resources, limits_of_spec, requests_of_spec};
use coracle_api::pod::is_terminal;
use coracle_metrics::Text;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::sync::Arc;

/// Where the scheduler serves the page.
pub const PATH: &str = "/metrics/resources";

/// Writes the page: everything of pods that have not ended.
pub fn render(pods: &[Arc<Pod>], page: &mut Text) {
    let mut pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).filter(|pod| !has_ended(pod)).collect();
    pods.sort_by_key(|pod| (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref()));
    let help = "What pods ask for, by resource, with the unit where there is one.";
    family(page, "kube_pod_resource_request", help, &pods, requests_of_spec);
    let help = "What pods may take at most, by resource, with the unit where there is one.";
    family(page, "kube_pod_resource_limit", help, &pods, limits_of_spec);
}

/// A pod without a node has not, whatever its phase says.
fn has_ended(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    !node.is_empty() && is_terminal(pod)
}

fn family(page: &mut Text, name: &str, help: &str, pods: &[&Pod], of: impl Fn(&Pod) -> Resources) {
    page.head(name, help, "gauge");
    for pod in pods {
        let Some(spec) = &pod.spec else { continue };
        let (namespace, own_name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let priority = spec.priority.map(|priority| priority.to_string()).unwrap_or_default();
        for (resource, amount) in of(pod).iter() {
            let labels = [
                ("namespace", namespace.as_str()),
                ("pod", &own_name),
                ("node", spec.node_name.as_deref().unwrap_or_default()),
                ("scheduler", spec.scheduler_name.as_deref().unwrap_or_default()),
                ("priority", &priority),
                ("resource", resource),
                ("unit", unit(resource)),
            ];
            page.sample(name, &labels, shown(resource, amount));
        }
    }
}

fn unit(resource: &str) -> &'static str {
    match resource {
        "cpu" => "cores",
        "memory" | "storage" | "ephemeral-storage" => "bytes",
        name if name.starts_with("hugepages-") => "bytes",
        name if name.starts_with("attachable-volumes-") => "integer",
        _ => "",
    }
}

/// Cores, or units.
fn shown(resource: &str, amount: i64) -> String {
    if resource != "cpu" {
        return amount.to_string();
    }
    #[allow(clippy::cast_precision_loss, reason = "thousandths of so many cores that nobody has them")]
    let cores = amount as f64 / 1000.0;
    cores.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(name: &str, labels: &[(&str, &str)], amount: &str) -> String {
        let mut line = Text::default();
        line.sample(name, labels, amount);
        line.finish()
    }

    #[test]
    fn every_pod_that_runs_or_waits_shows_what_it_asks_for_and_may_take() {
        let pod = |name: &str, spec: serde_json::Value, phase: &str| {
            let metadata = json!({ "name": name, "namespace": "a" });
            let pod = json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } });
            Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
        };
        let amounts = |cpu: &str, memory: &str| json!({ "cpu": cpu, "memory": memory, "example.com/x": "2" });
        let containers = json!([
            { "name": "c", "resources": { "requests": amounts("100m", "1Ki"), "limits": { "memory": "2Ki" } } },
            { "name": "d", "resources": { "requests": { "cpu": "1400m", "hugepages-2Mi": "2Mi" } } },
        ]);
        let overhead = json!({ "cpu": "500m", "memory": "1" });
        let spec = json!({ "nodeName": "n", "schedulerName": "s", "priority": 7, "overhead": overhead,
            "initContainers": [{ "name": "i", "resources": { "limits": { "memory": "3Ki" } } }],
            "containers": containers });
        let waits = json!({ "containers": [{ "name": "c", "resources": { "limits": { "cpu": "1" } } }],
            "resources": { "limits": { "cpu": "3" } } });
        let pods = [
            pod("waits", waits, "Succeeded"),
            pod("runs", spec.clone(), "Running"),
            pod("over", spec, "Failed"),
        ];
        let mut page = Text::default();
        render(&pods, &mut page);
        let runs = |name: &str, resource: &str, unit: &str, amount: &str| {
            let labels = [
                ("namespace", "a"),
                ("pod", "runs"),
                ("node", "n"),
                ("scheduler", "s"),
                ("priority", "7"),
                ("resource", resource),
                ("unit", unit),
            ];
            line(&format!("kube_pod_resource_{name}"), &labels, amount)
        };
        let waits = [
            ("namespace", "a"),
            ("pod", "waits"),
            ("node", ""),
            ("scheduler", ""),
            ("priority", ""),
            ("resource", "cpu"),
            ("unit", "cores"),
        ];
        let expected = [
            "# TYPE kube_pod_resource_request gauge\n".to_owned(),
            runs("request", "cpu", "cores", "2"),
            runs("request", "memory", "bytes", "1025"),
            runs("request", "example.com/x", "", "2"),
            runs("request", "hugepages-2Mi", "bytes", "2097152"),
            "# TYPE kube_pod_resource_limit gauge\n".to_owned(),
            runs("limit", "memory", "bytes", "3073"),
            line("kube_pod_resource_limit", &waits, "3"),
        ];
        let page = page.finish();
        let lines: Vec<_> = page.split_inclusive('\n').filter(|line| !line.starts_with("# HELP")).collect();
        assert_eq!(lines, expected);
    }
}
