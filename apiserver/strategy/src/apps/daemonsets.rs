//! DaemonSets.

use super::*;
use crate::Facts;

pub struct DaemonSets;

/// Where apps/v1 keeps the old API's `templateGeneration`.
pub(super) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

const COUNTS: [&str; 7] = [
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
];

const COLUMNS: &[Column] = &[
    table::NAME,
    table::integer("Desired", "Nodes that should run the pod"),
    table::integer("Current", "Nodes that run the pod"),
    table::integer("Ready", "Nodes whose pod is ready"),
    table::integer("Up-to-date", "Nodes whose pod has the present template"),
    table::integer("Available", "Nodes whose pod has been ready for minReadySeconds"),
    table::string("Node Selector", "Labels of the nodes"),
    table::AGE,
    table::WIDE_CONTAINERS,
    table::WIDE_IMAGES,
    table::WIDE_SELECTOR,
];

impl ResourceFacts for DaemonSets {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for DaemonSets {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        workloads::warnings(new, old, workloads::TEMPLATE)
    }

    fn defaults(&self, object: &mut Object) {
        workloads::template_defaults(object, workloads::TEMPLATE);
        // The annotation is of whoever makes the DaemonSet, as in upstream, where it stands for a field.
        if !has(object, "metadata.uid")
            && let Some(annotations) = object_at(object, "metadata.annotations")
        {
            default_str(annotations, TEMPLATE_GENERATION, "0");
        }
        let Some(spec) = object_at(object, "spec") else { return };
        default(spec, "revisionHistoryLimit", 10);
        let Some(strategy) = object_at(spec, "updateStrategy") else { return };
        default_str(strategy, "type", "RollingUpdate");
        if str_at(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = object_at(strategy, "rollingUpdate")
        {
            default(rolling, "maxUnavailable", 1);
            default(rolling, "maxSurge", 0);
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        let none = ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"];
        set(
            object,
            "status",
            none.iter().map(|f| ((*f).to_owned(), 0.into())).collect::<serde_json::Map<_, _>>(),
        );
        set_template_generation(object, 1);
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        let selector = at(object, "spec.selector");
        let before = errors.0.len();
        rules::label_selector(selector, &path.field("selector"), errors);
        if errors.0.len() == before {
            workloads::template_is_selected(object, errors);
        }
        if !selector.is_null() && rules::selects_all(selector) {
            let detail = "empty selector is invalid for daemonset";
            errors.invalid(&path.field("selector"), selector.clone(), detail);
        }
        let template = at(object, workloads::TEMPLATE);
        workloads::long_running_template(template, "DaemonSet", &path.field("template"), errors);
        workloads::non_negative(object, &["minReadySeconds", "revisionHistoryLimit"], errors);
        let (strategy, here) = (at(object, "spec.updateStrategy"), path.field("updateStrategy"));
        match str_at(strategy, "type") {
            "RollingUpdate" => rolling(at(strategy, "rollingUpdate"), &here.field("rollingUpdate"), errors),
            "OnDelete" => {}
            _ => {
                let shown = rules::internal::shown(strategy, rules::internal::ROLLING_STRATEGY);
                errors.not_supported_as(&here, &shown, &["RollingUpdate", "OnDelete"]);
            }
        }
    }
}

impl UpdateStrategy for DaemonSets {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "status");
        let changed = at(new, workloads::TEMPLATE) != at(old, workloads::TEMPLATE);
        let before = at(old, "metadata.annotations").get(TEMPLATE_GENERATION).and_then(Value::as_str);
        let before: i64 = before.and_then(|text| text.parse().ok()).unwrap_or(1);
        set_template_generation(new, before.saturating_add(i64::from(changed)));
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec.selector"], &mut Errors(errors));
    }
}

impl StatusStrategy for DaemonSets {
    fn validate_status_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        workloads::counts(new, &COUNTS, &[], errors);
        workloads::collisions(new, old, errors);
    }
}

impl TableConvertor for DaemonSets {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let count = |path| Value::from(workloads::count(object, path));
        let [containers, images] = workloads::wide_cells(object);
        vec![
            name(object).into(),
            count("status.desiredNumberScheduled"),
            count("status.currentNumberScheduled"),
            count("status.numberReady"),
            count("status.updatedNumberScheduled"),
            count("status.numberAvailable"),
            table::labels(at(object, "spec.template.spec.nodeSelector")).into(),
            table::age(object, now),
            containers,
            images,
            table::selector(at(object, "spec.selector")).into(),
        ]
    }
}

crate::usual!(DaemonSets: DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

fn set_template_generation(object: &mut Object, generation: i64) {
    if let Some(annotations) = object_at(object, "metadata.annotations") {
        set(annotations, TEMPLATE_GENERATION, generation.to_string());
    }
}

/// A node has one pod or, while it surges, two: one of the numbers is zero and the other is not.
fn rolling(rolling: &Value, path: &Path, errors: &mut Errors) {
    let mut zero = [false; 2];
    for (i, field) in ["maxUnavailable", "maxSurge"].into_iter().enumerate() {
        let value = at(rolling, field);
        rules::int_or_percent(value, &path.field(field), errors);
        rules::at_most_all(value, &path.field(field), errors);
        zero[i] = workloads::amount(value) == 0;
    }
    match zero {
        [true, true] => errors.required(&path.field("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
        [false, false] if has(rolling, "maxSurge") => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.invalid(&path.field("maxSurge"), at(rolling, "maxSurge").clone(), detail);
        }
        _ => {}
    }
}
