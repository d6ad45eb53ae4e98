//! The ConfigMap `kubelet-config` of kube-system, where kubeadm keeps the configuration of all nodes, as the kubelet reads it when
//! it begins. [`live_configuration`](crate::live_configuration) follows it from then on.

use super::config::Config;
use super::documents::{Written, lay_over, parse};
use coracle_client::CONFIGURATION_NAMESPACE as NAMESPACE;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const NAME: &str = "kubelet-config";
const KEY: &str = "kubelet";
/// How long the start waits for the cluster's answer. Then what it said last is in force, and what it says is followed.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Refusals that are believed: rights may come a moment after the API server itself.
const REFUSALS: u32 = 4;

/// The settings with what the cluster says below them. A cluster that says nothing usable, or does not let the node read
/// it, leaves them as they are.
pub async fn configured(client: &kube::Client, local: Config) -> Config {
    let kept = kept_at(&local);
    let text = match tokio::time::timeout(WAIT_TIMEOUT, ask(client)).await {
        Ok(Answer::Forbidden) => return local,
        Ok(Answer::Text(text)) => {
            keep(&kept, &text).await;
            text
        }
        Err(_) => {
            tracing::warn!("what the cluster says of kubelets cannot be read, what it said last is in force");
            tokio::fs::read_to_string(&kept).await.unwrap_or_default()
        }
    };
    let local = Arc::new(local);
    read(&text).and_then(|cluster| together(&local, cluster)).unwrap_or_else(|mistakes| {
        let mistakes = mistakes.join("; ");
        tracing::error!(configuration = NAME, %mistakes, "configuration refused, only this node's own is in force");
        Config { local: Some(local.clone()), ..local.as_ref().clone() }
    })
}

enum Answer {
    /// Empty where there is none.
    Text(String),
    Forbidden,
}

async fn ask(client: &kube::Client) -> Answer {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let mut refusals = 0;
    loop {
        match maps.get_opt(NAME).await {
            Ok(map) => return Answer::Text(map.as_ref().map(text_of).unwrap_or_default()),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => refusals += 1,
            Err(error) => tracing::debug!(%error, "what the cluster says of kubelets is not read yet"),
        }
        if refusals >= REFUSALS {
            tracing::info!("the cluster does not let nodes read the ConfigMap {NAMESPACE}/{NAME}");
            return Answer::Forbidden;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

pub(crate) fn text_of(map: &ConfigMap) -> String {
    map.data.as_ref().and_then(|data| data.get(KEY)).cloned().unwrap_or_default()
}

pub(crate) fn kept_at(config: &Config) -> PathBuf {
    config.data_dir.join("kubelet-config.yaml")
}

/// For a start while the cluster is away.
pub(crate) async fn keep(path: &std::path::Path, text: &str) {
    let fresh = path.with_extension("new");
    let written = async {
        tokio::fs::write(&fresh, text).await?;
        tokio::fs::rename(&fresh, path).await
    };
    if let Err(error) = written.await {
        tracing::warn!(path = %path.display(), %error, "what the cluster says of kubelets is not kept");
    }
}

pub(crate) fn read(text: &str) -> Result<Written, Vec<String>> {
    if text.trim().is_empty() {
        return Ok(Written::new());
    }
    parse(text).map_err(|why| vec![why])
}

/// This node's own settings win over the cluster's.
pub(crate) fn together(local: &Arc<Config>, mut cluster: Written) -> Result<Config, Vec<String>> {
    lay_over(&mut cluster, local.written.clone());
    let mut config = local.as_ref().clone();
    config.apply(&cluster)?;
    config.local = Some(local.clone());
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(value: serde_json::Value) -> Written {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_nodes_own_settings_win_over_the_clusters() {
        let mut local = Config::new("n1", [192, 0, 2, 1].into());
        local.cluster_dns = vec![[192, 0, 2, 53].into()];
        local.apply(&written(json!({ "maxPods": 50, "evictionHard": { "pid.available": "3%" } }))).unwrap();
        let local = Arc::new(local);
        let cluster = json!({ "maxPods": 70, "podsPerCore": 5, "evictionHard": { "pid.available": "9%", "memory.available": "1Gi" },
            "clusterDNS": ["192.0.2.99"] });
        let all = together(&local, written(cluster)).unwrap();
        assert_eq!((all.node.max_pods, all.node.pods_per_core), (50, 5));
        let hard = &all.configuration()["evictionHard"];
        assert_eq!((&hard["pid.available"], &hard["memory.available"]), (&json!("3%"), &json!("1Gi")));
        assert_eq!(all.cluster_dns, [std::net::IpAddr::from([192, 0, 2, 99])]);
        let without = together(&local, Written::new()).unwrap();
        assert_eq!(without.cluster_dns, local.cluster_dns, "what is taken away is as before");
        assert!(together(&local, written(json!({ "maxpods": 1 }))).is_err());
    }
}
