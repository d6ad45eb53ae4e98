//! Services of clusters with one family of addresses, and with two.

use super::*;

/// On a cluster of one family, as upstream's allocator words it.
#[test]
fn families_of_a_single_stack_cluster() {
    let of = |spec: Value| {
        let (object, _) = create(&World::default(), &json!({ "spec": spec }))?;
        Ok::<Value, String>(json!([object["spec"]["ipFamilyPolicy"], object["spec"]["ipFamilies"]]))
    };
    assert_eq!(of(json!({})), Ok(json!(["SingleStack", ["IPv4"]])));
    assert_eq!(of(json!({ "ipFamilyPolicy": "PreferDualStack" })), Ok(json!(["PreferDualStack", ["IPv4"]])));
    let foreign = json!({ "clusterIP": "None", "selector": null });
    assert_eq!(of(foreign), Ok(json!(["RequireDualStack", ["IPv4", "IPv6"]])));
    for (spec, want) in [
        (
            json!({ "ipFamilyPolicy": "RequireDualStack" }),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (
            json!({ "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"] }),
            "spec.ipFamilies[1]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({ "ipFamilies": ["IPv4", "IPv6"] }),
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when \
             multiple IP families are specified",
        ),
        (
            json!({ "clusterIP": "10.43.0.7", "ipFamilies": ["IPv6"] }),
            "spec.clusterIPs[0]: Invalid value: \"10.43.0.7\": expected an IPv6 value as indicated by `ipFamilies[0]`",
        ),
        (
            json!({ "clusterIP": "10.43.0.7", "clusterIPs": ["10.43.0.7", "10.43.0.8"] }),
            "spec.clusterIPs: Invalid value: [\"10.43.0.7\",\"10.43.0.8\"]: may specify no more than one IP for each IP family",
        ),
        (
            json!({ "externalIPs": ["127.0.0.1"] }),
            "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            json!({ "loadBalancerSourceRanges": ["10.0.0.0/8"] }),
            "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ),
    ] {
        assert_eq!(of(spec.clone()), Err(want.to_owned()), "{spec}");
    }
}

/// With the server's own ranges.
fn cluster(cidrs: &[&str]) -> World {
    let own = json!({ "metadata": { "name": "kubernetes" }, "spec": { "cidrs": cidrs } });
    World::default().with("servicecidrs.networking.k8s.io//kubernetes", own)
}

fn dual_stack() -> World {
    cluster(&["10.43.0.0/16", "fd43::/112"])
}

/// Policy, families, and the families of the addresses.
fn stack(object: &Object) -> Value {
    let of = |ip: &str| if ip == "None" { "None" } else { families::of(ip) };
    let ips: Vec<&str> = strings_at(object, "spec.clusterIPs").map(of).collect();
    assert_eq!(object["spec"]["clusterIP"], object["spec"]["clusterIPs"][0]);
    json!([object["spec"]["ipFamilyPolicy"], object["spec"]["ipFamilies"], ips])
}

#[test]
fn families_of_a_dual_stack_cluster() {
    let both = ["IPv4", "IPv6"];
    for (spec, want) in [
        (json!({}), json!(["SingleStack", ["IPv4"], ["IPv4"]])),
        (json!({ "ipFamilies": ["IPv6"] }), json!(["SingleStack", ["IPv6"], ["IPv6"]])),
        (json!({ "clusterIP": "fd43::7" }), json!(["SingleStack", ["IPv6"], ["IPv6"]])),
        (json!({ "ipFamilyPolicy": "PreferDualStack" }), json!(["PreferDualStack", both, both])),
        (
            json!({ "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"] }),
            json!(["RequireDualStack", ["IPv6", "IPv4"], ["IPv6", "IPv4"]]),
        ),
        (
            json!({ "ipFamilyPolicy": "PreferDualStack", "clusterIP": "fd43::7" }),
            json!(["PreferDualStack", ["IPv6", "IPv4"], ["IPv6", "IPv4"]]),
        ),
        (
            json!({ "ipFamilyPolicy": "RequireDualStack", "clusterIP": "10.43.0.7",
                "clusterIPs": ["10.43.0.7", "fd43::7"] }),
            json!(["RequireDualStack", both, both]),
        ),
        (
            json!({ "clusterIP": "None", "ipFamilyPolicy": "PreferDualStack" }),
            json!(["PreferDualStack", both, ["None"]]),
        ),
        (json!({ "clusterIP": "None" }), json!(["SingleStack", ["IPv4"], ["None"]])),
        (json!({ "clusterIP": "None", "selector": null }), json!(["RequireDualStack", both, ["None"]])),
        (
            json!({ "clusterIP": "None", "selector": null, "ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack" }),
            json!(["SingleStack", ["IPv6"], ["None"]]),
        ),
    ] {
        let (object, transaction_ops) = create(&dual_stack(), &json!({ "spec": spec })).unwrap();
        assert_eq!(stack(&object), want, "{spec}");
        let ips = strings_at(&object, "spec.clusterIPs").filter(|ip| *ip != "None");
        let wanted: std::collections::BTreeSet<String> =
            ips.map(|ip| format!("+ipaddresses.networking.k8s.io//{ip}")).collect();
        assert_eq!(keys(&transaction_ops).into_iter().collect::<std::collections::BTreeSet<_>>(), wanted);
        for op in &transaction_ops.ops {
            let Op::Put { key, value } = op else { panic!("a put") };
            let address: Value = serde_json::from_slice(value).unwrap();
            let family = &address["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"];
            assert_eq!(family, families::of(key.rsplit('/').next().unwrap()));
        }
    }
}

