//! Why a pod is where it is, or nowhere: every node, every plugin, the verdict, the score, and what would have to
//! change. For `coracle why`; a scheduler never runs it.

use crate::cache::{PodInfo, Snapshot};
use crate::config::Config;
use crate::framework::{CycleState, Framework, NodeScore, Status};
use crate::plugins::{Handle, Registry};
use crate::run::{Extenders, Objects, Refused, frameworks};
use coracle_api::pod::is_terminal;
use coracle_client::Context;
use k8s_openapi::api::core::v1::{Node, Pod};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc::unbounded_channel;

/// What one plugin says of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub plugin: &'static str,
    /// Upstream's words; empty for a node that it accepts.
    pub refusal: String,
    /// What would have to change.
    pub advice: Option<String>,
}

/// One plugin's part of a node's score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scored {
    pub plugin: &'static str,
    pub raw: i64,
    /// 0 to 100.
    pub normalized: i64,
    pub weight: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    pub node: String,
    /// Every filter that looked at it, in order.
    pub filters: Vec<Said>,
    /// Of nodes that all filters accept.
    pub scores: Vec<Scored>,
    pub total: i64,
}

impl NodeReport {
    pub fn fits(&self) -> bool {
        self.filters.iter().all(|said| said.refusal.is_empty())
    }
}

/// What is to be said about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub profile: String,
    /// Plugins that keep it out of the queue.
    pub gates: Vec<Said>,
    /// What PreFilter said of all nodes at once.
    pub everywhere: Vec<Said>,
    /// The best first, then those that do not fit, by name.
    pub nodes: Vec<NodeReport>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("the API did not answer")]
    Api(#[from] kube::Error),
    #[error("configuration refused")]
    Profile(#[from] crate::framework::ProfileError),
    #[error("no profile is called {0:?}: another scheduler must place this pod")]
    OtherScheduler(String),
    #[error("configuration refused: {0}: {1}")]
    Extender(String, String),
}

/// The name under which extenders are told of.
const EXTENDER: &str = "Extender";

/// Looks at the live cluster through the context, as a scheduler with this configuration would. Nothing is written.
pub async fn explain(context: &Context, config: &Config, pod: Pod) -> Result<Report, ExplainError> {
    let (sender, _events) = unbounded_channel();
    let objects = Objects::start(context, &sender, &context.stop).await;
    let handle = Handle::with(objects);
    let (nodes, pods) = (context.informers.of::<Node>(), context.informers.of::<Pod>());
    nodes.synced().await;
    pods.synced().await;
    let mut snapshot = Snapshot::default();
    snapshot.keep_nodes_whole();
    for node in nodes.list() {
        let _added = snapshot.set_node(node);
    }
    let own = pod.metadata.uid.clone();
    for other in pods.list().into_iter().filter(|p| !is_terminal(p.as_ref()) && p.metadata.uid != own) {
        snapshot.set_pod(Arc::new(PodInfo::new(other)));
    }
    let name = pod.spec.as_ref().and_then(|s| s.scheduler_name.clone());
    let name = name.unwrap_or_else(|| "default-scheduler".to_owned());
    let mut all = frameworks(config, &Registry::in_tree(), &handle)?.into_iter();
    let framework = all.find(|f| f.scheduler_name == name).ok_or(ExplainError::OtherScheduler(name))?;
    let extenders = Extenders::new(&config.extenders);
    let extenders = extenders.map_err(|(path, why)| ExplainError::Extender(path, why))?;
    let pod = as_waiting(pod);
    let mut report = report(&framework, &snapshot, &pod);
    if extenders.care(&pod) {
        extend(&extenders, &snapshot, &pod, &mut report).await;
    }
    Ok(report)
}

/// What extenders say of the nodes that all filters accept.
async fn extend(extenders: &Extenders, snapshot: &Snapshot, pod: &PodInfo, report: &mut Report) {
    let fitting = report.nodes.iter().filter(|r| r.fits()).filter_map(|r| snapshot.node_named(&r.node));
    let fitting: Vec<usize> = fitting.map(|node| node.slot).collect();
    let mut reasons: HashMap<usize, String> = HashMap::new();
    let mut refused = |refused: Refused<'_>| {
        reasons.extend(refused.node.map(|node| (node.slot, refused.reason.to_owned())));
    };
    let left = match extenders.filter_telling(pod, snapshot, fitting.clone(), &mut refused).await {
        Ok(left) => left,
        Err(why) => return report.everywhere.push(said(EXTENDER, &Status::Error(why))),
    };
    let mut totals: Vec<NodeScore> = left.iter().map(|slot| NodeScore { node: *slot, score: 0 }).collect();
    extenders.prioritize(pod, snapshot, &mut totals).await;
    for node in &mut report.nodes {
        let Some(slot) = snapshot.node_named(&node.node).map(|n| n.slot).filter(|s| fitting.contains(s))
        else {
            continue;
        };
        let Some(score) = totals.iter().find(|t| t.node == slot).map(|t| t.score) else {
            let reason = reasons.remove(&slot).filter(|reason| !reason.is_empty());
            let reason = reason.unwrap_or_else(|| "left out of the answer".to_owned());
            node.filters.push(said(EXTENDER, &Status::unschedulable(reason)));
            continue;
        };
        node.filters.push(said(EXTENDER, &Status::Success));
        node.total += score;
        node.scores.push(Scored { plugin: EXTENDER, raw: score, normalized: score, weight: 1 });
    }
    sort(&mut report.nodes);
}

