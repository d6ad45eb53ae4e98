//! The controllers against an API server in memory, with the rights that upstream's roles give them.

#[cfg(test)]
#[path = "cluster/signer.rs"]
mod signer;
#[cfg(test)]
#[path = "cluster/support.rs"]
mod support;

#[cfg(test)]
#[path = "cluster/access.rs"]
mod access;
#[cfg(test)]
#[path = "cluster/balancers.rs"]
mod balancers;
#[cfg(test)]
#[path = "cluster/counted.rs"]
mod counted;
#[cfg(test)]
#[path = "cluster/devices.rs"]
mod devices;
#[cfg(test)]
#[path = "cluster/figures.rs"]
mod figures;
#[cfg(test)]
#[path = "cluster/garbage.rs"]
mod garbage;
#[cfg(test)]
#[path = "cluster/jobs.rs"]
mod jobs;
#[cfg(test)]
#[path = "cluster/lifecycles.rs"]
mod lifecycles;
#[cfg(test)]
#[path = "cluster/namespaces.rs"]
mod namespaces;
#[cfg(test)]
#[path = "cluster/nodes.rs"]
mod nodes;
#[cfg(test)]
#[path = "cluster/ordered.rs"]
mod ordered;
#[cfg(test)]
#[path = "cluster/policies.rs"]
mod policies;
#[cfg(test)]
#[path = "cluster/quotas.rs"]
mod quotas;
#[cfg(test)]
#[path = "cluster/ranges.rs"]
mod ranges;
#[cfg(test)]
#[path = "cluster/raw.rs"]
mod raw;
#[cfg(test)]
#[path = "cluster/requests.rs"]
mod requests;
#[cfg(test)]
#[path = "cluster/rollouts.rs"]
mod rollouts;
#[cfg(test)]
#[path = "cluster/schedules.rs"]
mod schedules;
#[cfg(test)]
#[path = "cluster/services.rs"]
mod services;
#[cfg(test)]
#[path = "cluster/workloads.rs"]
mod workloads;

use std::sync::Arc;
use support::World;

/// A server with all controllers, and pods that run.
async fn cluster() -> World {
    let world = World::start().await;
    world.play_kubelet();
    let metrics = Arc::<coracle_controllers::metrics::Metrics>::default();
    let counting = metrics.clone();
    let _ = world.counted.set(Box::new(move || counted::lines(&counting)));
    let config = coracle_controllers::Config {
        root_ca: "-----BEGIN CERTIFICATE-----".to_owned().into(),
        client_for: Some(world.client_for()),
        legacy_tokens: Some(Arc::new(signer::Tokens)),
        cluster_cidr: "10.42.0.0/16".parse().ok(),
        certificate_signer: Some(Arc::new(signer::Signer::new())),
        foreign_load_balancers: false,
        reserved_names: coracle_controllers::certificates::Reserved::default(),
        lifecycle: coracle_controllers::Lifecycle::default(),
        metrics,
    };
    tokio::spawn(coracle_controllers::run(world.context(), config));
    let accounts = world.in_namespace::<k8s_openapi::api::core::v1::ServiceAccount>("default");
    support::until_object("the default account", &accounts, "default", |_| true).await;
    world
}

fn deployment(name: &str, replicas: i32, image: &str) -> serde_json::Value {
    serde_json::json!({
        "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": image }] } } },
    })
}
