//! What CSI drivers say of themselves, and attachments of volumes to nodes.

use super::super::pods::validate::resources;
use super::super::pods::validate::sources::{self, driver};
use super::*;
use crate::Facts;
use crate::pods::warnings::{Notes, node_term, old_label};
use std::collections::HashSet;

pub struct CsiDrivers;
pub struct CsiNodes;
pub struct CsiStorageCapacities;
pub struct VolumeAttachments;

/// The CSI specification's longest node id, and the shortest time between two looks at what a node can attach.
const NODE_ID_MAX_BYTES: usize = 256;
const SHORTEST_UPDATE_SECONDS: i64 = 10;
/// Of what an attacher says of an attachment, and of what went wrong; upstream's.
const METADATA_MAX_BYTES: usize = 256 * 1024;
const MESSAGE_MAX_BYTES: usize = 1024;

impl ResourceFacts for CsiDrivers {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: false }
    }
}

impl CreateStrategy for CsiDrivers {
    fn defaults(&self, object: &mut Object) {
        let Some(spec) = object_at(object, "spec") else { return };
        default(spec, "attachRequired", true);
        default(spec, "podInfoOnMount", false);
        default(spec, "storageCapacity", false);
        default(spec, "requiresRepublish", false);
        default(spec, "seLinuxMount", false);
        default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if list_at(spec, "volumeLifecycleModes").is_empty() {
            set(spec, "volumeLifecycleModes", json!(["Persistent"]));
        }
    }

    /// Only changes are counted: a new one has no generation.
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        tokens(list_at(object, "spec.tokenRequests"), &path.field("tokenRequests"), errors);
        let period = i64_at(object, "spec.nodeAllocatableUpdatePeriodSeconds");
        if let Some(seconds) = period.filter(|seconds| *seconds < SHORTEST_UPDATE_SECONDS) {
            let here = path.field("nodeAllocatableUpdatePeriodSeconds");
            let detail = format!("must be greater than or equal to {SHORTEST_UPDATE_SECONDS} seconds");
            errors.invalid(&here, seconds, &detail);
        }
        let policies = &["File", "None", "ReadWriteOnceWithFSType"];
        rules::one_of_if_there(&object["spec"], "fsGroupPolicy", policies, &path, errors);
        for mode in strings_at(object, "spec.volumeLifecycleModes") {
            if !matches!(mode, "Persistent" | "Ephemeral") {
                errors.not_supported(&path.field("volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
            }
        }
    }
}

impl UpdateStrategy for CsiDrivers {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        let first = !has(old, "metadata.generation") && new.get("spec") != old.get("spec");
        if let Some(metadata) = object_at(new, "metadata").filter(|_| first) {
            set(metadata, "generation", 1);
        }
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        // Upstream calls it so.
        let here = Path::root("spec").field("attachedRequired");
        errors.immutable(&here, at(new, "spec.attachRequired"), at(old, "spec.attachRequired"));
        rules::immutable(new, old, &["spec.volumeLifecycleModes"], errors);
    }
}

impl TableConvertor for CsiDrivers {
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

crate::usual!(CsiDrivers: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

impl ResourceFacts for CsiNodes {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: false }
    }
}

impl CreateStrategy for CsiNodes {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let mut seen = HashSet::new();
        for (i, entry) in list_at(object, "spec.drivers").iter().enumerate() {
            let path = Path::root("spec").field("drivers").index(i);
            node_driver(entry, &path, errors);
            if !seen.insert(str_at(entry, "name")) {
                errors.duplicate(&path.field("name"), str_at(entry, "name"));
            }
        }
    }
}

impl UpdateStrategy for CsiNodes {
    /// Only how much a driver can attach may change while it is there.
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let path = Path::root("spec").field("drivers");
        for old in list_at(old, "spec.drivers") {
            let same = |new: &&Value| str_at(new, "name") == str_at(old, "name");
            for new in list_at(new, "spec.drivers").iter().filter(same) {
                let mut leveled = new.clone();
                copy_field(&mut leveled, old, "allocatable");
                Errors(errors).immutable(&path, &leveled, old);
            }
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl TableConvertor for CsiNodes {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::integer("Drivers", "Number of drivers on the node"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), list_at(object, "spec.drivers").len().into(), table::age(object, now)]
    }
}

