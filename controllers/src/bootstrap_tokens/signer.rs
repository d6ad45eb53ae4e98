//! Signs `kubeconfig` of the ConfigMap kube-public/cluster-info for every token that is meant for it, so that a machine
//! which knows a token can trust what it reads there without knowing the CA.

use super::token::signing;
use super::{ONLY_TOKENS, jws};
use crate::clients::Clients;
use crate::common::code_of;
use coracle_client::{Action, Controller, Delta, Informer, ReconcileError, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const ACCOUNT: &str = "bootstrap-signer";
const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";
const CONTENT: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";

struct Signer {
    client: kube::Client,
    maps: Informer<ConfigMap>,
    tokens: Informer<Secret>,
}

/// There is one map to sign.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClusterInfo;

impl std::fmt::Display for ClusterInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{NAMESPACE}/{NAME}")
    }
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let only = format!("metadata.name={NAME}");
    let maps = clients.informers.selected::<ConfigMap>(&only, stop.clone());
    let tokens = clients.informers.selected::<Secret>(ONLY_TOKENS, stop.clone());
    let reconciler = Signer { client: clients.client(ACCOUNT), maps: maps.clone(), tokens: tokens.clone() };
    Controller::new(reconciler)
        .watch(&maps, |_: &Delta<ConfigMap>| Some(ClusterInfo))
        .watch(&tokens, |_: &Delta<Secret>| Some(ClusterInfo))
        .run(stop)
        .await;
}

impl Reconciler for Signer {
    type Key = ClusterInfo;

    fn name(&self) -> &'static str {
        "bootstrap-signer-controller"
    }

    async fn reconcile(&self, _: &ClusterInfo) -> Result<Action, ReconcileError> {
        let Some(map) = self.maps.get(NAMESPACE, NAME) else { return Ok(Action::AwaitChange) };
        let now = Timestamp::now();
        let secrets = self.tokens.list();
        let tokens: Vec<(String, String)> = secrets.iter().filter_map(|s| signing(s, now)).collect();
        if let Some(data) = signed(map.data.as_ref(), &tokens) {
            let changed = ConfigMap { data: Some(data), ..ConfigMap::clone(&map) };
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
            match api.replace(NAME, &PostParams::default(), &changed).await {
                Err(error) if !matches!(code_of(&error), 404 | 409) => return Err(error.into()),
                _ => {}
            }
        }
        // A token that ends takes its signature along.
        let ends =
            secrets.iter().filter(|s| signing(s, now).is_some()).filter_map(|s| super::token::end_of(s));
        let next = ends.min().and_then(|end| Duration::try_from(end.duration_since(now)).ok());
        Ok(next.map_or(Action::AwaitChange, |left| Action::RequeueAfter(left + Duration::from_secs(1))))
    }
}

/// The data with the signatures of these tokens and no others; `None` if it is so already.
fn signed(
    data: Option<&BTreeMap<String, String>>,
    tokens: &[(String, String)],
) -> Option<BTreeMap<String, String>> {
    let data = data?;
    let content = data.get(CONTENT).filter(|c| !c.is_empty())?;
    let mut new: BTreeMap<String, String> =
        data.iter().filter(|(k, _)| !k.starts_with(SIGNATURE)).map(|(k, v)| (k.clone(), v.clone())).collect();
    for (id, key) in tokens {
        new.insert(format!("{SIGNATURE}{id}"), jws::detached(content, id, key));
    }
    (new != *data).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_follow_the_tokens() {
        let data = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let token = [("abcdef".to_owned(), "secret".to_owned())];
        let before = data(&[("kubeconfig", "x"), ("jws-kubeconfig-gone00", "y"), ("other", "z")]);
        let after = signed(Some(&before), &token).unwrap();
        let keys: Vec<&str> = after.keys().map(String::as_str).collect();
        assert_eq!(keys, ["jws-kubeconfig-abcdef", "kubeconfig", "other"]);
        assert_eq!(signed(Some(&after), &token), None);
        assert_eq!(signed(Some(&data(&[("other", "z")])), &token), None, "nothing to sign");
        assert_eq!(signed(None, &token), None);
    }
}
