//! Resource quotas and limit ranges.

#[path = "quotas_validate.rs"]
mod validate;

use super::value::*;
use super::{Column, CreateStrategy, Env, ResourceFacts, TableConvertor, UpdateStrategy, rules, table};
use crate::Facts;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct ResourceQuotas;
pub struct LimitRanges;

impl ResourceFacts for ResourceQuotas {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for ResourceQuotas {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        set(object, "status", json!({}));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        for (top, field) in [("spec", "hard"), ("status", "hard"), ("status", "used")] {
            validate::amounts(at(&object[top], field), &Path::root(top).field(field), errors);
        }
        validate::scopes(&object["spec"], &Path::root("spec"), errors);
    }
}

impl UpdateStrategy for ResourceQuotas {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec.scopes", "spec.scopeSelector"], &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl TableConvertor for ResourceQuotas {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Request", "Use and quota of requests and counts"),
                table::string("Limit", "Use and quota of limits"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let status = &object["status"];
        let mut lists = [Vec::new(), Vec::new()];
        let mut hard: Vec<_> = entries_at(status, "hard").collect();
        hard.sort_by_key(|(resource, _)| resource.as_str());
        for (resource, quantity) in hard {
            let used = at(status, "used").get(resource).map_or_else(|| "0".to_owned(), rules::quantity_text);
            let limit = resource.starts_with("limits");
            lists[usize::from(limit)].push(format!("{resource}: {used}/{}", rules::quantity_text(quantity)));
        }
        let [requests, limits] = lists.map(|list| list.join(", "));
        vec![name(object).into(), requests.into(), limits.into(), table::age(object, now)]
    }
}

crate::usual!(ResourceQuotas: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

impl ResourceFacts for LimitRanges {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for LimitRanges {
    /// One without a name gets one that nothing else has.
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        if name(object).is_empty()
            && let Some(metadata) = object_at(object, "metadata")
        {
            set(metadata, "name", uuid::Uuid::new_v4().to_string());
        }
    }

    /// For containers, a limit without a default is its maximum; a request without one is the default limit, or else
    /// the minimum.
    fn defaults(&self, object: &mut Object) {
        for item in each_mut(object, "spec.limits") {
            if str_at(item, "type") != "Container" {
                continue;
            }
            for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
                let Some(amounts) = at(item, from).as_object().cloned() else { continue };
                let Some(target) = object_at(item, to).filter(|_| !amounts.is_empty()) else { continue };
                for (resource, quantity) in amounts {
                    default(target, &resource, quantity);
                }
            }
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let mut kinds = Vec::new();
        for (i, item) in list_at(object, "spec.limits").iter().enumerate() {
            let path = Path::root("spec").field("limits").index(i);
            let kind = str_at(item, "type");
            rules::qualified_name(kind, &path.field("type"), errors);
            if !kind.contains('/') && !matches!(kind, "Container" | "PersistentVolumeClaim" | "Pod") {
                let detail = "must be a standard limit type or fully qualified";
                errors.invalid(&path.field("type"), kind, detail);
            }
            if kinds.contains(&kind) {
                errors.duplicate(&path.field("type"), kind);
            }
            kinds.push(kind);
            validate::limit(item, &path, errors);
        }
    }
}

impl UpdateStrategy for LimitRanges {
    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

crate::usual!(LimitRanges: StatusStrategy, DeleteStrategy, TransactionStrategy, TableConvertor, SelectableFields, ResetFieldsStrategy);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[test]
    fn limits_default_from_each_other() {
        let mut object = json!({ "spec": { "limits": [{ "type": "Container", "max": { "cpu": "2" }, "min": { "cpu": "1", "memory": "1Mi" } }] } });
        LimitRanges.defaults(&mut object);
        let item = &object["spec"]["limits"][0];
        assert_eq!(item["default"], json!({ "cpu": "2" }));
        assert_eq!(item["defaultRequest"], json!({ "cpu": "2", "memory": "1Mi" }));
        let bad = json!({ "spec": { "limits": [{ "type": "Pod", "max": { "cpu": "1" }, "min": { "cpu": "2" } }] } });
        let mut errors = Vec::new();
        LimitRanges.validate(&bad, &World::default().env(), &mut errors);
        assert_eq!(
            errors[0].to_string(),
            "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"
        );
    }

    #[test]
    fn quota_rows() {
        let object = json!({ "metadata": { "name": "q" }, "status": {
            "hard": { "pods": "10", "limits.cpu": "2", "cpu": "1" }, "used": { "pods": "3" } } });
        let row = ResourceQuotas.row(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(row, ["q", "cpu: 0/1, pods: 3/10", "limits.cpu: 0/2", "<unknown>"]);
    }
}
