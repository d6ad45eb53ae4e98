use super::*;
use crate::framework::Point;
use serde_json::{Value, json};

fn parse(extra: Value) -> Result<Parsed, Mistakes> {
    let mut value =
        json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
    json_patch::merge(&mut value, &extra);
    Config::parse(&value.to_string(), &Registry::in_tree())
}

fn names(config: &Config, point: Point) -> Vec<&str> {
    config.profiles[0].plugins[&point].iter().map(|(name, _)| name.as_str()).collect()
}

fn weight(config: &Config, name: &str) -> Option<i64> {
    config.profiles[0].plugins[&Point::Score].iter().find(|(n, _)| n == name).map(|(_, w)| *w)
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(parse(json!({})).expect("a configuration").config, Config::default());
    let config = Config::default();
    assert_eq!(names(&config, Point::QueueSort), ["PrioritySort"]);
    assert_eq!(names(&config, Point::PostFilter), ["DynamicResources", "DefaultPreemption"]);
    assert_eq!(weight(&config, "TaintToleration"), Some(3));
    assert_eq!(weight(&config, "PodTopologySpread"), Some(2));
}

#[test]
fn the_owners_profile_is_understood() {
    let text = "
apiVersion: kubescheduler.config.k8s.io/v1beta3
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins:
    score:
      enabled:
      - name: NodeResourcesFit
        weight: 1
      - name: NodeAffinity
        weight: 5
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: LeastAllocated
";
    let parsed = Config::parse(text, &Registry::in_tree()).expect("a configuration");
    assert_eq!(parsed.config.profiles[0].scheduler_name, "custom-scheduler");
    assert_eq!(weight(&parsed.config, "NodeAffinity"), Some(5));
    assert_eq!(weight(&parsed.config, "TaintToleration"), Some(3));
    assert_eq!(
        parsed.warnings,
        ["kubescheduler.config.k8s.io/v1beta3 is converted to kubescheduler.config.k8s.io/v1"]
    );
}

#[test]
fn old_names_are_translated_and_said_so() {
    let enabled = json!([
        {"name": "LeastRequestedPriority", "weight": 2}, {"name": "BalancedResourceAllocation", "weight": 4},
        {"name": "NodePreferAvoidPods", "weight": 10000}, {"name": "SelectorSpread", "weight": 1},
        {"name": "VolumeBinding", "weight": 1}]);
    let parsed = parse(json!({"profiles": [{"plugins": {"score": {"enabled": enabled}}}]}));
    let parsed = parsed.expect("a configuration");
    assert_eq!(weight(&parsed.config, "NodeResourcesFit"), Some(2));
    assert_eq!(weight(&parsed.config, "NodeResourcesBalancedAllocation"), Some(4));
    assert_eq!(weight(&parsed.config, "TaintToleration"), Some(3), "its weight means something else");
    assert_eq!(weight(&parsed.config, "PodTopologySpread"), Some(1));
    assert_eq!(parsed.warnings.len(), 4, "{:#?}", parsed.warnings);
    let text = &parsed.warnings[0];
    assert!(text.starts_with(
        "profiles[0].plugins.score.enabled[0].name: LeastRequestedPriority is NodeResourcesFit now"
    ));
    let most = json!([{"name": "NodeResourcesMostAllocated"}]);
    let parsed = parse(json!({"profiles": [{"plugins": {"score": {"enabled": most}}}]}));
    let config = parsed.expect("a configuration").config;
    assert_eq!(
        config.profiles[0].arguments["NodeResourcesFit"],
        json!({"scoringStrategy": {"type": "MostAllocated"}})
    );
}

#[test]
fn disabling_an_old_plugin_takes_nothing_else_away() {
    let disabled = |names: &[&str]| {
        let names: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let plugins = json!({"score": {"disabled": names}});
        parse(json!({"profiles": [{"plugins": plugins}]})).expect("a configuration")
    };
    let parsed = disabled(&["NodePreferAvoidPods", "SelectorSpread"]);
    assert_eq!(weight(&parsed.config, "TaintToleration"), Some(3));
    assert_eq!(weight(&parsed.config, "PodTopologySpread"), Some(2));
    let arguments = &parsed.config.profiles[0].arguments;
    assert_eq!(arguments["PodTopologySpread"], json!({"defaultingType": "List"}));
    assert_eq!(
        parsed.warnings,
        [
            "profiles[0].plugins.score.disabled[0].name: NodePreferAvoidPods is gone: there is nothing to disable",
            "profiles[0].plugins.score.disabled[1].name: SelectorSpread is part of PodTopologySpread now, which gets the \
             arguments {\"defaultingType\":\"List\"}",
        ]
    );
    let parsed = disabled(&["BalancedResourceAllocation"]);
    assert_eq!(weight(&parsed.config, "NodeResourcesBalancedAllocation"), None, "only its name is another");
}

