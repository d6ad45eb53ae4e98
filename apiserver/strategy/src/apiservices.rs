//! APIServices: which server answers for a group and version.

use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, StatusStrategy, TableConvertor, UpdateStrategy, copy_field,
    rules, table,
};
use crate::Facts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_api::meta::NameRule;
use coracle_api::{FieldError, Object, meta, validation};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct ApiServices;

/// Upstream's upper ends of the two priorities.
const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1_000;

/// What makes an APIService without a service true from the start.
pub fn local_condition(now: Timestamp) -> Value {
    json!({ "type": "Available", "status": "True", "reason": "Local",
        "message": "Local APIServices are always available", "lastTransitionTime": meta::time::format_seconds(now) })
}

fn is_local(object: &Object) -> bool {
    !has(object, "spec.service")
}

impl ResourceFacts for ApiServices {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for ApiServices {
    fn name_rule(&self) -> NameRule {
        NameRule::VersionAndGroup
    }

    fn defaults(&self, object: &mut Object) {
        if let Some(service) = at_mut(object, "spec.service") {
            default(service, "port", 443);
        }
    }

    fn prepare_create(&self, object: &mut Object, env: &Env) {
        remove(object, "metadata.generation");
        let conditions =
            if is_local(object) { json!({ "conditions": [local_condition(env.now)] }) } else { json!({}) };
        set(object, "status", conditions);
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        let (group, version) = (str_at(spec, "group"), str_at(spec, "version"));
        if !group.is_empty() {
            rules::subdomain(group, &path.field("group"), errors);
        } else if version != "v1" {
            let detail = "only v1 may have an empty group and it better be legacy kube";
            errors.required(&path.field("group"), detail);
        }
        for message in validation::dns1035_label(version) {
            errors.invalid(&path.field("version"), version, &message);
        }
        priority(spec, "groupPriorityMinimum", GROUP_PRIORITY_MAX, errors);
        priority(spec, "versionPriority", VERSION_PRIORITY_MAX, errors);
        service(spec, &path, errors);
    }
}

impl UpdateStrategy for ApiServices {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "status");
    }

    fn validate_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let (group, version) = (str_at(new, "spec.group"), str_at(new, "spec.version"));
        if let Some(message) = meta::version_and_group(name(new), version, group) {
            Errors(errors).invalid(&Path::root("metadata").field("name"), name(new), &message);
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for ApiServices {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let path = Path::root("status").field("conditions");
        for (i, condition) in list_at(new, "status.conditions").iter().enumerate() {
            let known = &["True", "False", "Unknown"];
            rules::one_of(condition, "status", known, &path.index(i), &mut Errors(errors));
        }
    }
}

impl TableConvertor for ApiServices {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Service", "Service that answers for the group and version"),
                table::string("Available", "Whether it can be reached"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let service = match is_local(object) {
            true => "Local".to_owned(),
            false => format!(
                "{}/{}",
                str_at(object, "spec.service.namespace"),
                str_at(object, "spec.service.name")
            ),
        };
        let found = list_at(object, "status.conditions").iter().find(|c| c["type"] == "Available");
        let available = found.map_or_else(
            || "Unknown".to_owned(),
            |condition| match (str_at(condition, "status"), str_at(condition, "reason")) {
                ("True", _) => "True".to_owned(),
                (status, "") => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            },
        );
        vec![name(object).into(), service.into(), available.into(), table::age(object, now)]
    }
}

