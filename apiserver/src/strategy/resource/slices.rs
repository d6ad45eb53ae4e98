//! ResourceSlices: what a driver has to offer.

use super::super::pods::validate::node_selector;
use super::*;

pub struct ResourceSlices;

/// Devices of a slice, and of one that has taints or counters; upstream's numbers.
const DEVICES_MAX: usize = 128;
const ADVANCED_DEVICES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
const WHERE: [&str; 4] = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];

/// Taints know since when they are there.
fn date_taints(object: &mut Object, now: Timestamp) {
    let now = coracle_api::meta::time::format_seconds(now);
    for device in each_mut(object, "spec.devices") {
        each_mut(device, "taints").for_each(|taint| default(taint, "timeAdded", now.as_str()));
    }
}

fn is_advanced(device: &Value) -> bool {
    !list_at(device, "taints").is_empty() || !list_at(device, "consumesCounters").is_empty()
}

impl Strategy for ResourceSlices {
    fn prepare_create(&self, object: &mut Object, env: &Env) {
        date_taints(object, env.now);
    }

    fn prepare_update(&self, new: &mut Object, _old: &Object, env: &Env) {
        date_taints(new, env.now);
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        driver(str_at(spec, "driver"), &path.field("driver"), errors);
        let here = path.field("pool");
        pool(str_at(spec, "pool.name"), &here.field("name"), errors);
        if i64_at(spec, "pool.resourceSliceCount").unwrap_or(0) <= 0 {
            let count = at(spec, "pool.resourceSliceCount").clone();
            errors.invalid(&here.field("resourceSliceCount"), count, "must be greater than zero");
        }
        if let Some(generation) = i64_at(spec, "pool.generation").filter(|g| *g < 0) {
            errors.invalid(&here.field("generation"), generation, "must be greater than or equal to zero");
        }
        nodes(spec, &path, errors);
        content(spec, &path, errors);
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec.driver", "spec.pool.name", "spec.nodeName"], &mut Errors(errors));
    }

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

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        ["spec.nodeName", "spec.driver"].map(|field| (field, str_at(object, field).to_owned())).into()
    }
}

fn nodes(spec: &Value, path: &Path, errors: &mut Errors) {
    const ONE: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    // What says nothing is a mistake of its own.
    let says = |field: &&str| {
        has(spec, field) && !matches!(at(spec, field).as_str(), Some("")) && *at(spec, field) != false
    };
    let given: Vec<&str> = WHERE.into_iter().filter(says).collect();
    match given.as_slice() {
        [] => errors.required(path, ONE),
        [_] => {}
        several => {
            let list =
                format!("{{{}}}", several.iter().map(|f| format!("`{f}`")).collect::<Vec<_>>().join(", "));
            errors.invalid(path, list, &format!("{ONE}, but multiple fields are set"));
        }
    }
    for field in ["allNodes", "perDeviceNodeSelection"] {
        if *at(spec, field) == Value::Bool(false) {
            errors.invalid(&path.field(field), false, "must be either unset or set to true");
        }
    }
    if has(spec, "nodeName") {
        match str_at(spec, "nodeName") {
            "" => errors.invalid(
                &path.field("nodeName"),
                "",
                "must be either unset or set to a non-empty string",
            ),
            node => rules::subdomain(node, &path.field("nodeName"), errors),
        }
    }
    if has(spec, "nodeSelector") {
        node_selector(at(spec, "nodeSelector"), &path.field("nodeSelector"), errors);
    }
    if has(spec, "nodeSelector") && list_at(spec, "nodeSelector.nodeSelectorTerms").len() != 1 {
        let here = path.field("nodeSelector").field("nodeSelectorTerms");
        let terms = at(spec, "nodeSelector.nodeSelectorTerms").clone();
        errors.invalid(&here, terms, "must have exactly one node selector term");
    }
}

fn content(spec: &Value, path: &Path, errors: &mut Errors) {
    let devices = list_at(spec, "devices");
    let max = if devices.iter().any(is_advanced) { ADVANCED_DEVICES_MAX } else { DEVICES_MAX };
    let per_device = bool_at(spec, "perDeviceNodeSelection");
    let here = path.field("devices");
    each(devices, max, &here, own_name, errors, &mut |device, here, errors| {
        devices::check(device, here, per_device, errors);
    });
    let sets = list_at(spec, "sharedCounters");
    each(
        sets,
        COUNTER_SETS_MAX,
        &path.field("sharedCounters"),
        own_name,
        errors,
        &mut |set, here, errors| {
            match str_at(set, "name") {
                "" => errors.required(&here.field("name"), ""),
                name => rules::label(name, &here.field("name"), errors),
            }
            if entries_at(set, "counters").next().is_none() {
                errors.required(&here.field("counters"), "");
            }
            for (counter, value) in entries_at(set, "counters") {
                let here = here.field("counters").key(counter);
                rules::label(counter, &here, errors);
                if let Some(mistake) = rules::quantity_mistake(at(value, "value")) {
                    errors.invalid(&here.field("value"), at(value, "value").clone(), &mistake);
                }
            }
        },
    );
}
