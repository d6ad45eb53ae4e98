use super::*;
use crate::plugins::testing::{pod, snapshot};
use serde_json::json;

const ZONE: &str = "zone";

fn nodes() -> Vec<Value> {
    let node =
        |name: &str, zone: &str| json!({"metadata": {"name": name, "labels": {"zone": zone, "host": name}}});
    vec![node("a1", "a"), node("a2", "a"), node("b1", "b"), json!({"metadata": {"name": "bare"}})]
}

fn term(app: &str, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key})
}

fn required(kind: &str, terms: Value) -> Value {
    json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

fn preferred(kind: &str, weight: i64, term: Value) -> Value {
    json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": weight, "podAffinityTerm": term}]}})
}

fn make(name: &str, namespace: &str, node: Option<&str>, app: &str, affinity: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [], "affinity": affinity}})
}

fn placed(name: &str, node: &str, app: &str) -> Value {
    make(name, "default", Some(node), app, Value::Null)
}

fn incoming(app: &str, affinity: Value) -> PodInfo {
    pod(make("new", "default", None, app, affinity))
}

struct Namespaces;

impl Cluster for Namespaces {
    fn namespaces(&self) -> Vec<(String, Arc<BTreeMap<String, String>>)> {
        let team = BTreeMap::from([("team".to_owned(), "x".to_owned())]);
        vec![("other".to_owned(), Arc::new(team)), ("default".to_owned(), Arc::default())]
    }
    fn namespace_labels(&self, name: &str) -> Option<Arc<BTreeMap<String, String>>> {
        self.namespaces().into_iter().find(|(n, _)| n == name).map(|(_, labels)| labels)
    }
}

fn plugin() -> InterPodAffinity {
    InterPodAffinity::new(&Handle::with(Arc::new(Namespaces)), &json!({})).expect("arguments")
}

fn passing(pod: &PodInfo, pods: &[Value]) -> Vec<String> {
    let (snapshot, plugin, mut state) = (snapshot(&nodes(), pods), plugin(), CycleState::default());
    if plugin.pre_filter(&mut state, pod, &snapshot) == Status::Skip {
        return vec!["skipped".to_owned()];
    }
    let passes = |n: &&NodeInfo| plugin.filter(&state, pod, n).is_success();
    snapshot.nodes().filter(passes).map(|n| n.name.clone()).collect()
}

#[test]
fn affinity_needs_a_friend_in_the_topology() {
    let friendly = incoming("web", required("podAffinity", json!([term("db", ZONE)])));
    assert_eq!(passing(&friendly, &[placed("p", "a1", "db")]), ["a1", "a2"]);
    assert_eq!(passing(&friendly, &[]), [""; 0]);
    let both = json!([term("db", ZONE), {"labelSelector": {"matchExpressions":
        [{"key": "app", "operator": "Exists"}]}, "topologyKey": "host"}]);
    let both = incoming("web", required("podAffinity", both));
    assert_eq!(passing(&both, &[placed("p", "a1", "db")]), ["a1"]);
}

#[test]
fn the_first_of_its_kind_may_go_anywhere_with_the_label() {
    let own = incoming("web", required("podAffinity", json!([term("web", ZONE)])));
    assert_eq!(passing(&own, &[]), ["a1", "a2", "b1"]);
    assert_eq!(passing(&own, &[placed("p", "b1", "web")]), ["b1"]);
}

#[test]
fn anti_affinity_keeps_away_in_both_directions() {
    let shy = incoming("web", required("podAntiAffinity", json!([term("web", ZONE)])));
    assert_eq!(passing(&shy, &[placed("p", "a1", "web")]), ["b1", "bare"]);
    let theirs =
        make("p", "default", Some("a1"), "db", required("podAntiAffinity", json!([term("web", ZONE)])));
    assert_eq!(passing(&incoming("web", Value::Null), std::slice::from_ref(&theirs)), ["b1", "bare"]);
    assert_eq!(passing(&incoming("mail", Value::Null), &[theirs]), ["skipped"]);
}

#[test]
fn namespaces_are_ones_own_named_or_selected() {
    let elsewhere = make("p", "other", Some("a1"), "db", Value::Null);
    let mut wanted = term("db", ZONE);
    let passing = |term: &Value| {
        passing(&incoming("web", required("podAffinity", json!([term]))), std::slice::from_ref(&elsewhere))
    };
    assert_eq!(passing(&wanted), [""; 0]);
    wanted["namespaces"] = json!(["other"]);
    assert_eq!(passing(&wanted), ["a1", "a2"]);
    wanted["namespaces"] = json!([]);
    wanted["namespaceSelector"] = json!({"matchLabels": {"team": "x"}});
    assert_eq!(passing(&wanted), ["a1", "a2"]);
    wanted["namespaceSelector"] = json!({});
    assert_eq!(passing(&wanted), ["a1", "a2"]);
    wanted["namespaceSelector"] = json!({"matchLabels": {"team": "y"}});
    assert_eq!(passing(&wanted), [""; 0]);
}