crate::usual!(ApiServices: DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

fn priority(spec: &Value, field: &str, max: i64, errors: &mut Errors) {
    let value = i64_at(spec, field).unwrap_or(0);
    if !(1..=max).contains(&value) {
        let detail = format!("must be positive and less than {max}");
        errors.invalid(&Path::root("spec").field(field), value, &detail);
    }
}

fn service(spec: &Value, path: &Path, errors: &mut Errors) {
    let bundle = str_at(spec, "caBundle");
    let insecure = bool_at(spec, "insecureSkipTLSVerify");
    let here = path.field("insecureSkipTLSVerify");
    if !has(spec, "service") {
        if !bundle.is_empty() {
            let size = STANDARD.decode(bundle).map_or(bundle.len(), |bytes| bytes.len());
            let size = format!("{size} bytes");
            errors.invalid(&path.field("caBundle"), size, "local APIServices may not have a caBundle");
        }
        if insecure {
            errors.invalid(&here, true, "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    for field in ["namespace", "name"] {
        if str_at(at(spec, "service"), field).is_empty() {
            errors.required(&path.field("service").field(field), "");
        }
    }
    // Upstream takes any number here, and then never finds the port.
    let port = i64_at(spec, "service.port").unwrap_or(443);
    if !(1..=65_535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.invalid(&path.field("service").field("port"), port, detail);
    }
    if insecure && !bundle.is_empty() {
        errors.invalid(&here, true, "may not be true if caBundle is present");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[test]
    fn local_and_remote() {
        let spec =
            json!({ "group": "a.b", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10 });
        let mut local = json!({ "metadata": { "name": "v1.a.b" }, "spec": spec });
        let world = World::default();
        ApiServices.prepare_create(&mut local, &world.env());
        let row = Value::Array(ApiServices.row(&local, Timestamp::UNIX_EPOCH));
        assert_eq!(row, json!(["v1.a.b", "Local", "True", "<unknown>"]));
        let mut remote = local.clone();
        remote["spec"]["service"] = json!({ "namespace": "n", "name": "s" });
        ApiServices.defaults(&mut remote);
        ApiServices.prepare_create(&mut remote, &world.env());
        let row = Value::Array(ApiServices.row(&remote, Timestamp::UNIX_EPOCH));
        assert_eq!(row, json!(["v1.a.b", "n/s", "Unknown", "<unknown>"]));
        assert_eq!(remote["spec"]["service"]["port"], 443);
        remote["metadata"]["name"] = "x".into();
        remote["spec"]["versionPriority"] = 0.into();
        let mut errors = Vec::new();
        ApiServices.validate(&remote, &world.env(), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["spec.versionPriority: Invalid value: 0: must be positive and less than 1000"]);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let spec = |more: Value| {
            let mut spec = json!({ "group": "a.b", "version": "v1", "groupPriorityMinimum": 20_000,
                "versionPriority": 1_000 });
            crate::testing::merge(&mut spec, &more);
            json!({ "metadata": { "name": "v1.a.b" }, "spec": spec })
        };
        let service = |port: i64| json!({ "namespace": "n", "name": "s", "port": port });
        let table = [
            (json!({}), ""),
            (json!({ "service": service(443) }), ""),
            (
                json!({ "caBundle": "YWJjZA==" }),
                "spec.caBundle: Invalid value: \"4 bytes\": local APIServices may not have a caBundle",
            ),
            (
                json!({ "insecureSkipTLSVerify": true }),
                "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
            ),
            (
                json!({ "service": service(443), "insecureSkipTLSVerify": true, "caBundle": "YQ==" }),
                "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
            ),
            (
                json!({ "service": service(70_000) }),
                "spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
            ),
            (
                json!({ "service": {} }),
                "spec.service.namespace: Required value|spec.service.name: Required value",
            ),
            (
                json!({ "groupPriorityMinimum": 20_001 }),
                "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
            ),
        ];
        let world = World::default();
        for (more, expected) in table {
            let mut errors = Vec::new();
            ApiServices.validate(&spec(more.clone()), &world.env(), &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts.join("|"), expected, "{more}");
        }
        let (mut errors, moved) = (Vec::new(), spec(json!({ "group": "c.d" })));
        ApiServices.validate_update(&moved, &spec(json!({})), &world.env(), &mut errors);
        assert_eq!(
            errors[0].to_string(),
            "metadata.name: Invalid value: \"v1.a.b\": must be `spec.version+\".\"+spec.group`: \"v1.c.d\""
        );
    }
}