/// The best first, then those that do not fit, by name.
fn sort(nodes: &mut [NodeReport]) {
    nodes.sort_by(|a, b| {
        b.fits().cmp(&a.fits()).then(b.total.cmp(&a.total)).then_with(|| a.node.cmp(&b.node))
    });
}

/// The pod as if it had no node yet.
fn as_waiting(mut pod: Pod) -> PodInfo {
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    PodInfo::new(Arc::new(pod))
}

fn said(plugin: &'static str, status: &Status) -> Said {
    Said { plugin, refusal: status.message(), advice: None }
}

/// Runs every plugin on every node, whatever the others said.
pub fn report(framework: &Framework, snapshot: &Snapshot, pod: &PodInfo) -> Report {
    let mut state = CycleState::default();
    let mut report = Report {
        profile: framework.scheduler_name.clone(),
        gates: vec![],
        everywhere: vec![],
        nodes: vec![],
    };
    for plugin in &framework.pre_enqueue {
        let status = plugin.pre_enqueue(pod);
        if !status.is_success() {
            report.gates.push(said(plugin.name(), &status));
        }
    }
    for entry in &framework.pre_filter {
        match entry.plugin.pre_filter(&mut state, pod, snapshot) {
            Status::Success => {}
            Status::Skip => state.skip_filter(entry.name),
            refusal => {
                report.everywhere.push(said(entry.name, &refusal));
                state.skip_filter(entry.name);
            }
        }
    }
    for node in snapshot.nodes() {
        let filters = framework.filter.iter().filter(|e| state.filters(e.name)).map(|entry| {
            let status = entry.plugin.filter(&state, pod, node);
            let advice = if status.is_success() { None } else { entry.plugin.advice(pod, node) };
            Said { advice, ..said(entry.name, &status) }
        });
        let filters = filters.collect();
        report.nodes.push(NodeReport { node: node.name.clone(), filters, scores: Vec::new(), total: 0 });
    }
    score(framework, snapshot, pod, &mut state, &mut report.nodes);
    sort(&mut report.nodes);
    report
}

fn score(
    framework: &Framework,
    snapshot: &Snapshot,
    pod: &PodInfo,
    state: &mut CycleState,
    reports: &mut [NodeReport],
) {
    let fitting: Vec<usize> = reports
        .iter()
        .filter(|r| r.fits())
        .filter_map(|r| snapshot.node_named(&r.node))
        .map(|n| n.slot)
        .collect();
    for plugin in &framework.pre_score {
        if plugin.pre_score(state, pod, snapshot, &fitting) != Status::Success {
            state.skip_score(plugin.name());
        }
    }
    for entry in framework.score.iter().filter(|e| state.scores(e.name)) {
        let raw = |slot: &usize| NodeScore {
            node: *slot,
            score: entry.plugin.score(state, pod, snapshot.node(*slot)),
        };
        let raw: Vec<NodeScore> = fitting.iter().map(raw).collect();
        let mut normalized = raw.clone();
        entry.plugin.normalize(state, pod, &mut normalized);
        for (raw, normalized) in raw.iter().zip(&normalized) {
            let name = &snapshot.node(raw.node).name;
            let Some(report) = reports.iter_mut().find(|r| r.node == *name) else { continue };
            report.total += normalized.score * entry.weight;
            report.scores.push(Scored {
                plugin: entry.name,
                raw: raw.score,
                normalized: normalized.score,
                weight: entry.weight,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{pod, snapshot};
    use serde_json::json;

    #[test]
    fn every_plugin_speaks_of_every_node() {
        let size = json!({"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}});
        let nodes = [
            json!({"metadata": {"name": "big"}, "status": size}),
            json!({"metadata": {"name": "bad"}, "status": {"allocatable": {"cpu": "1m", "pods": "9"}},
                "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}}),
        ];
        let all = frameworks(&Config::default(), &Registry::in_tree(), &Handle::offline()).expect("defaults");
        let wants = pod(json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c",
            "resources": {"requests": {"cpu": "500m", "memory": "1Mi"}}}]}}));
        let report = report(&all[0], &snapshot(&nodes, &[]), &wants);
        let [big, bad] = report.nodes.as_slice() else { panic!("two nodes") };
        assert!(big.fits() && big.total > 0 && !big.scores.is_empty());
        let refusals: Vec<(&str, &str)> = bad
            .filters
            .iter()
            .filter(|s| !s.refusal.is_empty())
            .map(|s| (s.plugin, s.refusal.as_str()))
            .collect();
        assert_eq!(
            refusals,
            [
                ("TaintToleration", "node(s) had untolerated taint(s)"),
                ("NodeResourcesFit", "Insufficient cpu, Insufficient memory")
            ]
        );
        let advice: Vec<&str> = bad.filters.iter().filter_map(|s| s.advice.as_deref()).collect();
        assert_eq!(advice[0], "tolerate a=b:NoSchedule, or kubectl taint nodes bad a=b:NoSchedule-");
        assert!(advice[1].contains("500m of cpu asked, 1m free"), "{advice:?}");
    }
}
