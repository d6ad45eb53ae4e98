//! What one range needs next, decided from all ranges and addresses.

use coracle_api::well_known;
use coracle_client::informer::deleting;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(super) const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const MANAGED_BY: &str = well_known::IP_ADDRESS_MANAGED_BY;
/// Who reserves addresses for Services; others' IPAddress objects hold no range back.
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// How long every API server has to notice that a range gives no more addresses; upstream's `deletionGracePeriod`.
const GRACE_PERIOD: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    /// The finalizer is missing.
    Protect,
    /// This condition is to be applied.
    Report(Value),
    /// Look again then.
    Wait(Duration),
    /// The finalizer can go.
    Release,
}

/// `addresses` is asked only about a range that is being deleted.
pub(super) fn step(
    range: &ServiceCIDR,
    all: &[Arc<ServiceCIDR>],
    addresses: impl FnOnce() -> Vec<Arc<IPAddress>>,
    now: Timestamp,
) -> Step {
    let protected = range.finalizers().iter().any(|f| f == FINALIZER);
    if !deleting(range) {
        return if protected { report(range, true, now) } else { Step::Protect };
    }
    if !protected {
        return Step::Nothing;
    }
    if !contained(range, all) && addresses().iter().any(|ip| orphaned(ip, range, all)) {
        return report(range, false, now);
    }
    let since = range.metadata.deletion_timestamp.as_ref().map_or(now, |t| t.0);
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    if passed < GRACE_PERIOD { Step::Wait(GRACE_PERIOD - passed) } else { Step::Release }
}

/// The condition Ready, unless it says so already. One that was set to False by somebody else for a range that stays is
/// overwritten, as upstream does.
fn report(range: &ServiceCIDR, ready: bool, now: Timestamp) -> Step {
    let (status, reason, message) = if ready {
        ("True", "", "Kubernetes Service CIDR is ready")
    } else {
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
        ("False", "Terminating", message)
    };
    let mut conditions = range.status.iter().flat_map(|s| s.conditions.iter().flatten());
    if conditions.any(|c| c.type_ == "Ready" && c.status == status) {
        return Step::Nothing;
    }
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    Step::Report(json!({
        "type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
    }))
}

fn nets(range: &ServiceCIDR) -> impl Iterator<Item = IpNet> {
    let cidrs = range.spec.iter().flat_map(|s| s.cidrs.iter().flatten());
    cidrs.filter_map(|cidr| cidr.parse().ok())
}

fn others<'a>(range: &'a ServiceCIDR, all: &'a [Arc<ServiceCIDR>]) -> impl Iterator<Item = IpNet> + 'a {
    all.iter().filter(|other| other.name_any() != range.name_any()).flat_map(|other| nets(other))
}

/// Whether other ranges take over all its addresses.
fn contained(range: &ServiceCIDR, all: &[Arc<ServiceCIDR>]) -> bool {
    nets(range).all(|net| others(range, all).any(|other| other.contains(&net)))
}

/// Whether the address of a Service would be of no range any more.
fn orphaned(address: &IPAddress, range: &ServiceCIDR, all: &[Arc<ServiceCIDR>]) -> bool {
    if address.labels().get(MANAGED_BY).is_none_or(|by| by != ALLOCATOR) {
        return false;
    }
    let Ok(ip) = address.name_any().parse::<IpAddr>() else { return false };
    nets(range).any(|net| usable(net, ip)) && !others(range, all).any(|net| usable(net, ip))
}

/// Neither the network's own address nor, in IPv4, the broadcast address.
fn usable(net: IpNet, ip: IpAddr) -> bool {
    let broadcast = ip.is_ipv4() && ip == net.broadcast();
    net.contains(&ip) && ip != net.network() && !broadcast
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:30Z";

    /// `deleted`: seconds ago.
    fn range(name: &str, cidr: &str, deleted: Option<i64>, conditions: Value) -> Arc<ServiceCIDR> {
        let now: Timestamp = NOW.parse().unwrap();
        let at = deleted.map(|s| now.checked_sub(jiff::SignedDuration::from_secs(s)).unwrap().to_string());
        Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": name, "finalizers": [FINALIZER], "deletionTimestamp": at },
                "spec": { "cidrs": [cidr] }, "status": { "conditions": conditions },
            }))
            .unwrap(),
        )
    }

    fn ready(status: &str) -> Value {
        json!([{ "type": "Ready", "status": status, "reason": "", "message": "", "lastTransitionTime": NOW }])
    }

    fn address(ip: &str, by: &str) -> Arc<IPAddress> {
        let labels = json!({ MANAGED_BY: by });
        Arc::new(serde_json::from_value(json!({ "metadata": { "name": ip, "labels": labels } })).unwrap())
    }

    fn of_first(all: &[Arc<ServiceCIDR>], ips: &[Arc<IPAddress>]) -> Step {
        step(&all[0], all, || ips.to_vec(), NOW.parse().unwrap())
    }

    #[test]
    fn what_stays_is_protected_and_ready() {
        let mut bare = ServiceCIDR::clone(&range("a", "10.0.0.0/24", None, json!([])));
        bare.metadata.finalizers = None;
        assert_eq!(of_first(&[Arc::new(bare)], &[]), Step::Protect);
        let new = [range("a", "10.0.0.0/24", None, json!([]))];
        let Step::Report(condition) = of_first(&new, &[]) else { panic!("a report") };
        assert_eq!((&condition["status"], &condition["lastTransitionTime"]), (&json!("True"), &json!(NOW)));
        assert_eq!(of_first(&[range("a", "10.0.0.0/24", None, ready("True"))], &[]), Step::Nothing);
    }

    #[test]
    fn a_range_with_addresses_stays_until_they_go_or_have_another() {
        let (mine, foreign) = (address("10.0.0.7", ALLOCATOR), address("10.0.0.8", "me"));
        let gone = range("a", "10.0.0.0/24", Some(60), ready("True"));
        let Step::Report(condition) = of_first(std::slice::from_ref(&gone), std::slice::from_ref(&mine))
        else {
            panic!("a report")
        };
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Terminating")));
        let told = range("a", "10.0.0.0/24", Some(60), ready("False"));
        assert_eq!(of_first(&[told], std::slice::from_ref(&mine)), Step::Nothing);
        assert_eq!(of_first(std::slice::from_ref(&gone), &[foreign]), Step::Release);
        let wider = range("b", "10.0.0.0/16", None, ready("True"));
        assert_eq!(of_first(&[gone.clone(), wider], std::slice::from_ref(&mine)), Step::Release);
        let partly = range("b", "10.0.0.0/28", None, ready("True"));
        assert_eq!(of_first(&[gone.clone(), partly.clone()], &[mine]), Step::Release);
        let outside = address("10.0.0.77", ALLOCATOR);
        assert!(matches!(of_first(&[gone, partly], &[outside]), Step::Report(_)));
    }

    #[test]
    fn servers_get_time_to_notice() {
        let all = [range("a", "10.0.0.0/24", Some(4), ready("True"))];
        assert_eq!(of_first(&all, &[]), Step::Wait(Duration::from_secs(6)));
    }
}