#[test]
fn what_a_dual_stack_cluster_refuses() {
    let (first, ops) = create(
        &dual_stack(),
        &json!({ "spec": { "ipFamilyPolicy": "RequireDualStack",
        "clusterIP": "10.43.0.7", "clusterIPs": ["10.43.0.7", "fd43::7"] } }),
    )
    .unwrap();
    let mut world = commit(dual_stack(), &first, &ops);
    for reserved in [true, false] {
        for (spec, want) in [
            (
                json!({ "ipFamilies": ["IPv4", "IPv6"] }),
                "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when \
                 multiple IP families are specified",
            ),
            (
                json!({ "clusterIP": "10.43.0.9", "clusterIPs": ["10.43.0.9", "fd43::9"] }),
                "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when \
                 multiple cluster IPs are specified",
            ),
            (
                json!({ "clusterIP": "None", "clusterIPs": ["None", "fd43::9"] }),
                "spec.clusterIPs: Invalid value: [\"None\",\"fd43::9\"]: 'None' must be the first and only value",
            ),
            (
                json!({ "clusterIPs": ["10.43.0.9"] }),
                "spec.clusterIPs: Invalid value: [\"10.43.0.9\"]: first value must match `clusterIP`",
            ),
            (
                json!({ "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv6"] }),
                "spec.ipFamilies[1]: Duplicate value: \"IPv6\"",
            ),
            (
                json!({ "ipFamilies": ["IPv5"] }),
                "spec.ipFamilies[0]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\"",
            ),
            (
                json!({ "ipFamilyPolicy": "RequireDualStack", "clusterIP": "10.43.0.9", "clusterIPs": ["10.43.0.9", "fd43::7"] }),
                "spec.clusterIPs: Invalid value: [\"10.43.0.9\",\"fd43::7\"]: failed to allocate IP fd43::7: provided IP is \
                 already allocated",
            ),
            (
                json!({ "clusterIP": "fd99::7" }),
                "spec.clusterIPs: Invalid value: [\"fd99::7\"]: failed to allocate IP fd99::7: the provided IP (fd99::7) is not \
                 in the valid range. The range of valid IPs is fd43::/112",
            ),
        ] {
            let patch = json!({ "metadata": { "name": "t" }, "spec": spec });
            let error = create(&world, &patch).err().unwrap_or_default();
            assert!(error.ends_with(want), "{spec}, its addresses reserved: {reserved}: {error}");
        }
        // Somebody deletes the reservation: the Service still has the address.
        world.objects.remove("ipaddresses.networking.k8s.io//fd43::7");
    }
}

