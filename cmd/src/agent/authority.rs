//! The cluster's authorities, which may be replaced: they stand in `cluster-info`, which is read over a connection that is
//! believed already.

use super::identity::Identity;
use crate::authorities::{ISSUER, TRUSTED};
use crate::kubeconfig;
use coracle_api::error::chain;
use coracle_client::FollowedObject;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// Between attempts at what the server or the disk refused.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

pub struct Following<'a> {
    pub identity: &'a Identity,
    /// Acts as the kubelet.
    pub client: kube::Client,
}

impl Following<'_> {
    /// Says what this machine knows, and returns when it has come to trust others.
    pub async fn until_others(self) {
        let among = "/api/v1/namespaces/kube-public/configmaps";
        let mut info = FollowedObject::<ConfigMap>::new(self.client.clone(), among, "cluster-info");
        let (mut wanted, mut told) = (None, false);
        loop {
            let pause = async {
                if told && wanted.is_none() {
                    std::future::pending().await
                } else {
                    tokio::time::sleep(RETRY_INTERVAL).await
                }
            };
            tokio::select! {
                map = info.next() => if let Some(map) = map {
                    wanted = bundle(map);
                },
                () = pause => {}
            }
            wanted = wanted.filter(|bundle| *bundle != self.identity.ca_pem());
            if let Some(bundle) = &wanted {
                match self.identity.trust(bundle.clone()).await {
                    Ok(()) => return,
                    Err(why) => tracing::warn!(why, "other authorities in cluster-info are not trusted"),
                }
            }
            if !told {
                let done = self.tell().await;
                told = done
                    .inspect_err(|why| tracing::debug!(why, "the Node does not say yet whom it trusts"))
                    .is_ok();
            }
        }
    }

    async fn tell(&self) -> Result<(), String> {
        let (trusted, issuer) = self.identity.authorities()?;
        let said = json!({ TRUSTED: trusted.join(","), ISSUER: issuer });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": said } }));
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes
            .patch(self.identity.node_name(), &PatchParams::default(), &patch)
            .await
            .map(drop)
            .map_err(|e| chain(&e))
    }
}

fn bundle(map: ConfigMap) -> Option<String> {
    let text = map.data?.remove("kubeconfig")?;
    kubeconfig::public_cluster(&text).and_then(kubeconfig::authority).ok()
}
