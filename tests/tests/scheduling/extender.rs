//! Extenders over HTTPS: what they decide, and what becomes of pods while one is unwell.

use super::configuration::map;
use super::{pod, priorities};
use coracle_tests::hook::{Call, Told};
use coracle_tests::{Cluster, Hook};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An extender that does not want sim-0 and prefers sim-2, unless its mood is another.
struct Moody {
    hook: Hook,
    mood: Arc<Mutex<&'static str>>,
}

/// Longer than the extender has time.
const SLOW: Duration = Duration::from_secs(2);

fn decide(call: &Call) -> Value {
    let names = call.body["NodeNames"].as_array().cloned().unwrap_or_default();
    if call.route().ends_with("/prioritize") {
        let score = |name: &Value| json!({"Host": name, "Score": if name == "sim-2" { 10 } else { 0 }});
        return names.iter().map(score).collect();
    }
    let left: Vec<&Value> = names.iter().filter(|name| *name != "sim-0").collect();
    json!({"NodeNames": left, "FailedNodes": {"sim-0": "reserved"}})
}

impl Moody {
    fn start() -> Self {
        let mood = Arc::new(Mutex::new("fine"));
        let shared = mood.clone();
        let hook = Hook::start(move |call| match *shared.lock().expect("a mood") {
            "full" => {
                let nodes = ["sim-0", "sim-1", "sim-2"].map(|name| (name.to_owned(), json!("too loud")));
                let failed: serde_json::Map<String, Value> = nodes.into_iter().collect();
                Told::json(200, &json!({"NodeNames": [], "FailedNodes": failed}))
            }
            "unwell" => Told::json(200, &json!({"Error": "the extender is unwell"})),
            "garbage" => Told::text(200, "<html>"),
            "broken" => Told::text(500, "boom"),
            "slow" => {
                std::thread::sleep(SLOW);
                Told::json(200, &decide(call))
            }
            _ => Told::json(200, &decide(call)),
        });
        Self { hook, mood }
    }

    fn feel(&self, mood: &'static str) {
        *self.mood.lock().expect("a mood") = mood;
    }

    /// A cluster whose profile `picky` asks it.
    fn cluster(&self, ignorable: bool) -> Cluster {
        let cluster = priorities(3);
        cluster.apply(&map(&format!(
            "profiles:\n- schedulerName: default-scheduler\n- schedulerName: picky\nextenders:\n- urlPrefix: {}\n  \
             filterVerb: filter\n  prioritizeVerb: prioritize\n  weight: 5\n  httpTimeout: 700ms\n  nodeCacheCapable: true\n  \
             ignorable: {ignorable}\n  tlsConfig: {{caData: {}}}\n",
            self.hook.url("/extend"),
            self.hook.bundle()
        )));
        cluster
    }
}

fn picky(name: &str) -> String {
    pod(name, "low-priority", "1", "  schedulerName: picky\n")
}

#[test]
fn an_extender_chooses_and_whatever_is_wrong_with_it_is_told() {
    let extender = Moody::start();
    let cluster = extender.cluster(false);
    cluster.apply(&picky("fine"));
    cluster.ok("kubectl wait pod/fine --for=condition=Ready --timeout=100s");
    cluster.says("kubectl get pod fine -o jsonpath='{.spec.nodeName}'", "sim-2");
    let failed = format!("failed filter with extender at URL {}", extender.hook.url("/extend/filter"));
    let moods = [
        (
            "full",
            "0/3 nodes are available: 3 too loud. no new claims to deallocate, preemption: 0/3 nodes are available: \
             3 No preemption victims found for incoming pod."
                .to_owned(),
        ),
        ("unwell", "the extender is unwell".to_owned()),
        ("garbage", format!("{failed}: the answer is not JSON: ")),
        ("broken", format!("{failed}, code 500")),
        ("slow", format!("{failed}: no answer within 700ms")),
    ];
    for (mood, words) in moods {
        extender.feel(mood);
        cluster.apply(&picky(mood));
        cluster.until_that(
            &format!("kubectl get pod {mood} -o jsonpath='{{.status.conditions[?(@.type==\"PodScheduled\")].message}}'"),
            |text| text.starts_with(&words),
        );
    }
    extender.feel("full");
    let why =
        cluster.run(&format!("{} why full --kubeconfig $KUBECONFIG", coracle_tests::coracle().display()));
    assert_eq!(why.code, 1, "{why}");
    assert!(why.stdout.contains("sim-2: does not fit\n  Extender: too loud\n"), "{why}");
    extender.feel("fine");
    let why =
        cluster.run(&format!("{} why full --kubeconfig $KUBECONFIG", coracle_tests::coracle().display()));
    assert!(why.stdout.contains("sim-0: does not fit\n  Extender: reserved\n"), "{why}");
    assert!(why.stdout.contains("  Extender                           500 x 1 = 500"), "{why}");
    cluster.ok("kubectl wait pod --all --for=condition=Ready --timeout=100s");
    cluster
        .says("kubectl get pods -o jsonpath='{.items[*].spec.nodeName}' | tr ' ' '\\n' | sort -u", "sim-2");
}

#[test]
fn pods_do_without_an_extender_that_may_be_ignored() {
    let extender = Moody::start();
    let cluster = extender.cluster(true);
    for mood in ["fine", "unwell", "garbage", "broken", "slow"] {
        extender.feel(mood);
        cluster.apply(&picky(mood));
        cluster.ok(&format!("kubectl wait pod/{mood} --for=condition=Ready --timeout=100s"));
    }
    // Its refusals count all the same.
    extender.feel("full");
    cluster.apply(&picky("full"));
    cluster.until_that(
        "kubectl get pod full -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].message}'",
        |text| text.starts_with("0/3 nodes are available: 3 too loud."),
    );
}
