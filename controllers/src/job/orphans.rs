//! Pods that a Job left behind: nobody will count them, so nothing shall hold them.

use super::is_orphan;
use super::view::{TRACKING, is_tracked};
use crate::common::pod_control::PodControl;
use coracle_client::informer::uid_of;
use coracle_client::{Informer, ObjectKey, ReconcileError};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

/// The key that stands for the orphans of a namespace, if the pod is one.
pub fn key_of(pod: &Pod, jobs: &Informer<Job>) -> Option<ObjectKey> {
    is_orphan(pod, jobs).then(|| ObjectKey::new(pod.metadata.namespace.clone().unwrap_or_default(), ""))
}

/// Takes the finalizer from the orphans of a namespace.
pub async fn free(
    control: &PodControl,
    jobs: &Informer<Job>,
    pods: &Informer<Pod>,
    namespace: &str,
) -> Result<(), ReconcileError> {
    for pod in pods.iter_in(namespace).filter(|pod| is_orphan(pod, jobs)) {
        control.remove_finalizer(&pod, TRACKING).await?;
    }
    Ok(())
}

/// Takes the finalizer from the pods of a Job that is over; it was to be gone from all of them before.
pub async fn free_of(control: &PodControl, job: &Job, pods: &Informer<Pod>) -> Result<(), ReconcileError> {
    for pod in pods.controlled_by(&uid_of(job)).iter().filter(|pod| is_tracked(pod)) {
        control.remove_finalizer(pod, TRACKING).await?;
    }
    Ok(())
}