#[test]
fn label_keys_narrow_the_selector() {
    let mut wanted = json!({"labelSelector": {}, "topologyKey": ZONE, "matchLabelKeys": ["app"]});
    let passing = |term: &Value| {
        let shy = incoming("web", required("podAntiAffinity", json!([term])));
        passing(&shy, &[placed("p", "a1", "web"), placed("q", "b1", "db")])
    };
    assert_eq!(passing(&wanted), ["b1", "bare"]);
    wanted["matchLabelKeys"] = Value::Null;
    wanted["mismatchLabelKeys"] = json!(["app"]);
    assert_eq!(passing(&wanted), ["a1", "a2", "bare"]);
}

#[test]
fn what_comes_wakes_a_skipped_filter_and_what_goes_is_undone() {
    let (snapshot, plugin, mut state) = (snapshot(&nodes(), &[]), plugin(), CycleState::default());
    let plain = incoming("web", Value::Null);
    assert_eq!(plugin.pre_filter(&mut state, &plain, &snapshot), Status::Skip);
    state.skip_filter(NAME);
    let own = incoming("web", required("podAntiAffinity", json!([term("web", ZONE)])));
    plugin.pre_filter(&mut state, &own, &snapshot);
    let a1 = snapshot.node_named("a1").expect("a node");
    let other = pod(placed("p", "a1", "web"));
    plugin.add_pod(&mut state, &own, &other, a1);
    assert!(state.filters(NAME));
    assert!(!plugin.filter(&state, &own, a1).is_success());
    plugin.remove_pod(&mut state, &own, &other, a1);
    assert!(plugin.filter(&state, &own, a1).is_success());
}

#[test]
fn an_unknown_topology_makes_the_state_expire() {
    let (snapshot, plugin, mut state) = (snapshot(&nodes(), &[]), plugin(), CycleState::default());
    let plain = incoming("web", Value::Null);
    plugin.pre_filter(&mut state, &plain, &snapshot);
    let theirs =
        pod(make("p", "default", Some("a1"), "db", required("podAntiAffinity", json!([term("web", ZONE)]))));
    plugin.add_pod(&mut state, &plain, &theirs, snapshot.node_named("a1").expect("a node"));
    assert!(state.has_expired());
}

fn scores(arguments: Value, pod: &PodInfo, pods: &[Value]) -> Vec<i64> {
    let snapshot = snapshot(&nodes(), pods);
    let plugin = InterPodAffinity::new(&Handle::offline(), &arguments).expect("arguments");
    let mut state = CycleState::default();
    if plugin.pre_score(&mut state, pod, &snapshot, snapshot.order()) == Status::Skip {
        return Vec::new();
    }
    let names = ["a1", "a2", "b1", "bare"].map(|n| snapshot.node_named(n).expect("a node"));
    let raw = |n: &NodeInfo| NodeScore { node: n.slot, score: plugin.score(&state, pod, n) };
    let mut scores = names.map(raw);
    plugin.normalize(&state, pod, &mut scores);
    scores.map(|s| s.score).to_vec()
}

#[test]
fn preferences_of_both_sides_score() {
    let likes = incoming("web", preferred("podAffinity", 10, term("db", ZONE)));
    assert_eq!(scores(json!({}), &likes, &[placed("p", "a1", "db")]), [100, 100, 0, 0]);
    let dislikes = incoming("web", preferred("podAntiAffinity", 10, term("db", ZONE)));
    assert_eq!(scores(json!({}), &dislikes, &[placed("p", "a1", "db")]), [0, 0, 100, 100]);
    let plain = incoming("web", Value::Null);
    let theirs = make("p", "default", Some("b1"), "db", preferred("podAffinity", 5, term("web", ZONE)));
    assert_eq!(scores(json!({}), &plain, std::slice::from_ref(&theirs)), [0, 0, 100, 0]);
    let shunning = make("p", "default", Some("b1"), "db", preferred("podAntiAffinity", 5, term("web", ZONE)));
    assert_eq!(scores(json!({}), &plain, std::slice::from_ref(&shunning)), [100, 100, 0, 100]);
    let ignoring = json!({"ignorePreferredTermsOfExistingPods": true});
    assert_eq!(scores(ignoring, &plain, &[theirs]), [0; 0]);
    let hard = make("p", "default", Some("b1"), "db", required("podAffinity", json!([term("web", ZONE)])));
    assert_eq!(scores(json!({}), &plain, std::slice::from_ref(&hard)), [0, 0, 100, 0]);
    assert_eq!(scores(json!({"hardPodAffinityWeight": 0}), &plain, &[hard]), [0; 0]);
    assert!(InterPodAffinity::new(&Handle::offline(), &json!({"hardPodAffinityWeight": 101})).is_err());
}
