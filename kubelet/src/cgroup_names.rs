//! What pods' cgroups are called: as upstream's kubelet calls them with either driver, so that runtimes, collectors and
//! people find them.

use crate::cri::CgroupDriver;
use crate::pod_facts::qos::{self, QosClass};
use k8s_openapi::api::core::v1::Pod;

/// Of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names(pub CgroupDriver);

impl Default for Names {
    fn default() -> Self {
        Self(CgroupDriver::Cgroupfs)
    }
}

impl Names {
    /// A cgroup of these parts, from the root on: `["kubepods", "burstable"]`.
    fn path(self, parts: &[&str]) -> String {
        match self.0 {
            CgroupDriver::Cgroupfs => format!("/{}", parts.join("/")),
            CgroupDriver::Systemd => {
                let slices = (1..=parts.len()).map(|depth| slice(&parts[..depth]));
                slices.fold(String::new(), |path, slice| format!("{path}/{slice}"))
            }
        }
    }

    /// Of all pods.
    pub fn all(self) -> String {
        self.path(&["kubepods"])
    }

    /// Of all pods of a class; guaranteed ones lie among all.
    pub fn tier(self, class: QosClass) -> String {
        match class {
            QosClass::Guaranteed => self.all(),
            QosClass::Burstable => self.path(&["kubepods", "burstable"]),
            QosClass::BestEffort => self.path(&["kubepods", "besteffort"]),
        }
    }

    pub fn pod(self, pod: &Pod) -> String {
        self.path(&parts(pod, &own(pod)))
    }

    /// The pod's cgroup as runtimes want to be told it: with systemd a slice's name alone.
    pub fn for_runtime(self, pod: &Pod) -> String {
        match self.0 {
            CgroupDriver::Cgroupfs => self.pod(pod),
            CgroupDriver::Systemd => slice(&parts(pod, &own(pod))),
        }
    }

    /// A container's below its pod's, as containerd names it.
    pub fn container(self, pod: &str, id: &str) -> String {
        match self.0 {
            CgroupDriver::Cgroupfs => format!("{pod}/{id}"),
            CgroupDriver::Systemd => format!("{pod}/cri-containerd-{id}.scope"),
        }
    }
}

fn own(pod: &Pod) -> String {
    format!("pod{}", pod.metadata.uid.as_deref().unwrap_or_default())
}

fn parts<'a>(pod: &Pod, own: &'a str) -> Vec<&'a str> {
    match qos::class(pod) {
        QosClass::Guaranteed => vec!["kubepods", own],
        QosClass::Burstable => vec!["kubepods", "burstable", own],
        QosClass::BestEffort => vec!["kubepods", "besteffort", own],
    }
}

/// systemd reads a dash as a step down.
fn slice(parts: &[&str]) -> String {
    let escaped: Vec<String> = parts.iter().map(|part| part.replace('-', "_")).collect();
    format!("{}.slice", escaped.join("-"))
}

/// The UID of a pod whose cgroup has this last name; `None` if it is no pod's.
pub fn uid_of(name: &str) -> Option<String> {
    let name = match name.strip_suffix(".slice") {
        Some(slice) => slice.rsplit('-').next().unwrap_or_default().replace('_', "-"),
        None => name.to_owned(),
    };
    name.strip_prefix("pod").filter(|uid| !uid.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_drivers_have_upstreams_names() {
        let pod = |resources: serde_json::Value| -> Pod {
            serde_json::from_value(json!({ "metadata": { "uid": "a-b" },
                "spec": { "containers": [{ "name": "c", "resources": resources }] } }))
            .unwrap()
        };
        let (files, systemd) = (Names::default(), Names(CgroupDriver::Systemd));
        let burstable = pod(json!({ "requests": { "cpu": "1" } }));
        assert_eq!(files.pod(&burstable), "/kubepods/burstable/poda-b");
        assert_eq!(files.for_runtime(&burstable), "/kubepods/burstable/poda-b");
        let slice = "kubepods-burstable-poda_b.slice";
        assert_eq!(systemd.pod(&burstable), format!("/kubepods.slice/kubepods-burstable.slice/{slice}"));
        assert_eq!(systemd.for_runtime(&burstable), slice);
        let guaranteed = pod(json!({ "limits": { "cpu": "1", "memory": "1Gi" } }));
        assert_eq!(files.pod(&guaranteed), "/kubepods/poda-b");
        assert_eq!(systemd.for_runtime(&guaranteed), "kubepods-poda_b.slice");
        assert_eq!(systemd.tier(QosClass::BestEffort), "/kubepods.slice/kubepods-besteffort.slice");
        assert_eq!(systemd.container("/x.slice", "1"), "/x.slice/cri-containerd-1.scope");
        for name in ["poda-b", slice, "kubepods-poda_b.slice"] {
            assert_eq!(uid_of(name).as_deref(), Some("a-b"), "{name}");
        }
        assert_eq!(uid_of("kubepods-burstable.slice"), None);
        assert_eq!(uid_of("burstable"), None);
    }
}
