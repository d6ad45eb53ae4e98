//! What docs/monitoring names is served.

use coracle_tests::{Cluster, binary};
use serde_json::Value;
use std::collections::BTreeSet;

/// Words of the query language that stand where a metric could.
const WORDS: [&str; 6] = ["by", "without", "bool", "and", "or", "unless"];

/// Names of metrics in an expression: what is neither in quotes nor braces nor a list of labels, and is not called.
fn metrics(expression: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first == '{' || first == '[' {
            let end = if first == '{' { '}' } else { ']' };
            rest = rest.split_once(end).expect("it is closed").1;
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end =
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            rest = behind;
            if matches!(word, "by" | "without") {
                rest = behind.split_once(')').expect("a list of labels").1;
            } else if !WORDS.contains(&word)
                && !behind.trim_start().starts_with('(')
                && !behind.starts_with(" by")
            {
                found.insert(word.to_owned());
            }
        } else if first.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

/// The values of all fields of this name.
fn all<'a>(value: &'a Value, field: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
            Value::String(text) if name == field => found.push(text),
            other => all(other, field, found),
        }),
        Value::Array(items) => items.iter().for_each(|item| all(item, field, found)),
        _ => {}
    }
}

#[test]
fn names_are_found_in_expressions() {
    let expression = r#"histogram_quantile(0.99, sum by (le, x) (rate(a_bucket{verb!~"W|C"}[5m]))) - time() > 1e9 and b == bool 0"#;
    assert_eq!(metrics(expression), ["a_bucket", "b"].map(str::to_owned).into());
}

#[test]
fn every_metric_of_rules_and_dashboard_is_served() {
    let folder = binary::repository().join("docs/monitoring");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("plain characters");
    let rules: Value = serde_saphyr::from_str(&read("rules.yaml")).expect("the file");
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).expect("the file");
    let mut expressions = Vec::new();
    all(&rules, "expr", &mut expressions);
    assert!(expressions.len() > 10);
    all(&dashboard, "expr", &mut expressions);
    let named: BTreeSet<String> = expressions.into_iter().flat_map(metrics).collect();
    assert!(named.len() > 25 && named.contains("coracle_store_read_only"), "{named:?}");
    let cluster = Cluster::simulated();
    cluster.ok("kubectl get --raw /readyz >/dev/null && kubectl create deployment web --image=nginx && kubectl rollout status deployment/web --timeout=60s");
    let page = ["/metrics", "/metrics/slis"].map(|path| cluster.raw("GET", path, "").text).concat();
    let served: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let is_served = |name: &str| {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|ending| name.strip_suffix(ending));
        served.contains(name) || base.is_some_and(|base| served.contains(base))
    };
    let missing: Vec<&String> = named.iter().filter(|name| !is_served(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are not on the page:\n{page}");
}
