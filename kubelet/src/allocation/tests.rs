use super::*;
use crate::placement::cpus::Options;
use crate::placement::machine::made;
use crate::placement::topology;
use serde_json::{Value, json};

fn settings(policy: Policy, scope: Scope) -> Settings {
    let topology = topology::Settings { policy, scope, ..topology::Settings::default() };
    let kept = [("memory".to_owned(), 1 << 30)].into();
    let reserved_memory = [(0, kept)].into();
    Settings {
        cpus: Some(Options::default()),
        memory: true,
        reserved_memory,
        topology,
        ..Settings::default()
    }
}

fn open(root: &Path, settings: Settings, machine: Machine) -> Result<Allocation, AllocationError> {
    let tell: Tell = Arc::new(|_: &str| {});
    Allocation::open(Parts {
        root,
        settings,
        machine,
        reserved_cpu_millis: 500,
        reserved_memory_bytes: 1 << 30,
        tell,
        metrics: crate::metrics::Metrics::default(),
    })
}

fn pod(uid: &str, init: &[(&str, &str)], containers: &[(&str, &str)]) -> Pod {
    let container = |at: usize, (cpu, memory): &(&str, &str)| {
        let amounts = json!({ "cpu": cpu, "memory": memory });
        json!({ "name": format!("c{at}"), "resources": { "limits": amounts, "requests": amounts } })
    };
    let all = |list: &[(&str, &str)], from: usize| -> Vec<Value> {
        list.iter().enumerate().map(|(at, one)| container(at + from, one)).collect()
    };
    let spec = json!({ "initContainers": all(init, 10), "containers": all(containers, 0) });
    serde_json::from_value(json!({ "metadata": { "uid": uid }, "spec": spec })).unwrap()
}

/// Whether the page has this sample.
fn counts(all: &Allocation, family: &str, scope: &str, boundary: &str, count: u32) -> bool {
    let mut page = coracle_metrics::Text::default();
    all.metrics.render(&mut page);
    let family = format!("kubelet_container_aligned_compute_resources_{family}");
    let line = format!("{family}{{scope=\"{scope}\",boundary=\"{boundary}\"}} {count}");
    page.finish().lines().any(|written| written == line)
}

fn shown(all: &Allocation, uid: &str, name: &str) -> (String, String) {
    let given = all.of_container(uid, name);
    (given.cpus.unwrap_or_default().to_string(), given.memory_nodes.unwrap_or_default().to_string())
}

#[tokio::test]
async fn cpus_and_memory_are_of_one_node() {
    let dir = tempfile::tempdir().unwrap();
    let machine = || made(2, 1, 4, 2);
    let all = open(dir.path(), settings(Policy::SingleNumaNode, Scope::Container), machine()).unwrap();
    // Node 0 has 7 GiB to give, and its first core is reserved.
    let pods = pod("a", &[("2", "6Gi")], &[("2", "6Gi"), ("4", "7Gi"), ("100m", "1Gi")]);
    assert_eq!(all.place(&pods, false).await, Ok(true));
    assert_eq!(shown(&all, "a", "c10"), ("1,9".to_owned(), "0".to_owned()));
    assert_eq!(shown(&all, "a", "c0"), ("1,9".to_owned(), "0".to_owned()), "what the init container had");
    assert_eq!(shown(&all, "a", "c1"), ("4-5,12-13".to_owned(), "1".to_owned()));
    assert_eq!(shown(&all, "a", "c2"), ("0,2-3,6-8,10-11,14-15".to_owned(), "0".to_owned()));
    assert_eq!(all.place(&pods, true).await, Ok(false), "again");
    let wide = all.place(&pod("b", &[], &[("5", "1Gi")]), false).await.unwrap_err();
    assert_eq!(wide, Rejection::disagreement());
    assert!(!all.has("b"));
    assert!(counts(&all, "count", "container", "numa_node", 4), "once for each container of the first pod");
    assert!(counts(&all, "failure_count", "container", "numa_node", 1));
    drop(all);
    let all = open(dir.path(), settings(Policy::SingleNumaNode, Scope::Container), machine()).unwrap();
    assert_eq!(shown(&all, "a", "c1"), ("4-5,12-13".to_owned(), "1".to_owned()));
    assert_eq!(all.pods(), ["a", "a"]);
    assert!(all.release("a").await && !all.release("a").await);
    assert_eq!(shown(&all, "x", "c").0, "0-15");
}