crate::usual!(CsiNodes: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// Audiences differ, and tokens live from ten minutes to 2^32 seconds.
fn tokens(requests: &[Value], path: &Path, errors: &mut Errors) {
    let mut audiences = HashSet::new();
    for (i, request) in requests.iter().enumerate() {
        let here = path.index(i);
        let audience = str_at(request, "audience");
        if !audiences.insert(audience) {
            errors.duplicate(&here.field("audience"), audience);
            continue;
        }
        if let Some(seconds) = i64_at(request, "expirationSeconds") {
            rules::token_seconds(seconds, &here.field("expirationSeconds"), errors);
        }
    }
}

/// A driver as its node has it.
fn node_driver(entry: &Value, path: &Path, errors: &mut Errors) {
    driver(str_at(entry, "name"), &path.field("name"), errors);
    let (id, here) = (str_at(entry, "nodeID"), path.field("nodeID"));
    if id.is_empty() {
        errors.required(&here, "");
    } else if id.len() > NODE_ID_MAX_BYTES {
        errors.invalid(&here, id, &format!("must be {NODE_ID_MAX_BYTES} characters or less"));
    }
    rules::non_negative_at(at(entry, "allocatable"), "count", &path.field("allocatable"), errors);
    let mut keys = HashSet::new();
    for key in strings_at(entry, "topologyKeys") {
        if key.is_empty() {
            errors.required(path, "");
        }
        if !keys.insert(key) {
            errors.duplicate(path, key);
        }
        rules::qualified_name(key, path, errors);
    }
}

impl ResourceFacts for CsiStorageCapacities {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }
}

impl CreateStrategy for CsiStorageCapacities {
    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        let (mut notes, path) = (Notes::default(), Path::root("nodeTopology"));
        node_term(at(new, "nodeTopology"), &path, &mut notes);
        for (label, _) in entries_at(new, "nodeTopology.matchLabels") {
            if let Some(text) = old_label(label) {
                notes.add(&path.field("matchLabels").field(label), text);
            }
        }
        notes.found
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        rules::subdomain(str_at(object, "storageClassName"), &Path::root("storageClassName"), errors);
        rules::label_selector(at(object, "nodeTopology"), &Path::root("nodeTopology"), errors);
        if has(object, "capacity") {
            resources::non_negative(at(object, "capacity"), &Path::root("capacity"), errors);
        }
    }
}

impl UpdateStrategy for CsiStorageCapacities {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["nodeTopology", "storageClassName"], &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

crate::usual!(CsiStorageCapacities: StatusStrategy, DeleteStrategy, TransactionStrategy, TableConvertor, SelectableFields, ResetFieldsStrategy);

impl ResourceFacts for VolumeAttachments {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: false }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for VolumeAttachments {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        set(object, "status", json!({ "attached": false }));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        driver(str_at(object, "spec.attacher"), &path.field("attacher"), errors);
        rules::subdomain(str_at(object, "spec.nodeName"), &path.field("nodeName"), errors);
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
            (true, false) => {
                let here = path.field("source").field("persistentVolumeName");
                match str_at(source, "persistentVolumeName") {
                    "" => errors.required(&here, "must specify non empty persistentVolumeName"),
                    volume => rules::subdomain(volume, &here, errors),
                }
            }
            (false, true) => {
                let here = path.field("source").field("inlineVolumeSpec");
                inline(at(source, "inlineVolumeSpec"), &here, errors);
            }
        }
    }
}

impl UpdateStrategy for VolumeAttachments {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec"], &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for VolumeAttachments {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let (errors, path) = (&mut Errors(errors), Path::root("status"));
        let metadata = entries_at(new, "status.attachmentMetadata");
        let bytes: usize = metadata.map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
        if bytes > METADATA_MAX_BYTES {
            errors.too_long(&path.field("attachmentMetadata"), METADATA_MAX_BYTES);
        }
        for field in ["attachError", "detachError"] {
            let (failure, here) = (at(&new["status"], field), path.field(field));
            if str_at(failure, "message").len() > MESSAGE_MAX_BYTES {
                // Upstream names the other limit.
                errors.too_long(&here.field("message"), METADATA_MAX_BYTES);
            }
            if let Some(code) = i64_at(failure, "errorCode").filter(|code| *code < 0) {
                let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
                errors.invalid(&here.field("errorCode"), code, &detail);
            }
        }
    }
}

impl TableConvertor for VolumeAttachments {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                Column { format: "name", ..table::string("Attacher", "Driver that attaches") },
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

crate::usual!(VolumeAttachments: DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// A volume that no object describes: a driver's, and nobody's claim.
fn inline(spec: &Value, path: &Path, errors: &mut Errors) {
    let detail = "may not be specified in the context of inline volumes";
    for field in ["claimRef", "capacity"].iter().filter(|field| has(spec, field)) {
        errors.forbidden(&path.field(field), detail);
    }
    match at(spec, "csi") {
        Value::Null => {
            errors.required(&path.field("csi"), "has to be specified in the context of inline volumes")
        }
        csi => {
            let holder = sources::Holder { in_pod: false, name: "" };
            sources::source("csi", csi, holder, &path.field("csi"), errors);
        }
    }
}
