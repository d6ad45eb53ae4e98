//! The figures that the project promises. A figure that misses its goal fails `bench --check`, but for those marked
//! [`Goal::not_yet`]; that mark carries its reason and goes when the goal is reached.
//!
//! Where a goal is a multiple of what upstream's API server and etcd reach, upstream was measured on two cores that it
//! shared with the load.

#[derive(Clone, Copy)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

pub struct Goal {
    /// The figure's name.
    pub name: &'static str,
    pub bound: Bound,
    /// Why the goal may still be missed.
    pub not_yet: Option<&'static str>,
}

const fn at_most(name: &'static str, value: f64) -> Goal {
    Goal { name, bound: Bound::AtMost(value), not_yet: None }
}

const fn at_least(name: &'static str, value: f64) -> Goal {
    Goal { name, bound: Bound::AtLeast(value), not_yet: None }
}

impl Goal {
    const fn not_yet(self, why: &'static str) -> Self {
        Self { not_yet: Some(why), ..self }
    }
}

const CREATION: &str = "the figure includes creation over TLS and the simulated run, on the same cores";

pub const GOALS: &[Goal] = &[
    at_most("cold start to /readyz", 300.0),
    at_most("coracle ci -- true", 500.0),
    at_most("restart with 10,000 objects", 200.0).not_yet("184 to 236 ms"),
    at_most("idle memory", 40.0),
    at_most("idle CPU", 0.5),
    at_most("log lines in an idle hour", 0.0),
    at_most("idle disk writes", 1024.0),
    at_most("binary size", 30.0).not_yet("48.7 MiB: a quarter is asynchronous code, an eighth decodes types, each in five ways"),
    // Five times upstream's 360 and 1,280 a second.
    at_least("durable writes, 1 writer", 1800.0)
        .not_yet("one synchronous write at a time; a virtual disk's reply waits for the clock's tick"),
    at_least("durable writes, 64 writers", 6400.0),
    at_most("create a pod: passage through its types", 5.0),
    at_most("list of 5,000 pods", 40.0),
    // Upstream with 64 clients: creates 1,280, gets 1,970 a second; lists 5,000 pods in 425 ms.
    at_least("create a ConfigMap, 64 clients", 6400.0),
    at_least("get a pod, 64 clients", 9850.0),
    at_most("list 5,000 pods, 1 client, p50", 40.0),
    at_most("10,000 pods of 3 KiB: memory", 120.0),
    at_most("10,000 pods of 3 KiB: memory after a list of all", 120.0),
    at_most("write acknowledged to the last of 100 watchers, p50", 1.0),
    at_most("write acknowledged to the last of 100 watchers, p99", 5.0),
    at_most("DNS at 5,000 a second, cached: p99", 1.0),
    at_most("create a custom resource: CPU against a ConfigMap's", 1.5),
    at_most("apply a custom resource: CPU against a ConfigMap's", 1.5),
    at_most("definition changed to OpenAPI v2 read: first", 100.0),
    at_most("definition changed to OpenAPI v2 read: worst", 100.0),
    at_most("definition changed to OpenAPI v3 read: first", 100.0),
    at_most("definition changed to OpenAPI v3 read: worst", 100.0),
    at_least("pods bound, 100 nodes", 5000.0).not_yet(CREATION),
    at_least("pods bound, 1,000 nodes", 5000.0).not_yet(CREATION),
    at_most("memory a minute after the pods went, 1,000 nodes", 60.0)
        .not_yet("a thousand simulated nodes alone are 90 MiB; the same nodes without kubelets are what the goal is about"),
    at_most("storm of 5,000 pods, 1,000 nodes: memory", 100.0),
    at_most("storm of 5,000 pods, 1,000 nodes: memory a minute after they went", 60.0),
    at_most("storm of 5,000 pods, 1,000 nodes: memory an hour after they went", 40.0)
        .not_yet("54 MiB, 47 of them anonymous as a minute after; not looked into"),
    at_least("pods bound from a backlog: plain, 1000 nodes, no kubelets", 5000.0),
    at_least("pods bound from a backlog: plain, 5000 nodes, no kubelets", 2000.0),
    at_least("pods bound: required anti-affinity, 5000 nodes, no kubelets", 1000.0),
    at_least("pods bound: required affinity, 5000 nodes, no kubelets", 1000.0),
    at_least("pods bound: topology spread, 5000 nodes, no kubelets", 1000.0),
    at_least("pods bound: preempting half, 5000 nodes, no kubelets", 1000.0),
    at_most("Deployment of 2,000 to all ready", 10_000.0),
    // Upstream's controllers send 20 requests a second at most, so a thousand pods take them 50 s.
    at_most("Deployment of 1,000 to all ready", 5000.0),
    at_most("rolling update of 1,000 pods", 15_000.0),
    at_most("1,000 Jobs of one pod each", 10_000.0),
    at_most("deletion of a namespace with 5,000 objects", 5000.0),
    // A pod is created, bound and reported; in an update one is deleted and confirmed gone beside.
    at_most("Deployment of 1,000 to all ready: requests each", 3.3),
    at_most("rolling update of 1,000 pods: requests each", 5.6),
    // Half a thousandth of a core: what the clock's tick alone costs.
    at_most("1,000 objects at rest: CPU of all controllers", 0.5),
    at_most("memory of the whole node", 40.0),
    at_most("pod start, p50", 450.0),
    at_most("pod start, p99", 600.0),
    // Half of upstream's 10.7 s.
    at_most("50 pods at once", 5350.0),
    at_most("110 pods with a probe a second: CPU", 3.0).not_yet("6.0 % of a core; not profiled"),
    at_most("110 pods with a probe a second: memory more", 25.0),
];

impl Goal {
    pub fn of(name: &str) -> Option<&'static Self> {
        GOALS.iter().find(|goal| goal.name == name)
    }

    pub fn holds(&self, value: f64) -> bool {
        match self.bound {
            Bound::AtMost(goal) => value <= goal,
            Bound::AtLeast(goal) => value >= goal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_one_goal_and_every_excuse_a_reason() {
        for (index, goal) in GOALS.iter().enumerate() {
            assert!(GOALS[..index].iter().all(|other| other.name != goal.name), "{} twice", goal.name);
            assert!(goal.not_yet.is_none_or(|why| !why.is_empty()), "{}: no reason", goal.name);
        }
    }

    #[test]
    fn a_figure_that_is_no_number_misses_its_goal() {
        assert!(GOALS.iter().all(|goal| !goal.holds(f64::NAN)));
    }

    #[test]
    fn the_bound_itself_holds() {
        assert!(at_most("x", 5.0).holds(5.0) && !at_most("x", 5.0).holds(5.1));
        assert!(at_least("x", 5.0).holds(5.0) && !at_least("x", 5.0).holds(4.9));
    }
}
