//! What the rules about pods read of one.

use crate::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as TypedQuantity;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A pod, typed or JSON. Fields that are not set read as empty.
pub trait PodView {
    /// `status.phase`
    fn phase(&self) -> &str;

    /// `spec.hostNetwork`
    fn host_network(&self) -> bool;

    /// `spec.resources`, the resources of the pod as a whole (KEP-2837); `None` where the field is absent.
    fn resources(&self) -> Option<Requirements<'_>>;

    /// `spec.overhead`
    fn overhead(&self) -> QuantityMap<'_>;

    fn containers(&self) -> impl Iterator<Item = ContainerView<'_>>;

    fn init_containers(&self) -> impl Iterator<Item = ContainerView<'_>>;

    /// What the node gave the pod as a whole: `status.resources` and `status.allocatedResources`; `None` where the
    /// status does not say what the pod has.
    fn actual_resources(&self) -> Option<ActualResources<'_>>;

    /// What the node gave one container, by the container's name; `None` where the status does not say.
    fn actual_container_resources(&self, name: &str) -> Option<ActualResources<'_>>;

    /// Reason of the condition `PodResizePending`.
    fn pending_resize_reason(&self) -> Option<&str>;

    /// Whether the node will never have room for what the pod wants to be resized to.
    fn is_resize_infeasible(&self) -> bool {
        self.pending_resize_reason() == Some("Infeasible")
    }
}

/// `resources` of a container or of a pod.
#[derive(Clone, Copy, Default)]
pub struct Requirements<'a> {
    pub requests: QuantityMap<'a>,
    pub limits: QuantityMap<'a>,
}

/// One container of a pod's spec.
pub struct ContainerView<'a> {
    pub name: &'a str,
    pub resources: Requirements<'a>,
    /// Whether its `restartPolicy` makes an init container a sidecar.
    pub is_sidecar: bool,
}

/// What a node says that a container or a pod has: what the runtime was told, and what the kubelet allocated.
#[derive(Clone, Copy, Default)]
pub struct ActualResources<'a> {
    pub resources: Requirements<'a>,
    pub allocated: QuantityMap<'a>,
}

/// Quantities by the name of the resource, as `requests` or `overhead` hold them. Entries that are no quantity are
/// left out.
#[derive(Clone, Copy, Default)]
pub struct QuantityMap<'a> {
    typed: Option<&'a BTreeMap<String, TypedQuantity>>,
    untyped: Option<&'a Map<String, Value>>,
}

impl<'a> From<Option<&'a BTreeMap<String, TypedQuantity>>> for QuantityMap<'a> {
    fn from(typed: Option<&'a BTreeMap<String, TypedQuantity>>) -> Self {
        Self { typed, untyped: None }
    }
}

impl<'a> From<&'a Value> for QuantityMap<'a> {
    fn from(value: &'a Value) -> Self {
        Self { typed: None, untyped: value.as_object() }
    }
}

fn of_json(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

impl<'a> QuantityMap<'a> {
    pub fn get(self, name: &str) -> Option<Quantity> {
        let typed = self.typed.and_then(|map| map.get(name)?.0.parse().ok());
        typed.or_else(|| of_json(self.untyped?.get(name)?))
    }

    /// All entries, ordered by name.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Quantity)> {
        let typed = self.typed.into_iter().flatten();
        let typed = typed.filter_map(|(name, quantity)| Some((name.as_str(), quantity.0.parse().ok()?)));
        let untyped = self.untyped.into_iter().flatten();
        typed.chain(untyped.filter_map(|(name, value)| Some((name.as_str(), of_json(value)?))))
    }

    pub fn names(self) -> impl Iterator<Item = &'a str> {
        let (typed, untyped) = (self.typed.into_iter().flatten(), self.untyped.into_iter().flatten());
        typed.map(|(name, _)| name.as_str()).chain(untyped.map(|(name, _)| name.as_str()))
    }
}
