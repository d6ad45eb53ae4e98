//! Where the configuration comes from: a file, or the ConfigMap `kube-proxy` in `kube-system`, followed as it changes.

use coracle_client::{Configured, Context, LiveConfiguration};
use k8s_openapi::api::core::v1::ConfigMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const MAP: &str = "kube-proxy";
/// The entry, as kubeadm names it.
pub const ENTRY: &str = "config.conf";
/// The entry beside it with the addresses of pods, which a server keeps as it is: who writes another document in the place
/// of the whole one need not know them.
pub const CLUSTER_CIDR_ENTRY: &str = "clusterCIDR";
/// How often a file is looked at; a change of it is no hurry.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How long the first answer is waited for: a server that does not let us watch the map never gives one, and Services
/// must work all the same.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    #[default]
    Map,
    File(PathBuf),
}

/// The entries of the map that count.
#[derive(Clone, PartialEq, Eq)]
struct Entries {
    text: Option<String>,
    cluster_cidr: Option<String>,
}

impl Entries {
    fn of(map: &ConfigMap) -> Self {
        let entry = |name: &str| map.data.as_ref()?.get(name).cloned();
        Self { text: entry(ENTRY), cluster_cidr: entry(CLUSTER_CIDR_ENTRY) }
    }
}

/// What there is to read, and which object says it.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub text: String,
    pub map: Option<Arc<ConfigMap>>,
    /// It could not be read at all.
    pub unreadable: Option<String>,
}

impl Said {
    /// The addresses of pods, as the server says them.
    pub fn cluster_cidr(&self) -> Option<String> {
        self.map.as_ref()?.data.as_ref()?.get(CLUSTER_CIDR_ENTRY).cloned()
    }

    fn of_map(configured: Configured<Entries>) -> Self {
        let Configured { read, map } = configured;
        let map = read.is_some().then_some(map);
        Self { text: read.and_then(|entries| entries.text).unwrap_or_default(), map, unreadable: None }
    }

    async fn of_file(path: &std::path::Path) -> Self {
        match tokio::fs::read_to_string(path).await {
            Ok(text) => Self { text, ..Self::default() },
            Err(error) => {
                Self { unreadable: Some(format!("{}: {error}", path.display())), ..Self::default() }
            }
        }
    }
}

/// Begins to follow the source, until `stop`; the first value is there when this returns.
pub async fn follow(context: &Context, source: Source, stop: CancellationToken) -> watch::Receiver<Said> {
    let (sender, receiver) = watch::channel(Said::default());
    match source {
        Source::File(path) => {
            sender.send_replace(Said::of_file(&path).await);
            tokio::spawn(stop.run_until_cancelled_owned(follow_file(path, sender)));
        }
        Source::Map => {
            let mut live = LiveConfiguration::new(context.client.clone(), MAP, Entries::of);
            let first = stop.run_until_cancelled(live.first(FIRST_ANSWER_TIMEOUT)).await.flatten();
            sender.send_replace(first.map(Said::of_map).unwrap_or_default());
            tokio::spawn(stop.run_until_cancelled_owned(follow_map(live, sender)));
        }
    }
    receiver
}

async fn follow_file(path: PathBuf, sender: watch::Sender<Said>) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let said = Said::of_file(&path).await;
        sender.send_if_modified(|last| {
            let differs = last.text != said.text || last.unreadable != said.unreadable;
            if differs {
                *last = said;
            }
            differs
        });
    }
}

async fn follow_map(mut live: LiveConfiguration<Entries>, sender: watch::Sender<Said>) {
    loop {
        sender.send_replace(Said::of_map(live.next().await));
    }
}
