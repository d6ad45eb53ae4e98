use super::*;
use crate::cgroup::limits::{Policy, of_pod};
use crate::configuration::kernel::KernelSettings;
use crate::pod::resize::Resizes;
use crate::pod_facts::observed::{self, Observed, State};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// `cpu request/limit memory request/limit` of a container or a pod, in thousandths and MiB; 0 for none.
type Amounts = [i64; 4];

fn resources([cpu, cpu_limit, memory, memory_limit]: Amounts) -> Value {
    let mut all = json!({});
    for (kind, cpu, memory) in [("requests", cpu, memory), ("limits", cpu_limit, memory_limit)] {
        if cpu > 0 {
            all[kind]["cpu"] = format!("{cpu}m").into();
        }
        if memory > 0 {
            all[kind]["memory"] = format!("{memory}Mi").into();
        }
    }
    all
}

fn pod(own: Option<Amounts>, containers: &[Amounts], policy: &Value) -> Arc<Pod> {
    let container = |(at, amounts): (usize, &Amounts)| json!({ "name": format!("c{}", at + 1), "resources": resources(*amounts), "resizePolicy": policy });
    let mut spec = json!({ "containers": containers.iter().enumerate().map(container).collect::<Vec<_>>() });
    if let Some(own) = own {
        spec["resources"] = resources(own);
    }
    Arc::new(
        serde_json::from_value(json!({ "metadata": { "name": "p", "uid": "u" }, "spec": spec })).unwrap(),
    )
}

fn running(pod: &Pod) -> Observed {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|c| observed::Container {
        id: c.name.clone(),
        sandbox: "s".to_owned(),
        name: c.name.clone(),
        attempt: 0,
        state: State::Running,
        created_at: None,
        started_at: None,
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_id: String::new(),
        user: None,
        hash: String::new(),
        resources: Some(c.resources.clone().unwrap_or_default()),
        log_path: PathBuf::new(),
        termination_log: None,
    });
    Observed { containers: containers.collect(), ..Observed::default() }
}

fn limits(pod: &Pod) -> Limits {
    of_pod(
        pod,
        false,
        &Policy { kernel: KernelSettings::default(), pod_pids: Some(9), page_sizes: Vec::new() },
    )
}

/// `pod memory=64Mi`, `c1 cpu=20/30`: what each change makes of what it changes.
fn words(before: &Limits, changes: &[Change]) -> Vec<String> {
    let mut last = before.clone();
    let amount = |of: &ResourceRequirements, limit| amount_of(Some(of), limit, "memory").units() >> 20;
    let cpu = |of: &ResourceRequirements, limit| amount_of(Some(of), limit, "cpu").milli();
    let word = |change: &Change| match change {
        Change::Container { id, resource: "memory", resources } => {
            format!(
                "{id} memory={}/{} (cpu={})",
                amount(resources, false),
                amount(resources, true),
                cpu(resources, true)
            )
        }
        Change::Container { id, resources, .. } => {
            format!(
                "{id} cpu={}/{} (memory={})",
                cpu(resources, false),
                cpu(resources, true),
                amount(resources, true)
            )
        }
        Change::Pod(limits) => {
            assert_eq!(limits.pids_max, Some(9), "processes are not resized");
            let mut parts = Vec::new();
            if limits.memory_max != last.memory_max {
                parts.push(format!("memory={}", limits.memory_max.map_or(0, |bytes| bytes >> 20)));
            }
            if limits.cpu_quota != last.cpu_quota {
                parts.push(format!("quota={}", limits.cpu_quota.map_or(0, |(quota, _)| quota)));
            }
            if limits.cpu_shares != last.cpu_shares {
                parts.push(format!("shares={}", limits.cpu_shares.unwrap_or_default()));
            }
            last = limits.clone();
            format!("pod {}", parts.join(" "))
        }
    };
    changes.iter().map(word).collect()
}

