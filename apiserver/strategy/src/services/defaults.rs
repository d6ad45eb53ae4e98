//! What a Service gets without being asked, before its addresses and ports are allocated.

use super::*;

/// Seconds that a client sticks to a pod with session affinity ClientIP: three hours.
const AFFINITY_SECONDS: i64 = 10_800;
pub fn service(object: &mut Object) {
    let Some(spec) = object_at(object, "spec") else { return };
    default_str(spec, "sessionAffinity", "None");
    default_str(spec, "type", "ClusterIP");
    match str_at(spec, "sessionAffinity") {
        "None" => drop(remove(spec, "sessionAffinityConfig")),
        "ClientIP" => {
            if let Some(client) = object_at(spec, "sessionAffinityConfig.clientIP") {
                default(client, "timeoutSeconds", AFFINITY_SECONDS);
            }
        }
        _ => {}
    }
    for port in each_mut(spec, "ports") {
        default_str(port, "protocol", "TCP");
        let target = at(port, "targetPort");
        if target.is_null() || target == 0 || target == "" {
            let number = at(port, "port").clone();
            set(port, "targetPort", number);
        }
    }
    if matches!(str_at(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer") {
        default_str(spec, "internalTrafficPolicy", "Cluster");
    }
    if str_at(spec, "type") == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
    }
    if is_external(object)
        && let Some(spec) = at_mut(object, "spec")
    {
        default_str(spec, "externalTrafficPolicy", "Cluster");
    }
}

/// `clusterIP` and `clusterIPs` say the same; a client may give either.
pub fn cluster_ips(object: &mut Object) {
    let Some(spec) = at_mut(object, "spec") else { return };
    let single = str_at(spec, "clusterIP").to_owned();
    if !single.is_empty() && list_at(spec, "clusterIPs").is_empty() {
        set(spec, "clusterIPs", json!([single]));
    }
}

/// An update that leaves out what was allocated keeps it.
pub fn keep_allocated(new: &mut Object, old: &Object) {
    if needs_cluster_ip(new) && needs_cluster_ip(old) {
        let unset = str_at(new, "spec.clusterIP").is_empty();
        let Some(spec) = at_mut(new, "spec") else { return };
        if unset {
            copy_field(spec, &old["spec"], "clusterIP");
        }
        if list_at(spec, "clusterIPs").is_empty() && spec["clusterIP"] == old["spec"]["clusterIP"] {
            copy_field(spec, &old["spec"], "clusterIPs");
        }
    }
    if needs_node_ports(new) && needs_node_ports(old) {
        keep_node_ports(new, old);
    }
    if needs_health_check_port(new) && needs_health_check_port(old) {
        let port = i64_at(old, "spec.healthCheckNodePort").unwrap_or(0);
        if let Some(spec) = at_mut(new, "spec").filter(|_| port != 0) {
            default_number(spec, "healthCheckNodePort", port);
        }
    }
}

/// Ports are matched by name; a number that the update uses for another port is not given twice.
fn keep_node_ports(new: &mut Object, old: &Object) {
    let number = |port: &Value| i64_at(port, "nodePort").filter(|n| *n != 0);
    let mut used: Vec<i64> = list_at(new, "spec.ports").iter().filter_map(number).collect();
    for port in each_mut(new, "spec.ports") {
        if number(port).is_some() {
            continue;
        }
        let same = |p: &&Value| str_at(p, "name") == str_at(port, "name");
        let before = list_at(old, "spec.ports").iter().find(same).and_then(number);
        if let Some(before) = before.filter(|n| !used.contains(n)) {
            used.push(before);
            set(port, "nodePort", before);
        }
    }
}

/// A client that changed one of `clusterIP` and `clusterIPs` and sent the other back as it was means both.
pub fn follow_single(new: &mut Object, old: &Object) {
    let (before, after) = (str_at(old, "spec.clusterIP"), str_at(new, "spec.clusterIP").to_owned());
    let (all_before, all) = (list_at(old, "spec.clusterIPs"), list_at(new, "spec.clusterIPs"));
    let (unchanged, cleared) = (all == all_before, all.is_empty() && !all_before.is_empty());
    let Some(spec) = at_mut(new, "spec") else { return };
    match after.as_str() {
        same if same == before && cleared => set(spec, "clusterIPs", all_before),
        same if same == before || !unchanged => {}
        "" => ["clusterIP", "clusterIPs"].iter().for_each(|field| drop(remove(spec, field))),
        other => set(spec, "clusterIPs", json!([other])),
    }
}

fn drop_health_check(new: &mut Object, old: &Object) {
    let (before, needed) = (at(old, "spec.healthCheckNodePort"), needs_health_check_port(new));
    if let Some(spec) =
        at_mut(new, "spec").filter(|spec| !needed && at(spec, "healthCheckNodePort") == before)
    {
        remove(spec, "healthCheckNodePort");
    }
}

/// Takes away what belongs to the type or the policy before and that the client merely sent back unchanged.
pub fn drop_other_types(new: &mut Object, old: &Object) {
    drop_health_check(new, old);
    if kind(new) == kind(old) {
        return;
    }
    let (cluster, ports) = (needs_cluster_ip(new), needs_node_ports(new));
    let external = is_external(new);
    let balanced = kind(new) == "LoadBalancer";
    let Some(spec) = at_mut(new, "spec") else { return };
    let unchanged = |spec: &Value, field: &str| at(spec, field) == at(&old["spec"], field);
    if !cluster {
        if unchanged(spec, "clusterIP") && unchanged(spec, "clusterIPs") {
            remove(spec, "clusterIP");
            remove(spec, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            if unchanged(spec, field) {
                remove(spec, field);
            }
        }
    }
    if !ports && needs_node_ports(old) {
        let before: Vec<&Value> = list_at(old, "spec.ports").iter().map(|p| at(p, "nodePort")).collect();
        for port in each_mut(spec, "ports") {
            if before.contains(&at(port, "nodePort")) {
                remove(port, "nodePort");
            }
        }
    }
    if !balanced {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if unchanged(spec, field) {
                remove(spec, field);
            }
        }
    }
    if !external && unchanged(spec, "externalTrafficPolicy") {
        remove(spec, "externalTrafficPolicy");
    }
}
