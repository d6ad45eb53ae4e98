use super::*;
use crate::authz::testing::World;
use crate::authz::{Attributes, Decide, Decision};
use coracle_api::UserInfo;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n";

fn mistakes(authorizers: &str) -> Vec<String> {
    Plan::parse(&format!("{HEAD}{authorizers}")).err().unwrap_or_default()
}

fn kubeconfig(dir: &Path) -> String {
    let path = dir.join("kubeconfig");
    let text = "current-context: c\ncontexts: [{ name: c, context: { cluster: a } }]\n\
                clusters: [{ name: a, cluster: { server: 'https://localhost:1' } }]\n";
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn every_mistake_is_told_with_its_field() {
    let all = mistakes(
        "- { type: '', name: a }\n- { type: ABAC, name: abac }\n- { type: Magic, name: b }\n\
         - { type: RBAC, name: roles }\n- { type: RBAC, name: rbac }\n- { type: Node, name: node, webhook: {} }\n\
         - { type: Webhook, name: node }\n\
         - { type: Webhook, name: Not_Good, webhook: { timeout: 31s, authorizedTTL: -1s, unauthorizedTTL: soon,\n    \
         subjectAccessReviewVersion: v2, failurePolicy: Fail, connectionInfo: { type: Magic },\n    \
         matchConditions: [{ expression: '' }, { expression: request.user }, { expression: 'request.user ==' },\n      \
         { expression: request.user }] } }\n",
    );
    for word in [
        "authorizers[0].type: Required value",
        "authorizers[1].type: Invalid value: \"ABAC\": ABAC is not supported by this server",
        "authorizers[2].type: Unsupported value: \"Magic\": supported values: \"AlwaysAllow\", \"AlwaysDeny\", \"Node\"",
        "authorizers[3].name: Invalid value: \"roles\": expected name rbac for authorizer RBAC instead of roles",
        "authorizers[4].type: Duplicate value: \"RBAC\"",
        "authorizers[5].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
        "authorizers[6].name: Duplicate value: \"node\"",
        "authorizers[6].webhook: Required value: required when type=Webhook",
        "authorizers[7].name: Invalid value: \"Not_Good\": authorizer name is invalid: ",
        "authorizers[7].timeout: Invalid value: \"31s\": must be > 0s and <= 30s",
        "authorizers[7].authorizedTTL: Invalid value: \"-1s\": must be > 0s",
        "authorizers[7].unauthorizedTTL: Invalid value: \"soon\": must be > 0s",
        "authorizers[7].subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\"",
        "authorizers[7].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions",
        "authorizers[7].failurePolicy: Unsupported value: \"Fail\"",
        "authorizers[7].connectionInfo.type: Unsupported value: \"Magic\"",
        "authorizers[7].matchConditions[0].expression: Required value",
        "authorizers[7].matchConditions[1].expression: Invalid value: \"request.user\": must evaluate to bool",
        "authorizers[7].matchConditions[2].expression: Invalid value: \"request.user ==\": compilation failed",
        "authorizers[7].matchConditions[3].expression: Duplicate value: \"request.user\"",
    ] {
        assert!(all.iter().any(|mistake| mistake.starts_with(word)), "{word} is missing from {all:#?}");
    }
    assert_eq!(all.len(), 20, "{all:#?}");
}

#[test]
fn what_must_be_there_and_what_must_not() {
    assert!(mistakes("  []\n").contains(
        &"authorizers: Required value: at least one authorization mode must be defined".to_owned()
    ));
    let all = mistakes("- { type: Webhook, name: w, webhook: {} }\n");
    let required = ["timeout", "subjectAccessReviewVersion", "failurePolicy", "connectionInfo.type"];
    assert_eq!(all, required.map(|field| format!("authorizers[0].{field}: Required value")));
    let inside = "- { type: Webhook, name: w, webhook: { timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny";
    let of = |connection: &str| mistakes(&format!("{inside}, connectionInfo: {{ {connection} }} }} }}\n"));
    assert!(of("type: InClusterConfig")[0].contains("is not allowed for kube-apiserver"));
    assert_eq!(of("type: InClusterConfig, kubeConfigFile: /x").len(), 2);
    let file = "authorizers[0].connectionInfo.kubeConfigFile: ";
    for (connection, why) in [
        ("type: KubeConfigFile", "Required value"),
        ("type: KubeConfigFile, kubeConfigFile: x", "Invalid value: \"x\": must be an absolute path"),
        ("type: KubeConfigFile, kubeConfigFile: /none", "Invalid value: \"/none\": error loading file"),
        ("type: KubeConfigFile, kubeConfigFile: /", "Invalid value: \"/\": must be a regular file"),
    ] {
        assert!(of(connection)[0].starts_with(&format!("{file}{why}")), "{:?}", of(connection));
    }
    assert!(mistakes("- { type: RBAC, name: rbac, weebhook: {} }\n")[0].contains("weebhook"));
    assert!(Plan::parse("apiVersion: v1\nkind: AuthorizationConfiguration\n").is_err());
}

#[test]
fn a_good_document_of_each_version() {
    let dir = tempfile::tempdir().unwrap();
    let webhook = format!(
        "- {{ type: Webhook, name: w.example, webhook: {{ timeout: 3s, subjectAccessReviewVersion: v1, \
         failurePolicy: NoOpinion, matchConditionSubjectAccessReviewVersion: v1, connectionInfo: {{ type: KubeConfigFile, \
         kubeConfigFile: {} }}, matchConditions: [{{ expression: has(request.resourceAttributes) }}] }} }}\n",
        kubeconfig(dir.path())
    );
    let other = webhook.replace("w.example", "v.example");
    for version in ["v1", "v1beta1"] {
        let text =
            format!("{HEAD}{webhook}- {{ type: Node, name: node }}\n{other}- {{ type: RBAC, name: rbac }}\n");
        let plan = Plan::parse(&text.replace("k8s.io/v1", &format!("k8s.io/{version}")))
            .unwrap_or_else(|e| panic!("{e:?}"));
        let kinds: Vec<Kind> = plan.0.iter().map(|planned| planned.kind).collect();
        assert_eq!(kinds, [Kind::Webhook, Kind::Node, Kind::Webhook, Kind::Rbac]);
        assert_eq!(plan.local_kinds(), BTreeSet::from([Kind::Node, Kind::Rbac]));
    }
}

#[test]
fn reloading_keeps_the_types_that_are_no_webhooks() {
    let world = World::new();
    let locals = Locals::new(world.clone(), world.generation());
    let both = BTreeSet::from([Kind::Node, Kind::Rbac]);
    let why = |authorizers: &str| reload(&format!("{HEAD}{authorizers}"), &both, &locals).err();
    assert_eq!(why("- { type: RBAC, name: rbac }\n- { type: Node, name: node }\n"), None);
    assert_eq!(why("- { type: RBAC, name: rbac }\n").as_deref(), Some("missing required types: [Node]"));
    let more = "- { type: RBAC, name: rbac }\n- { type: Node, name: node }\n- { type: AlwaysAllow, name: alwaysallow }\n";
    assert!(why(more).unwrap().contains("AlwaysAllow is not allowed if it was not enabled"));
}

#[test]
fn those_who_need_not_think() {
    let world = World::new();
    let locals = Locals::new(world.clone(), world.generation());
    let jane = UserInfo::authenticated("jane", &[]);
    let decide = |modes: &[&str]| {
        let mode = Some(modes.iter().map(|mode| (*mode).to_owned()).collect());
        let chain =
            Flags { mode, ..Flags::default() }.plan().unwrap_or_else(|e| panic!("{e:?}")).chain(&locals);
        chain.begin(&Attributes::path(&jane, "get", "/x")).ok().unwrap().decision
    };
    assert_eq!(decide(&["AlwaysDeny", "AlwaysAllow"]), Decision::Allow(String::new()));
    assert_eq!(decide(&["AlwaysDeny"]), Decision::NoOpinion("Everything is forbidden.".to_owned()));
}