/// Everything from one pod to another, and that nothing is left to do afterwards.
fn carried_out(before: &Arc<Pod>, after: &Arc<Pod>) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let mut resizes = Resizes::load(&dir.path().join("pod"));
    let observed = running(before);
    resizes.meet(before, &observed);
    assert!(resizes.wants_more(after));
    resizes.grant(after).unwrap();
    assert!(resizes.in_progress(after, &observed) && resizes.is_pod_due());
    let (was, is) = (limits(before), limits(after));
    let all = changes(&was, &is, &resizes.unfinished(after, &observed));
    for change in &all {
        if let Change::Container { id, resource, .. } = change {
            let wanted = after.spec.as_ref().unwrap().containers.iter().find(|c| c.name == *id).unwrap();
            let seen = observed.latest(id).unwrap();
            resizes.done(wanted, seen, resource).unwrap();
        }
    }
    let last = all.iter().rev().find_map(|change| match change {
        Change::Pod(limits) => Some(limits.clone()),
        Change::Container { .. } => None,
    });
    assert_eq!(last.unwrap_or_else(|| is.clone()), is, "the pod's cgroup is as it is to be");
    resizes.placed().unwrap();
    assert!(!resizes.in_progress(after, &observed));
    // The next process knows it.
    let mut next = Resizes::load(&dir.path().join("pod"));
    next.meet(after, &observed);
    assert!(!next.wants_more(after) && !next.in_progress(after, &observed));
    words(&was, &all)
}

