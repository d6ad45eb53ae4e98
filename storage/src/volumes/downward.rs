//! The downward API: fields and resources of a pod as text, for files and for environment variables.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use std::collections::BTreeMap;

/// What the node can give, for containers without limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    pub cpu_millis: i64,
    pub memory_bytes: i64,
    pub ephemeral_storage_bytes: i64,
}

/// A quantity in thousandths, exact for everything that limits are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub i128);

impl Millis {
    /// The number of whole units of `unit` (in ones), rounded up.
    pub fn ceil_div(self, unit: i128) -> i128 {
        self.ceil_by(Millis(unit * 1000))
    }

    fn ceil_by(self, divisor: Millis) -> i128 {
        if divisor.0 <= 0 {
            return 0;
        }
        self.0.div_euclid(divisor.0) + i128::from(self.0.rem_euclid(divisor.0) != 0)
    }
}

/// Parses a Kubernetes quantity; finer than a thousandth is rounded up.
pub fn quantity(text: &str) -> Option<Millis> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (numerator, denominator): (i128, i128) = match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => match exponent.strip_prefix(['e', 'E'])?.parse::<i32>().ok()? {
            power @ 0..=18 => (10_i128.pow(power.unsigned_abs()), 1),
            power @ -18..=-1 => (1, 10_i128.pow(power.unsigned_abs())),
            _ => return None,
        },
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let sign = if whole.starts_with('-') { -1 } else { 1 };
    let digits = format!("{}{fraction}", whole.trim_start_matches(['+', '-']));
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let value = digits.parse::<i128>().ok()?.checked_mul(numerator)?.checked_mul(1000)?;
    let divisor = scale.checked_mul(denominator)?;
    Some(Millis(sign * (value / divisor + i128::from(value % divisor != 0))))
}

/// The value of `fieldPath`: metadata.{name,namespace,uid,labels,annotations}, labels and annotations by key,
/// spec.{nodeName,serviceAccountName}, status.{hostIP,hostIPs,podIP,podIPs}.
pub fn field(pod: &Pod, path: &str) -> Result<String, String> {
    let meta = &pod.metadata;
    if let Some((map, key)) = path.strip_suffix(']').and_then(|p| p.split_once('[')) {
        let key = key.trim_matches(['\'', '"']);
        let map = match map {
            "metadata.labels" => meta.labels.as_ref(),
            "metadata.annotations" => meta.annotations.as_ref(),
            _ => return Err(format!("fieldPath {path:?} does not support subscripts")),
        };
        return Ok(map.and_then(|m| m.get(key)).cloned().unwrap_or_default());
    }
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let join = |ips: Vec<&str>| Some(ips.join(","));
    let value = match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => Some(lines(meta.labels.as_ref())),
        "metadata.annotations" => Some(lines(meta.annotations.as_ref())),
        "spec.nodeName" => spec.and_then(|s| s.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|s| s.service_account_name.clone()),
        "status.hostIP" => status.and_then(|s| s.host_ip.clone()),
        "status.podIP" => status.and_then(|s| s.pod_ip.clone()),
        "status.hostIPs" => {
            join(status.iter().flat_map(|s| s.host_ips.iter().flatten()).map(|i| &*i.ip).collect())
        }
        "status.podIPs" => {
            join(status.iter().flat_map(|s| s.pod_ips.iter().flatten()).map(|i| &*i.ip).collect())
        }
        _ => return Err(format!("unsupported fieldPath: {path}")),
    };
    Ok(value.unwrap_or_default())
}

/// `key="value"` lines, sorted, the value quoted as Go quotes it.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map.into_iter().flatten().map(|(k, v)| format!("{k}={}", quote(v))).collect();
    lines.join("\n")
}

fn quote(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The value of a `resourceFieldRef` in units of its divisor, rounded up. `own` is the container that asks, for
/// references that name none. A limit that is not set is what the node can give.
pub fn resource(
    pod: &Pod,
    selector: &ResourceFieldSelector,
    own: Option<&Container>,
    allocatable: &Allocatable,
) -> Result<String, String> {
    let name = selector.container_name.as_deref().filter(|n| !n.is_empty());
    let spec = pod.spec.as_ref().ok_or("pod without spec")?;
    let container = match name {
        None => own,
        Some(name) => {
            spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|c| c.name == name)
        }
    };
    let container = container.ok_or_else(|| format!("container {:?} not found", name.unwrap_or_default()))?;
    let (kind, resource) = selector
        .resource
        .split_once('.')
        .ok_or_else(|| format!("unsupported container resource : {}", selector.resource))?;
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|r| r.limits.as_ref());
    let requests = resources.and_then(|r| r.requests.as_ref());
    let set = match kind {
        "limits" => limits.and_then(|m| m.get(resource)),
        "requests" => requests.and_then(|m| m.get(resource)),
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let value = match set.and_then(|q| quantity(&q.0)) {
        Some(value) => value,
        None if kind == "requests" => Millis(0),
        None => match resource {
            "cpu" => Millis(i128::from(allocatable.cpu_millis)),
            "memory" => Millis(i128::from(allocatable.memory_bytes) * 1000),
            "ephemeral-storage" => Millis(i128::from(allocatable.ephemeral_storage_bytes) * 1000),
            _ => Millis(0),
        },
    };
    let divisor = selector.divisor.as_ref().and_then(|q| quantity(&q.0)).filter(|d| d.0 > 0);
    Ok(value.ceil_by(divisor.unwrap_or(Millis(1000))).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_exact() {
        for (text, millis) in [
            ("1", 1000),
            ("100m", 100),
            ("1.5", 1500),
            ("2Ki", 2_048_000),
            ("1e3", 1_000_000),
            ("-1", -1000),
            ("1u", 1),
            ("0.5Gi", 536_870_912_000),
            ("12E", 12_000_000_000_000_000_000_000),
        ] {
            assert_eq!(quantity(text), Some(Millis(millis)), "{text}");
        }
        for bad in ["", "x", "1x", "1.2.3", "1e99"] {
            assert_eq!(quantity(bad), None, "{bad}");
        }
    }

    #[test]
    fn fields_and_resources_read_as_upstream_writes_them() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "labels": { "b": "2\n", "a": "1" }, "annotations": { "x.y/z": "v" } },
            "spec": { "containers": [{ "name": "c", "resources": {
                "limits": { "memory": "64Mi" }, "requests": { "cpu": "125m" } } }] },
            "status": { "podIPs": [{ "ip": "10.42.0.2" }, { "ip": "fd00::2" }] }
        }))
        .unwrap();
        assert_eq!(field(&pod, "metadata.labels").unwrap(), "a=\"1\"\nb=\"2\\n\"");
        assert_eq!(field(&pod, "metadata.annotations['x.y/z']").unwrap(), "v");
        assert_eq!(field(&pod, "status.podIPs").unwrap(), "10.42.0.2,fd00::2");
        assert!(field(&pod, "spec.hostname").is_err());
        let node = Allocatable { cpu_millis: 1900, ..Allocatable::default() };
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let read = |resource: &str, divisor: &str| {
            let selector =
                serde_json::from_value(json!({ "resource": resource, "divisor": divisor })).unwrap();
            super::resource(&pod, &selector, Some(container), &node).unwrap()
        };
        assert_eq!(read("limits.memory", "1Mi"), "64");
        assert_eq!(read("requests.cpu", "1m"), "125");
        assert_eq!(read("requests.cpu", "0"), "1", "rounded up");
        assert_eq!(read("limits.cpu", "1"), "2", "the node's");
    }
}
