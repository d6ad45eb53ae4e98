//! Pods as JSON, as [`PodView`] shows them.

use super::restarts_as_sidecar;
use super::view::{ActualResources, ContainerView, PodView, QuantityMap, Requirements};
use serde_json::Value;

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl<'a> From<&'a Value> for Requirements<'a> {
    fn from(resources: &'a Value) -> Self {
        Self { requests: (&resources["requests"]).into(), limits: (&resources["limits"]).into() }
    }
}

impl<'a> From<&'a Value> for ContainerView<'a> {
    fn from(container: &'a Value) -> Self {
        Self {
            name: container["name"].as_str().unwrap_or_default(),
            resources: (&container["resources"]).into(),
            is_sidecar: restarts_as_sidecar(container["restartPolicy"].as_str()),
        }
    }
}

/// Of the status of a container or of a pod: both name the fields alike.
fn actual(status: &Value) -> Option<ActualResources<'_>> {
    let resources = status.get("resources").filter(|r| r.is_object())?;
    Some(ActualResources { resources: resources.into(), allocated: (&status["allocatedResources"]).into() })
}

impl PodView for Value {
    fn phase(&self) -> &str {
        self["status"]["phase"].as_str().unwrap_or_default()
    }

    fn host_network(&self) -> bool {
        self["spec"]["hostNetwork"] == true
    }

    fn resources(&self) -> Option<Requirements<'_>> {
        let resources = &self["spec"]["resources"];
        resources.is_object().then(|| resources.into())
    }

    fn overhead(&self) -> QuantityMap<'_> {
        (&self["spec"]["overhead"]).into()
    }

    fn containers(&self) -> impl Iterator<Item = ContainerView<'_>> {
        list(&self["spec"]["containers"]).map(Into::into)
    }

    fn init_containers(&self) -> impl Iterator<Item = ContainerView<'_>> {
        list(&self["spec"]["initContainers"]).map(Into::into)
    }

    fn actual_resources(&self) -> Option<ActualResources<'_>> {
        actual(&self["status"])
    }

    fn actual_container_resources(&self, name: &str) -> Option<ActualResources<'_>> {
        let status = &self["status"];
        let mut lists = list(&status["containerStatuses"]).chain(list(&status["initContainerStatuses"]));
        lists.find(|s| s["name"] == name).and_then(actual)
    }

    fn pending_resize_reason(&self) -> Option<&str> {
        list(&self["status"]["conditions"]).find(|c| c["type"] == "PodResizePending")?["reason"].as_str()
    }
}
