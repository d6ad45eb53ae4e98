//! The scheduler of the real binary: preemption, several schedulers, its configuration, and why. Needs kubectl, and no
//! root.

mod backlog;
mod binding;
mod configuration;
mod devices;
mod extender;
mod parts;
mod preemption;
mod several;
mod why;

use coracle_tests::Cluster;

/// A pod that asks for so much CPU; the simulated nodes have 32.
pub fn pod(name: &str, class: &str, cpu: &str, extra: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  \
         priorityClassName: {class}\n  terminationGracePeriodSeconds: 1\n  containers:\n  \
         - {{name: app, image: nginx, resources: {{requests: {{cpu: \"{cpu}\", memory: 2Gi}}}}}}\n{extra}---\n"
    )
}

/// One simulated node, and the owner's two priority classes.
pub fn with_priorities() -> Cluster {
    priorities(1)
}

/// So many simulated nodes, and the owner's two priority classes.
pub fn priorities(nodes: usize) -> Cluster {
    let cluster = Cluster::start(&["--simulate-nodes", &nodes.to_string()]);
    cluster.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
    cluster.apply(
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high-priority}\nvalue: 1000000\n\
         globalDefault: false\ndescription: Critical system pods\n---\n\
         apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: low-priority}\nvalue: 1000\n",
    );
    cluster
}
