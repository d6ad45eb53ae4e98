//! Leases.

use super::value::*;
use super::{Column, CreateStrategy, Env, ResourceFacts, TableConvertor, UpdateStrategy, rules, table};
use crate::Facts;
use coracle_api::{FieldError, Object};
use coracle_store::Durability;
use jiff::Timestamp;
use serde_json::Value;

pub struct Leases;

/// The namespace of the kubelets' heartbeats, which are worth nothing after a restart.
const HEARTBEATS: &str = "kube-node-lease";

/// How a holder is chosen among candidates; the one way that Kubernetes defines.
const STRATEGY: &str = "OldestEmulationVersion";

impl ResourceFacts for Leases {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }

    /// Other Leases elect leaders, and mutual exclusion must survive a crash.
    fn durability(&self, new: Option<&Object>, old: Option<&Object>) -> Durability {
        let heartbeat = new.or(old).is_some_and(|lease| namespace(lease) == HEARTBEATS);
        if heartbeat { Durability::Volatile } else { Durability::Synced }
    }
}

impl CreateStrategy for Leases {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        drop_election(object, None);
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        if let Some(seconds) = i64_at(object, "spec.leaseDurationSeconds").filter(|s| *s <= 0) {
            errors.invalid(&path.field("leaseDurationSeconds"), seconds, "must be greater than 0");
        }
        rules::non_negative_at(&object["spec"], "leaseTransitions", &path, errors);
        let strategy = str_at(object, "spec.strategy");
        if has(object, "spec.strategy") {
            // Upstream's path says it twice.
            let here = path.field("strategy").field("strategy");
            match strategy {
                STRATEGY => {}
                own if own.contains('/') => rules::qualified_name(own, &here, errors),
                other => errors.not_supported(&here, other, &[STRATEGY]),
            }
        }
        if !str_at(object, "spec.preferredHolder").is_empty() && strategy.is_empty() {
            let detail = "may only be specified if `strategy` is defined";
            errors.forbidden(&path.field("preferredHolder"), detail);
        }
    }
}

impl UpdateStrategy for Leases {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        drop_election(new, Some(old));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

impl TableConvertor for Leases {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("Holder", "Who holds the lease"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), str_at(object, "spec.holderIdentity").into(), table::age(object, now)]
    }
}

crate::usual!(Leases: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// Coordinated leader election is off, as in upstream by default: what asks for it is not kept, unless it is there.
fn drop_election(new: &mut Object, old: Option<&Object>) {
    for field in ["spec.strategy", "spec.preferredHolder"] {
        if !old.is_some_and(|old| has(old, field)) {
            remove(new, field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mistakes() {
        for (spec, want) in [
            (
                json!({ "leaseDurationSeconds": 0 }),
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                json!({ "leaseTransitions": -1 }),
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({ "strategy": "Mine" }),
                "spec.strategy.strategy: Unsupported value: \"Mine\": supported values: \"OldestEmulationVersion\"",
            ),
            (
                json!({ "preferredHolder": "me" }),
                "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
            ),
        ] {
            assert_eq!(crate::testing::errors(&Leases, json!({ "spec": spec })), [want]);
        }
        let good = json!({ "spec": { "strategy": "a.b/c", "preferredHolder": "me" } });
        assert!(crate::testing::errors(&Leases, good).is_empty());
    }

    #[test]
    fn coordinated_elections_are_off() {
        let world = crate::testing::World::default();
        let asked = json!({ "spec": { "strategy": "OldestEmulationVersion", "preferredHolder": "me" } });
        let mut new = asked.clone();
        Leases.prepare_create(&mut new, &world.env());
        assert_eq!(new, json!({ "spec": {} }));
        let mut kept = asked.clone();
        Leases.prepare_update(&mut kept, &asked, &world.env());
        assert_eq!(kept, asked, "what an earlier version stored stays");
    }

    #[test]
    fn only_heartbeats_are_volatile() {
        let lease = |namespace: &str| json!({ "metadata": { "namespace": namespace } });
        assert_eq!(Leases.durability(Some(&lease("kube-node-lease")), None), Durability::Volatile);
        assert_eq!(Leases.durability(None, Some(&lease("kube-node-lease"))), Durability::Volatile);
        assert_eq!(Leases.durability(Some(&lease("kube-system")), None), Durability::Synced);
    }
}
