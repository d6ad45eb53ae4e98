use crate::cluster;
use crate::support::until_object;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota};
use kube::api::{DeleteParams, Patch, PostParams};
use serde_json::{Value, json};

/// `pods=1/2` of every amount, sorted.
fn shown(quota: &ResourceQuota) -> String {
    let status = serde_json::to_value(&quota.status).unwrap();
    let entries = status["hard"].as_object().into_iter().flatten();
    let one = |(name, hard): (&String, &Value)| {
        format!("{name}={}/{}", status["used"][name].as_str().unwrap_or("?"), hard.as_str().unwrap_or("?"))
    };
    entries.map(one).collect::<Vec<_>>().join(" ")
}

fn pod(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "containers": [{
        "name": "c", "image": "i", "resources": { "requests": { "cpu": "300m" } } }] } })
}

#[tokio::test]
async fn what_is_used_follows_what_is_there() {
    let world = cluster().await;
    let quotas = world.in_namespace::<ResourceQuota>("default");
    let maps = world.in_namespace::<ConfigMap>("default");
    world.create(&maps, json!({ "metadata": { "name": "early" } })).await;
    let hard = json!({ "pods": "2", "requests.cpu": "1", "count/configmaps": "50" });
    world.create(&quotas, json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } })).await;
    // The CA's map is there too, sooner or later.
    let counted =
        |want: &'static str| until_object(want, &quotas, "q", move |q: &ResourceQuota| shown(q) == want);
    counted("count/configmaps=2/50 pods=0/2 requests.cpu=0/1").await;
    let pods = world.in_namespace::<Pod>("default");
    world.create(&pods, pod("a")).await;
    let charged = shown(&quotas.get("q").await.unwrap());
    assert_eq!(charged, "count/configmaps=2/50 pods=1/2 requests.cpu=300m/1", "charged before the answer");
    world.create(&pods, pod("b")).await;
    let third: Pod = serde_json::from_value(pod("c")).unwrap();
    let refused = pods.create(&PostParams::default(), &third).await.unwrap_err().to_string();
    assert!(
        refused.contains("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"),
        "{refused}"
    );
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    counted("count/configmaps=2/50 pods=1/2 requests.cpu=300m/1").await;
    let done = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    pods.patch_status("b", &Default::default(), &done).await.unwrap();
    counted("count/configmaps=2/50 pods=0/2 requests.cpu=0/1").await;
    let other = Patch::Merge(json!({ "spec": { "hard": { "pods": null, "services": "5" } } }));
    quotas.patch("q", &Default::default(), &other).await.unwrap();
    counted("count/configmaps=2/50 requests.cpu=0/1 services=1/5").await;
}
