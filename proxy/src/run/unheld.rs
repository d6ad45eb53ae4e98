//! In the mode userspace the node itself speaks to endpoints, and NetworkPolicies cannot tell who asked it: what they keep
//! away comes in by way of a Service all the same. Each policy that this concerns is told so by an event.

use crate::backend::Mode;
use coracle_client::{Context, Recorder};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

const REASON: &str = "PolicyNotEnforced";

/// Tells for as long as that mode is in force; ends with the mode's sender. Policies are looked at in that mode alone.
pub async fn run(context: &Context, node: &str, mut mode: watch::Receiver<&'static str>) {
    let name = Mode::Userspace.name();
    while mode.wait_for(|mode| *mode == name).await.is_ok() {
        let another = async { mode.wait_for(|mode| *mode != name).await.is_ok() };
        tokio::select! {
            () = tell(context, node) => {}
            goes_on = another => if !goes_on { return },
        }
    }
}

/// Each once; never ends.
async fn tell(context: &Context, node: &str) {
    let policies = context.informers.of::<NetworkPolicy>();
    let recorder = Recorder::new(context.client.clone(), "kube-proxy", node);
    let changed = Arc::new(Notify::new());
    let wake = Arc::downgrade(&changed);
    policies.on_change_while(move |_| wake.upgrade().inspect(|wake| wake.notify_one()).is_some());
    let mut told = BTreeSet::new();
    loop {
        for policy in policies.list().iter().filter(|policy| is_concerned(policy)) {
            if told.insert(policy.metadata.uid.clone()) {
                let message = format!(
                    "node {node}: the proxy's mode userspace answers for Services itself, so that ingress by way of a Service is let in"
                );
                recorder.warning(policy.as_ref(), REASON, message);
            }
        }
        changed.notified().await;
    }
}

/// Whether it keeps anything away from its pods.
fn is_concerned(policy: &NetworkPolicy) -> bool {
    let types = policy.spec.as_ref().and_then(|spec| spec.policy_types.as_deref());
    types.is_none_or(|types| types.iter().any(|kind| kind == "Ingress"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_policy_for_egress_alone_holds() {
        let of = |types: serde_json::Value| {
            let policy =
                json!({ "metadata": { "name": "p" }, "spec": { "podSelector": {}, "policyTypes": types } });
            is_concerned(&serde_json::from_value(policy).expect("a policy"))
        };
        assert!(of(json!(["Ingress", "Egress"])) && of(json!(null)));
        assert!(!of(json!(["Egress"])));
    }
}
