//! The RBAC authorizer, <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.
//!
//! Bindings are compiled into one table by subject when the first request after a change arrives; a decision then looks
//! up the user and its groups and reads only the rules granted to them.

use super::rules::{Resolved, Rule};
use super::{Attributes, Authorizer, Decision, Generation};
use coracle_api::identity::service_account_name;
use coracle_api::{Object, UserInfo};
use coracle_requests::ObjectReader;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// A role given to a subject by one binding.
struct Grant {
    /// Empty: everywhere (a ClusterRoleBinding).
    namespace: String,
    binding: String,
    /// `ClusterRole "view"`
    role: String,
    /// As messages name it: `Group "system:authenticated"`.
    subject: String,
    rules: Result<Arc<[Rule]>, String>,
}

#[derive(PartialEq, Eq, Hash)]
enum Subject {
    User(String),
    Group(String),
}

type Table = HashMap<Subject, Vec<Grant>>;

/// See the module.
pub struct Rbac {
    read: Arc<dyn ObjectReader>,
    generation: Generation,
    compiled: RwLock<Option<(u64, Arc<Table>)>>,
}

impl Rbac {
    pub fn new(read: Arc<dyn ObjectReader>, generation: Generation) -> Self {
        Self { read, generation, compiled: RwLock::new(None) }
    }

    fn table(&self) -> Arc<Table> {
        // Read before the objects: a change in between is compiled again by the next request.
        let generation = (self.generation)();
        if let Some((at, table)) = &*self.compiled.read()
            && *at == generation
        {
            return table.clone();
        }
        let table = Arc::new(compile(self.read.as_ref()));
        *self.compiled.write() = Some((generation, table.clone()));
        table
    }

    /// Calls `visit` for each grant of the user in the namespace, cluster-wide ones first, until it returns true.
    fn visit(&self, user: &UserInfo, namespace: &str, mut visit: impl FnMut(&Grant) -> bool) {
        let table = self.table();
        let user_key = std::iter::once(Subject::User(user.name.clone()));
        let keys = user_key.chain(user.groups.iter().map(|g| Subject::Group(g.clone())));
        let grants: Vec<&Vec<Grant>> = keys.filter_map(|key| table.get(&key)).collect();
        for wanted in ["", namespace] {
            for grant in grants.iter().flat_map(|g| g.iter()).filter(|g| g.namespace == wanted) {
                if visit(grant) {
                    return;
                }
            }
            if namespace.is_empty() {
                return;
            }
        }
    }

    /// Rules of the role that a binding in `namespace` (empty for a ClusterRoleBinding) names.
    pub fn role_rules(&self, role_ref: &Object, namespace: &str) -> Result<Vec<Rule>, String> {
        role_rules(self.read.as_ref(), role_ref, namespace)
    }
}

fn role_rules(read: &dyn ObjectReader, role_ref: &Object, namespace: &str) -> Result<Vec<Rule>, String> {
    let name = role_ref["name"].as_str().unwrap_or_default();
    let (resource, plural, role) = match role_ref["kind"].as_str() {
        Some("Role") => (ROLES, "role", read.get(ROLES, namespace, name)),
        _ => (CLUSTER_ROLES, "clusterrole", read.get(CLUSTER_ROLES, "", name)),
    };
    let group = resource.split_once('.').map(|(_, group)| group).unwrap_or_default();
    role.map(|role| Rule::of_role(&role)).ok_or_else(|| format!("{plural}.{group} \"{name}\" not found"))
}

fn compile(read: &dyn ObjectReader) -> Table {
    let mut table = Table::new();
    for (resource, kind) in [(CLUSTER_ROLE_BINDINGS, "ClusterRoleBinding"), (ROLE_BINDINGS, "RoleBinding")] {
        for binding in read.list(resource, "") {
            add_binding(&mut table, read, &binding, kind);
        }
    }
    table
}

fn add_binding(table: &mut Table, read: &dyn ObjectReader, binding: &Object, kind: &str) {
    let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = binding["metadata"]["name"].as_str().unwrap_or_default();
    let role_ref = &binding["roleRef"];
    let rules: Result<Arc<[Rule]>, String> = role_rules(read, role_ref, namespace).map(Into::into);
    let shown = match namespace {
        "" => format!("{kind} \"{name}\""),
        _ => format!("{kind} \"{name}/{namespace}\""),
    };
    let role_kind = role_ref["kind"].as_str().unwrap_or_default();
    let role = format!("{role_kind} \"{}\"", role_ref["name"].as_str().unwrap_or_default());
    for subject in binding["subjects"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let Some((key, shown_subject)) = subject_of(subject, namespace) else { continue };
        table.entry(key).or_default().push(Grant {
            namespace: namespace.to_owned(),
            binding: shown.clone(),
            role: role.clone(),
            subject: shown_subject,
            rules: rules.clone(),
        });
    }
}

fn subject_of(subject: &Object, binding_namespace: &str) -> Option<(Subject, String)> {
    let name = subject["name"].as_str()?;
    match subject["kind"].as_str()? {
        "User" => Some((Subject::User(name.to_owned()), format!("User \"{name}\""))),
        "Group" => Some((Subject::Group(name.to_owned()), format!("Group \"{name}\""))),
        "ServiceAccount" => {
            let own = subject["namespace"].as_str().filter(|n| !n.is_empty());
            let namespace = own.unwrap_or(binding_namespace);
            if namespace.is_empty() {
                return None;
            }
            let user = service_account_name(namespace, name);
            Some((Subject::User(user), format!("ServiceAccount \"{name}/{namespace}\"")))
        }
        _ => None,
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, asked: &Attributes<'_>) -> Decision {
        let mut allowed = None;
        let mut errors: Vec<String> = Vec::new();
        self.visit(asked.user, asked.namespace, |grant| {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|r| r.allows(asked)) => {
                    let Grant { binding, role, subject, .. } = grant;
                    allowed = Some(format!("RBAC: allowed by {binding} of {role} to {subject}"));
                }
                Ok(_) => {}
                Err(error) if errors.contains(error) => {}
                Err(error) => errors.push(error.clone()),
            }
            allowed.is_some()
        });
        match (allowed, errors.as_slice()) {
            (Some(reason), _) => Decision::Allow(reason),
            (None, []) => Decision::NoOpinion(String::new()),
            (None, [one]) => Decision::NoOpinion(format!("RBAC: {one}")),
            (None, many) => Decision::NoOpinion(format!("RBAC: [{}]", many.join(", "))),
        }
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> Resolved {
        let mut resolved = Resolved::default();
        self.visit(user, namespace, |grant| {
            match &grant.rules {
                Ok(rules) => resolved.rules.extend(rules.iter().cloned()),
                Err(error) => resolved.errors.push(error.clone()),
            }
            false
        });
        resolved
    }
}
