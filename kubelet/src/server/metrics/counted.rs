//! What was started, and how it ended.

use super::Page;
use crate::counted::{self, Counted};

/// Upstream's families, in the order of their kinds.
const FAMILIES: [(&str, &str); 7] = [
    ("kubelet_started_pods_total", "Cumulative number of pods started"),
    ("kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods"),
    ("kubelet_started_containers_total", "Cumulative number of containers started"),
    ("kubelet_started_containers_errors_total", "Cumulative number of errors when starting containers"),
    ("kubelet_terminated_containers_total", "Cumulative number of containers that ended"),
    ("kubelet_runtime_operations_errors_total", "Cumulative number of calls to the runtime that failed"),
    ("kubelet_evictions", "Cumulative number of pods evicted, by eviction signal"),
];

pub(super) fn write(page: &mut Page) {
    let all = counted::all();
    for (place, (name, help)) in FAMILIES.into_iter().enumerate() {
        page.family(name, "counter", help);
        for (what, count) in all.iter().filter(|(what, _)| family(what) == place) {
            match what {
                Counted::StartedPods | Counted::StartedPodsErrors => page.value(name, &[], count),
                Counted::StartedContainers { container_type } => {
                    page.value(name, &[("container_type", container_type)], count);
                }
                Counted::StartedContainersErrors { container_type, code } => {
                    page.value(name, &[("code", code), ("container_type", container_type)], count);
                }
                Counted::RuntimeErrors { operation } => {
                    page.value(name, &[("operation_type", operation)], count)
                }
                Counted::Evictions { signal } => page.value(name, &[("eviction_signal", signal)], count),
                Counted::TerminatedContainers { container_type, exit_code, reason } => {
                    let exit_code = exit_code.to_string();
                    let labels =
                        [("container_type", *container_type), ("exit_code", &exit_code), ("reason", reason)];
                    page.value(name, &labels, count);
                }
            }
        }
    }
}

fn family(what: &Counted) -> usize {
    match what {
        Counted::StartedPods => 0,
        Counted::StartedPodsErrors => 1,
        Counted::StartedContainers { .. } => 2,
        Counted::StartedContainersErrors { .. } => 3,
        Counted::TerminatedContainers { .. } => 4,
        Counted::RuntimeErrors { .. } => 5,
        Counted::Evictions { .. } => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_shows_what_was_counted() {
        let container_type = "test_container";
        let (code, reason) = ("CreateContainerError".to_owned(), "Error".to_owned());
        counted::add(Counted::StartedPods);
        counted::add(Counted::StartedPodsErrors);
        counted::add(Counted::StartedContainers { container_type });
        counted::add(Counted::StartedContainersErrors { container_type, code });
        counted::add(Counted::TerminatedContainers { container_type, exit_code: 139, reason });
        counted::add(Counted::RuntimeErrors { operation: "test_operation" });
        counted::add(Counted::Evictions { signal: "test.signal" });
        let mut page = Page::default();
        write(&mut page);
        for line in [
            "kubelet_runtime_operations_errors_total{operation_type=\"test_operation\"} 1\n",
            "kubelet_evictions{eviction_signal=\"test.signal\"} 1\n",
            "kubelet_started_pods_total ",
            "kubelet_started_pods_errors_total ",
            "kubelet_started_containers_total{container_type=\"test_container\"} 1\n",
            "kubelet_started_containers_errors_total{code=\"CreateContainerError\",container_type=\"test_container\"} 1\n",
            "kubelet_terminated_containers_total{container_type=\"test_container\",exit_code=\"139\",reason=\"Error\"} 1\n",
        ] {
            assert!(page.0.contains(&format!("\n{line}")), "{line} in\n{}", page.0);
        }
    }
}
