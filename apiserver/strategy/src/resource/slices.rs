//! ResourceSlices: what a driver has to offer.

use super::*;
use crate::{Facts, FieldLabels};

pub struct ResourceSlices;

/// Devices of a slice, and of one that has taints or counters; upstream's numbers.
const DEVICES_MAX: usize = 128;
const ADVANCED_DEVICES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
/// Kinds of attributes' values that hold several, which need a feature that is off by default.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Taints know since when they are there.
fn date_taints(object: &mut Object, now: Timestamp) {
    let now = coracle_api::meta::time::format_seconds(now);
    for device in each_mut(object, "spec.devices") {
        each_mut(device, "taints").for_each(|taint| default(taint, "timeAdded", now.as_str()));
    }
}

/// What belongs to features that upstream has switched off: lists as values of attributes, and devices that stand for
/// resources of their node.
fn drop_disabled(object: &mut Object) {
    for device in each_mut(object, "spec.devices") {
        remove(device, "nodeAllocatableResourceMappings");
        let Some(attributes) = at_mut(device, "attributes").and_then(Value::as_object_mut) else { continue };
        for attribute in attributes.values_mut() {
            LISTS.iter().for_each(|list| drop(remove(attribute, list)));
        }
    }
}

fn is_advanced(device: &Value) -> bool {
    !list_at(device, "taints").is_empty() || !list_at(device, "consumesCounters").is_empty()
}

impl ResourceFacts for ResourceSlices {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }
}

impl CreateStrategy for ResourceSlices {
    fn prepare_create(&self, object: &mut Object, env: &Env) {
        drop_disabled(object);
        date_taints(object, env.now);
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        check(object, None, &mut Errors(errors));
    }

    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        let driver = str_at(new, "spec.driver");
        match driver == driver.to_lowercase() {
            true => Vec::new(),
            false => vec![format!(
                "spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters"
            )],
        }
    }
}

impl UpdateStrategy for ResourceSlices {
    fn prepare_update(&self, new: &mut Object, _old: &Object, env: &Env) {
        drop_disabled(new);
        date_taints(new, env.now);
    }

    fn validate_changed(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        check(new, Some(old), &mut Errors(errors));
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec.pool.name", "spec.driver", "spec.nodeName"], &mut Errors(errors));
    }
}

impl TableConvertor for ResourceSlices {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Node", "Node that the devices are on"),
                table::string("Driver", "Driver of the devices"),
                table::string("Pool", "Pool that the devices belong to"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let of = |path: &str| Value::from(str_at(object, path));
        vec![
            name(object).into(),
            of("spec.nodeName"),
            of("spec.driver"),
            of("spec.pool.name"),
            table::age(object, now),
        ]
    }
}

impl SelectableFields for ResourceSlices {
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels { names: &["spec.nodeName", "spec.driver"], ..FieldLabels::VERSIONED }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        ["spec.nodeName", "spec.driver"].map(|field| (field, str_at(object, field).to_owned())).into()
    }
}

crate::usual!(ResourceSlices: StatusStrategy, DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);

fn check(object: &Object, old: Option<&Object>, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    driver(str_at(spec, "driver"), &path.field("driver"), errors);
    let here = path.field("pool");
    pool(str_at(spec, "pool.name"), &here.field("name"), errors);
    let count = i64_at(spec, "pool.resourceSliceCount").unwrap_or(0);
    if count <= 0 {
        errors.invalid(&here.field("resourceSliceCount"), count, "must be greater than zero");
    }
    if let Some(generation) = i64_at(spec, "pool.generation").filter(|g| *g < 0) {
        errors.invalid(&here.field("generation"), generation, "must be greater than or equal to zero");
    }
    nodes(spec, &path, errors);
    if has(spec, "sharedCounters") && has(spec, "devices") {
        errors.invalid(&path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    content(spec, old, &path, errors);
}

fn nodes(spec: &Value, path: &Path, errors: &mut Errors) {
    const PLACE: devices::Place = devices::Place {
        flags: &["allNodes", "perDeviceNodeSelection"],
        unnamed: "must be either unset or set to a non-empty string",
        none: "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        several: "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple \
                  fields are set",
    };
    PLACE.check(spec, path, errors);
    if has(spec, "nodeSelector") && list_at(spec, "nodeSelector.nodeSelectorTerms").len() != 1 {
        let here = path.field("nodeSelector").field("nodeSelectorTerms");
        let terms = at(spec, "nodeSelector.nodeSelectorTerms").clone();
        errors.invalid(&here, terms, "must have exactly one node selector term");
    }
}

fn content(spec: &Value, old: Option<&Object>, path: &Path, errors: &mut Errors) {
    let devices = list_at(spec, "devices");
    let max = if devices.iter().any(is_advanced) { ADVANCED_DEVICES_MAX } else { DEVICES_MAX };
    let per_device = bool_at(spec, "perDeviceNodeSelection");
    let known = old.map(|old| list_at(old, "spec.devices")).unwrap_or_default();
    let known: std::collections::BTreeMap<&str, &Value> =
        known.iter().map(|d| (str_at(d, "name"), d)).collect();
    each(devices, max, &path.field("devices"), own_name, errors, &mut |device, here, errors| {
        let before = known.get(str_at(device, "name")).copied();
        devices::check(device, before, here, per_device, errors);
    });
    let sets = list_at(spec, "sharedCounters");
    let here = path.field("sharedCounters");
    each(sets, COUNTER_SETS_MAX, &here, own_name, errors, &mut |set, here, errors| {
        devices::counters(set, "name", here, errors);
    });
}
