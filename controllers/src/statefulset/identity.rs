//! What makes a pod of a StatefulSet that one and no other: its ordinal, and the names that follow from it.

use crate::common::ownership;
use crate::common::pod_control::pod_from;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use kube::ResourceExt;

pub const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The ordinal of a pod that has a name of the set's.
pub fn ordinal(set: &str, pod: &Pod) -> Option<i32> {
    let name = pod.metadata.name.as_deref()?;
    let number = name.strip_prefix(set)?.strip_prefix('-')?;
    let plain = number == "0" || !number.starts_with(['0', '+']);
    number.parse().ok().filter(|_| plain)
}

/// The revision that a pod was made from.
pub fn revision(pod: &Pod) -> &str {
    pod.labels().get(REVISION).map_or("", String::as_str)
}

pub fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.name_any())
}

/// The templates of the set's claims.
pub fn claim_templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.as_ref().and_then(|s| s.volume_claim_templates.as_deref()).unwrap_or_default()
}

pub fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    format!("{}-{}", template.name_any(), pod_name(set, ordinal))
}

/// The pod of an ordinal, of this revision's template.
pub fn pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let mut pod = pod_from(set, template);
    let name = pod_name(set, ordinal);
    pod.metadata.generate_name = None;
    pod.metadata.name = Some(name.clone());
    pod.labels_mut().insert(REVISION.to_owned(), revision.to_owned());
    mark(&mut pod, &name, ordinal);
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = set.spec.as_ref().and_then(|s| s.service_name.clone()).filter(|s| !s.is_empty());
    let mut volumes: Vec<Volume> = claim_templates(set).iter().map(|t| volume(set, t, ordinal)).collect();
    let given = spec.volumes.take().unwrap_or_default();
    volumes
        .extend(given.into_iter().filter(|v| !claim_templates(set).iter().any(|t| t.name_any() == v.name)));
    spec.volumes = (!volumes.is_empty()).then_some(volumes);
    pod
}

fn volume(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> Volume {
    let source = PersistentVolumeClaimVolumeSource {
        claim_name: claim_name(set, template, ordinal),
        ..PersistentVolumeClaimVolumeSource::default()
    };
    Volume { name: template.name_any(), persistent_volume_claim: Some(source), ..Volume::default() }
}

fn mark(pod: &mut Pod, name: &str, ordinal: i32) {
    pod.labels_mut().insert(POD_NAME.to_owned(), name.to_owned());
    pod.labels_mut().insert(POD_INDEX.to_owned(), ordinal.to_string());
}

/// The pod with the labels of its identity, if it lacks one: one that was adopted, perhaps.
pub fn corrected(pod: &Pod, ordinal: i32) -> Option<Pod> {
    let name = pod.name_any();
    let right = pod.labels().get(POD_NAME) == Some(&name)
        && pod.labels().get(POD_INDEX).is_some_and(|i| *i == ordinal.to_string());
    (!right).then(|| {
        let mut pod = pod.clone();
        mark(&mut pod, &name, ordinal);
        pod
    })
}

/// Whether somebody else controls a pod that has a name of the set's.
pub fn is_strangers(pod: &Pod, uid: &str) -> bool {
    ownership::controller_of(&pod.metadata).is_none_or(|owner| owner.uid != uid)
}
