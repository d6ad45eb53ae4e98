//! Which of a node's addresses the cluster has looked at. A node writes its own `status.addresses`; the server writes
//! down, where the node cannot, at which of them it found that node.

use crate::Object;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Annotation of a Node: those of its InternalIPs at which the server has met that node's kubelet, or which it assigned
/// itself, with commas between. NodeRestriction keeps nodes from writing it.
pub const CHECKED_ADDRESSES: &str = "coracle.io/checked-addresses";

/// What such an annotation says, in plain form (`::ffff:192.0.2.1` is 192.0.2.1).
pub fn checked(annotation: Option<&str>) -> BTreeSet<IpAddr> {
    let addresses = annotation.unwrap_or_default().split(',');
    addresses.filter_map(|address| address.parse::<IpAddr>().ok()).map(|ip| ip.to_canonical()).collect()
}

/// What the Node's annotation says.
pub fn checked_of(node: &Object) -> BTreeSet<IpAddr> {
    checked(node["metadata"]["annotations"][CHECKED_ADDRESSES].as_str())
}

/// As the annotation writes it.
pub fn shown(addresses: &BTreeSet<IpAddr>) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let some = BTreeSet::from(["2001:db8::1", "192.0.2.1"].map(|ip| ip.parse().unwrap()));
        assert_eq!(checked(Some(&shown(&some))), some);
        assert_eq!(checked(Some("::ffff:192.0.2.1,x,,2001:db8::1")), some);
        assert!(checked(Some("")).is_empty() && checked(None).is_empty());
        let node = serde_json::json!({ "metadata": { "annotations": { CHECKED_ADDRESSES: "192.0.2.1" } } });
        assert_eq!(shown(&checked_of(&node)), "192.0.2.1");
    }
}
