//! The status of a claim: what is allocated, for whom it is reserved, and how the devices are.

use super::*;

/// Upstream's numbers.
const RESERVED_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const DEVICES_MAX: usize = 32;

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
    allocation(new, old, &path.field("allocation"), errors);
    states(new, &path.field("devices"), errors);
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
    each(results, RESULTS_MAX, &here, no_key, errors, &mut |result, here, errors| {
        let request = str_at(result, "request");
        if !names.contains(request) {
            let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated \
                          by '/'";
            errors.invalid(&here.field("request"), request, detail);
        }
        driver(str_at(result, "driver"), &here.field("driver"), errors);
        pool(str_at(result, "pool"), &here.field("pool"), errors);
        match str_at(result, "device") {
            "" => errors.required(&here.field("device"), ""),
            device => rules::label(device, &here.field("device"), errors),
        }
    });
    let config = list_at(allocation, "devices.config");
    let here = path.field("devices").field("config");
    each(config, 2 * RESULTS_MAX, &here, no_key, errors, &mut |config, here, errors| {
        rules::one_of(config, "source", &["FromClaim", "FromClass"], here, errors);
        configuration(config, here, errors);
    });
}

fn states(new: &Object, path: &Path, errors: &mut Errors) {
    let allocated = allocated(new);
    let mut seen = BTreeSet::new();
    let list = list_at(new, "status.devices");
    each(list, DEVICES_MAX, path, no_key, errors, &mut |state, here, errors| {
        let id = device_id(state);
        if !seen.insert(id.map(str::to_owned)) {
            errors.duplicate(here, id.join("/"));
        }
        if !allocated.contains(&id) {
            errors.invalid(here, id[..3].join("/"), "must be an allocated device in the claim");
        }
        conditions::check(list_at(state, "conditions"), &here.field("conditions"), errors);
        for (i, ip) in strings_at(state, "networkData.ips").enumerate() {
            rules::cidr(ip, &here.field("networkData").field("ips").index(i), errors);
        }
    });
}
