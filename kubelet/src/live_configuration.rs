//! Follows what the cluster says of kubelets while this one runs, and puts it in force.

use crate::configuration::cluster::{NAME, keep, kept_at, read, text_of, together};
use crate::configuration::config::Config;
use crate::configuration::documents::Written;
use crate::configuration::fields::{Becomes, becomes};
use crate::kubelet::Kubelet;
use coracle_client::{Configured, LiveConfiguration};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What another configuration means for one that is in force.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Nothing,
    /// It can be put in force at once.
    Live,
    /// The kubelet has to begin anew, for these fields.
    Anew(Vec<String>),
}

fn news(now: &Written, next: &Written) -> News {
    let names = now.keys().chain(next.keys()).filter(|name| now.get(*name) != next.get(*name));
    let mut changed: Vec<&String> = names.collect();
    changed.sort();
    changed.dedup();
    if changed.is_empty() {
        return News::Nothing;
    }
    let anew = changed.into_iter().filter(|name| becomes(name) != Some(Becomes::Live));
    let anew: Vec<String> = anew.cloned().collect();
    if anew.is_empty() { News::Live } else { News::Anew(anew) }
}

/// Puts in force what the cluster says, until `stop`. Cancels `again` where that takes a kubelet that begins anew.
pub async fn run(
    kubelet: Arc<Kubelet>,
    live: watch::Sender<Arc<Config>>,
    again: CancellationToken,
    stop: CancellationToken,
) {
    let Some(local) = kubelet.config.local.clone() else { return stop.cancelled().await };
    let mut configuration = LiveConfiguration::new(kubelet.client.clone(), NAME, text_of);
    let follow = async {
        loop {
            let configured = configuration.next().await;
            take(&kubelet, &local, &configured, &live, &again).await;
        }
    };
    stop.run_until_cancelled(follow).await;
}

async fn take(
    kubelet: &Kubelet,
    local: &Arc<Config>,
    configured: &Configured<String>,
    live: &watch::Sender<Arc<Config>>,
    again: &CancellationToken,
) {
    let text = configured.read.clone().unwrap_or_default();
    let next = match read(&text).and_then(|cluster| together(local, cluster)) {
        Ok(next) => next,
        Err(mistakes) => {
            let mistakes = mistakes.join("; ");
            return configured.refused(&kubelet.recorder, &mistakes, mistakes.clone());
        }
    };
    let what = match news(&live.borrow().written, &next.written) {
        News::Nothing => return,
        News::Live => "is in force".to_owned(),
        News::Anew(fields) => {
            again.cancel();
            format!("is in force as soon as the kubelet has begun anew, for {}", fields.join(", "))
        }
    };
    keep(&kept_at(local), &text).await;
    let text = format!("the configuration {what} on node {}", local.node_name);
    tracing::info!(configuration = NAME, "{text}");
    configured.in_force(&kubelet.recorder, text);
    live.send_replace(Arc::new(next));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(value: serde_json::Value) -> Written {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_cannot_change_live_takes_a_new_beginning() {
        let before = written(json!({ "maxPods": 10, "clusterDomain": "a.example" }));
        assert_eq!(news(&before, &before), News::Nothing);
        let live = written(json!({ "maxPods": 10, "imageGCHighThresholdPercent": 90 }));
        assert_eq!(news(&before, &live), News::Live, "also one that is taken away");
        let other = written(json!({ "maxPods": 20, "clusterDomain": "b.example" }));
        assert_eq!(news(&before, &other), News::Anew(vec!["maxPods".to_owned()]));
    }
}
