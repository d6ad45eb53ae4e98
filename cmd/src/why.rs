//! `coracle why POD`: per node and plugin the verdict, the score, and what would have to change.

use crate::args::WhyArgs;
use crate::kubeconfig::client;
use coracle_client::{Context, Informers};
use coracle_scheduler::Config;
use coracle_scheduler::explain::{NodeReport, Report, Said, explain};
use coracle_scheduler::plugins::Registry;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use std::fmt::Write;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

/// Nodes shown unless all are asked for: whoever has thousands wants the best and the reasons.
const SHOWN: usize = 10;

/// Exit code 0: there is a node for the pod.
pub async fn command(args: WhyArgs) -> ExitCode {
    match look(&args).await {
        Ok((pod, report)) => {
            print!("{}", text(&pod, &report, args.all));
            let placed = pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
            let fits = report.gates.is_empty()
                && report.everywhere.is_empty()
                && report.nodes.iter().any(NodeReport::fits);
            if placed || fits { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            eprintln!("coracle: {why}");
            ExitCode::from(2)
        }
    }
}

async fn look(args: &WhyArgs) -> Result<(Pod, Report), String> {
    let client = client(&args.kubeconfig).await?;
    let (namespace, name) = args.pod.split_once('/').unwrap_or((&args.namespace, &args.pod));
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.get(name).await.map_err(|e| format!("pod {namespace}/{name}: {e}"))?;
    let config = in_force(client.clone()).await;
    let stop = CancellationToken::new();
    let _ended = stop.clone().drop_guard();
    let informers = Informers::new(client.clone(), stop.clone());
    let context = Context { client, informers, stop };
    let report = explain(&context, &config, pod.clone()).await.map_err(|e| coracle_api::error::chain(&e))?;
    Ok((pod, report))
}

/// The configuration that kube-system shows, or the default.
async fn in_force(client: kube::Client) -> Config {
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    let map = maps.get_opt("kube-scheduler-config").await.unwrap_or_else(|error| {
        eprintln!("coracle: kube-scheduler-config cannot be read, the defaults are used here: {error}");
        None
    });
    let data = map.and_then(|m| m.data).unwrap_or_default();
    let Some(text) = data.get("config.yaml").or_else(|| data.values().next()) else {
        return Config::default();
    };
    match Config::parse(text, &Registry::in_tree()) {
        Ok(parsed) => parsed.config,
        Err(mistakes) => {
            eprintln!(
                "coracle: kube-scheduler-config cannot be in force, the defaults are used here: {mistakes}"
            );
            Config::default()
        }
    }
}

fn line(text: &mut String, indent: usize, what: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:indent$}{what}", "");
}

fn refusals(text: &mut String, indent: usize, said: &[Said]) {
    for refusal in said.iter().filter(|s| !s.refusal.is_empty()) {
        line(text, indent, &format!("{}: {}", refusal.plugin, refusal.refusal));
        if let Some(advice) = &refusal.advice {
            line(text, indent + 2, &format!("to change: {advice}"));
        }
    }
}

fn node(text: &mut String, report: &NodeReport) {
    if !report.fits() {
        line(text, 0, &format!("{}: does not fit", report.node));
        return refusals(text, 2, &report.filters);
    }
    line(text, 0, &format!("{}: fits, score {}", report.node, report.total));
    let passed: Vec<&str> = report.filters.iter().map(|s| s.plugin).collect();
    if !passed.is_empty() {
        line(text, 2, &format!("passed {}", passed.join(", ")));
    }
    for score in &report.scores {
        let (sum, weight) = (score.normalized * score.weight, score.weight);
        line(
            text,
            2,
            &format!("{:33} {:>4} x {weight} = {sum}  (raw {})", score.plugin, score.normalized, score.raw),
        );
    }
}

fn text(pod: &Pod, report: &Report, all: bool) -> String {
    let mut out = String::new();
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref());
    let name = format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    );
    let place = match spec.and_then(|s| s.node_name.as_ref()) {
        Some(node) => format!("is on {node}; anew it would be placed like this"),
        None => "has no node".to_owned(),
    };
    line(&mut out, 0, &format!("pod {name} {place} (scheduler {})", report.profile));
    if let Some(node) = pod.status.as_ref().and_then(|s| s.nominated_node_name.as_ref()) {
        line(&mut out, 0, &format!("room is being made for it on {node}"));
    }
    if !report.gates.is_empty() {
        line(&mut out, 0, "it is kept out of the queue:");
        refusals(&mut out, 2, &report.gates);
    }
    if !report.everywhere.is_empty() {
        line(&mut out, 0, "on every node:");
        refusals(&mut out, 2, &report.everywhere);
    }
    if report.nodes.is_empty() {
        line(&mut out, 0, "there are no nodes");
    }
    let shown = if all { report.nodes.len() } else { SHOWN };
    report.nodes.iter().take(shown).for_each(|n| node(&mut out, n));
    if report.nodes.len() > shown {
        line(&mut out, 0, &format!("and {} more nodes; --all shows them", report.nodes.len() - shown));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_scheduler::explain::Scored;
    use serde_json::json;

    #[test]
    fn verdicts_scores_and_advice_are_shown() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "default"}})).unwrap();
        let refused = Said {
            plugin: "NodeUnschedulable",
            refusal: "node(s) were unschedulable".to_owned(),
            advice: Some("kubectl uncordon b".to_owned()),
        };
        let passed = Said { refusal: String::new(), advice: None, ..refused.clone() };
        let score = Scored { plugin: "NodeAffinity", raw: 7, normalized: 100, weight: 2 };
        let report = Report {
            profile: "default-scheduler".to_owned(),
            gates: vec![],
            everywhere: vec![],
            nodes: vec![
                NodeReport { node: "a".to_owned(), filters: vec![passed], scores: vec![score], total: 200 },
                NodeReport { node: "b".to_owned(), filters: vec![refused], scores: vec![], total: 0 },
            ],
        };
        let expected = "\
pod default/web has no node (scheduler default-scheduler)
a: fits, score 200
  passed NodeUnschedulable
  NodeAffinity                       100 x 2 = 200  (raw 7)
b: does not fit
  NodeUnschedulable: node(s) were unschedulable
    to change: kubectl uncordon b
";
        assert_eq!(text(&pod, &report, false), expected);
    }
}
