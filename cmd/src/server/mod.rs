//! `coracle server`: the control plane first, then the components, then waiting for the end.

mod components;
mod control_plane;
mod door;
mod identity;
mod living;
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
use crate::process::{StartError, begin_anew_at_the_end, fail, until_told_to_end};
use crate::supervise::Supervisor;
use std::net::IpAddr;
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
        coracle_apiserver::metrics::global().collect_as("supervision", move |text| counts.render(text));
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

/// Where nobody said which address this node has.
async fn moved(config: &Config) -> IpAddr {
    if !config.follows_address {
        return std::future::pending().await;
    }
    crate::address::moved(config.node_ip, &[&config.cluster_cidr, &config.service_cidr]).await
}

pub async fn command(config: Config) -> ExitCode {
    if let Err(why) = private::directory(&config.data_dir) {
        return fail(&why);
    }
    if let Err(why) = crate::backup::refuse_unfinished(&config.data_dir) {
        return fail(&why);
    }
    config.file.iter().for_each(|file| private::warn_of_file(file));
    let stop = CancellationToken::new();
    let node = match Node::start(&config, stop.clone()).await {
        Ok(node) => node,
        Err(error) => return fail(&error.to_string()),
    };
    node.tell_ready();
    tokio::select! {
        told = until_told_to_end() => match told {
            Ok(()) => tracing::info!("ending"),
            Err(error) => return fail(&error.to_string()),
        },
        address = moved(&config) => {
            // Certificates, Node, endpoints, rules and names are all made of it; containers outlive this.
            tracing::warn!(old = %config.node_ip, new = %address, "this machine has another address: beginning anew");
            begin_anew_at_the_end();
        }
    }
    node.shut_down().await;
    ExitCode::SUCCESS
}
