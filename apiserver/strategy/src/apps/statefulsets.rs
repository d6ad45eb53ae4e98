//! StatefulSets.

use super::*;
use crate::Facts;
use crate::pods::warnings::{Notes, fraction};
use coracle_api::meta::NameRule;

pub struct StatefulSets;

/// Off in upstream by default: it is not kept, unless it is there.
const MAX_UNAVAILABLE: &str = "spec.updateStrategy.rollingUpdate.maxUnavailable";

const MUTABLE: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

impl ResourceFacts for StatefulSets {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for StatefulSets {
    fn name_rule(&self) -> NameRule {
        NameRule::Dns1123Label
    }

    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        let mut notes = Notes { found: workloads::warnings(new, old, workloads::TEMPLATE) };
        for (i, claim) in list_at(new, "spec.volumeClaimTemplates").iter().enumerate() {
            let here = Path::root("spec").field("volumeClaimTemplates").index(i);
            // Upstream's two ways of writing the path.
            let here = if old.is_some() { here.field("Spec") } else { here }.field("resources");
            for field in ["requests", "limits"] {
                fraction(at(at(claim, "spec.resources"), field), "storage", &here.field(field), &mut notes);
            }
        }
        if i64_at(new, "spec.revisionHistoryLimit").is_some_and(|limit| limit < 0) {
            let text = "a negative value retains all historical revisions; a value >= 0 is recommended";
            notes.add(&Path::root("spec").field("revisionHistoryLimit"), text);
        }
        notes.found
    }

    fn defaults(&self, object: &mut Object) {
        workloads::template_defaults(object, workloads::TEMPLATE);
        let Some(spec) = object_at(object, "spec") else { return };
        default_str(spec, "podManagementPolicy", "OrderedReady");
        default(spec, "replicas", 1);
        default(spec, "revisionHistoryLimit", 10);
        if let Some(policy) = object_at(spec, "persistentVolumeClaimRetentionPolicy") {
            default_str(policy, "whenDeleted", "Retain");
            default_str(policy, "whenScaled", "Retain");
        }
        for claim in each_mut(spec, "volumeClaimTemplates") {
            crate::claims::defaults(claim);
            default_str(claim, "apiVersion", "v1");
            default_str(claim, "kind", "PersistentVolumeClaim");
        }
        let Some(strategy) = object_at(spec, "updateStrategy") else { return };
        if str_at(strategy, "type").is_empty() {
            default_str(strategy, "type", "RollingUpdate");
            object_at(strategy, "rollingUpdate");
        }
        if str_at(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = at_mut(strategy, "rollingUpdate")
        {
            default(rolling, "partition", 0);
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({ "replicas": 0, "availableReplicas": 0 }));
        remove(object, MAX_UNAVAILABLE);
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        check(object, true, &mut Errors(errors));
    }
}

impl UpdateStrategy for StatefulSets {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "status");
        if !has(old, MAX_UNAVAILABLE) {
            remove(new, MAX_UNAVAILABLE);
        }
    }

    fn validate_changed(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        check(new, false, &mut Errors(errors));
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let mut leveled = new["spec"].clone();
        for field in MUTABLE {
            copy_field(&mut leveled, &old["spec"], field);
        }
        if leveled != old["spec"] {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            Errors(errors).forbidden(&Path::root("spec"), detail);
        }
    }
}

impl StatusStrategy for StatefulSets {
    fn validate_status_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        workloads::counts(new, &["replicas"], &parts, errors);
        workloads::collisions(new, old, errors);
    }
}

impl TableConvertor for StatefulSets {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Ready", "Pods that are ready, of those that should be"),
                table::AGE,
                table::WIDE_CONTAINERS,
                table::WIDE_IMAGES,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let count = |path| workloads::count(object, path);
        let [containers, images] = workloads::wide_cells(object);
        let ready = format!("{}/{}", count("status.readyReplicas"), count("spec.replicas"));
        vec![name(object).into(), ready.into(), table::age(object, now), containers, images]
    }
}

crate::usual!(StatefulSets: DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// What the pods and claims are made of is judged only of a new one: older ones may have any, and must stay changeable.
fn check(object: &Object, is_new: bool, errors: &mut Errors) {
    let (path, spec) = (Path::root("spec"), &object["spec"]);
    match str_at(spec, "podManagementPolicy") {
        "" => errors.required(&path.field("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid(&path.field("podManagementPolicy"), other, detail);
        }
    }
    strategy(at(spec, "updateStrategy"), &path.field("updateStrategy"), errors);
    for field in ["whenDeleted", "whenScaled"] {
        let here = path.field("persistentVolumeClaimRetentionPolicy").field(field);
        let policy = str_at(&spec["persistentVolumeClaimRetentionPolicy"], field);
        if !matches!(policy, "Retain" | "Delete") {
            errors.not_supported(&here, policy, &["Retain", "Delete"]);
        }
    }
    workloads::non_negative(object, &["replicas", "minReadySeconds"], errors);
    rules::non_negative_at(&spec["ordinals"], "start", &path.field("ordinals"), errors);
    if is_new && !str_at(spec, "serviceName").is_empty() {
        rules::label(str_at(spec, "serviceName"), &path.field("serviceName"), errors);
    }
    let readable = workloads::selector_of_template(object, "statefulset", "", errors);
    template(spec, is_new, readable, &path, errors);
}

fn template(spec: &Value, is_new: bool, readable: bool, path: &Path, errors: &mut Errors) {
    let (template, here) = (at(spec, "template"), path.field("template"));
    if readable && is_new {
        workloads::pod_template_with(template, &claimed(spec), &here, errors);
    } else if readable {
        workloads::template_metadata(template, &here, errors);
    }
    workloads::runs_on(template, "StatefulSet", &here, errors);
    for (i, claim) in list_at(spec, "volumeClaimTemplates").iter().enumerate().filter(|_| is_new) {
        let here = path.field("volumeClaimTemplates").index(i).field("spec");
        crate::claim_spec::spec(at(claim, "spec"), &here, errors);
    }
}

/// The volumes that the pods get by the claims that are made for them.
fn claimed(spec: &Value) -> Vec<Value> {
    let claims = list_at(spec, "volumeClaimTemplates").iter();
    claims
        .map(|claim| json!({ "name": name(claim), "persistentVolumeClaim": { "claimName": name(claim) } }))
        .collect()
}

fn strategy(strategy: &Value, path: &Path, errors: &mut Errors) {
    let (rolling, here) = (at(strategy, "rollingUpdate"), path.field("rollingUpdate"));
    match str_at(strategy, "type") {
        "" => errors.required(path, ""),
        "OnDelete" if !rolling.is_null() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            let shown = rules::internal::shown(rolling, rules::internal::ORDINAL_ROLLING);
            errors.invalid_as(&here, &shown, detail);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            rules::non_negative_at(rolling, "partition", &here, errors);
            let (most, here) = (at(rolling, "maxUnavailable"), here.field("maxUnavailable"));
            rules::int_or_percent(most, &here, errors);
            if *most == 0 || rules::percent(most) == Some(0) {
                errors.invalid(&here, most.clone(), "cannot be 0");
            }
            rules::at_most_all(most, &here, errors);
        }
        _ => {
            let shown = rules::internal::shown(strategy, rules::internal::ORDINAL_STRATEGY);
            errors.invalid_as(path, &shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}