/// Upgrades and downgrades, as upstream's `ValidateServiceUpdate` and its allocator word them.
#[test]
fn a_second_family_comes_and_goes_when_asked() {
    let (single, ops) = create(&dual_stack(), &json!({})).unwrap();
    let world = commit(dual_stack(), &single, &ops);
    let (both, ops) =
        update(&world, &single, &json!({ "spec": { "ipFamilyPolicy": "PreferDualStack" } })).unwrap();
    assert_eq!(stack(&both), json!(["PreferDualStack", ["IPv4", "IPv6"], ["IPv4", "IPv6"]]));
    assert_eq!(both["spec"]["clusterIP"], single["spec"]["clusterIP"]);
    let second = both["spec"]["clusterIPs"][1].as_str().unwrap().to_owned();
    assert_eq!(keys(&ops), [format!("+ipaddresses.networking.k8s.io//{second}")]);
    let world = commit(world, &both, &ops);
    // Sent again without what was allocated.
    let bare = json!({ "spec": { "clusterIP": null, "clusterIPs": null, "ipFamilies": null, "ipFamilyPolicy": null } });
    let (again, ops) = update(&world, &both, &bare).unwrap();
    assert_eq!((stack(&again), ops.ops.len()), (stack(&both), 0));
    let one = json!([single["spec"]["clusterIP"]]);
    for (patch, want) in [
        (
            json!({ "clusterIPs": one }),
            "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be 'SingleStack' to release the secondary cluster IP",
        ),
        (
            json!({ "ipFamilies": ["IPv4"] }),
            "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be 'SingleStack' to release the secondary IP family",
        ),
        (
            json!({ "ipFamilies": ["IPv6", "IPv4"], "clusterIPs": [second, single["spec"]["clusterIP"]], "clusterIP": second }),
            "may not change once set",
        ),
    ] {
        let error = update(&world, &both, &json!({ "spec": patch })).err().unwrap_or_default();
        assert!(error.ends_with(want), "{patch}: {error}");
    }
    for patch in [
        json!({ "ipFamilyPolicy": "SingleStack" }),
        json!({ "ipFamilyPolicy": "SingleStack", "clusterIPs": one }),
        json!({ "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": one }),
    ] {
        let (down, ops) = update(&world, &both, &json!({ "spec": patch })).unwrap();
        assert_eq!(stack(&down), json!(["SingleStack", ["IPv4"], ["IPv4"]]), "{patch}");
        assert_eq!(keys(&ops), [format!("-ipaddresses.networking.k8s.io//{second}")]);
    }
    let away = json!({ "spec": { "type": "ExternalName", "externalName": "x.org", "clusterIP": null, "clusterIPs": null } });
    let (external, ops) = update(&world, &both, &away).unwrap();
    assert!(!has(&external, "spec.ipFamilies") && ops.ops.len() == 2, "both are given back");
}

/// A cluster that becomes dual-stack, or is no longer, changes no Service by itself.
#[test]
fn what_prefers_two_families_keeps_what_it_got() {
    let (single, ops) =
        create(&World::default(), &json!({ "spec": { "ipFamilyPolicy": "PreferDualStack" } })).unwrap();
    assert_eq!(stack(&single), json!(["PreferDualStack", ["IPv4"], ["IPv4"]]));
    let world = commit(dual_stack(), &single, &ops);
    let (same, ops) = update(&world, &single, &json!({ "metadata": { "labels": { "x": "y" } } })).unwrap();
    assert_eq!((stack(&same), ops.ops.len()), (stack(&single), 0));
    let (both, ops) =
        update(&world, &single, &json!({ "spec": { "ipFamilyPolicy": "RequireDualStack" } })).unwrap();
    assert_eq!((stack(&both)[1].clone(), ops.ops.len()), (json!(["IPv4", "IPv6"]), 1));
}

#[test]
fn a_cluster_of_ipv6_alone() {
    let world = cluster(&["fd43::/112"]);
    let (object, _) = create(&world, &json!({})).unwrap();
    assert_eq!(stack(&object), json!(["SingleStack", ["IPv6"], ["IPv6"]]));
    let (preferring, _) =
        create(&world, &json!({ "spec": { "ipFamilyPolicy": "PreferDualStack" } })).unwrap();
    assert_eq!(stack(&preferring), json!(["PreferDualStack", ["IPv6"], ["IPv6"]]));
    for (spec, want) in [
        (
            json!({ "clusterIP": "10.43.0.7" }),
            "spec.clusterIPs[0]: Invalid value: [\"10.43.0.7\"]: IPv4 is not configured on this cluster",
        ),
        (
            json!({ "ipFamilies": ["IPv4"] }),
            "spec.ipFamilies[0]: Invalid value: \"IPv4\": not configured on this cluster",
        ),
    ] {
        assert_eq!(create(&world, &json!({ "spec": spec })).err().as_deref(), Some(want));
    }
}
