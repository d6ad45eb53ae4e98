//! Typed pods, as [`PodView`] shows them.

use super::restarts_as_sidecar;
use super::view::{ActualResources, ContainerView, PodView, QuantityMap, Requirements};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, ResourceRequirements};

impl<'a> From<&'a ResourceRequirements> for Requirements<'a> {
    fn from(resources: &'a ResourceRequirements) -> Self {
        Self { requests: resources.requests.as_ref().into(), limits: resources.limits.as_ref().into() }
    }
}

impl<'a> From<&'a Container> for ContainerView<'a> {
    fn from(container: &'a Container) -> Self {
        Self {
            name: &container.name,
            resources: container.resources.as_ref().map(Into::into).unwrap_or_default(),
            is_sidecar: restarts_as_sidecar(container.restart_policy.as_deref()),
        }
    }
}

fn actual(status: &ContainerStatus) -> Option<ActualResources<'_>> {
    let resources = status.resources.as_ref()?.into();
    Some(ActualResources { resources, allocated: status.allocated_resources.as_ref().into() })
}

impl PodView for Pod {
    fn phase(&self) -> &str {
        self.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
    }

    fn host_network(&self) -> bool {
        self.spec.as_ref().and_then(|s| s.host_network).unwrap_or(false)
    }

    fn resources(&self) -> Option<Requirements<'_>> {
        self.spec.as_ref()?.resources.as_ref().map(Into::into)
    }

    fn overhead(&self) -> QuantityMap<'_> {
        self.spec.as_ref().and_then(|s| s.overhead.as_ref()).into()
    }

    fn containers(&self) -> impl Iterator<Item = ContainerView<'_>> {
        self.spec.iter().flat_map(|s| &s.containers).map(Into::into)
    }

    fn init_containers(&self) -> impl Iterator<Item = ContainerView<'_>> {
        self.spec.iter().flat_map(|s| s.init_containers.iter().flatten()).map(Into::into)
    }

    fn actual_resources(&self) -> Option<ActualResources<'_>> {
        let status = self.status.as_ref()?;
        let resources = status.resources.as_ref()?.into();
        Some(ActualResources { resources, allocated: status.allocated_resources.as_ref().into() })
    }

    fn actual_container_resources(&self, name: &str) -> Option<ActualResources<'_>> {
        let status = self.status.as_ref()?;
        let mut lists = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
        lists.find(|s| s.name == name).and_then(actual)
    }

    fn pending_resize_reason(&self) -> Option<&str> {
        let mut conditions = self.status.as_ref()?.conditions.iter().flatten();
        conditions.find(|c| c.type_ == "PodResizePending")?.reason.as_deref()
    }
}
