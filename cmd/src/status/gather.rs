//! What the API says of the cluster. Nodes must be readable; of the rest what the caller may not see is left out.

use super::page::Page;
use crate::kubeconfig::client;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use std::path::Path;

pub struct Gathered {
    pub now: Timestamp,
    pub version: String,
    pub nodes: Vec<Node>,
    pub pods: Option<Vec<Pod>>,
    pub warnings: Option<Vec<Event>>,
    /// Health checks that fail.
    pub failing: Vec<String>,
    pub metrics: Page,
}

/// # Errors
/// In one sentence for whoever typed the command.
pub async fn gather(kubeconfig: &Path) -> Result<Gathered, String> {
    let client = client(kubeconfig).await?;
    let cached = ListParams { resource_version: Some("0".to_owned()), ..ListParams::default() };
    let of_warnings = ListParams::default().fields("type=Warning");
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), Api::all(client.clone()));
    let events: Api<Event> = Api::all(client.clone());
    let (nodes, pods, warnings, health, version, metrics) = tokio::join!(
        nodes.list(&cached),
        pods.list(&cached),
        events.list(&of_warnings),
        text(&client, "/readyz?verbose"),
        client.apiserver_version(),
        text(&client, "/metrics"),
    );
    let nodes = nodes.map_err(|e| format!("the API does not answer: {}", coracle_api::error::chain(&e)))?;
    Ok(Gathered {
        now: Timestamp::now(),
        version: version.map(|version| version.git_version).unwrap_or_default(),
        nodes: nodes.items,
        pods: pods.ok().map(|list| list.items),
        warnings: warnings.ok().map(|list| list.items),
        failing: failing(&health),
        metrics: Page::new(metrics),
    })
}

/// The body, whatever the code.
async fn text(client: &Client, path: &str) -> String {
    let Ok(request) = Request::get(path).body(kube::client::Body::empty()) else { return String::new() };
    let Ok(response) = client.send(request).await else { return String::new() };
    let bytes = response.into_body().collect_bytes().await.unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn failing(health: &str) -> Vec<String> {
    let lines = health.lines().filter_map(|line| line.strip_prefix("[-]"));
    lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}
