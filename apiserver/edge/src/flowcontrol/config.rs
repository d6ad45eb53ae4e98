//! FlowSchemas and PriorityLevelConfigurations as the filter uses them.

use super::queueset::Mode;
use coracle_api::Object;
use coracle_requests::value::{at, bool_at, i64_at, list_at, str_at, strings_at};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queuing {
    pub queues: u32,
    pub hand_size: u32,
    pub queue_length_limit: u32,
}

/// A priority level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    pub name: String,
    pub uid: String,
    pub mode: Mode,
    pub shares: u32,
    pub lendable_percent: u32,
    /// `None` borrows without limit.
    pub borrowing_percent: Option<u32>,
}

impl Default for Level {
    fn default() -> Self {
        Self {
            name: String::new(),
            uid: String::new(),
            mode: Mode::Reject,
            shares: 0,
            lendable_percent: 0,
            borrowing_percent: None,
        }
    }
}

fn number(object: &Value, path: &str) -> Option<u32> {
    i64_at(object, path).map(|n| u32::try_from(n.max(0)).unwrap_or(u32::MAX))
}

impl Level {
    pub fn parse(object: &Object) -> Self {
        let spec = &object["spec"];
        let exempt = str_at(spec, "type") == "Exempt";
        let part = at(spec, if exempt { "exempt" } else { "limited" });
        let queuing = at(part, "limitResponse.queuing");
        let mode = if exempt {
            Mode::Exempt
        } else if str_at(part, "limitResponse.type") == "Queue" {
            let queues = number(queuing, "queues").unwrap_or(64).max(1);
            Mode::Queue(Queuing {
                queues,
                hand_size: number(queuing, "handSize").unwrap_or(8).clamp(1, queues),
                queue_length_limit: number(queuing, "queueLengthLimit").unwrap_or(50),
            })
        } else {
            Mode::Reject
        };
        Self {
            name: str_at(object, "metadata.name").to_owned(),
            uid: str_at(object, "metadata.uid").to_owned(),
            mode,
            shares: number(part, "nominalConcurrencyShares").unwrap_or(if exempt { 0 } else { 30 }),
            lendable_percent: number(part, "lendablePercent").unwrap_or(0).min(100),
            borrowing_percent: number(part, "borrowingLimitPercent"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    None,
    User,
    Namespace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub namespaces: Vec<String>,
    pub cluster_scope: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonResourceRule {
    pub verbs: Vec<String>,
    pub urls: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub subjects: Vec<Subject>,
    pub resources: Vec<ResourceRule>,
    pub non_resources: Vec<NonResourceRule>,
}

/// A flow schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub name: String,
    pub uid: String,
    pub precedence: i64,
    pub level: String,
    pub distinguisher: Distinguisher,
    pub rules: Vec<Rule>,
}

fn texts(object: &Value, path: &str) -> Vec<String> {
    strings_at(object, path).map(str::to_owned).collect()
}

fn subject(object: &Value) -> Option<Subject> {
    let text = |path: &str| str_at(object, path).to_owned();
    Some(match str_at(object, "kind") {
        "User" => Subject::User(text("user.name")),
        "Group" => Subject::Group(text("group.name")),
        "ServiceAccount" => Subject::ServiceAccount {
            namespace: text("serviceAccount.namespace"),
            name: text("serviceAccount.name"),
        },
        _ => return None,
    })
}

fn rule(object: &Value) -> Rule {
    let resource = |rule: &Value| ResourceRule {
        verbs: texts(rule, "verbs"),
        groups: texts(rule, "apiGroups"),
        resources: texts(rule, "resources"),
        namespaces: texts(rule, "namespaces"),
        cluster_scope: bool_at(rule, "clusterScope"),
    };
    let other =
        |rule: &Value| NonResourceRule { verbs: texts(rule, "verbs"), urls: texts(rule, "nonResourceURLs") };
    Rule {
        subjects: list_at(object, "subjects").iter().filter_map(subject).collect(),
        resources: list_at(object, "resourceRules").iter().map(resource).collect(),
        non_resources: list_at(object, "nonResourceRules").iter().map(other).collect(),
    }
}

impl Schema {
    pub fn parse(object: &Object) -> Self {
        let spec = &object["spec"];
        Self {
            name: str_at(object, "metadata.name").to_owned(),
            uid: str_at(object, "metadata.uid").to_owned(),
            precedence: i64_at(spec, "matchingPrecedence").unwrap_or(1000),
            level: str_at(spec, "priorityLevelConfiguration.name").to_owned(),
            distinguisher: match str_at(spec, "distinguisherMethod.type") {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: list_at(spec, "rules").iter().map(rule).collect(),
        }
    }
}
