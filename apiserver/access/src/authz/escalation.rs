//! Nobody may grant more than they have:
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>.

use super::rules::{self, Rule};
use super::{Attributes, Authorizer, Decision, MASTERS};
use coracle_api::go::{quoted, quoted_list};
use coracle_api::{ApiError, Object, UserInfo};
use coracle_requests::ObjectReader;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The registry calls this for every create and update (patch) of the four RBAC resources, after defaulting and before
/// the commit. `resource` is the plural; other resources pass. `old` is the present object of an update.
pub fn check(
    resource: &str,
    object: &Object,
    old: Option<&Object>,
    user: &UserInfo,
    authorizer: &dyn Authorizer,
    read: &dyn ObjectReader,
) -> Result<(), ApiError> {
    if user.in_group(MASTERS) {
        return Ok(());
    }
    let asked = Question { resource, object, user, authorizer };
    match resource {
        "roles" | "clusterroles" => asked.role(old),
        "rolebindings" | "clusterrolebindings" => asked.binding(old, read),
        _ => Ok(()),
    }
}

/// Whether an update changes nothing but what the garbage collector changes. Labels do matter: they choose what is
/// aggregated into other roles.
fn only_for_collection(object: &Object, old: &Object) -> bool {
    const OF_COLLECTION: [&str; 4] = ["ownerReferences", "finalizers", "managedFields", "resourceVersion"];
    let rest = |object: &Object| {
        let mut rest = object.clone();
        if let Some(metadata) = rest.get_mut("metadata").and_then(Object::as_object_mut) {
            OF_COLLECTION.iter().for_each(|field| drop(metadata.remove(*field)));
        }
        rest
    };
    rest(object) == rest(old)
}

fn aggregates(role: &Object) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
}

struct Question<'a> {
    resource: &'a str,
    object: &'a Object,
    user: &'a UserInfo,
    authorizer: &'a dyn Authorizer,
}

impl Question<'_> {
    fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.object["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    fn may(&self, verb: &str, resource: &str, name: &str) -> bool {
        let asked = Attributes {
            name,
            version: "v1",
            ..Attributes::resource(self.user, verb, GROUP, resource, self.namespace())
        };
        matches!(self.authorizer.authorize(&asked), Decision::Allow(_))
    }

    fn role(&self, old: Option<&Object>) -> Result<(), ApiError> {
        let for_collection = old.is_some_and(|old| only_for_collection(self.object, old));
        if for_collection || self.may("escalate", self.resource, self.name()) {
            return Ok(());
        }
        self.no_escalation(&Rule::of_role(self.object))?;
        if !aggregates(self.object) && !old.is_some_and(aggregates) {
            return Ok(());
        }
        // Whoever chooses what is aggregated can come to hold anything.
        let everything = || vec!["*".to_owned()];
        let of_resources =
            Rule { verbs: everything(), groups: everything(), resources: everything(), ..Rule::default() };
        let of_paths = Rule { verbs: everything(), paths: everything(), ..Rule::default() };
        self.no_escalation(&[of_resources, of_paths]).map_err(|_| {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            ApiError::forbidden(GROUP, self.resource, self.name(), why)
        })
    }

    fn binding(&self, old: Option<&Object>, read: &dyn ObjectReader) -> Result<(), ApiError> {
        let for_collection = old.is_some_and(|old| only_for_collection(self.object, old));
        let role_ref = &self.object["roleRef"];
        let roles = if role_ref["kind"] == "Role" { "roles" } else { "clusterroles" };
        let role_name = role_ref["name"].as_str().unwrap_or_default();
        if for_collection || self.may("bind", roles, role_name) {
            return Ok(());
        }
        let full = format!("{roles}.{GROUP}");
        let namespace = if roles == "roles" { self.namespace() } else { "" };
        let role = read.get(&full, namespace, role_name);
        let role = role.ok_or_else(|| ApiError::not_found(GROUP, roles, role_name))?;
        self.no_escalation(&Rule::of_role(&role))
    }

    fn no_escalation(&self, wanted: &[Rule]) -> Result<(), ApiError> {
        let owned = self.authorizer.granted(self.user, self.namespace());
        let missing = rules::missing(&owned.rules, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let mut lines: Vec<String> = rules::joined(missing).iter().map(Rule::compact).collect();
        lines.sort();
        lines.dedup();
        let mut why = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            quoted(&self.user.name),
            quoted_list(&self.user.groups),
            lines.join("\n")
        );
        if !owned.errors.is_empty() {
            why = format!("{why}; resolution errors: [{}]", owned.errors.join(", "));
        }
        Err(ApiError::forbidden(GROUP, self.resource, self.name(), &why))
    }
}