#[test]
fn arguments_of_old_plugins_are_those_of_their_successor() {
    let shape = json!([{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]);
    let resources = json!([{"name": "example.com/gpu", "weight": 3}]);
    let args = json!({"shape": shape, "resources": resources});
    let config = |name: &str, args: &Value| {
        parse(json!({"profiles": [{"pluginConfig": [{"name": name, "args": args}]}]}))
            .map(|parsed| parsed.config.profiles[0].arguments["NodeResourcesFit"].clone())
    };
    assert_eq!(
        config("RequestedToCapacityRatio", &args).expect("converted"),
        json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "resources": resources,
            "requestedToCapacityRatio": {"shape": shape}}})
    );
    assert_eq!(
        config("NodeResourcesMostAllocated", &json!({"resources": resources})).expect("converted"),
        json!({"scoringStrategy": {"type": "MostAllocated", "resources": resources}})
    );
    let unknown =
        config("NodeResourcesMostAllocated", &json!({"shpae": 1})).expect_err("refused").to_string();
    assert_eq!(unknown, "profiles[0].pluginConfig[0].args.shpae: Forbidden: unknown field");
}

#[test]
fn points_are_enabled_and_disabled_alone_and_all_at_once() {
    let plugins =
        json!({"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "ImageLocality", "weight": 7}]}});
    let config = parse(json!({"profiles": [{"plugins": plugins}]})).expect("a configuration").config;
    assert_eq!(config.profiles[0].plugins[&Point::Score], [("ImageLocality".to_owned(), 7)]);
    assert!(names(&config, Point::Filter).contains(&"NodeResourcesFit"));
    let plugins = json!({"multiPoint": {"disabled": [{"name": "InterPodAffinity"}]}});
    let config = parse(json!({"profiles": [{"plugins": plugins}]})).expect("a configuration").config;
    assert!(!names(&config, Point::Filter).contains(&"InterPodAffinity"));
    assert!(!names(&config, Point::Score).contains(&"InterPodAffinity"));
    let plugins = json!({"multiPoint": {"disabled": [{"name": "*"}], "enabled":
        [{"name": "PrioritySort"}, {"name": "NodeResourcesFit"}, {"name": "DefaultBinder"}]}});
    let config = parse(json!({"profiles": [{"plugins": plugins}]})).expect("a configuration").config;
    assert_eq!(names(&config, Point::Filter), ["NodeResourcesFit"]);
    assert_eq!(names(&config, Point::PostFilter), [""; 0]);
}

#[test]
fn a_point_orders_its_plugins_by_itself() {
    let plugins = json!({"filter": {"enabled": [{"name": "NodeResourcesFit"}, {"name": "NodeName"}]}});
    let config = parse(json!({"profiles": [{"plugins": plugins}]})).expect("a configuration").config;
    let filters = names(&config, Point::Filter);
    assert_eq!(filters[..3], ["NodeResourcesFit", "NodeName", "NodeUnschedulable"]);
    assert_eq!(filters.iter().filter(|n| **n == "NodeName").count(), 1);
}

#[test]
fn the_older_weights_of_v1beta2_are_kept() {
    let parsed =
        parse(json!({"apiVersion": "kubescheduler.config.k8s.io/v1beta2"})).expect("a configuration");
    assert_eq!(weight(&parsed.config, "TaintToleration"), Some(1));
}

#[test]
fn several_profiles_sort_alike_and_have_names_of_their_own() {
    let two = |b: Value| json!({"profiles": [{"schedulerName": "a"}, b]});
    assert_eq!(parse(two(json!({"schedulerName": "b"}))).expect("two").config.profiles.len(), 2);
    let twice = parse(two(json!({"schedulerName": "a"}))).expect_err("refused").to_string();
    assert_eq!(twice, "profiles[1].schedulerName: Duplicate value: \"profiles[0].schedulerName\"");
    let unsorted = json!({"schedulerName": "b", "plugins": {"queueSort": {"disabled": [{"name": "*"}]}}});
    let unsorted = parse(two(unsorted)).expect_err("refused").to_string();
    assert!(
        unsorted.contains("profiles[1].plugins.queueSort: Invalid value: has to match for all profiles"),
        "{unsorted}"
    );
}

#[test]
fn every_mistake_is_told_with_its_path() {
    let wrong = json!({
        "parallelism": 0, "percentageOfNodesToScore": 101, "podInitialBackoffSeconds": 5,
        "podMaxBackoffSeconds": 1, "porfiles": [],
        "leaderElection": {"resourceLock": "endpoints"},
        "profiles": [{
            "plugins": {"score": {"enabled": [{"name": "Nothing"}, {"name": "NodeAffinity", "wight": 1}]}, "filters": {}},
            "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Best"}}},
                {"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 200}}],
        }],
        "extenders": [{"urlPrefix": "ftp://x", "prioritizeVerb": "rate", "bindVerb": "b"},
            {"urlPrefix": "http://y", "bindVerb": "b", "httpTimeout": "soon"}],
    });
    let mistakes = parse(wrong).expect_err("refused");
    let told: Vec<String> = mistakes.0.iter().map(ToString::to_string).collect();
    for words in [
        "parallelism: Invalid value: 0",
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        "podMaxBackoffSeconds: Invalid value: 1: must be greater than or equal",
        "porfiles: unknown field \"porfiles\"",
        "leaderElection.resourceLock: Invalid value: \"endpoints\"",
        "profiles[0].plugins.score.enabled[0].name: Not found: \"Nothing\"",
        "profiles[0].plugins.score.enabled[1].wight: unknown field",
        "profiles[0].plugins.filters: unknown field",
        "profiles[0].pluginConfig[0].args.scoringStrategy.type: Unsupported value: \"Best\"",
        "profiles[0].pluginConfig[1].args.minCandidateNodesPercentage: Invalid value: 200",
        "extenders[0].urlPrefix: Invalid value: \"ftp://x\"",
        "extenders[0].weight: Invalid value: 0: must have a positive weight",
        "extenders[1].httpTimeout: Invalid value: \"soon\"",
        "extenders: Invalid value: \"found 2 extenders implementing bind\"",
    ] {
        assert!(told.iter().any(|t| t.starts_with(words)), "{words} in {told:#?}");
    }
    assert_eq!(told.len(), 14, "{told:#?}");
}

