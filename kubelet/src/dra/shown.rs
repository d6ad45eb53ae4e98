//! What containers get of prepared claims, and what their status says of it.

use super::references::{base, entries, used};
use super::state::{ClaimState, Device};
use super::{Dra, DraError};
use coracle_client::ObjectKey;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceHealth, ResourceStatus};
use std::collections::{BTreeMap, BTreeSet};

fn has(device: &Device, request: &str) -> bool {
    request.is_empty()
        || device.request_names.is_empty()
        || device.request_names.iter().any(|name| name == request || name == base(request))
}

/// All devices of the claim for the request, with their drivers.
fn devices<'a>(claim: &'a ClaimState, request: &'a str) -> impl Iterator<Item = (&'a str, &'a Device)> {
    let all =
        claim.drivers.iter().flat_map(|(driver, state)| state.devices.iter().map(move |d| (&**driver, d)));
    all.filter(move |(_, device)| has(device, request))
}

impl Dra {
    /// The names of the CDI devices that the runtime gives the container, each once.
    pub fn cdi_devices(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, DraError> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let claims = self.claims.lock();
        let mut names: Vec<String> = Vec::new();
        for (name, requests) in used(pod, container)? {
            let claim = claims.get(&ObjectKey::new(&namespace, &name));
            let claim = claim.ok_or_else(|| DraError::Unknown(name.clone()))?;
            let of_claim = requests.iter().flat_map(|request| devices(claim, request));
            for id in of_claim.flat_map(|(_, device)| &device.cdi_device_ids) {
                if !names.contains(id) {
                    names.push(id.clone());
                }
            }
        }
        Ok(names)
    }

    /// `allocatedResourcesStatus` of the pod's containers that have claims, by their names.
    pub fn statuses(&self, pod: &Pod) -> BTreeMap<String, Vec<ResourceStatus>> {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let all = containers.map(|container| (container.name.clone(), self.status(pod, container)));
        all.filter(|(_, status)| !status.is_empty()).collect()
    }

    fn status(&self, pod: &Pod, container: &Container) -> Vec<ResourceStatus> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let (claims, health) = (self.claims.lock(), self.health.lock());
        let mut all = Vec::new();
        for (entry, request, name) in entries(pod, container).unwrap_or_default() {
            let Some(claim) = claims.get(&ObjectKey::new(&namespace, &name)) else { continue };
            let (mut seen, mut resources) = (BTreeSet::new(), Vec::new());
            for (driver, device) in devices(claim, &request) {
                let known = (device.pool_name.clone(), device.device_name.clone());
                let (word, message) = health.of(driver, &known);
                let path = || format!("{driver}/{}/{}", known.0, known.1);
                let resource_id = device.cdi_device_ids.first().cloned().unwrap_or_else(path);
                if seen.insert(resource_id.clone()) {
                    let health = Some(word.to_owned());
                    resources.push(ResourceHealth { health, message, resource_id });
                }
            }
            let name = if request.is_empty() {
                format!("claim:{entry}")
            } else {
                format!("claim:{entry}/{request}")
            };
            if !resources.is_empty() {
                all.push(ResourceStatus { name, resources: Some(resources) });
            }
        }
        all
    }
}
