//! Watches on ConfigMaps: selectors, versions, order.

use crate::Suite;
use coracle_tests::rest::{Rest, Watch};
use serde_json::json;

fn maps(ns: &str) -> String {
    format!("/api/v1/namespaces/{ns}/configmaps")
}

fn make(rest: &Rest, ns: &str, name: &str, label: &str) {
    rest.create(&maps(ns), &json!({"metadata": {"name": name, "labels": {"watch": label}}}));
}

fn set(rest: &Rest, ns: &str, name: &str, value: &str) -> String {
    let patched = rest.merge(&format!("{}/{name}", maps(ns)), &json!({"data": {"mutation": value}}));
    patched["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}

fn watch(rest: &Rest, ns: &str, query: &str) -> Watch {
    rest.watch(&format!("{}?watch=true&{query}", maps(ns)))
}

fn now(rest: &Rest, ns: &str) -> String {
    rest.get(&maps(ns))["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}

#[test]
fn watchers_see_what_they_asked_for() {
    let mut suite = Suite::start();
    suite.check_in("by-label", by_label);
    suite.check_in("from-a-version", from_a_version);
    suite.check_in("restarted", restarted);
    suite.check_in("leaving-the-selector", leaving_the_selector);
    suite.check_in("same-order", same_order);
    suite.check_in("streaming-lists", |rest, ns| {
        make(rest, ns, "m", "s");
        let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=watch=s";
        let stream = watch(rest, ns, query);
        stream.sees("ADDED m");
        set(rest, ns, "m", "1");
        stream.sees("MODIFIED m");
        let bad = rest.call("GET", &format!("{}?watch=true&sendInitialEvents=true", maps(ns)), &[], "");
        bad.refused(422, "Invalid");
    });
    suite.check("a version that is gone", |rest| {
        let reply = rest.call(
            "GET",
            "/api/v1/configmaps?watch=true&resourceVersion=999999999&timeoutSeconds=1",
            &[],
            "",
        );
        assert!([200, 504].contains(&reply.code), "{}", reply.code);
        let reply = rest.call("GET", "/api/v1/configmaps?watch=true&resourceVersion=-1", &[], "");
        assert!((400..=422).contains(&reply.code), "{}", reply.body);
    });
    suite.end();
}

fn by_label(rest: &Rest, ns: &str) {
    let version = now(rest, ns);
    let a = watch(rest, ns, &format!("labelSelector=watch=a&resourceVersion={version}"));
    let b = watch(rest, ns, &format!("labelSelector=watch=b&resourceVersion={version}"));
    let both = watch(rest, ns, &format!("labelSelector=watch%20in%20(a,b)&resourceVersion={version}"));
    make(rest, ns, "a", "a");
    set(rest, ns, "a", "1");
    make(rest, ns, "b", "b");
    rest.delete(&format!("{}/a", maps(ns)));
    rest.delete(&format!("{}/b", maps(ns)));
    for event in ["ADDED a", "MODIFIED a", "DELETED a"] {
        a.sees(event);
    }
    for event in ["ADDED b", "DELETED b"] {
        b.sees(event);
    }
    for event in ["ADDED a", "MODIFIED a", "ADDED b", "DELETED a", "DELETED b"] {
        both.sees(event);
    }
}

fn from_a_version(rest: &Rest, ns: &str) {
    make(rest, ns, "m", "v");
    let first = set(rest, ns, "m", "1");
    set(rest, ns, "m", "2");
    rest.delete(&format!("{}/m", maps(ns)));
    let late = watch(rest, ns, &format!("fieldSelector=metadata.name=m&resourceVersion={first}"));
    assert_eq!(late.sees("MODIFIED m")["data"]["mutation"], "2");
    assert_eq!(late.sees("DELETED m")["data"]["mutation"], "2");
}

fn restarted(rest: &Rest, ns: &str) {
    let one = watch(rest, ns, &format!("labelSelector=watch=r&resourceVersion={}", now(rest, ns)));
    make(rest, ns, "m", "r");
    one.sees("ADDED m");
    let version = set(rest, ns, "m", "1");
    one.sees("MODIFIED m");
    drop(one);
    set(rest, ns, "m", "2");
    let two = watch(rest, ns, &format!("labelSelector=watch=r&resourceVersion={version}"));
    assert_eq!(two.sees("MODIFIED m")["data"]["mutation"], "2");
    rest.delete(&format!("{}/m", maps(ns)));
    two.sees("DELETED m");
}

fn leaving_the_selector(rest: &Rest, ns: &str) {
    let watch = watch(rest, ns, &format!("labelSelector=watch=here&resourceVersion={}", now(rest, ns)));
    make(rest, ns, "m", "here");
    let one = format!("{}/m", maps(ns));
    watch.sees("ADDED m");
    rest.merge(&one, &json!({"metadata": {"labels": {"watch": "elsewhere"}}}));
    let gone = watch.sees("DELETED m");
    assert_eq!(gone["metadata"]["labels"]["watch"], "here", "the object as it was when it matched last");
    set(rest, ns, "m", "unseen");
    rest.merge(&one, &json!({"metadata": {"labels": {"watch": "here"}}}));
    assert_eq!(watch.sees("ADDED m")["data"]["mutation"], "unseen");
    rest.delete(&one);
    watch.sees("DELETED m");
}

/// Watches opened while somebody writes see one and the same order from where each began.
fn same_order(rest: &Rest, ns: &str) {
    let first = watch(rest, ns, &format!("resourceVersion={}", now(rest, ns)));
    let writer = {
        let (rest, ns) = (rest.clone(), ns.to_owned());
        std::thread::spawn(move || {
            for n in 0..40 {
                let name = format!("m-{}", n % 4);
                if n < 4 {
                    make(&rest, &ns, &name, "o");
                } else {
                    set(&rest, &ns, &name, &n.to_string());
                }
            }
        })
    };
    let order: Vec<String> = (0..40)
        .map(|_| first.next().1["metadata"]["resourceVersion"].as_str().expect("a version").to_owned())
        .collect();
    writer.join().expect("the writer");
    for (n, version) in order.iter().enumerate().take(39).step_by(5) {
        let late = watch(rest, ns, &format!("resourceVersion={version}"));
        for expected in &order[n + 1..] {
            assert_eq!(late.next().1["metadata"]["resourceVersion"], **expected, "from {version}");
        }
    }
}
