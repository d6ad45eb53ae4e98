use super::*;
use coracle_api::UserInfo;
use serde_json::{Value, json};

fn jane() -> UserInfo {
    let mut user = UserInfo::authenticated("jane", &["dev"]);
    user.uid = "u".to_owned();
    user.extra.insert("k".to_owned(), vec!["v".to_owned()]);
    user
}

#[test]
fn the_question_in_both_versions() {
    let user = jane();
    let asked = Attributes {
        version: "v1",
        field_selector: "spec.nodeName=n,status.phase!=Failed",
        label_selector: "a in (x,y),!b,c>5",
        ..Attributes::resource(&user, "list", "", "pods", "ns")
    };
    let body = |version| -> Value { serde_json::from_slice(&Review::of(&asked).body(version)).unwrap() };
    let v1 = body(Version::V1);
    assert_eq!(
        (&v1["kind"], &v1["apiVersion"]),
        (&json!("SubjectAccessReview"), &json!("authorization.k8s.io/v1"))
    );
    assert_eq!(
        v1["spec"],
        json!({
            "user": "jane", "uid": "u", "groups": ["dev", "system:authenticated"], "extra": { "k": ["v"] },
            "resourceAttributes": { "namespace": "ns", "verb": "list", "version": "v1", "resource": "pods",
                "fieldSelector": { "requirements": [
                    { "key": "spec.nodeName", "operator": "In", "values": ["n"] },
                    { "key": "status.phase", "operator": "NotIn", "values": ["Failed"] },
                ] },
                "labelSelector": { "requirements": [
                    { "key": "a", "operator": "In", "values": ["x", "y"] },
                    { "key": "b", "operator": "DoesNotExist" },
                ] } },
        })
    );
    let old = body(Version::V1beta1);
    assert_eq!(old["apiVersion"], "authorization.k8s.io/v1beta1");
    assert_eq!((&old["spec"]["group"], &old["spec"]["groups"]), (&v1["spec"]["groups"], &Value::Null));
    let path = Review::of(&Attributes::path(&user, "get", "/x"));
    assert_eq!(path.spec()["nonResourceAttributes"], json!({ "path": "/x", "verb": "get" }));
}

/// A cache that takes one question for another lets somebody do what another may.
#[test]
fn no_two_questions_share_a_key() {
    let user = jane();
    let base = Attributes { version: "v1", ..Attributes::resource(&user, "list", "g", "pods", "ns") };
    let others = [
        jane(),
        UserInfo { uid: "w".to_owned(), ..jane() },
        UserInfo { groups: Vec::new(), ..jane() },
        UserInfo { extra: Default::default(), ..jane() },
    ];
    let mut all = vec![base];
    all.extend(others[1..].iter().map(|user| Attributes { user, ..base }));
    all.extend([
        Attributes { verb: "watch", ..base },
        Attributes { group: "h", ..base },
        Attributes { version: "v2", ..base },
        Attributes { subresource: "log", ..base },
        Attributes { namespace: "", ..base },
        Attributes { name: "p", ..base },
        Attributes { field_selector: "a=b", ..base },
        Attributes { label_selector: "a=b", ..base },
        Attributes::path(&user, "get", "/x"),
    ]);
    let keys: std::collections::BTreeSet<String> =
        all.iter().map(|asked| Review::of(asked).key().to_owned()).collect();
    assert_eq!(keys.len(), all.len());
    assert_eq!(Review::of(&base).key(), Review::of(&Attributes { user: &others[0], ..base }).key());
}

#[test]
fn what_would_fill_the_memory_is_not_remembered() {
    let (user, long) = (jane(), "x".repeat(10_000));
    assert!(Review::of(&Attributes::path(&user, "get", &long[..9_000])).may_be_remembered());
    assert!(!Review::of(&Attributes::path(&user, "get", &long)).may_be_remembered());
    let selects = Attributes { label_selector: &long, ..Attributes::resource(&user, "list", "", "pods", "") };
    assert!(!Review::of(&selects).may_be_remembered());
}

