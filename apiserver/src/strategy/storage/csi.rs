//! What CSI drivers say of themselves, and attachments of volumes to nodes.

use super::*;

pub struct CsiDrivers;
pub struct CsiNodes;
pub struct CsiStorageCapacities;
pub struct VolumeAttachments;

impl Strategy for CsiDrivers {
    fn defaults(&self, object: &mut Object) {
        let Some(spec) = object_at(object, "spec") else { return };
        default(spec, "attachRequired", true);
        default(spec, "podInfoOnMount", false);
        default(spec, "storageCapacity", false);
        default(spec, "requiresRepublish", false);
        default(spec, "seLinuxMount", false);
        default_str(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if list_at(spec, "volumeLifecycleModes").is_empty() {
            set(spec, "volumeLifecycleModes", json!(["Persistent"]));
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        if name(object).len() > 63 {
            errors.too_long(&Path::root("metadata").field("name"), 63);
        }
        let policies = &["ReadWriteOnceWithFSType", "File", "None"];
        rules::one_of(&object["spec"], "fsGroupPolicy", policies, &path, errors);
        for mode in strings_at(object, "spec.volumeLifecycleModes") {
            if !matches!(mode, "Persistent" | "Ephemeral") {
                errors.not_supported(&path.field("volumeLifecycleModes"), mode, &["Ephemeral", "Persistent"]);
            }
        }
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let fields = ["spec.attachRequired", "spec.volumeLifecycleModes"];
        rules::immutable(new, old, &fields, &mut Errors(errors));
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::boolean("AttachRequired", "Whether volumes are attached to nodes"),
                table::boolean("PodInfoOnMount", "Whether the driver is told of the pod"),
                table::boolean("StorageCapacity", "Whether the scheduler looks at capacities"),
                table::string("TokenRequests", "Audiences of tokens that the driver gets"),
                table::boolean("RequiresRepublish", "Whether mounts are refreshed"),
                table::string("Modes", "Life cycles of volumes"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let spec = &object["spec"];
        let flag = |field: &str| Value::from(bool_at(spec, field));
        let audiences: Vec<&str> =
            list_at(spec, "tokenRequests").iter().map(|t| str_at(t, "audience")).collect();
        let modes: Vec<&str> = strings_at(spec, "volumeLifecycleModes").collect();
        vec![
            name(object).into(),
            flag("attachRequired"),
            flag("podInfoOnMount"),
            flag("storageCapacity"),
            table::cell_or_unset(&audiences.join(",")),
            flag("requiresRepublish"),
            table::cell_or_none(&modes.join(",")),
            table::age(object, now),
        ]
    }
}

impl Strategy for CsiNodes {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        for (i, driver) in list_at(object, "spec.drivers").iter().enumerate() {
            for field in ["name", "nodeID"] {
                if str_at(driver, field).is_empty() {
                    errors.required(&Path::root("spec").field("drivers").index(i).field(field), "");
                }
            }
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::integer("Drivers", "Number of drivers on the node"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), list_at(object, "spec.drivers").len().into(), table::age(object, now)]
    }
}

impl Strategy for CsiStorageCapacities {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        rules::subdomain(str_at(object, "storageClassName"), &Path::root("storageClassName"), errors);
        rules::label_selector(at(object, "nodeTopology"), &Path::root("nodeTopology"), errors);
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["nodeTopology", "storageClassName"], &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("StorageClassName", "Class that the capacity is of"),
                table::string("Capacity", "Free capacity"),
            ]
        }
    }

    fn row(&self, object: &Object, _now: Timestamp) -> Vec<Value> {
        let capacity = at(object, "capacity");
        let capacity = if capacity.is_null() { "<unset>".to_owned() } else { rules::quantity_text(capacity) };
        vec![name(object).into(), str_at(object, "storageClassName").into(), capacity.into()]
    }
}

impl Strategy for VolumeAttachments {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        set(object, "status", json!({ "attached": false }));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        for field in ["attacher", "nodeName"] {
            if str_at(&object["spec"], field).is_empty() {
                errors.required(&path.field(field), "");
            }
        }
        let source = at(object, "spec.source");
        match (has(source, "persistentVolumeName"), has(source, "inlineVolumeSpec")) {
            (false, false) => {
                errors.required(
                    &path.field("source"),
                    "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                );
            }
            (true, true) => {
                errors.forbidden(
                    &path.field("source"),
                    "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                );
            }
            _ => {}
        }
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec"], &mut Errors(errors));
    }

    fn has_status(&self) -> bool {
        true
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Attacher", "Driver that attaches"),
                table::string("PV", "Volume that is attached"),
                table::string("Node", "Node that it is attached to"),
                table::boolean("Attached", "Whether it is"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![
            name(object).into(),
            str_at(object, "spec.attacher").into(),
            str_at(object, "spec.source.persistentVolumeName").into(),
            str_at(object, "spec.nodeName").into(),
            bool_at(object, "status.attached").into(),
            table::age(object, now),
        ]
    }
}
