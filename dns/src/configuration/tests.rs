use super::*;

fn given() -> Given {
    Given { domain: "cluster.local".to_owned() }
}

fn read(block: &str) -> Result<View, Vec<String>> {
    let read = Configuration::read(&format!(". {{\n{block}\n}}\n"), &given());
    read.map(|configuration| configuration.views[0].clone())
        .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
}

#[test]
fn the_default_is_taken_in() {
    let configuration =
        Configuration::read(&source::default_text("cluster.local"), &given()).expect("the default");
    let [view] = configuration.views.as_slice() else { panic!("{configuration:?}") };
    assert_eq!((view.zone.as_str(), view.errors, view.rotate), ("", true, true));
    assert_eq!(view.cluster.as_ref().map(|c| (c.ttl, c.reverse)), Some((5, true)));
    assert_eq!(configuration.metrics, Some(Listen { ip: None, port: 9153 }));
    assert_eq!((configuration.health, configuration.ready), (None, None));
}

#[test]
fn what_kubeadm_writes_is_taken_in_but_for_what_is_named() {
    let text = ".:53 {\n errors\n health {\n lameduck 5s\n }\n ready\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n\
                pods insecure\n fallthrough in-addr.arpa ip6.arpa\n ttl 30\n }\n prometheus :9153\n forward . /etc/resolv.conf {\n\
                max_concurrent 1000\n }\n cache 30 {\n disable success cluster.local\n disable denial cluster.local\n }\n loop\n\
                reload\n loadbalance\n}\n";
    let told = Configuration::read(text, &given()).expect_err("lameduck");
    assert_eq!(told, [Mistake::new(4, "health.lameduck: is not known here")]);
    let without = text.replace(" {\n lameduck 5s\n }", "");
    let configuration = Configuration::read(&without, &given()).expect("the rest");
    assert_eq!(configuration.health, Some(Listen { ip: None, port: 8080 }));
    let cache = configuration.views[0].cache.as_ref().expect("a cache");
    assert_eq!(cache.success.map(|kept| kept.longest), Some(Duration::from_secs(30)));
}

#[test]
fn everything_that_is_not_done_is_refused_by_its_name() {
    for (block, told) in [
        ("rewrite name a b", "line 2: rewrite: this server has no such plugin"),
        ("errors x", "line 2: errors: takes no settings here"),
        (
            "kubernetes other.local",
            "line 2: kubernetes: the cluster's domain is cluster.local, not other.local",
        ),
        (
            "kubernetes cluster.local {\npods verified\n}",
            "line 3: pods: verified would need every pod in memory; disabled and insecure work",
        ),
        ("kubernetes cluster.local {\nttl 4000\n}", "line 3: ttl: takes seconds, at most 3600"),
        ("kubernetes cluster.local {\nnamespaces a\n}", "line 3: kubernetes.namespaces: is not known here"),
        ("forward .", "line 2: forward: takes one to 15 servers"),
        (
            "forward . tls://192.0.2.1",
            "line 2: forward: tls://192.0.2.1 is no address of a server of DNS, nor a file",
        ),
        ("forward . 192.0.2.1 {\nhealth_check 5s\n}", "line 3: forward.health_check: is not known here"),
        ("forward . 192.0.2.1 {\npolicy best\n}", "line 3: policy: takes random, round_robin or sequential"),
        ("forward . 192.0.2.1\nforward . 192.0.2.2", "line 3: forward: a server block has it once"),
        ("cache 0", "line 2: cache: takes a time in seconds"),
        ("cache {\nprefetch 10\n}", "line 3: cache.prefetch: is not known here"),
        ("cache {\nserve_stale 1h soon\n}", "line 3: serve_stale: refreshes immediate or verify"),
        (
            "cache {\ndisable success example.org\n}",
            "line 3: disable: other names are chosen by a server block of their own",
        ),
        ("hosts /etc/hosts", "line 2: hosts: takes its entries in the block, not from a file"),
        ("hosts {\nbox 10.0.0.1\n}", "line 3: hosts.box: is neither an address nor a setting known here"),
        ("prometheus 9153", "line 2: prometheus: takes an address and a port"),
        ("loadbalance weighted", "line 2: loadbalance: round_robin is the one policy"),
    ] {
        assert_eq!(read(block).expect_err(block), [told], "{block}");
    }
    let all = read("rewrite a\ntemplate b\ncache 0").expect_err("three");
    assert_eq!(all.len(), 3, "all are told at once: {all:?}");
}

#[test]
fn keys_are_names_or_networks() {
    for (key, zones) in [
        (".", vec![""]),
        ("Example.ORG.:53", vec!["example.org"]),
        ("dns://a.test", vec!["a.test"]),
        ("10.0.0.0/8", vec!["10.in-addr.arpa"]),
        ("2001:db8::/32", vec!["8.b.d.0.1.0.0.2.ip6.arpa"]),
    ] {
        assert_eq!(zones_of_key(key).expect(key), zones, "{key}");
    }
    for key in ["a.test:5353", "tls://a.test", "10.0.0.0/9", "*.test"] {
        assert!(zones_of_key(key).is_err(), "{key}");
    }
    let twice = Configuration::read("a.test {\nerrors\n}\nA.test. {\nerrors\n}\n", &given());
    assert_eq!(twice.expect_err("twice")[0].to_string(), "line 4: A.test.: there are two blocks of it");
    assert!(Configuration::read("# nothing\n", &given()).is_err());
}

#[test]
fn names_are_below_zones_by_labels() {
    for (name, zone, below) in
        [("a.b", "b", true), ("b", "b", true), ("ab", "b", false), ("a", "", true), ("b", "a.b", false)]
    {
        assert_eq!(is_below(name, zone), below, "{name} {zone}");
    }
}
