//! The messages that a kubelet and a DRA driver exchange, by the field numbers of upstream's services. `v1` and `v1beta1` of
//! `DRAPlugin` have the same, and so have all versions of `DRAResourceHealth`.
//!
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>

use std::collections::BTreeMap;

/// A version of the service that prepares claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// What drivers say when they register.
    pub name: &'static str,
    pub prepare: &'static str,
    pub unprepare: &'static str,
}

/// The newest first.
pub const SERVICES: [Service; 2] = [
    Service {
        name: "v1.DRAPlugin",
        prepare: "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        unprepare: "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
    },
    Service {
        name: "v1beta1.DRAPlugin",
        prepare: "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
        unprepare: "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
    },
];

/// Versions of the service that tells of devices' health, the newest first.
pub const HEALTH: [(&str, &str); 3] = [
    ("v1.DRAResourceHealth", "/v1.DRAResourceHealth/NodeWatchResources"),
    ("v1beta1.DRAResourceHealth", "/v1beta1.DRAResourceHealth/NodeWatchResources"),
    ("v1alpha1.DRAResourceHealth", "/v1alpha1.DRAResourceHealth/NodeWatchResources"),
];

#[derive(Clone, PartialEq, prost::Message)]
pub struct Claim {
    #[prost(string, tag = "1")]
    pub namespace: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Of both calls.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClaimsRequest {
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// By the claims' UIDs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PrepareResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, Prepared>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Prepared {
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// Why it failed; empty when it did not.
    #[prost(string, tag = "2")]
    pub error: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Device {
    /// Of the claim; none stands for all.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pub pool_name: String,
    #[prost(string, tag = "3")]
    pub device_name: String,
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
    #[prost(string, optional, tag = "5")]
    pub share_id: Option<String>,
}

/// By the claims' UIDs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UnprepareResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, Unprepared>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Unprepared {
    #[prost(string, tag = "1")]
    pub error: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<DeviceHealth>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceHealth {
    #[prost(message, optional, tag = "1")]
    pub device: Option<DeviceIdentifier>,
    #[prost(enumeration = "HealthStatus", tag = "2")]
    pub health: i32,
    /// Seconds since 1970.
    #[prost(int64, tag = "3")]
    pub last_updated_time: i64,
    /// Seconds for which this holds; 0 or less leave it to the kubelet.
    #[prost(int64, tag = "4")]
    pub health_check_timeout_seconds: i64,
    #[prost(string, tag = "5")]
    pub message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceIdentifier {
    #[prost(string, tag = "1")]
    pub pool_name: String,
    #[prost(string, tag = "2")]
    pub device_name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum HealthStatus {
    Unknown = 0,
    Healthy = 1,
    Unhealthy = 2,
}
