//! `coracle server`: the control plane first, then the components, then waiting for the end.

mod belongs;
mod components;
mod control_plane;
mod door;
mod following;
mod identity;
mod joining;
mod living;
mod reached;
mod reloaded;
mod revoked;
pub mod role;
mod rotation;
mod stored;

pub use control_plane::ControlPlane;

use crate::args::ServerArgs;
use crate::code;
use crate::config::Config;
use crate::private;
use crate::process::{StartError, fail, until_told_to_end};
use crate::supervise::Supervisor;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

/// A cluster in this process.
pub struct Node {
    pub control_plane: ControlPlane,
    supervisor: Supervisor,
}

impl Node {
    /// Returns when the API is ready; components go on starting beside it.
    pub async fn start(config: &Config, stop: CancellationToken) -> Result<Self, StartError> {
        let control_plane = ControlPlane::start(config, stop.clone()).await?;
        let mut supervisor = Supervisor::new(stop, control_plane.api.health().clone());
        let counts = supervisor.counts();
        control_plane.api.metrics().collect_as("supervision", move |text| counts.render(text));
        components::spawn_all(&mut supervisor, &control_plane, config);
        tokio::spawn(code::hand_back(control_plane.api.stop().clone()));
        tokio::spawn(coracle_client::clock::watch(control_plane.api.stop().clone()));
        Ok(Self { control_plane, supervisor })
    }

    /// Tells whoever watches over the process that it is there.
    pub fn tell_ready(&self) {
        self.supervisor.ready();
    }

    /// Stops the components, then the API, then the store.
    pub async fn shut_down(self) {
        self.control_plane.api.announce_shutdown();
        self.supervisor.shut_down().await;
        self.control_plane.shut_down().await;
    }
}

/// All mistakes, one a line.
pub fn configure(args: ServerArgs) -> Result<Config, String> {
    let file = args.config.clone();
    let mut config = Config::load(args)?;
    config.file.clone_from(&file);
    // Without the program and its verb.
    config.show_flags(&std::env::args().skip(2).collect::<Vec<_>>(), file.as_deref());
    Ok(config)
}

pub async fn command(config: Config) -> ExitCode {
    if let Err(why) = private::directory(&config.data_dir) {
        return fail(&why);
    }
    if let Err(why) = crate::backup::refuse_unfinished(&config.data_dir) {
        return fail(&why);
    }
    config.file.iter().for_each(|file| private::warn_of_file(file));
    let told = until_told_to_end();
    let mut told = std::pin::pin!(told);
    let joined = tokio::select! {
        ended = &mut told => return ended.map_or_else(|e| fail(&e.to_string()), |()| ExitCode::SUCCESS),
        joined = joining::ensure(&config) => joined,
    };
    if let Err(why) = joined {
        return fail(&why);
    }
    let stop = CancellationToken::new();
    // An etcd that is away is waited for, however long.
    let started = tokio::select! {
        ended = &mut told => return ended.map_or_else(|e| fail(&e.to_string()), |()| ExitCode::SUCCESS),
        started = Box::pin(Node::start(&config, stop.clone())) => started,
    };
    let node = match started {
        Ok(node) => node,
        Err(error) => return fail(&error.to_string()),
    };
    node.tell_ready();
    if let Err(error) = told.await {
        return fail(&error.to_string());
    }
    tracing::info!("ending");
    node.shut_down().await;
    ExitCode::SUCCESS
}
