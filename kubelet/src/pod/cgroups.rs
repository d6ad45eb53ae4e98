//! The cgroups that runc made on a pod's behalf, removed when the pod is gone.

use crate::container::resources::cgroup_parent;
use k8s_openapi::api::core::v1::Pod;
use std::fs;
use std::path::Path;

/// Removes the pod's empty cgroups: the one of cgroup v2, or that of every v1 controller.
pub fn remove(pod: &Pod) {
    let parent = cgroup_parent(pod);
    let relative = parent.trim_start_matches('/');
    let root = Path::new("/sys/fs/cgroup");
    // rmdir removes only what is empty, and what is not there needs no removing.
    let _ = fs::remove_dir(root.join(relative));
    for controller in fs::read_dir(root).into_iter().flatten().flatten() {
        let _ = fs::remove_dir(controller.path().join(relative));
    }
}
