//! `coracle status`: the nodes, and what is wrong with them.

use crate::args::StatusArgs;
use crate::kubeconfig::client;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// How often a cluster that is not up yet is asked again: there is nothing to watch before it answers.
const AGAIN: Duration = Duration::from_millis(200);

/// Exit code 0: there is a node, and every node is Ready.
pub async fn command(args: StatusArgs) -> ExitCode {
    let until = Instant::now() + Duration::from_secs(args.wait.unwrap_or(0));
    loop {
        let found = nodes(&args.kubeconfig).await;
        let ready =
            matches!(&found, Ok(nodes) if !nodes.is_empty() && nodes.iter().all(|n| problem(n).is_none()));
        if ready || Instant::now() >= until {
            return report(found);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn nodes(kubeconfig: &Path) -> Result<Vec<Node>, String> {
    let list = Api::<Node>::all(client(kubeconfig).await?).list(&ListParams::default()).await;
    list.map(|l| l.items).map_err(|e| format!("the API does not answer: {e}"))
}

/// Why the node is not Ready, in its own words.
fn problem(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    match conditions.into_iter().flatten().find(|c| c.type_ == "Ready") {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(ready.message.clone().unwrap_or_else(|| "no reason given".to_owned())),
        None => Some("its kubelet has not reported yet".to_owned()),
    }
}

fn report(found: Result<Vec<Node>, String>) -> ExitCode {
    let nodes = match found {
        Ok(nodes) => nodes,
        Err(why) => {
            eprintln!("coracle: {why}");
            return ExitCode::FAILURE;
        }
    };
    for node in &nodes {
        match problem(node) {
            None => println!("{}\tReady", node.name_any()),
            Some(why) => println!("{}\tNotReady\t{why}", node.name_any()),
        }
    }
    if nodes.is_empty() {
        println!("no nodes");
    }
    let well = !nodes.is_empty() && nodes.iter().all(|n| problem(n).is_none());
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