#[tokio::test]
async fn a_pod_as_a_whole_is_on_one_node() {
    let dir = tempfile::tempdir().unwrap();
    let all = open(dir.path(), settings(Policy::SingleNumaNode, Scope::Pod), made(2, 1, 4, 2)).unwrap();
    assert_eq!(all.place(&pod("a", &[], &[("3", "1Gi"), ("3", "1Gi")]), false).await, Ok(true));
    let sets = ["c0", "c1"].map(|name| shown(&all, "a", name).0);
    assert_eq!(sets, ["1,8-9", "2-3,10"]);
    let wide = pod("b", &[], &[("5", "1Gi"), ("4", "1Gi")]);
    assert_eq!(all.place(&wide, false).await, Err(Rejection::disagreement()));
    assert!(counts(&all, "count", "pod", "numa_node", 1));
    assert!(counts(&all, "failure_count", "pod", "numa_node", 1));
}

#[tokio::test]
async fn whole_cores_and_shared_caches_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        Options { full_pcpus_only: true, prefer_align_cpus_by_uncorecache: true, ..Options::default() };
    let settings = Settings { cpus: Some(options), ..settings(Policy::None, Scope::Container) };
    // Each node has one cache.
    let all = open(dir.path(), settings, made(2, 1, 4, 2)).unwrap();
    assert_eq!(all.place(&pod("a", &[], &[("2", "1Gi")]), false).await, Ok(true));
    assert_eq!(all.place(&pod("a", &[], &[("2", "1Gi")]), false).await, Ok(false), "again");
    let rejection = all.place(&pod("b", &[], &[("3", "1Gi")]), false).await.unwrap_err();
    assert_eq!(rejection.reason, "SMTAlignmentError");
    assert!(counts(&all, "count", "container", "physical_cpu", 1));
    assert!(counts(&all, "count", "container", "uncore_cache", 1));
    assert!(counts(&all, "failure_count", "container", "physical_cpu", 1));
    assert!(!counts(&all, "count", "container", "numa_node", 1), "the policy makes sure of nothing");
}

#[tokio::test]
async fn what_does_not_fit_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let machine = || made(1, 1, 4, 2);
    let text = |result: Result<Allocation, AllocationError>| {
        let error = result.err().expect("an error");
        coracle_api::error::chain(&error)
    };
    let plain = || settings(Policy::None, Scope::Container);
    let foreign = Settings { reserved_cpus: CpuSet::parse("7-8"), ..plain() };
    assert!(text(open(dir.path(), foreign, machine())).contains("reservedSystemCPUs: 7-8"));
    let few = Settings { reserved_memory: BTreeMap::new(), ..plain() };
    assert!(text(open(dir.path(), few, machine())).contains("the total amount 0 of type \"memory\""));
    let topology = topology::Settings { policy: Policy::Restricted, most_nodes: 1, ..Default::default() };
    let many = Settings { topology, ..plain() };
    assert!(text(open(dir.path(), many, made(2, 1, 4, 2))).contains("more than 1 NUMA Nodes"));
    let all = open(dir.path(), plain(), machine()).unwrap();
    let rejection = all.place(&pod("a", &[], &[("8", "1Gi")]), false).await.unwrap_err();
    assert_eq!(rejection.reason, "UnexpectedAdmissionError");
    assert_eq!(
        rejection.message,
        "Allocate failed due to not enough cpus available to satisfy request: requested=8, available=7, which is unexpected"
    );
    drop(all);
    let other = text(open(dir.path(), Settings::default(), machine()));
    assert!(
        other.contains("configured policy \"none\" differs from state checkpoint policy \"static\""),
        "{other}"
    );
    std::fs::remove_file(dir.path().join("cpu_manager_state")).unwrap();
    std::fs::write(dir.path().join("memory_manager_state"), "{}").unwrap();
    assert!(text(open(dir.path(), plain(), machine())).contains("memory_manager_state is damaged"));
}
