//! Who may change which part of a ResourceClaim's status: allocations and reservations are for schedulers, the state of
//! a driver's devices for that driver, on its own node or on any
//! (<https://kubernetes.io/docs/concepts/security/hardening-guide/dynamic-resource-allocation/>).

use super::{Attributes, Authorizer, require};
use coracle_api::{FieldError, Object, UserInfo};
use coracle_requests::value::{at, has, list_at, namespace, str_at};
use serde_json::Value;
use std::collections::BTreeSet;

const GROUP: &str = "resource.k8s.io";

/// The registry calls this for every change of a claim's status. `verb` is the request's, `update` or `patch`.
pub fn check(
    new: &Object,
    old: &Object,
    user: &UserInfo,
    verb: &str,
    authorizer: &dyn Authorizer,
) -> Vec<FieldError> {
    let may = |verb: &str, subresource: &str, namespace: &str, name: &str| {
        let base = Attributes::resource(user, verb, GROUP, "resourceclaims", namespace);
        require(authorizer, &Attributes { version: "v1", subresource, name, ..base })
    };
    let mut errors = Vec::new();
    let changed = |field: &str| at(new, field) != at(old, field);
    if (changed("status.allocation") || changed("status.reservedFor"))
        && let Err(why) = may(verb, "binding", "", "")
    {
        let detail = format!(
            "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
             verb=\"{verb}\" permission: {}",
            why.message
        );
        errors.push(FieldError::forbidden("status", &detail));
    }
    let near = user.is_service_account_on(allocated_node(new)).then(|| format!("associated-node:{verb}"));
    let verbs: Vec<String> = near.into_iter().chain([format!("arbitrary-node:{verb}")]).collect();
    for driver in changed_drivers(new, old) {
        let mut refused = Vec::new();
        for verb in &verbs {
            match may(verb, "driver", namespace(new), driver) {
                Ok(()) => break,
                Err(why) => refused.push(why.message),
            }
        }
        if refused.len() == verbs.len() {
            let detail = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {}",
                verbs.join(" "),
                refused.first().map_or("", String::as_str)
            );
            errors.push(FieldError::forbidden("status.devices", &detail));
        }
    }
    errors
}

/// The drivers of devices whose states come, go or change.
fn changed_drivers<'o>(new: &'o Object, old: &'o Object) -> BTreeSet<&'o str> {
    let (new, old) = (list_at(new, "status.devices"), list_at(old, "status.devices"));
    let only_in = |some: &'o [Value], others: &'o [Value]| some.iter().filter(move |s| !others.contains(s));
    only_in(new, old).chain(only_in(old, new)).map(|state| str_at(state, "driver")).collect()
}

/// The one node that an allocation is bound to, empty if it is for several.
fn allocated_node(claim: &Object) -> &str {
    let [term] = list_at(claim, "status.allocation.nodeSelector.nodeSelectorTerms") else { return "" };
    let [field] = list_at(term, "matchFields") else { return "" };
    let [Value::String(node)] = list_at(field, "values") else { return "" };
    let named = str_at(field, "key") == "metadata.name" && str_at(field, "operator") == "In";
    if named && !has(term, "matchExpressions") { node } else { "" }
}