#[test]
fn what_cannot_run_is_refused() {
    let plugins = json!({"bind": {"disabled": [{"name": "*"}]}});
    let why = parse(json!({"profiles": [{"plugins": plugins}]})).expect_err("refused").to_string();
    assert_eq!(why, "profiles[0]: profile default-scheduler: at least one bind plugin is needed");
    let plugins = json!({"permit": {"enabled": [{"name": "NodeName"}]}});
    let why = parse(json!({"profiles": [{"plugins": plugins}]})).expect_err("refused").to_string();
    assert!(why.ends_with("plugin NodeName does not extend permit plugin"), "{why}");
    assert!(Config::parse("a: [", &Registry::in_tree()).is_err());
    assert!(parse(json!({"apiVersion": "v1"})).is_err());
    assert!(parse(json!({"kind": "KubeletConfiguration"})).is_err());
}

#[test]
fn resources_of_extenders_are_left_to_them() {
    let extender = json!({"urlPrefix": "http://x", "filterVerb": "f",
        "managedResources": [{"name": "example.com/fpga", "ignoredByScheduler": true}]});
    let config = parse(json!({"extenders": [extender]})).expect("a configuration").config;
    let ignored = &config.profiles[0].arguments["NodeResourcesFit"]["ignoredResources"];
    assert_eq!(ignored, &json!(["example.com/fpga"]));
    let twice = json!({"urlPrefix": "http://x", "managedResources": [{"name": "a.b/c"}, {"name": "a.b/c"}]});
    assert!(parse(json!({"extenders": [twice]})).expect_err("refused").to_string().contains("duplicate"));
}

#[test]
fn the_election_is_as_patient_as_it_is_told() {
    let given = json!({"leaderElection": {"leaseDuration": "1m", "renewDeadline": "40s", "retryPeriod": "500ms",
        "resourceName": "mine", "resourceNamespace": "here"}});
    let election = parse(given).expect("a configuration").config.election;
    let millis =
        [election.lease_duration, election.renew_deadline, election.retry_period].map(|d| d.as_millis());
    assert_eq!(millis, [60_000, 40_000, 500]);
    assert_eq!((election.lease.as_str(), election.namespace.as_str()), ("mine", "here"));
    let wrong =
        json!({"leaderElection": {"leaseDuration": "5s", "renewDeadline": "10s", "retryPeriod": "soon"}});
    let told = parse(wrong).expect_err("mistakes").to_string();
    for words in [
        "leaderElection.leaseDuration: Invalid value: \"5s\": LeaseDuration must be greater than RenewDeadline",
        "leaderElection.retryPeriod: Invalid value: \"soon\": must be a duration such as 15s",
    ] {
        assert!(told.contains(words), "{words} in {told}");
    }
}

#[test]
fn what_is_given_twice_or_empty_is_refused() {
    let twice = json!({"filter": {"enabled": [{"name": "NodeName"}, {"name": "NodeName"}]}});
    let cases = [
        (
            json!({"profiles": [{"plugins": twice}]}),
            "profiles[0].plugins.filter.enabled[1].name: Duplicate value: \"NodeName\"",
        ),
        (json!({"profiles": [{"schedulerName": ""}]}), "profiles[0].schedulerName: Required value"),
        (json!({"parallelism": "many"}), "parallelism: Invalid value: \"many\": must be an integer"),
        (
            json!({"clientConnection": {"burst": -1}}),
            "clientConnection.burst: Invalid value: -1: must be non-negative",
        ),
    ];
    for (config, mistake) in cases {
        assert_eq!(parse(config).expect_err("refused").to_string(), mistake);
    }
}
