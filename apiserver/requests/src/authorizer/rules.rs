//! RBAC's rules: matching, covering, and their text.

use super::Attributes;
use coracle_api::Object;
use coracle_api::go::quoted_list;
use serde_json::{Value, json};

/// One `PolicyRule` of rbac.authorization.k8s.io/v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub paths: Vec<String>,
}

/// What a user may do, and what could not be found out.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    pub rules: Vec<Rule>,
    /// Bindings to roles that do not exist.
    pub errors: Vec<String>,
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|i| i == item || i == "*")
}

impl Rule {
    pub fn from_json(rule: &Value) -> Self {
        Self {
            verbs: strings(&rule["verbs"]),
            groups: strings(&rule["apiGroups"]),
            resources: strings(&rule["resources"]),
            resource_names: strings(&rule["resourceNames"]),
            paths: strings(&rule["nonResourceURLs"]),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub fn of_role(role: &Object) -> Vec<Self> {
        let rules = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        rules.iter().map(Self::from_json).collect()
    }

    /// As it stands in a role: empty lists are left out, but for the verbs.
    pub fn to_json(&self) -> Value {
        let mut rule = json!({ "verbs": self.verbs });
        let lists = [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.paths),
        ];
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            rule[name] = json!(list);
        }
        rule
    }

    pub fn allows(&self, asked: &Attributes<'_>) -> bool {
        if !has(&self.verbs, asked.verb) {
            return false;
        }
        if let Some(path) = asked.path {
            return self.paths.iter().any(|p| path_matches(p, path));
        }
        has(&self.groups, asked.group)
            && self.resources.iter().any(|r| resource_matches(r, asked.resource, asked.subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == asked.name))
    }

    /// Whether everything that `part` (from [`Self::parts`]) grants is granted by this rule.
    fn covers(&self, part: &Self) -> bool {
        let all = |ours: &[String], theirs: &[String]| theirs.iter().all(|t| has(ours, t));
        let resources = || {
            part.resources.iter().all(|wanted| {
                let (resource, subresource) = wanted.split_once('/').unwrap_or((wanted, ""));
                self.resources.iter().any(|r| r == wanted || resource_matches(r, resource, subresource))
            })
        };
        let names = || {
            self.resource_names.is_empty()
                || (!part.resource_names.is_empty()
                    && part.resource_names.iter().all(|n| self.resource_names.contains(n)))
        };
        let paths =
            || part.paths.iter().all(|p| self.paths.iter().any(|ours| ours == p || path_matches(ours, p)));
        all(&self.verbs, &part.verbs) && all(&self.groups, &part.groups) && resources() && names() && paths()
    }

    /// The same grants as rules with one verb and one thing each.
    pub fn parts(&self) -> Vec<Self> {
        let mut parts = Vec::new();
        for verb in &self.verbs {
            for path in &self.paths {
                let verbs = vec![verb.clone()];
                parts.push(Self { verbs, paths: vec![path.clone()], ..Self::default() });
            }
            for group in &self.groups {
                for resource in &self.resources {
                    let part = Self {
                        verbs: vec![verb.clone()],
                        groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    let named = |n: &String| Self { resource_names: vec![n.clone()], ..part.clone() };
                    parts.extend(self.resource_names.iter().map(named));
                }
            }
        }
        parts
    }

    /// Upstream's short form: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    pub fn compact(&self) -> String {
        let lists = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let filled = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<String> = filled.map(|(name, list)| format!("{name}:{}", quoted_list(list))).collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// `pods`, `pods/log`, `*`, `*/scale`. A resource may have slashes of its own: audiences of tokens are asked about as resources.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    let parent = rule.strip_suffix(subresource).and_then(|parent| parent.strip_suffix('/'));
    parent.is_some_and(|parent| parent == resource || parent == "*")
}

/// A trailing `*` stands for any rest.
fn path_matches(rule: &str, path: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => rule == path,
    }
}

/// The parts of `wanted` that `owned` does not cover.
pub fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(Rule::parts);
    parts.filter(|part| !owned.iter().any(|o| o.covers(part))).collect()
}

/// Joins rules that differ only in their verbs.
pub fn joined(parts: Vec<Rule>) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    for part in parts {
        let same = |r: &&mut Rule| {
            r.groups == part.groups
                && r.resources == part.resources
                && r.resource_names == part.resource_names
                && r.paths == part.paths
        };
        match out.iter_mut().find(same) {
            Some(rule) => rule
                .verbs
                .extend(part.verbs.into_iter().filter(|v| !rule.verbs.contains(v)).collect::<Vec<_>>()),
            None => out.push(part),
        }
    }
    out
}
