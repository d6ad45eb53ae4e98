//! The audit policy: which requests are recorded, and how much of each.

use coracle_api::UserInfo;
use coracle_requests::RequestInfo;
use serde::Deserialize;

/// How much is recorded, from nothing to both bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("read {path}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("audit policy {path}: {why}")]
    Invalid { path: String, why: String },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleFile {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default)]
    rules: Vec<RuleFile>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

/// What is done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub level: Level,
    pub omit_stages: Vec<String>,
    pub omit_managed_fields: bool,
}

#[derive(Debug)]
pub struct Policy {
    rules: Vec<(RuleFile, Rule)>,
    otherwise: Rule,
}

/// What is in force where no policy is given.
const MINIMAL: &str = include_str!("minimal.yaml");

const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];

impl Policy {
    pub fn load(path: &std::path::Path) -> Result<Self, PolicyError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| PolicyError::Read { path: shown.clone(), source })?;
        Self::parse(&text).map_err(|why| PolicyError::Invalid { path: shown, why })
    }

    /// The policy where none is given: changes, secrets and entries into pods, without bodies.
    pub fn minimal() -> Result<Self, PolicyError> {
        Self::parse(MINIMAL).map_err(|why| PolicyError::Invalid { path: "(built in)".to_owned(), why })
    }

    /// YAML or JSON of kind Policy in `audit.k8s.io/v1`. Unknown fields are mistakes, as upstream's strict loader has it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
        if file.api_version != "audit.k8s.io/v1" || file.kind != "Policy" {
            return Err(format!("expected audit.k8s.io/v1 Policy, got {} {}", file.api_version, file.kind));
        }
        if file.rules.is_empty() {
            return Err("it has no rules".to_owned());
        }
        let mut rules = Vec::with_capacity(file.rules.len());
        for (index, rule) in file.rules.into_iter().enumerate() {
            check(&rule).map_err(|why| format!("rules[{index}]: {why}"))?;
            let mut omit_stages = file.omit_stages.clone();
            omit_stages.extend(rule.omit_stages.iter().cloned());
            if let Some(stage) = omit_stages.iter().find(|s| !STAGES.contains(&s.as_str())) {
                return Err(format!("unknown stage {stage:?}"));
            }
            let effect = Rule {
                level: rule.level,
                omit_stages,
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(file.omit_managed_fields),
            };
            rules.push((rule, effect));
        }
        let otherwise = Rule {
            level: Level::None,
            omit_stages: Vec::new(),
            omit_managed_fields: file.omit_managed_fields,
        };
        Ok(Self { rules, otherwise })
    }

    /// The first rule that matches; nothing is recorded where none does.
    pub fn decide(&self, user: &UserInfo, info: &RequestInfo) -> &Rule {
        let found = self.rules.iter().find(|(rule, _)| rule.matches(user, info));
        found.map_or(&self.otherwise, |(_, effect)| effect)
    }
}

fn check(rule: &RuleFile) -> Result<(), String> {
    let about_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
    if about_resources && !rule.non_resource_urls.is_empty() {
        return Err("rules cannot apply to both regular resources and non-resource URLs".to_owned());
    }
    for url in &rule.non_resource_urls {
        let stars = url.matches('*').count();
        if url != "*" && (!url.starts_with('/') || stars > 1 || (stars == 1 && !url.ends_with('*'))) {
            return Err(format!("nonResourceURLs: {url:?} must begin with / and may only end with *"));
        }
    }
    for resources in &rule.resources {
        if !resources.resource_names.is_empty() && resources.resources.is_empty() {
            return Err("resourceNames requires at least one resource".to_owned());
        }
    }
    Ok(())
}

fn lists(values: &[String], wanted: &str) -> bool {
    values.is_empty() || values.iter().any(|value| value == wanted)
}

impl RuleFile {
    fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        let groups = self.user_groups.is_empty() || self.user_groups.iter().any(|group| user.in_group(group));
        if !groups || !lists(&self.users, &user.name) || !lists(&self.verbs, info.verb) {
            return false;
        }
        if !self.resources.is_empty() || !self.namespaces.is_empty() {
            return info.is_resource && self.matches_resource(info);
        }
        if !self.non_resource_urls.is_empty() {
            return !info.is_resource && self.non_resource_urls.iter().any(|url| covers(url, &info.path));
        }
        true
    }

    fn matches_resource(&self, info: &RequestInfo) -> bool {
        if !lists(&self.namespaces, &info.namespace) {
            return false;
        }
        self.resources.is_empty()
            || self.resources.iter().any(|one| {
                (one.group == "*" || one.group == info.group)
                    && lists(&one.resource_names, &info.name)
                    && (one.resources.is_empty() || one.resources.iter().any(|r| names(r, info)))
            })
    }
}

/// `pods`, `pods/log`, `pods/*`, `*/status`, `*`.
fn names(pattern: &str, info: &RequestInfo) -> bool {
    match pattern.split_once('/') {
        None => pattern == "*" || (pattern == info.resource && info.subresource.is_empty()),
        Some(("*", sub)) => sub == info.subresource,
        Some((resource, "*")) => resource == info.resource,
        Some((resource, sub)) => resource == info.resource && sub == info.subresource,
    }
}

fn covers(url: &str, path: &str) -> bool {
    match url.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => url == path,
    }
}
