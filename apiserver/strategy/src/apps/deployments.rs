//! Deployments.

use super::*;
use crate::{Facts, FieldSet, reset_fields};
use coracle_api::Resource;

pub struct Deployments;

const COLUMNS: &[Column] = &[
    table::NAME,
    table::string("Ready", "Pods that are ready, of those that should be"),
    table::string("Up-to-date", "Pods of the present template"),
    table::string("Available", "Pods that have been ready for minReadySeconds"),
    table::AGE,
    table::WIDE_CONTAINERS,
    table::WIDE_IMAGES,
    table::WIDE_SELECTOR,
];

impl ResourceFacts for Deployments {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for Deployments {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        workloads::named_warnings(new, old, workloads::TEMPLATE)
    }

    fn defaults(&self, object: &mut Object) {
        workloads::template_defaults(object, workloads::TEMPLATE);
        let Some(spec) = object_at(object, "spec") else { return };
        default(spec, "replicas", 1);
        default(spec, "revisionHistoryLimit", 10);
        default(spec, "progressDeadlineSeconds", 600);
        let Some(strategy) = object_at(spec, "strategy") else { return };
        default_str(strategy, "type", "RollingUpdate");
        if str_at(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = object_at(strategy, "rollingUpdate")
        {
            default(rolling, "maxUnavailable", "25%");
            default(rolling, "maxSurge", "25%");
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({}));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        let fields = ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"];
        workloads::non_negative(object, &fields, errors);
        let template = at(object, workloads::TEMPLATE);
        if workloads::selector_of_template(object, "deployment", "invalid label selector", errors) {
            workloads::long_running_template(template, "ReplicaSet", &path.field("template"), errors);
        }
        strategy(at(object, "spec.strategy"), &path.field("strategy"), errors);
        let deadline = i64_at(object, "spec.progressDeadlineSeconds");
        if let Some(seconds) = deadline.filter(|s| *s <= workloads::count(object, "spec.minReadySeconds")) {
            let here = path.field("progressDeadlineSeconds");
            errors.invalid(&here, seconds, "must be greater than minReadySeconds");
        }
    }
}

impl UpdateStrategy for Deployments {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec.selector"], &mut Errors(errors));
    }

    /// Annotations count too: the controller copies them to the ReplicaSets.
    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        let annotations = |object| at(object, "metadata.annotations");
        new.get("spec") != old.get("spec") || annotations(new) != annotations(old)
    }
}

impl StatusStrategy for Deployments {
    /// A status brings annotations along (the controller's revision), but no labels.
    fn prepare_status_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
        let labels = at(old, "metadata.labels").clone();
        let Some(metadata) = at_mut(new, "metadata") else { return };
        if labels.is_null() { drop(remove(metadata, "labels")) } else { set(metadata, "labels", labels) }
    }

    fn validate_status_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        workloads::counts(
            new,
            &["replicas", "unavailableReplicas", "terminatingReplicas"],
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
            errors,
        );
        workloads::collisions(new, old, errors);
    }
}

impl TableConvertor for Deployments {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let count = |path| workloads::count(object, path);
        let [containers, images] = workloads::wide_cells(object);
        vec![
            name(object).into(),
            format!("{}/{}", count("status.readyReplicas"), count("spec.replicas")).into(),
            count("status.updatedReplicas").into(),
            count("status.availableReplicas").into(),
            table::age(object, now),
            containers,
            images,
            table::selector(at(object, "spec.selector")).into(),
        ]
    }
}

impl ResetFieldsStrategy for Deployments {
    fn reset_fields(&self, resource: &Resource, subresource: &str) -> &'static FieldSet<'static> {
        match subresource {
            "status" => reset_fields::deployment_status(),
            _ => reset_fields::usual(resource, subresource),
        }
    }
}

crate::usual!(Deployments: DeleteStrategy, TransactionStrategy, SelectableFields);

fn strategy(strategy: &Value, path: &Path, errors: &mut Errors) {
    let rolling = path.field("rollingUpdate");
    match str_at(strategy, "type") {
        "Recreate" if has(strategy, "rollingUpdate") => {
            errors.forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" if has(strategy, "rollingUpdate") => {
            workloads::rolling(at(strategy, "rollingUpdate"), &rolling, errors);
        }
        "RollingUpdate" => errors.required(&rolling, "this should be defaulted and never be nil"),
        _ => {
            let shown = rules::internal::shown(strategy, rules::internal::ROLLING_STRATEGY);
            errors.not_supported_as(path, &shown, &["Recreate", "RollingUpdate"]);
        }
    }
}
