//! The ConfigMaps and Secrets that a pod names.

use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    ConfigMap,
    Secret,
}

/// What a pod's volumes, environment and pull secrets name.
pub fn references(pod: &Pod) -> BTreeSet<(Reference, String)> {
    use Reference::{ConfigMap, Secret};
    let mut names = BTreeSet::new();
    let Some(spec) = &pod.spec else { return names };
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        let (config_maps, secrets) = crate::container::env::references(container);
        names.extend(config_maps.into_iter().map(|n| (ConfigMap, n)));
        names.extend(secrets.into_iter().map(|n| (Secret, n)));
    }
    names.extend(spec.image_pull_secrets.iter().flatten().map(|r| (Secret, r.name.clone())));
    for volume in spec.volumes.iter().flatten() {
        names.extend(volume.config_map.iter().map(|s| (ConfigMap, s.name.clone())));
        names.extend(volume.secret.iter().filter_map(|s| s.secret_name.clone()).map(|n| (Secret, n)));
        for source in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
            names.extend(source.config_map.iter().map(|s| (ConfigMap, s.name.clone())));
            names.extend(source.secret.iter().map(|s| (Secret, s.name.clone())));
        }
    }
    names.retain(|(_, name)| !name.is_empty());
    names
}

/// The same by the kinds that entries of what was last seen have.
pub fn reference_names(pod: &Pod) -> Vec<(&'static str, String)> {
    let kind = |reference| match reference {
        Reference::ConfigMap => "configmap",
        Reference::Secret => "secret",
    };
    references(pod).into_iter().map(|(reference, name)| (kind(reference), name)).collect()
}
