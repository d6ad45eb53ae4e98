//! The kubelet's settings under upstream's names: KubeletConfiguration, kubelet.config.k8s.io/v1beta1
//! (<https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/>).
//!
//! What is in force is laid together of, the last one winning: defaults, the ConfigMap `kubelet-config` of kube-system, the
//! configuration file, drop-ins, flags.

mod apply;
pub use apply::check;
pub mod cluster;
pub mod components;
pub mod config;
pub mod documents;
pub mod eviction;
pub mod fields;
pub mod images;
pub mod kernel;
pub mod logs;
pub mod node;
pub mod placement;
pub mod port;
mod reader;
pub mod reserved;
mod settings;
pub mod shutdown;
pub mod static_pods;

#[cfg(test)]
mod tests;