#[test]
fn answers_are_read_or_refused() {
    let of = |version: &str, status: Value| {
        let answer = json!({ "kind": "SubjectAccessReview", "apiVersion": version, "status": status });
        review::Status::read(&answer, Version::V1).map(|status| status.verdict())
    };
    let v1 = "authorization.k8s.io/v1";
    let said = |status| of(v1, status).unwrap().decision;
    assert_eq!(said(json!({ "allowed": true, "reason": "r" })), Decision::Allow("r".to_owned()));
    assert_eq!(said(json!({ "allowed": false, "denied": true })), Decision::Deny(String::new()));
    assert_eq!(said(json!({ "allowed": false })), Decision::NoOpinion(String::new()));
    assert_eq!(said(Value::Null), Decision::NoOpinion(String::new()));
    let both = of(v1, json!({ "allowed": true, "denied": true })).unwrap();
    assert!(matches!(both.decision, Decision::Deny(_)) && both.error.is_some(), "{both:?}");
    for wrong in [json!({ "allowed": "true" }), json!({ "allowed": 1 }), json!(true), json!({ "denied": [] })]
    {
        assert!(of(v1, wrong.clone()).is_err(), "{wrong}");
    }
    assert!(of("authorization.k8s.io/v1beta1", json!({ "allowed": true })).is_err());
    assert!(review::Status::read(&json!({ "allowed": true }), Version::V1).is_err());
}

fn want(expressions: &[&str], asked: &Attributes<'_>) -> Result<bool, String> {
    let expressions: Vec<String> = expressions.iter().map(|e| (*e).to_owned()).collect();
    let mut mistakes = Vec::new();
    let conditions = compile("c", &expressions, &mut mistakes);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    conditions.want("test", Review::of(asked).spec(), &Metrics::default())
}

#[test]
fn conditions_see_the_question() {
    let user = jane();
    let on_node = "spec.nodeName=n";
    let asked =
        Attributes { field_selector: on_node, ..Attributes::resource(&user, "list", "", "pods", "ns") };
    let path = Attributes::path(&user, "get", "/x");
    for (expression, of_resource, of_path) in [
        ("has(request.resourceAttributes)", true, false),
        ("!('dev' in request.groups) || request.user == 'jane'", true, true),
        ("request.extra.k == ['v'] && request.uid == 'u'", true, true),
        (
            "has(request.nonResourceAttributes) && request.nonResourceAttributes.path.startsWith('/x')",
            false,
            true,
        ),
        (
            "has(request.resourceAttributes) && has(request.resourceAttributes.fieldSelector) && \
             request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'spec.nodeName' && \
             r.operator == 'In' && r.values == ['n'])",
            true,
            false,
        ),
    ] {
        assert_eq!(want(&[expression], &asked), Ok(of_resource), "{expression}");
        assert_eq!(want(&[expression], &path), Ok(of_path), "{expression}");
    }
    assert_eq!(want(&[], &asked), Ok(true));
}

#[test]
fn one_false_condition_decides_even_beside_an_error() {
    let user = jane();
    let asked = Attributes::path(&user, "get", "/x");
    let fails = "request.resourceAttributes.namespace == 'a'";
    assert!(want(&[fails], &asked).unwrap_err().contains("resulted in error"));
    assert_eq!(want(&[fails, "request.user == 'joe'"], &asked), Ok(false));
    assert!(want(&["request.user == 'jane'", fails], &asked).is_err());
}

#[test]
fn there_may_be_sixty_four() {
    let many = |count: usize| {
        let expressions: Vec<String> = (0..count).map(|n| format!("request.user != '{n}'")).collect();
        let mut mistakes = Vec::new();
        compile("authorizers[0].matchConditions", &expressions, &mut mistakes);
        mistakes
    };
    assert!(many(64).is_empty());
    assert!(many(65)[0].detail.contains("must have at most 64 items"), "{:?}", many(65));
}
