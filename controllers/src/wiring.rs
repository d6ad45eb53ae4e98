//! All controllers, each under its name.

use crate::certificates::CertificateSigner;
use crate::clients::Clients;
use crate::metrics::Metrics;
use crate::nodes::ipam::ClusterCidr;
use crate::nodes::lifecycle::Lifecycle;
use crate::serviceaccount::{LegacyTokens, RootCa};
use crate::{
    autoscaler, bootstrap_tokens, certificates, clusterrole_aggregation, cronjob, daemonset, deployment,
    disruption, endpoints, endpointslice, ephemeral, gc, job, loadbalancer, namespace, nodes, podgc,
    replicaset, resource_quota, resourceclaim, serviceaccount, servicecidr, statefulset,
};
use coracle_client::accounts::{NamedTask, run_until_one_ends};
use coracle_client::{ClientFor, Context};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// How the controllers run.
#[derive(Clone, Default)]
pub struct Config {
    /// The CA that signed the API server's certificate, PEM; published to every namespace. Empty: nothing is.
    pub root_ca: RootCa,
    /// Clients that act as the controllers' own service accounts. Absent: all act as the context's client, which
    /// then needs the rights of all.
    pub client_for: Option<ClientFor>,
    /// Signs tokens for Secrets of type kubernetes.io/service-account-token. Absent: they stay empty.
    pub legacy_tokens: Option<Arc<dyn LegacyTokens>>,
    /// Signs certificate requests to Kubernetes' own signers. Absent: approved ones wait.
    pub certificate_signer: Option<Arc<dyn CertificateSigner>>,
    /// What no node's certificate may name.
    pub reserved_names: certificates::Reserved,
    /// Whether somebody else answers for Services of type LoadBalancer that name no class. Otherwise they get the nodes'
    /// own addresses.
    pub foreign_load_balancers: bool,
    /// Where nodes' pod addresses are taken from. Absent: nodes get no spec.podCIDR.
    pub cluster_cidr: Option<ClusterCidr>,
    /// When nodes count as lost.
    pub lifecycle: Lifecycle,
    /// What they count.
    pub metrics: Arc<Metrics>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("controller {0} ended unexpectedly")]
    Ended(&'static str),
}

/// Runs all controllers until `context.stop` is cancelled, or until one of them fails: then all end, and whoever
/// supervises starts them again.
pub async fn run(context: Context, config: Config) -> Result<(), Error> {
    let stop = context.stop.child_token();
    let clients = coracle_client::Clients::new(&context, config.client_for.clone());
    let clients = Clients::new(clients, config.metrics.clone());
    let mut all = controllers(&clients, &config, &stop);
    all.extend(configured(&clients, &config, &stop));
    run_until_one_ends(all, &stop).await.map_err(Error::Ended)
}

/// Those that every cluster has.
fn controllers(clients: &Clients, config: &Config, stop: &CancellationToken) -> Vec<NamedTask> {
    let clients = || clients.clone();
    let stop = || stop.clone();
    vec![
        ("replicaset", Box::pin(replicaset::run::<ReplicaSet>(clients(), stop()))),
        ("replicationcontroller", Box::pin(replicaset::run::<ReplicationController>(clients(), stop()))),
        ("deployment", Box::pin(deployment::run(clients(), stop()))),
        ("statefulset", Box::pin(statefulset::run(clients(), stop()))),
        ("daemonset", Box::pin(daemonset::run(clients(), stop()))),
        ("disruption", Box::pin(disruption::run(clients(), stop()))),
        ("horizontalpodautoscaling", Box::pin(autoscaler::run(clients(), stop()))),
        ("ephemeral-volume", Box::pin(ephemeral::run(clients(), stop()))),
        ("job", Box::pin(job::run(clients(), stop()))),
        ("cronjob", Box::pin(cronjob::run(clients(), stop()))),
        ("ttl-after-finished", Box::pin(job::ttl::run(clients(), stop()))),
        ("namespace", Box::pin(namespace::run(clients(), stop()))),
        ("serviceaccount", Box::pin(serviceaccount::run_accounts(clients(), stop()))),
        ("endpoints", Box::pin(endpoints::run(clients(), stop()))),
        ("endpointslice", Box::pin(endpointslice::run(clients(), stop()))),
        ("endpointslicemirroring", Box::pin(endpointslice::mirror::run(clients(), stop()))),
        ("pod-garbage-collector", Box::pin(podgc::run(clients(), stop()))),
        ("node-lifecycle", Box::pin(nodes::health::run(clients(), config.lifecycle, stop()))),
        ("taint-eviction", Box::pin(nodes::eviction::run(clients(), stop()))),
        ("node-labels", Box::pin(nodes::labels::run(clients(), stop()))),
        ("node-ttl", Box::pin(nodes::ttl::run(clients(), stop()))),
        ("stale-disruption", Box::pin(disruption::run_stale(clients(), stop()))),
        ("clusterrole-aggregation", Box::pin(clusterrole_aggregation::run(clients(), stop()))),
        (
            "certificate-approving",
            Box::pin(certificates::run_approver(clients(), config.reserved_names.clone(), stop())),
        ),
        ("certificate-cleaner", Box::pin(certificates::run_cleaner(clients(), stop()))),
        ("bootstrap-signer", Box::pin(bootstrap_tokens::run_signer(clients(), stop()))),
        ("token-cleaner", Box::pin(bootstrap_tokens::run_cleaner(clients(), stop()))),
        ("legacy-token-cleaner", Box::pin(serviceaccount::run_cleaner(clients(), stop()))),
        ("service-cidr", Box::pin(servicecidr::run(clients(), stop()))),
        ("resourceclaim", Box::pin(resourceclaim::run(clients(), stop()))),
        ("resourcequota", Box::pin(resource_quota::run(clients(), stop()))),
        ("garbagecollector", Box::pin(gc::run(clients(), stop()))),
    ]
}

/// Those that depend on what they are given.
fn configured(clients: &Clients, config: &Config, stop: &CancellationToken) -> Vec<NamedTask> {
    let clients = || clients.clone();
    let stop = || stop.clone();
    let mut all: Vec<NamedTask> = Vec::new();
    if !config.foreign_load_balancers {
        all.push(("service-lb", Box::pin(loadbalancer::run(clients(), stop()))));
    }
    if let Some(cidr) = config.cluster_cidr.clone() {
        all.push(("node-ipam", Box::pin(nodes::ipam::run(clients(), cidr, stop()))));
    }
    let ca = &config.root_ca;
    if !ca.pem().is_empty() {
        all.push((
            "root-ca-cert-publisher",
            Box::pin(serviceaccount::run_root_ca(clients(), ca.clone(), stop())),
        ));
    }
    if let Some(signer) = config.certificate_signer.clone() {
        all.push(("certificate-signing", Box::pin(certificates::run_signer(clients(), signer, stop()))));
    }
    if let Some(signer) = config.legacy_tokens.clone() {
        let tokens = serviceaccount::run_tokens(clients(), signer, ca.clone(), stop());
        all.push(("serviceaccount-token", Box::pin(tokens)));
    }
    all
}
