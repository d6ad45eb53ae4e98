//! The controllers: each watches what is declared and brings the cluster closer to it, as a client of the API.

pub mod autoscaler;
pub mod bootstrap_tokens;
pub mod certificates;
mod clients;
pub mod clusterip;
pub mod clusterrole_aggregation;
mod common;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
mod discovery;
pub mod disruption;
pub mod endpoints;
pub mod endpointslice;
pub mod ephemeral;
pub mod gc;
pub mod job;
pub mod loadbalancer;
pub mod metrics;
pub mod namespace;
pub mod nodes;
pub mod podgc;
pub mod replicaset;
pub mod resource_quota;
pub mod resourceclaim;
pub mod serviceaccount;
pub mod servicecidr;
pub mod statefulset;
mod wiring;

pub use certificates::CertificateSigner;
pub use clients::Clients;
pub use coracle_client::ClientFor;
pub use nodes::ipam::ClusterCidr;
pub use nodes::lifecycle::Lifecycle;
pub use serviceaccount::LegacyTokens;
pub use wiring::{Config, Error, run};
