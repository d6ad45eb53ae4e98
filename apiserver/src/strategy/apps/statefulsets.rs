//! StatefulSets.

use super::*;

pub struct StatefulSets;

const MUTABLE: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

impl Strategy for StatefulSets {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        workloads::warnings(new, old, workloads::TEMPLATE)
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
            crate::strategy::claims::defaults(claim);
        }
        let Some(strategy) = object_at(spec, "updateStrategy") else { return };
        default_str(strategy, "type", "RollingUpdate");
        if str_at(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = object_at(strategy, "rollingUpdate")
        {
            default(rolling, "partition", 0);
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({ "replicas": 0, "availableReplicas": 0 }));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        let spec = &object["spec"];
        rules::one_of(spec, "podManagementPolicy", &["OrderedReady", "Parallel"], &path, errors);
        let strategy = path.field("updateStrategy");
        rules::one_of(&spec["updateStrategy"], "type", &["OnDelete", "RollingUpdate"], &strategy, errors);
        let rolling = strategy.field("rollingUpdate");
        if str_at(spec, "updateStrategy.type") == "OnDelete" && has(spec, "updateStrategy.rollingUpdate") {
            let detail = format!("only allowed for updateStrategy '{}'", "RollingUpdate");
            errors.invalid(&rolling, at(spec, "updateStrategy.rollingUpdate").clone(), &detail);
        }
        rules::non_negative_at(at(spec, "updateStrategy.rollingUpdate"), "partition", &rolling, errors);
        for field in ["whenDeleted", "whenScaled"] {
            let here = path.field("persistentVolumeClaimRetentionPolicy");
            let policy = &spec["persistentVolumeClaimRetentionPolicy"];
            rules::one_of(policy, field, &["Delete", "Retain"], &here, errors);
        }
        workloads::non_negative(object, &["replicas", "minReadySeconds", "revisionHistoryLimit"], errors);
        rules::non_negative_at(&spec["ordinals"], "start", &path.field("ordinals"), errors);
        workloads::selector_of_template(object, "statefulset", errors);
        let template = at(object, workloads::TEMPLATE);
        workloads::long_running_template(
            &with_claims(template, spec),
            "StatefulSet",
            &path.field("template"),
            errors,
        );
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

    fn validate_status_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        workloads::counts(
            new,
            &["replicas"],
            &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
            errors,
        );
        workloads::collisions(new, old, errors);
    }

    fn has_status(&self) -> bool {
        true
    }

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

/// The template as its pods will be: with a volume for each claim, which containers may mount.
fn with_claims(template: &Value, spec: &Value) -> Value {
    let mut template = template.clone();
    let claims: Vec<&str> = list_at(spec, "volumeClaimTemplates").iter().map(name).collect();
    if let Some(pod) = at_mut(&mut template, "spec").filter(|_| !claims.is_empty()) {
        default(pod, "volumes", json!([]));
        let volumes = at_mut(pod, "volumes").and_then(Value::as_array_mut);
        if let Some(volumes) = volumes {
            volumes.retain(|v| !claims.contains(&str_at(v, "name")));
            let volume =
                |claim: &&str| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } });
            volumes.extend(claims.iter().map(volume));
        }
    }
    template
}
