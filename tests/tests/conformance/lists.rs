//! Lists in chunks, consistent while others write, and after compaction.

use crate::Suite;
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

const TOTAL: usize = 40;

fn templates(ns: &str) -> String {
    format!("/api/v1/namespaces/{ns}/podtemplates")
}

fn fill(rest: &Rest, ns: &str) {
    for n in 0..TOTAL {
        let template = json!({
            "metadata": {"name": format!("template-{n:04}")},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}},
        });
        rest.create(&templates(ns), &template);
    }
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|i| i["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn lists_come_in_chunks() {
    let mut suite = Suite::start();
    suite.check_in("chunks", chunks);
    suite.check("continue tokens", continue_tokens);
    suite.check("versions of lists", versions_of_lists);
    suite.end();
}

fn chunks(rest: &Rest, ns: &str) {
    fill(rest, ns);
    let (mut seen, mut token, mut version) = (Vec::new(), String::new(), None);
    loop {
        let page = rest.get(&format!("{}?limit=17&continue={token}", templates(ns)));
        let here = page["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        assert_eq!(version.get_or_insert(here.clone()), &here, "one version for all pages");
        seen.extend(names(&page));
        let rest_of_it = page["metadata"]["remainingItemCount"].as_u64();
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            assert_eq!(rest_of_it, None);
            break;
        }
        assert_eq!(rest_of_it, u64::try_from(TOTAL - seen.len()).ok());
        // What is written meanwhile is no part of this list.
        let late = format!("template-late-{}", seen.len());
        let template = json!({"metadata": {"name": late}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
        rest.create(&templates(ns), &template);
    }
    assert_eq!(seen, (0..TOTAL).map(|n| format!("template-{n:04}")).collect::<Vec<_>>());
    let all = rest.get(&templates(ns));
    assert_eq!(names(&all).len(), TOTAL + 2);
}

fn continue_tokens(rest: &Rest) {
    let bad = rest.call("GET", "/api/v1/namespaces?limit=1&continue=nonsense", &[], "");
    let message = bad.refused(400, "BadRequest");
    assert!(message.contains("continue key is not valid"), "{message}");
    let page = rest.get("/api/v1/namespaces?limit=1");
    let token = page["metadata"]["continue"].as_str().expect("a token");
    let both =
        rest.call("GET", &format!("/api/v1/namespaces?limit=1&continue={token}&resourceVersion=1"), &[], "");
    assert!(both.code == 400 || both.code == 422, "{}", both.body);
}

fn versions_of_lists(rest: &Rest) {
    let any = rest.get("/api/v1/namespaces?resourceVersion=0");
    assert_eq!(any["kind"], "NamespaceList");
    let version =
        rest.get("/api/v1/namespaces")["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let exact = format!("/api/v1/namespaces?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(rest.get(&exact)["metadata"]["resourceVersion"], version);
    for (query, code) in [
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("resourceVersion=1&resourceVersionMatch=Perhaps", 422),
        ("sendInitialEvents=true", 422),
        ("resourceVersion=1&resourceVersionMatch=Exact", 410),
    ] {
        let reply = rest.call("GET", &format!("/api/v1/namespaces?{query}"), &[], "");
        // History may still reach back to the first version.
        assert!(
            reply.code == code || (code == 410 && reply.code == 200),
            "{query}: {} {}",
            reply.code,
            reply.body
        );
    }
}
