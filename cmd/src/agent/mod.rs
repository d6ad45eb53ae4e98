//! `coracle agent`: another machine joins as a node.
//!
//! It learns the cluster's CA from the public `cluster-info`, which the server has signed with the token's secret, asks
//! for its certificates, and from then on is known by these; the token is for the first start only. Its components are
//! those of the server's process, over HTTPS.

mod authority;
mod components;
pub mod discovery;
mod identity;
mod settings;

use crate::address::follow;
use crate::args::AgentArgs;
use crate::code;
use crate::node::regarding;
use crate::process::{fail, until_told_to_end};
use crate::supervise::Supervisor;
use coracle_apiserver::health::Health;
use coracle_client::Recorder;
use identity::Identity;
use settings::Agent;
use std::process::ExitCode;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs until SIGTERM or SIGINT (exit code 0). What keeps the machine from joining is told, with exit code 1; once it
/// has joined, a server that is away is waited for.
pub async fn command(args: AgentArgs) -> ExitCode {
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

async fn run(args: AgentArgs) -> Result<(), String> {
    let agent = Agent::load(args)?;
    crate::private::directory(&agent.data_dir)?;
    let told = until_told_to_end();
    let mut told = std::pin::pin!(told);
    let identity = tokio::select! {
        ended = &mut told => return ended.map_err(|e| e.to_string()),
        identity = Box::pin(Identity::of(&agent)) => identity?,
    };
    let mut agent = Arc::new(agent.named(identity.node_name()));
    let identity = Arc::new(identity);
    tracing::info!(node = %agent.node_name, server = %agent.server, "joined");
    let all = CancellationToken::new();
    tokio::spawn(code::hand_back(all.clone()));
    tokio::spawn(coracle_client::clock::watch(all.clone()));
    loop {
        let stop = all.child_token();
        let mut supervisor = Supervisor::new(stop.clone(), Health::default());
        components::spawn_all(&mut supervisor, &agent, &identity, &stop)?;
        supervisor.ready();
        let mut moved = None;
        let ended = tokio::select! {
            ended = &mut told => Some(ended),
            () = identity.renewed() => None,
            () = identity.trusts_others() => None,
            ips = agent.moved() => { moved = Some(ips); None }
        };
        // Containers and packet rules outlive this, so new certificates cost nobody anything.
        supervisor.shut_down().await;
        if let Some(ended) = ended {
            tracing::info!("ending");
            return ended.map_err(|e| e.to_string());
        }
        if let Some(now) = moved {
            let before = agent.node_ips();
            tracing::info!(before = before.shown(), now = now.shown(), "the node has another address");
            identity.move_to(now);
            agent = Arc::new(agent.at(now));
            let recorder = Recorder::new(identity.kubelet()?, "kubelet", &agent.node_name);
            recorder.event(regarding(&agent.node_name), "Normal", follow::REASON, follow::told(before, now));
        }
    }
}
