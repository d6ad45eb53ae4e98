//! The status of a claim: what is allocated, for whom it is reserved, and how the devices are.

use super::super::pods::validate::node_selector;
use super::*;

/// Upstream's numbers; of a device's network, bytes of the names of its interface and its hardware.
const RESERVED_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const CONDITIONS_MAX: usize = 8;
const IPS_MAX: usize = 16;
const INTERFACE_MAX: usize = 256;
const HARDWARE_MAX: usize = 128;

/// What identifies an allocated device.
fn device_id(result: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|field| str_at(result, field))
}

fn allocated(object: &Object) -> Vec<[&str; 4]> {
    list_at(object, "status.allocation.devices.results").iter().map(device_id).collect()
}

/// States of devices that were allocated and are not any more go with the allocation.
pub fn drop_deallocated(new: &mut Object, old: &Object) {
    let now: Vec<[String; 4]> = allocated(new).into_iter().map(|id| id.map(str::to_owned)).collect();
    let gone: Vec<[&str; 4]> = allocated(old)
        .into_iter()
        .filter(|id| !now.iter().any(|n| n.each_ref().map(String::as_str) == *id))
        .collect();
    let Some(status) = at_mut(new, "status") else { return };
    if let Some(devices) = at_mut(status, "devices").and_then(Value::as_array_mut) {
        devices.retain(|device| !gone.contains(&device_id(device)));
        if devices.is_empty() {
            remove(status, "devices");
        }
    }
}

/// Where the first result stands that gives an administrator's access.
pub fn has_admin_access(object: &Object) -> Option<Path> {
    let results = list_at(object, "status.allocation.devices.results");
    let first = results.iter().position(|result| bool_at(result, "adminAccess"))?;
    let path = Path::root("status").field("allocation").field("devices").field("results");
    Some(path.index(first).field("adminAccess"))
}

fn consumer_uid(consumer: &Value) -> Option<&str> {
    consumer.get("uid").and_then(Value::as_str)
}

pub fn check(new: &Object, old: &Object, errors: &mut Errors) {
    let (status, was, path) = (&new["status"], &old["status"], Path::root("status"));
    let reserved = list_at(status, "reservedFor");
    let here = path.field("reservedFor");
    each(reserved, RESERVED_MAX, &here, consumer_uid, errors, &mut |consumer, here, errors| {
        for field in ["resource", "name", "uid"] {
            if str_at(consumer, field).is_empty() {
                errors.required(&here.field(field), "");
            }
        }
    });
    if !reserved.is_empty() {
        let known = |c: &Value| list_at(was, "reservedFor").contains(c);
        if !has(status, "allocation") {
            errors.forbidden(&here, "may not be specified when `allocated` is not set");
        } else if has(new, "metadata.deletionTimestamp") && !reserved.iter().all(known) {
            let detail =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(&here, detail);
        }
    }
    states(new, &path.field("devices"), errors);
    allocation(new, old, &path.field("allocation"), errors);
}

fn allocation(new: &Object, old: &Object, path: &Path, errors: &mut Errors) {
    let (allocation, was) = (at(new, "status.allocation"), at(old, "status.allocation"));
    if !was.is_null() && !allocation.is_null() {
        errors.immutable(path, allocation, was);
        return;
    }
    if allocation.is_null() {
        return;
    }
    let names = requests::names(&new["spec"]);
    let (results, here) = (list_at(allocation, "devices.results"), path.field("devices").field("results"));
    each(results, RESULTS_MAX, &here, no_key, errors, &mut |item, here, errors| {
        result(item, &names, here, errors);
    });
    let config = list_at(allocation, "devices.config");
    let here = path.field("devices").field("config");
    each(config, 2 * RESULTS_MAX, &here, no_key, errors, &mut |config, here, errors| {
        rules::one_of(config, "source", &["FromClaim", "FromClass"], here, errors);
        requests::references(config, &names, here, errors);
        configuration(config, here, errors);
    });
    if has(allocation, "nodeSelector") {
        node_selector(at(allocation, "nodeSelector"), &path.field("nodeSelector"), errors);
    }
}

fn result(result: &Value, names: &BTreeSet<String>, path: &Path, errors: &mut Errors) {
    requests::reference(str_at(result, "request"), names, &path.field("request"), errors);
    device_name(result, path, errors);
    devices::binding(result, path, errors);
    requests::tolerations(result, path, errors);
}

/// Driver, pool, device and share, by which results and states name a device.
fn device_name(holder: &Value, path: &Path, errors: &mut Errors) {
    driver(str_at(holder, "driver"), &path.field("driver"), errors);
    pool(str_at(holder, "pool"), &path.field("pool"), errors);
    rules::label(str_at(holder, "device"), &path.field("device"), errors);
    if has(holder, "shareID") {
        share(str_at(holder, "shareID"), &path.field("shareID"), errors);
    }
}

/// A UUID in its one normal form.
fn share(uid: &str, path: &Path, errors: &mut Errors) {
    let normal = uuid::Uuid::try_parse(uid).is_ok_and(|parsed| parsed.hyphenated().to_string() == uid);
    if !normal {
        let detail = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
                      hexadecimal characters";
        errors.invalid(path, uid, detail);
    }
}

fn states(new: &Object, path: &Path, errors: &mut Errors) {
    let allocated = allocated(new);
    let mut seen = BTreeSet::new();
    for (i, state) in list_at(new, "status.devices").iter().enumerate() {
        let (here, id) = (path.index(i), device_id(state));
        device_name(state, &here, errors);
        if !allocated.contains(&id) {
            errors.invalid(&here, shown(id), "must be an allocated device in the claim");
        }
        let (conditions, at_conditions) = (list_at(state, "conditions"), here.field("conditions"));
        if conditions.len() > CONDITIONS_MAX {
            errors.too_many(&at_conditions, conditions.len(), CONDITIONS_MAX);
        }
        conditions::check(conditions, &at_conditions, errors);
        if has(state, "data") {
            raw(at(state, "data"), &here.field("data"), errors);
        }
        network(at(state, "networkData"), &here.field("networkData"), errors);
        if !seen.insert(id) {
            errors.duplicate(&here, shown(id));
        }
    }
}

fn shown(id: [&str; 4]) -> String {
    id.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

fn network(data: &Value, path: &Path, errors: &mut Errors) {
    for (field, max) in [("interfaceName", INTERFACE_MAX), ("hardwareAddress", HARDWARE_MAX)] {
        if str_at(data, field).len() > max {
            errors.too_long(&path.field(field), max);
        }
    }
    each(list_at(data, "ips"), IPS_MAX, &path.field("ips"), text, errors, &mut |ip, here, errors| {
        rules::cidr(ip.as_str().unwrap_or_default(), here, errors);
    });
}
