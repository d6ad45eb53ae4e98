//! networking.k8s.io/v1.

mod ingresses;
mod ipaddresses;
mod networkpolicies;
#[cfg(test)]
mod tests;

pub use ingresses::{IngressClasses, Ingresses};
pub use ipaddresses::{IpAddresses, ServiceCidrs};
pub use networkpolicies::NetworkPolicies;

use super::{
    Column, CreateStrategy, Env, ResourceFacts, StatusStrategy, TableConvertor, UpdateStrategy, rules, table,
    value::*,
};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};