/// Of pods without resources of their own: from, to, and what is done in which order.
type Case = (&'static str, &'static [Amounts], &'static [Amounts], &'static [&'static str]);

const CASES: &[Case] = &[
    (
        "guaranteed, one container, cpu & memory up",
        &[[20, 20, 20, 20]],
        &[[25, 25, 25, 25]],
        &[
            "pod memory=25",
            "c1 memory=25/25 (cpu=20)",
            "pod quota=2500",
            "pod shares=25",
            "c1 cpu=25/25 (memory=25)",
        ],
    ),
    (
        "guaranteed, one container, cpu & memory down",
        &[[20, 20, 20, 20]],
        &[[15, 15, 15, 15]],
        &[
            "c1 memory=15/15 (cpu=20)",
            "pod memory=15",
            "c1 cpu=15/15 (memory=15)",
            "pod shares=15",
            "pod quota=1500",
        ],
    ),
    (
        "guaranteed, one container, cpu up, memory down",
        &[[20, 20, 20, 20]],
        &[[25, 25, 15, 15]],
        &[
            "c1 memory=15/15 (cpu=20)",
            "pod memory=15",
            "pod quota=2500",
            "pod shares=25",
            "c1 cpu=25/25 (memory=15)",
        ],
    ),
    (
        "guaranteed, one container, cpu down, memory up",
        &[[20, 20, 20, 20]],
        &[[15, 15, 25, 25]],
        &[
            "pod memory=25",
            "c1 memory=25/25 (cpu=20)",
            "c1 cpu=15/15 (memory=25)",
            "pod shares=15",
            "pod quota=1500",
        ],
    ),
    (
        "guaranteed, three containers, net increase of memory, net decrease of cpu",
        &[[20, 20, 20, 20], [22, 22, 22, 22], [24, 24, 24, 24]],
        &[[25, 25, 30, 30], [12, 12, 20, 20], [14, 14, 34, 34]],
        &[
            "pod memory=84",
            "c2 memory=20/20 (cpu=22)",
            "c1 memory=30/30 (cpu=20)",
            "c3 memory=34/34 (cpu=24)",
            "c2 cpu=12/12 (memory=20)",
            "c3 cpu=14/14 (memory=34)",
            "c1 cpu=25/25 (memory=30)",
            "pod shares=52",
            "pod quota=5100",
        ],
    ),
    (
        "burstable, cpu request up",
        &[[20, 30, 20, 30]],
        &[[25, 30, 20, 30]],
        &["pod shares=25", "c1 cpu=25/30 (memory=30)"],
    ),
    (
        "burstable, cpu request down",
        &[[20, 30, 20, 30]],
        &[[15, 30, 20, 30]],
        &["c1 cpu=15/30 (memory=30)", "pod shares=15"],
    ),
    (
        "burstable, cpu limit up",
        &[[20, 30, 20, 30]],
        &[[20, 35, 20, 30]],
        &["pod quota=3500", "c1 cpu=20/35 (memory=30)"],
    ),
    (
        "burstable, cpu limit down",
        &[[20, 30, 20, 30]],
        &[[20, 25, 20, 30]],
        &["c1 cpu=20/25 (memory=30)", "pod quota=2500"],
    ),
    ("burstable, memory request up", &[[20, 30, 20, 30]], &[[20, 30, 25, 30]], &["c1 memory=25/30 (cpu=30)"]),
    (
        "burstable, memory request down",
        &[[20, 30, 20, 30]],
        &[[20, 30, 15, 30]],
        &["c1 memory=15/30 (cpu=30)"],
    ),
    (
        "burstable, memory limit up",
        &[[20, 30, 20, 30]],
        &[[20, 30, 20, 35]],
        &["pod memory=35", "c1 memory=20/35 (cpu=30)"],
    ),
    (
        "burstable, memory limit down",
        &[[20, 30, 20, 30]],
        &[[20, 30, 20, 25]],
        &["c1 memory=20/25 (cpu=30)", "pod memory=25"],
    ),
    (
        "burstable, requests down, limits up",
        &[[20, 30, 20, 30]],
        &[[15, 35, 15, 35]],
        &[
            "pod memory=35",
            "c1 memory=15/35 (cpu=30)",
            "pod quota=3500",
            "c1 cpu=15/35 (memory=35)",
            "pod shares=15",
        ],
    ),
    (
        "burstable, limits added to requests: from none to some is a decrease",
        &[[20, 0, 20, 0]],
        &[[20, 30, 20, 30]],
        &["c1 memory=20/30 (cpu=0)", "pod memory=30", "c1 cpu=20/30 (memory=30)", "pod quota=3000"],
    ),
    (
        "burstable, cpu request added to memory",
        &[[0, 0, 20, 0]],
        &[[20, 0, 20, 0]],
        &["pod shares=20", "c1 cpu=20/0 (memory=0)"],
    ),
    (
        "burstable, three containers, one without limits: the pod has none",
        &[[20, 30, 20, 30], [20, 0, 0, 0], [20, 30, 20, 30]],
        &[[25, 35, 20, 35], [20, 0, 0, 0], [15, 25, 20, 25]],
        &[
            "c3 memory=20/25 (cpu=30)",
            "c1 memory=20/35 (cpu=30)",
            "c3 cpu=15/25 (memory=25)",
            "c1 cpu=25/35 (memory=35)",
        ],
    ),
];

#[test]
fn containers_are_resized_within_their_pod() {
    for (name, before, after, expected) in CASES {
        let (before, after) = (pod(None, before, &json!([])), pod(None, after, &json!([])));
        assert_eq!(carried_out(&before, &after), *expected, "{name}");
    }
}

#[test]
fn the_pods_own_resources_are_resized_before_or_after_its_containers() {
    let cases: [(&str, [Amounts; 4], &[&str]); 6] = [
        (
            "limits up",
            [[80, 80, 80, 80], [20, 20, 20, 20], [90, 90, 90, 90], [20, 20, 20, 20]],
            &["pod memory=90", "pod quota=9000", "pod shares=92"],
        ),
        (
            "limits down",
            [[80, 80, 80, 80], [20, 20, 20, 20], [70, 70, 70, 70], [20, 20, 20, 20]],
            &["pod memory=70", "pod shares=71", "pod quota=7000"],
        ),
        (
            "a container within the same pod",
            [[80, 80, 80, 80], [20, 20, 20, 20], [80, 80, 80, 80], [30, 30, 10, 10]],
            &["c1 memory=10/10 (cpu=20)", "c1 cpu=30/30 (memory=10)"],
        ),
        (
            "both up",
            [[80, 80, 80, 80], [20, 20, 20, 20], [90, 90, 90, 90], [30, 30, 30, 30]],
            &[
                "pod memory=90",
                "c1 memory=30/30 (cpu=20)",
                "pod quota=9000",
                "pod shares=92",
                "c1 cpu=30/30 (memory=30)",
            ],
        ),
        // A container without limits of its own has those of its pod, and is told so.
        (
            "the limits of a container without any",
            [[80, 80, 80, 80], [0, 0, 0, 0], [90, 90, 70, 70], [0, 0, 0, 0]],
            &[
                "c1 memory=0/70 (cpu=80)",
                "pod memory=70",
                "pod quota=9000",
                "pod shares=92",
                "c1 cpu=0/90 (memory=70)",
            ],
        ),
        (
            "requests alone",
            [[50, 80, 50, 80], [20, 20, 20, 20], [60, 80, 60, 80], [20, 20, 20, 20]],
            &["pod shares=61"],
        ),
    ];
    for (name, [own, container, new_own, new_container], expected) in cases {
        let before = pod(Some(own), &[container], &json!([]));
        let after = pod(Some(new_own), &[new_container], &json!([]));
        assert_eq!(carried_out(&before, &after), expected, "{name}");
    }
    let (before, after) = (
        pod(None, &[[20, 20, 20, 20]], &json!([])),
        pod(Some([30, 30, 30, 30]), &[[20, 20, 20, 20]], &json!([])),
    );
    assert_eq!(carried_out(&before, &after), ["pod memory=30", "pod quota=3000", "pod shares=30"], "added");
}

#[test]
fn resize_policies_decide_who_starts_anew() {
    let policy = |cpu: &str, memory: &str| json!([{ "resourceName": "cpu", "restartPolicy": cpu }, { "resourceName": "memory", "restartPolicy": memory }]);
    let (no, yes) = ("NotRequired", "RestartContainer");
    for (cpu, memory, to, restarts) in [
        (no, no, [25, 25, 25, 25], false),
        (yes, no, [25, 25, 20, 20], true),
        (yes, no, [20, 20, 25, 25], false),
        (no, yes, [20, 20, 25, 25], true),
        (no, yes, [25, 25, 20, 20], false),
        (yes, yes, [15, 15, 25, 25], true),
    ] {
        let policy = policy(cpu, memory);
        for own in [None, Some([20, 20, 20, 20])] {
            // With the pod's own resources, a container without any is as little spared.
            let of = |amounts: Amounts| match own {
                None => pod(None, &[amounts], &policy),
                Some(_) => pod(Some(amounts), &[[0; 4]], &policy),
            };
            let (before, after) = (of([20, 20, 20, 20]), of(to));
            let observed = running(&before);
            let mut resizes = Resizes::default();
            resizes.meet(&before, &observed);
            resizes.grant(&after).unwrap_err();
            let anew = resizes.restarts(&after, &observed).len();
            let in_place = resizes.unfinished(&after, &observed).len();
            assert_eq!((anew, in_place), (restarts.into(), (!restarts).into()), "{policy} {to:?} {own:?}");
        }
    }
}

#[test]
fn memory_in_use_is_not_cut() {
    let used = |pod, container: u64| {
        let (before, after) = (pod_of(30), pod_of(20));
        let observed = running(&before);
        let mut resizes = Resizes::default();
        resizes.meet(&before, &observed);
        resizes.grant(&after).unwrap_err();
        let containers = resizes.unfinished(&after, &observed);
        let of = |id: &str| (id == "c1").then_some(container << 20);
        below_use(&limits(&before), &limits(&after), &containers, &Used { pod, containers: &of })
    };
    fn pod_of(memory: i64) -> Arc<Pod> {
        pod(None, &[[20, 20, memory, memory]], &json!([]))
    }
    assert_eq!(used(Some(10 << 20), 10), None);
    assert_eq!(
        used(Some(10 << 20), 20).unwrap(),
        "cannot decrease memory limits: attempting to set container \"c1\" memory limit (20971520) below current usage (20971520)"
    );
    assert_eq!(
        used(Some(25 << 20), 21).unwrap(),
        "cannot decrease memory limits: [attempting to set pod memory limit (20971520) below current usage (26214400), \
         attempting to set container \"c1\" memory limit (20971520) below current usage (22020096)]"
    );
    assert_eq!(used(None, 0), None, "what is not known is the runtime's to refuse");
    let (before, after) = (pod_of(20), pod_of(30));
    let more = Used { pod: Some(40 << 20), containers: &|_| Some(40 << 20) };
    assert_eq!(below_use(&limits(&before), &limits(&after), &[], &more), None, "what grows cuts nothing");
}
