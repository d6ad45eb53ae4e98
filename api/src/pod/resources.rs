//! What a pod as a whole requests and may use, by the formula that is part of the API: KEP-753 for sidecars, KEP-1287
//! for containers and KEP-5419 for pods that are resized in place, KEP-2837 for the pod's own resources, and
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/pod-overhead/>.

use super::view::{ActualResources, ContainerView, PodView, QuantityMap, Requirements};
use crate::Quantity;
use std::collections::BTreeMap;

/// Quantities by the name of the resource. A pod has few resources, so they are found by looking at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceList<'a>(Vec<(&'a str, Quantity)>);

impl<'a> ResourceList<'a> {
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, quantity)| *quantity)
    }

    /// The entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Quantity)> {
        self.0.iter().copied()
    }

    /// The entries by name.
    pub fn to_map(&self) -> BTreeMap<String, Quantity> {
        self.iter().map(|(name, quantity)| (name.to_owned(), quantity)).collect()
    }

    /// Puts the quantity there; `join` makes one of it and what is there already.
    fn join(&mut self, name: &'a str, new: Quantity, join: impl Fn(Quantity, Quantity) -> Quantity) {
        match self.0.iter_mut().find(|(own, _)| *own == name) {
            Some((_, present)) => *present = join(*present, new),
            None => self.0.push((name, new)),
        }
    }

    fn add(&mut self, others: impl Iterator<Item = (&'a str, Quantity)>) {
        others.for_each(|(name, quantity)| self.join(name, quantity, |a, b| a + b));
    }

    fn raise(&mut self, others: impl Iterator<Item = (&'a str, Quantity)>) {
        others.for_each(|(name, quantity)| self.join(name, quantity, |a, b| if b > a { b } else { a }));
    }

    fn replace(&mut self, others: impl Iterator<Item = (&'a str, Quantity)>) {
        others.for_each(|(name, quantity)| self.join(name, quantity, |_, new| new));
    }
}

/// Which of a pod's resources count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted<'a> {
    /// Whether `spec.overhead` is added.
    pub overhead: bool,
    /// Whether what the node gave counts while the pod is resized: the larger of that and of what the spec says, and
    /// that alone where the resize is infeasible.
    pub status: bool,
    /// What a container requests of a resource that it does not name.
    pub missing: &'a [(&'static str, Quantity)],
}

/// Whether a pod can have this resource in its own `resources`.
pub fn is_pod_level_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Whether the pod requests something as a whole.
pub fn has_pod_level_requests(pod: &impl PodView) -> bool {
    pod.resources().is_some_and(|own| own.requests.names().any(is_pod_level_resource))
}

/// What the pod requests: its own requests, where it has some, in place of the sum of its containers'.
pub fn requests<'p>(pod: &'p impl PodView, counted: Counted<'_>) -> ResourceList<'p> {
    let mut sum = of_containers(pod, |container, resizable| {
        let mut own = in_force(pod, counted, container, resizable, &REQUESTS);
        for (name, quantity) in counted.missing {
            if own.get(name).is_none() {
                own.0.push((name, *quantity));
            }
        }
        own
    });
    if has_pod_level_requests(pod) {
        sum.replace(of_pod(pod, counted, &REQUESTS).iter());
    }
    if counted.overhead {
        sum.add(pod.overhead().iter());
    }
    sum
}

/// What the pod may use at most: its own limits, where it has some, in place of the sum of its containers'. Overhead is
/// added to what is limited at all. `counted.missing` is not read.
pub fn limits<'p>(pod: &'p impl PodView, counted: Counted<'_>) -> ResourceList<'p> {
    let mut sum =
        of_containers(pod, |container, resizable| in_force(pod, counted, container, resizable, &LIMITS));
    sum.replace(of_pod(pod, counted, &LIMITS).iter());
    if counted.overhead {
        let limited = |sum: &ResourceList<'_>, name: &str| sum.get(name).is_some_and(|q| !q.is_zero());
        let overhead: Vec<_> = pod.overhead().iter().filter(|(name, _)| limited(&sum, name)).collect();
        sum.add(overhead.into_iter());
    }
    sum
}

/// Either requests or limits.
struct Field {
    wanted: for<'a> fn(Requirements<'a>) -> QuantityMap<'a>,
    /// What the kubelet allocated, where the status says so.
    allocated: for<'a> fn(ActualResources<'a>) -> QuantityMap<'a>,
}

const REQUESTS: Field = Field { wanted: |r| r.requests, allocated: |a| a.allocated };
const LIMITS: Field = Field { wanted: |r| r.limits, allocated: |_| QuantityMap::default() };

impl Field {
    /// The largest of what is wanted, unless that is infeasible, of what was allocated, and of what there is.
    fn largest<'p>(
        &self,
        wanted: QuantityMap<'p>,
        actual: ActualResources<'p>,
        infeasible: bool,
    ) -> ResourceList<'p> {
        let mut all = ResourceList::default();
        if !infeasible {
            all.add(wanted.iter());
        }
        all.raise((self.wanted)(actual.resources).iter());
        all.raise((self.allocated)(actual).iter());
        all
    }
}

/// What one container counts for. Init containers that end are not `resizable`.
fn in_force<'p>(
    pod: &'p impl PodView,
    counted: Counted<'_>,
    container: &ContainerView<'p>,
    resizable: bool,
    field: &Field,
) -> ResourceList<'p> {
    let wanted = (field.wanted)(container.resources);
    let actual = pod_status(counted.status && resizable, || pod.actual_container_resources(container.name));
    match actual {
        Some(actual) => field.largest(wanted, actual, pod.is_resize_infeasible()),
        None => ResourceList(wanted.iter().collect()),
    }
}

fn pod_status<T>(counts: bool, read: impl FnOnce() -> Option<T>) -> Option<T> {
    if counts { read() } else { None }
}

/// What the pod counts for by its own resources.
fn of_pod<'p>(pod: &'p impl PodView, counted: Counted<'_>, field: &Field) -> ResourceList<'p> {
    let Some(own) = pod.resources() else { return ResourceList::default() };
    let wanted = (field.wanted)(own);
    let mut all = match pod_status(counted.status, || pod.actual_resources()) {
        Some(actual) => field.largest(wanted, actual, pod.is_resize_infeasible()),
        None => ResourceList(wanted.iter().collect()),
    };
    all.0.retain(|(name, _)| is_pod_level_resource(name));
    all
}

/// The sum over the containers and sidecars, or the most that runs at once while the pod starts, if that is more: an init
/// container runs beside the sidecars that were started before it. `of` says what a container counts for, and is told
/// whether the container can be resized.
fn of_containers<'p>(
    pod: &'p impl PodView,
    of: impl Fn(&ContainerView<'p>, bool) -> ResourceList<'p>,
) -> ResourceList<'p> {
    let mut sum = ResourceList::default();
    for container in pod.containers() {
        sum.add(of(&container, true).iter());
    }
    let (mut sidecars, mut peak) = (ResourceList::default(), ResourceList::default());
    for container in pod.init_containers() {
        let own = of(&container, container.is_sidecar);
        if container.is_sidecar {
            sum.add(own.iter());
            sidecars.add(own.iter());
            peak.raise(sidecars.iter());
        } else {
            let mut beside = own;
            beside.add(sidecars.iter());
            peak.raise(beside.iter());
        }
    }
    sum.raise(peak.iter());
    sum
}
