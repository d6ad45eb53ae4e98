//! Random clusters: no placement breaks a hard constraint, and what is kept of a class never differs from what a fresh
//! look finds.

use super::*;
use crate::config::{Config, Profile};
use crate::core::SchedulerState;
use crate::plugins::testing::{pod, snapshot};
use crate::plugins::{Handle, Registry};
use crate::queue::Popped;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

const NODES: usize = 6;

/// Kinds of pods; each is one class.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    /// Away from its like, by host.
    Shy,
    /// Beside its like, by zone.
    Fond,
    /// Its like differ by one at most from zone to zone.
    Spread,
    /// Takes port 80 of its node.
    Port,
    /// Only on nodes with this label.
    Choosy,
}

#[derive(Clone, Debug)]
enum Step {
    Schedule(Kind),
    /// The n-th pod that runs goes.
    Remove(usize),
    /// A node is cordoned, or no more.
    Cordon(usize),
    /// A label comes or goes.
    Label(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        Just(Kind::Plain),
        Just(Kind::Shy),
        Just(Kind::Fond),
        Just(Kind::Spread),
        Just(Kind::Port),
        Just(Kind::Choosy),
    ];
    let step = prop_oneof![
        6 => kind.prop_map(Step::Schedule),
        2 => (0..40usize).prop_map(Step::Remove),
        1 => (0..NODES).prop_map(Step::Cordon),
        1 => (0..NODES).prop_map(Step::Label),
    ];
    proptest::collection::vec(step, 1..60)
}

fn spec(kind: Kind) -> Value {
    let like =
        json!({"labelSelector": {"matchLabels": {"kind": format!("{kind:?}")}}, "topologyKey": "host"});
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
    match kind {
        Kind::Plain => {}
        Kind::Shy => {
            spec["affinity"] =
                json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [like]}});
        }
        Kind::Fond => {
            let mut like = like;
            like["topologyKey"] = json!("zone");
            spec["affinity"] =
                json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [like]}});
        }
        Kind::Spread => {
            spec["topologySpreadConstraints"] = json!([{"topologyKey": "zone", "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": like["labelSelector"]}]);
        }
        Kind::Port => spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]),
        Kind::Choosy => spec["nodeSelector"] = json!({"disk": "ssd"}),
    }
    spec
}

fn node(n: usize, cordoned: bool, ssd: bool) -> Value {
    let mut labels = json!({"host": format!("n{n}"), "zone": format!("z{}", n % 2)});
    if ssd {
        labels["disk"] = json!("ssd");
    }
    json!({"metadata": {"name": format!("n{n}"), "labels": labels}, "spec": {"unschedulable": cordoned},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}})
}

struct World {
    core: SchedulerState,
    cordoned: [bool; NODES],
    ssd: [bool; NODES],
    /// Kind and node of each pod that runs.
    running: Vec<(String, Kind, usize)>,
    made: usize,
}

impl World {
    fn new() -> Self {
        let registry = Registry::in_tree();
        let profile = Profile::default_for("default-scheduler", &registry);
        let framework = Framework::new(&profile, &registry, &Handle::offline()).expect("a profile");
        let mut core = SchedulerState::new([Arc::new(framework)], 100, Config::default().backoff).seeded(3);
        let nodes: Vec<Value> = (0..NODES).map(|n| node(n, false, n % 3 == 0)).collect();
        core.snapshot = snapshot(&nodes, &[]);
        let ssd = std::array::from_fn(|n| n % 3 == 0);
        Self { core, cordoned: [false; NODES], ssd, running: Vec::new(), made: 0 }
    }

    fn update(&mut self, n: usize) {
        let node = node(n, self.cordoned[n], self.ssd[n]);
        self.core.set_node(Arc::new(serde_json::from_value(node).expect("a node")), Instant::now());
    }

    /// Whether the rules, written down anew, allow the pod on the node.
    fn allowed(&self, kind: Kind, n: usize) -> bool {
        let like = |node: usize| self.running.iter().filter(|(_, k, at)| *k == kind && *at == node).count();
        let zone = |z: usize| (0..NODES).filter(|n| n % 2 == z).map(like).sum::<usize>();
        let room = self.running.iter().filter(|(_, _, at)| *at == n).count() < 4;
        room && !self.cordoned[n]
            && match kind {
                Kind::Plain => true,
                Kind::Shy | Kind::Port => like(n) == 0,
                Kind::Fond => zone(n % 2) > 0 || zone(0) + zone(1) == 0,
                Kind::Spread => zone(n % 2) < zone(1 - n % 2) + 1,
                Kind::Choosy => self.ssd[n],
            }
    }

    fn schedule(&mut self, kind: Kind) -> Result<(), TestCaseError> {
        self.made += 1;
        let uid = format!("p{}", self.made);
        let value = json!({"metadata": {"name": uid, "namespace": "default", "uid": uid,
            "labels": {"kind": format!("{kind:?}")}}, "spec": spec(kind)});
        let pod = Arc::new(pod(value));
        let framework = self.core.framework_of(pod.waiting().expect("it waits")).expect("a profile");
        let popped =
            Popped { pod: pod.clone(), framework, attempts: 1, first: Instant::now(), flushed: false };
        let mut found = self.core.find(&popped);
        let kept = names(&self.core, &found.feasible);
        let mut fresh = EquivalenceClass::default();
        let mut cycle = Cycle {
            framework: &popped.framework,
            snapshot: &self.core.snapshot,
            pod: &pod,
            class: &mut fresh,
        };
        let anew = names(&self.core, &cycle.find(100, &mut 0));
        prop_assert_eq!(&kept, &anew, "what is kept of {:?} is stale", kind);
        let expected: Vec<usize> = (0..NODES).filter(|n| self.allowed(kind, *n)).collect();
        prop_assert_eq!(&kept, &expected, "{:?}", kind);
        if let Ok(slots) = &found.feasible {
            let totals = self.core.score(&popped, &mut found.class, slots).expect("scores");
            let slot = self.core.choose(&totals).expect("a node");
            let node = self.core.reserve(&popped, &mut found.class, slot, Instant::now()).expect("room");
            self.running.push((uid, kind, number(&node)));
        }
        self.core.done(&popped, found.class);
        Ok(())
    }
}

fn number(node: &str) -> usize {
    node[1..].parse().expect("a number")
}

fn names(core: &SchedulerState, feasible: &Result<Vec<usize>, Failure>) -> Vec<usize> {
    let slots = feasible.as_ref().map(Vec::as_slice).unwrap_or_default();
    let mut names: Vec<usize> = slots.iter().map(|s| number(&core.snapshot.node(*s).name)).collect();
    names.sort_unstable();
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_placement_breaks_a_hard_constraint(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Schedule(kind) => world.schedule(kind)?,
                Step::Remove(n) if !world.running.is_empty() => {
                    let at = n % world.running.len();
                    let (uid, _, _) = world.running.remove(at);
                    world.core.snapshot.remove_pod(&uid);
                }
                Step::Remove(_) => {}
                Step::Cordon(n) => {
                    world.cordoned[n] = !world.cordoned[n];
                    world.update(n);
                }
                Step::Label(n) => {
                    world.ssd[n] = !world.ssd[n];
                    world.update(n);
                }
            }
        }
    }
}
