//! Services.

mod allocate;
mod defaults;
mod families;
mod ranges;
mod table;
#[cfg(test)]
mod tests;
mod validate;

use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, SelectableFields, StatusStrategy, TableConvertor,
    TransactionOps, TransactionStrategy, UpdateStrategy, WriteKind, copy_field, duration,
};
use crate::{Facts, FieldLabels};
use coracle_api::meta::NameRule;
use coracle_api::{ApiError, FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct Services;

impl ResourceFacts for Services {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for Services {
    fn name_rule(&self) -> NameRule {
        NameRule::Dns1123Label
    }

    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        validate::warnings(new)
    }

    fn defaults(&self, object: &mut Object) {
        defaults::service(object);
    }

    fn prepare_create(&self, object: &mut Object, env: &Env) {
        remove(object, "metadata.generation");
        set(object, "status", json!({ "loadBalancer": {} }));
        defaults::cluster_ips(object);
        // Why it cannot be is said when it is validated.
        let _ = families::settle(object, None, &ranges::configured(env.read));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        validate::service(object, &mut Errors(errors));
    }

    /// Upstream settles families and allocates before it validates: where it cannot, nothing else is said.
    fn validate_create(&self, object: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        let unsettled = families::settle(&mut object.clone(), None, &ranges::configured(env.read));
        let refused = match errors.is_empty() {
            _ if !unsettled.is_empty() => unsettled,
            true => return,
            false => allocate::refusals(object, env),
        };
        if !refused.is_empty() {
            *errors = refused;
        }
    }
}

impl UpdateStrategy for Services {
    fn prepare_update(&self, new: &mut Object, old: &Object, env: &Env) {
        copy_field(new, old, "status");
        defaults::keep_allocated(new, old);
        defaults::follow_single(new, old);
        defaults::drop_other_types(new, old);
        defaults::cluster_ips(new);
        let _ = families::settle(new, Some(old), &ranges::configured(env.read));
        if kind(old) == "LoadBalancer" && kind(new) != "LoadBalancer" {
            set(new, "status", json!({ "loadBalancer": {} }));
        }
    }

    fn validate_update(&self, new: &Object, old: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        let unsettled = families::settle(&mut new.clone(), Some(old), &ranges::configured(env.read));
        if unsettled.is_empty() {
            validate::update(new, old, &mut Errors(errors));
        } else {
            *errors = unsettled;
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

impl StatusStrategy for Services {
    fn prepare_status_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
        for ingress in each_mut(new, "status.loadBalancer.ingress") {
            if has(ingress, "ip") {
                default(ingress, "ipMode", "VIP");
            }
        }
    }

    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let (status, path) = (at(new, "status.loadBalancer"), Path::root("status").field("loadBalancer"));
        let errors = &mut Errors(errors);
        if kind(new) != "LoadBalancer" && !list_at(status, "ingress").is_empty() {
            errors.forbidden(&path.field("ingress"), "may only be used when `spec.type` is 'LoadBalancer'");
        } else {
            super::rules::load_balancer(status, true, &path, errors);
        }
    }
}

impl TransactionStrategy for Services {
    fn has_transaction_ops(&self) -> bool {
        true
    }

    fn transaction_ops(
        &self,
        write: WriteKind,
        object: &mut Object,
        old: Option<&Object>,
        env: &Env,
    ) -> Result<TransactionOps, ApiError> {
        allocate::transaction_ops(write, object, old, env)
    }
}

impl TableConvertor for Services {
    fn columns(&self) -> &'static [Column] {
        table::COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        table::row(object, duration::age(at(object, "metadata.creationTimestamp"), now))
    }
}

impl SelectableFields for Services {
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels { names: &["spec.clusterIP", "spec.type"], ..FieldLabels::CORE }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![
            ("spec.clusterIP", str_at(object, "spec.clusterIP").to_owned()),
            ("spec.type", kind(object).to_owned()),
        ]
    }
}

crate::usual!(Services: DeleteStrategy, ResetFieldsStrategy);

fn kind(service: &Object) -> &str {
    str_at(service, "spec.type")
}

fn is_headless(service: &Object) -> bool {
    str_at(service, "spec.clusterIP") == "None"
}

/// All types but ExternalName have a cluster IP (or the word None).
fn needs_cluster_ip(service: &Object) -> bool {
    kind(service) != "ExternalName"
}

fn needs_node_ports(service: &Object) -> bool {
    match kind(service) {
        "NodePort" => true,
        "LoadBalancer" => at(service, "spec.allocateLoadBalancerNodePorts") != &Value::Bool(false),
        _ => false,
    }
}

fn needs_health_check_port(service: &Object) -> bool {
    kind(service) == "LoadBalancer" && str_at(service, "spec.externalTrafficPolicy") == "Local"
}

/// Whether traffic from outside the cluster reaches the Service.
fn is_external(service: &Object) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
        || (kind(service) == "ClusterIP" && !list_at(service, "spec.externalIPs").is_empty())
}
