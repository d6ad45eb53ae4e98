//! Which flow schema a request belongs to.

use super::config::{NonResourceRule, ResourceRule, Rule, Schema, Subject};
use coracle_api::UserInfo;
use coracle_api::identity::split_service_account;
use coracle_requests::RequestInfo;

impl Schema {
    pub fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, info))
    }
}

impl Rule {
    fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        self.subjects.iter().any(|subject| subject.matches(user))
            && if info.is_resource {
                self.resources.iter().any(|rule| rule.matches(info))
            } else {
                self.non_resources.iter().any(|rule| rule.matches(info))
            }
    }
}

impl Subject {
    fn matches(&self, user: &UserInfo) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(name) => name == "*" || user.in_group(name),
            // Compared and not judged, as upstream: it is asked for every schema of every request.
            Self::ServiceAccount { namespace, name } => split_service_account(&user.name)
                .is_some_and(|(space, account)| space == namespace && (name == "*" || name == account)),
        }
    }
}

fn lists(values: &[String], wanted: &str) -> bool {
    values.iter().any(|value| value == "*" || value == wanted)
}

/// `resource`, or `resource/subresource` where there is one.
fn lists_resource(values: &[String], info: &RequestInfo) -> bool {
    values.iter().any(|value| {
        value == "*"
            || if info.subresource.is_empty() {
                *value == info.resource
            } else {
                value.split_once('/') == Some((&info.resource, &info.subresource))
            }
    })
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let scope = if info.namespace.is_empty() {
            self.cluster_scope
        } else {
            lists(&self.namespaces, &info.namespace)
        };
        scope
            && lists(&self.verbs, info.verb)
            && lists(&self.groups, &info.group)
            && lists_resource(&self.resources, info)
    }
}

impl NonResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        lists(&self.verbs, info.verb) && self.urls.iter().any(|url| covers(url, &info.path))
    }
}

fn covers(url: &str, path: &str) -> bool {
    match url.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => url == path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_strategy::flowcontrol::defaults;
    use http::Method;

    fn schemas() -> Vec<Schema> {
        let mut all: Vec<Schema> = defaults::schemas().iter().map(Schema::parse).collect();
        all.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        all
    }

    fn class(user: &UserInfo, method: &Method, uri: &str) -> String {
        let info = RequestInfo::new(method, &uri.parse().unwrap());
        schemas().iter().find(|s| s.matches(user, &info)).map(|s| s.name.clone()).unwrap_or_default()
    }

    #[test]
    fn everybody_has_a_place() {
        let user = |name: &str, groups: &[&str]| UserInfo::authenticated(name, groups);
        let node = user("system:node:n", &["system:nodes"]);
        let account = |namespace: &str| {
            user(
                &format!("system:serviceaccount:{namespace}:a"),
                &["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")],
            )
        };
        let pods = "/api/v1/namespaces/ns/pods";
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l";
        let table = [
            (user("root", &["system:masters"]), pods, "exempt"),
            (user("alice", &[]), "/livez", "probes"),
            (user("alice", &[]), "/livez/ping", "global-default"),
            (UserInfo::anonymous(), "/version", "global-default"),
            (user("system:kube-scheduler", &[]), leases, "system-leader-election"),
            (user("system:kube-scheduler", &[]), pods, "kube-scheduler"),
            (user("system:kube-controller-manager", &[]), pods, "kube-controller-manager"),
            (
                user("system:kube-controller-manager", &[]),
                "/api/v1/namespaces/n/endpoints/e",
                "endpoint-controller",
            ),
            (account("kube-system"), "/api/v1/namespaces/n/configmaps/c", "workload-leader-election"),
            (account("kube-system"), pods, "kube-system-service-accounts"),
            (account("default"), pods, "service-accounts"),
            // Whoever may call himself so belongs there.
            (user("system:serviceaccount:kube-system:Foo_1", &[]), pods, "kube-system-service-accounts"),
            (node.clone(), "/api/v1/nodes/n/status", "system-node-high"),
            (
                node.clone(),
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n",
                "system-node-high",
            ),
            (node, pods, "system-nodes"),
            (user("alice", &[]), pods, "global-default"),
        ];
        for (user, uri, expected) in table {
            assert_eq!(class(&user, &Method::GET, uri), expected, "{} {uri}", user.name);
        }
        let alice = user("alice", &[]);
        assert_eq!(class(&alice, &Method::DELETE, leases), "global-default");
    }

    #[test]
    fn rules_name_subresources_and_prefixes() {
        let rule = ResourceRule {
            verbs: vec!["get".into()],
            groups: vec![String::new()],
            resources: vec!["pods/log".into()],
            namespaces: vec!["a".into()],
            cluster_scope: false,
        };
        let info = |uri: &str| RequestInfo::new(&Method::GET, &uri.parse().unwrap());
        assert!(rule.matches(&info("/api/v1/namespaces/a/pods/p/log")));
        assert!(!rule.matches(&info("/api/v1/namespaces/a/pods/p")));
        assert!(!rule.matches(&info("/api/v1/namespaces/b/pods/p/log")));
        assert!(covers("/debug/*", "/debug/pprof") && !covers("/debug/*", "/debug") && covers("*", "/x"));
    }
}
