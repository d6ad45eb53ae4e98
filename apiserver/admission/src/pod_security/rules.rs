//! The rules of both standards, with the releases in which each of their forms holds.

use super::super::items;
use super::policy::{Level, Standard};
use super::{baseline, restricted};
use serde_json::Value;
use std::collections::BTreeSet;

/// What rules look at: a pod, or the template of one.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    pub metadata: &'a Value,
    pub spec: &'a Value,
}

/// A rule that a pod breaks: upstream's reason and detail.
pub struct Violation {
    pub reason: String,
    pub detail: String,
}

pub fn violation(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail })
}

pub type Check = fn(Pod) -> Option<Violation>;

/// One form of a rule: in force from Kubernetes 1.`since` until before 1.`until`.
pub struct Rule {
    pub since: u32,
    pub until: u32,
    /// From 1.`replaced` on, a rule of the restricted standard stands for it there.
    pub replaced: u32,
    pub check: Check,
}

pub const fn since(since: u32, check: Check) -> Rule {
    between(since, NEVER, check)
}

pub const fn between(since: u32, until: u32, check: Check) -> Rule {
    Rule { since, until, replaced: NEVER, check }
}

/// After any release, also after [`super::policy::Version::Latest`].
const NEVER: u32 = u32::MAX;

impl Rule {
    pub const fn replaced(self, since: u32) -> Self {
        Self { replaced: since, ..self }
    }

    fn holds(&self, minor: u32) -> bool {
        self.since <= minor && (minor < self.until || self.until == NEVER)
    }

    fn is_replaced(&self, minor: u32) -> bool {
        self.replaced <= minor && self.replaced != NEVER
    }
}

/// What a pod breaks, in upstream's order.
pub fn violations(pod: Pod, standard: Standard) -> Vec<Violation> {
    let minor = standard.version.minor();
    let (restricted, stricter): (bool, &[Rule]) = match standard.level {
        Level::Privileged => return Vec::new(),
        Level::Baseline => (false, &[]),
        Level::Restricted => (true, restricted::RULES),
    };
    let kept = baseline::RULES.iter().filter(|rule| !restricted || !rule.is_replaced(minor));
    let rules = kept.chain(stricter).filter(|rule| rule.holds(minor));
    rules.filter_map(|rule| (rule.check)(pod)).collect()
}

/// As the refusal lists them: `reason (detail), reason (detail)`.
pub fn details(found: &[Violation]) -> String {
    let one = |v: &Violation| match v.detail.as_str() {
        "" => v.reason.clone(),
        detail => format!("{} ({detail})", v.reason),
    };
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub fn reasons(found: &[Violation]) -> String {
    found.iter().map(|v| v.reason.as_str()).collect::<Vec<_>>().join(", ")
}

impl<'a> Pod<'a> {
    pub fn containers(self) -> impl Iterator<Item = &'a Value> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(move |list| items(&self.spec[list]))
    }

    /// `container "a"` or `containers "a", "b"` of those that `bad` finds.
    pub fn bad_containers(self, bad: impl Fn(&Value) -> bool) -> Option<Bad> {
        let names: Vec<&str> =
            self.containers().filter(|c| bad(c)).map(|c| c["name"].as_str().unwrap_or_default()).collect();
        Bad::of("container", &names)
    }

    /// `pod`, `container "a"` or `pod and container "a"`: whose own security context `bad` finds.
    pub fn bad_setters(self, bad: impl Fn(&Value) -> bool) -> Option<String> {
        let pod = bad(&self.spec["securityContext"]).then(|| "pod".to_owned());
        let containers = self.bad_containers(|c| bad(&c["securityContext"])).map(|b| b.text);
        let who: Vec<String> = pod.into_iter().chain(containers).collect();
        (!who.is_empty()).then(|| who.join(" and "))
    }

    /// What `read` finds in the security contexts of pod and containers, sorted and quoted.
    pub fn found(self, read: impl Fn(&Value) -> Vec<String>) -> BTreeSet<String> {
        let own = self.containers().map(|c| &c["securityContext"]);
        std::iter::once(&self.spec["securityContext"]).chain(own).flat_map(read).collect()
    }

    pub fn is_windows(self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Pods in a user namespace of their own may be root inside of it (KEP-127).
    pub fn has_user_namespace(self) -> bool {
        self.spec["hostUsers"] == false
    }
}

/// Some things by name, and whether their verb is singular.
pub struct Bad {
    pub text: String,
    pub one: bool,
}

impl Bad {
    pub fn of(what: &str, names: &[&str]) -> Option<Self> {
        let one = names.len() == 1;
        let s = if one { "" } else { "s" };
        let text = format!("{what}{s} {}", quoted(names.iter().copied()));
        (!names.is_empty()).then_some(Self { text, one })
    }

    /// `uses` or `use`
    pub fn uses(&self) -> &'static str {
        if self.one { "uses" } else { "use" }
    }
}

pub fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ")
}

pub fn quoted_set(names: &BTreeSet<String>) -> String {
    quoted(names.iter().map(String::as_str))
}
