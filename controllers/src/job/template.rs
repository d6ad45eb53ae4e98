//! The pods that a Job makes.

use super::view::{self, FAILURES, IGNORED, INDEX, TRACKING, View};
use crate::common::pod_control::pod_from;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt;

/// Longest name of a pod with its five random characters, as a DNS label: it is its host name, too.
const LONGEST_NAME: usize = 63;

/// A pod of the Job; of an Indexed one, for this index.
pub fn pod(view: &View, index: Option<i32>) -> Pod {
    let mut pod = pod_from(view.job, &view.spec.template);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|f| f == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    if let Some(index) = index {
        mark(&mut pod, view, index);
    }
    pod
}

fn mark(pod: &mut Pod, view: &View, index: i32) {
    let (job, text) = (view.job.name_any(), index.to_string());
    pod.annotations_mut().insert(INDEX.to_owned(), text.clone());
    pod.labels_mut().insert(INDEX.to_owned(), text.clone());
    if view.spec.backoff_limit_per_index.is_some() {
        let last = view.indexed.as_ref().and_then(|i| i.last_failed.get(&index));
        let (failures, ignored) = last.map_or((0, 0), |pod| view::index_failures(view.spec, pod));
        pod.annotations_mut().insert(FAILURES.to_owned(), failures.to_string());
        if ignored > 0 {
            pod.annotations_mut().insert(IGNORED.to_owned(), ignored.to_string());
        }
    }
    let tail = format!("-{text}-");
    let prefix: String = job.chars().take(LONGEST_NAME - 5 - tail.len()).collect();
    pod.metadata.generate_name = Some(format!("{prefix}{tail}"));
    let Some(spec) = pod.spec.as_mut() else { return };
    spec.hostname = Some(format!("{job}-{text}"));
    spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(tell_index);
}

/// JOB_COMPLETION_INDEX, unless the container has one of its own.
fn tell_index(container: &mut Container) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let env = container.env.get_or_insert_default();
    if env.iter().any(|e| e.name == NAME) {
        return;
    }
    let path = format!("metadata.labels['{INDEX}']");
    let field = ObjectFieldSelector { field_path: path, ..ObjectFieldSelector::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    env.push(EnvVar { name: NAME.to_owned(), value_from: Some(source), ..EnvVar::default() });
}
