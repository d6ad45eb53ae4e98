//! Certificate requests, service accounts and their tokens, the issuer's discovery, reviews of access.

use crate::{Suite, eventually};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[test]
fn certificates_accounts_and_reviews() {
    let mut suite = Suite::start();
    suite.check("approval of certificate requests", certificate_requests);
    suite.check_in("accounts", account_life_cycle);
    suite.check_in("tokens", tokens);
    suite.check_in("tokens-refused", refused_tokens);
    suite.check_in("mounts", mounts);
    suite.check("discovery of the issuer", issuer_discovery);
    suite.check_in("reviews", reviews);
    suite.end();
}

fn certificate_requests(rest: &Rest) {
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "conformance-"},
        "spec": {"request": CSR, "signerName": "example.com/not-served", "usages": ["client auth"], "expirationSeconds": 600},
    });
    let made = rest.create(CSRS, &object);
    let path = format!("{CSRS}/{}", made["metadata"]["name"].as_str().expect("a name"));
    assert!(
        made["spec"]["groups"].as_array().is_some_and(|g| g.contains(&json!("kubeadm:cluster-admins"))),
        "{made}"
    );
    let approval = format!("{path}/approval");
    assert_eq!(rest.get(&approval)["kind"], "CertificateSigningRequest");
    let condition = json!({"type": "ApprovalPatch", "status": "True", "reason": "R", "message": "m"});
    let patched = rest.merge(&approval, &json!({"status": {"conditions": [condition]}}));
    assert_eq!(patched["status"]["conditions"][0]["type"], "ApprovalPatch");
    assert!(patched["status"]["conditions"][0]["lastTransitionTime"].is_string(), "{patched}");
    let mut approved = patched;
    let condition = json!({"type": "Approved", "status": "True", "reason": "E2E", "message": "yes"});
    approved["status"]["conditions"].as_array_mut().expect("conditions").push(condition);
    let approved = rest.replace(&approval, &approved);
    assert_eq!(approved["status"]["conditions"].as_array().map(Vec::len), Some(2));
    // Approvals are no part of the plain object, and never go away.
    let mut undone = approved.clone();
    undone["status"]["conditions"] = json!([]);
    let reply = rest.call("PUT", &approval, &[], &undone.to_string());
    reply.refused(422, "Invalid");
    let status = format!("{path}/status");
    let condition = json!({"type": "StatusUpdate", "status": "True", "reason": "R", "message": "m"});
    let mut with_more = rest.get(&status);
    with_more["status"]["conditions"].as_array_mut().expect("conditions").push(condition);
    rest.replace(&status, &with_more);
    let denied = json!({"status": {"conditions": [{"type": "Denied", "status": "True", "reason": "R"}]}});
    let reply =
        rest.call("PATCH", &status, &["Content-Type: application/merge-patch+json"], &denied.to_string());
    assert_eq!(reply.code, 422, "{}", reply.body);
    rest.delete(&path);
}

/// What openssl makes of an EC key and `/CN=conformance`, in base64.
pub const CSR: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIUU1IZ0NBUUF3RmpFVU1CSUdBMVVFQXd3TFkyOXVabTl5YldGdVkyVXdXVEFUQmdjcWhrak9QUUlCQmdncQpoa2pPUFFNQkJ3TkNBQVQxcmF1SlhKUkEzb3Q3NmFFZkxzbTh1bVU3WkhHa2ZJWWZYUkZHeFJId1NNR1dKOUZOClBKcEVqeVVUb1lCSzM1bEN6Wi9OMjZndmVIYi83WURFc0kyZm9BQXdDZ1lJS29aSXpqMEVBd0lEU0FBd1JRSWcKWGFROUptNlIvUWpXVElEMGpmVnV0OGRmbUx2cXJkTlZlSHlkWmxrNDNINENJUURuQzN2MHUvbVNRNGhhTVNGdAoydXJ6U3dpVlZocitzUUl1SXpJTmdZTkhUdz09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

fn account_life_cycle(rest: &Rest, ns: &str) {
    let path = format!("/api/v1/namespaces/{ns}/serviceaccounts");
    let watch = rest.watch(&format!("{path}?watch=true&labelSelector=static=yes"));
    rest.create(&path, &json!({"metadata": {"name": "sa", "labels": {"static": "yes"}}}));
    watch.sees("ADDED sa");
    let one = format!("{path}/sa");
    rest.merge(&one, &json!({"automountServiceAccountToken": false}));
    assert_eq!(watch.sees("MODIFIED sa")["automountServiceAccountToken"], false);
    let mut found = rest.get(&one);
    found["automountServiceAccountToken"] = json!(true);
    assert_eq!(rest.replace(&one, &found)["automountServiceAccountToken"], true);
    watch.sees("MODIFIED sa");
    rest.call("DELETE", &format!("{path}?labelSelector=static=yes"), &[], "").ok();
    watch.sees("DELETED sa");
    // The default account and the certificate bundle come back.
    rest.delete(&format!("{path}/default"));
    let root = format!("/api/v1/namespaces/{ns}/configmaps/kube-root-ca.crt");
    eventually("the bundle", || (rest.call("GET", &root, &[], "").code == 200).then_some(()));
    rest.delete(&root);
    for path in [format!("{path}/default"), root.clone()] {
        eventually(&path, || (rest.call("GET", &path, &[], "").code == 200).then_some(()));
    }
    rest.merge(&root, &json!({"data": {"ca.crt": ""}}));
    eventually("the bundle's content", || {
        rest.get(&root)["data"]["ca.crt"]
            .as_str()
            .is_some_and(|text| text.contains("BEGIN CERTIFICATE"))
            .then_some(())
    });
}

fn tokens(rest: &Rest, ns: &str) {
    let path = format!("/api/v1/namespaces/{ns}/serviceaccounts/default/token");
    let asked = json!({"spec": {"audiences": ["here"], "expirationSeconds": 600}});
    let made = rest.create(&path, &asked);
    let token = made["status"]["token"].as_str().expect("a token").to_owned();
    assert!(made["status"]["expirationTimestamp"].is_string());
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let seen = rest.create(reviews, &json!({"spec": {"token": token, "audiences": ["here"]}}));
    assert_eq!(seen["status"]["authenticated"], true, "{seen}");
    assert_eq!(seen["status"]["audiences"], json!(["here"]));
    assert_eq!(seen["status"]["user"]["username"], format!("system:serviceaccount:{ns}:default"));
    let groups =
        json!(["system:serviceaccounts", format!("system:serviceaccounts:{ns}"), "system:authenticated"]);
    assert_eq!(seen["status"]["user"]["groups"], groups);
    let elsewhere = rest.create(reviews, &json!({"spec": {"token": token, "audiences": ["elsewhere"]}}));
    assert_ne!(elsewhere["status"]["authenticated"], true, "{elsewhere}");
    let short = json!({"spec": {"expirationSeconds": 5}});
    let message = rest.call("POST", &path, &[], &short.to_string()).refused(422, "Invalid");
    assert!(message.contains("may not specify a duration less than 10 minutes"), "{message}");
}

/// What a token cannot be for, and bound to.
fn refused_tokens(rest: &Rest, ns: &str) {
    let accounts = format!("/api/v1/namespaces/{ns}/serviceaccounts");
    rest.create(&accounts, &json!({"metadata": {"name": "other"}}));
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "nginx"}]}});
    rest.create(&format!("/api/v1/namespaces/{ns}/pods"), &pod);
    let refused = |account: &str, request: &Value, code: u16, reason: &str| {
        let path = format!("{accounts}/{account}/token");
        rest.call("POST", &path, &[], &request.to_string()).refused(code, reason)
    };
    let named = json!({"metadata": {"name": "other"}, "spec": {}});
    assert_eq!(
        refused("default", &named, 422, "Invalid"),
        "TokenRequest.authentication.k8s.io \"default\" is invalid: metadata.name: Invalid value: \"other\": must match \
         the service account name if specified"
    );
    let bound = |version: &str, kind: &str, uid: &str| json!({"spec": {"boundObjectRef": {"apiVersion": version, "kind": kind, "name": "p", "uid": uid}}});
    assert_eq!(
        refused("other", &bound("v1", "Pod", "wrong"), 400, "BadRequest"),
        "cannot bind token for serviceaccount \"other\" to pod running with different serviceaccount name."
    );
    assert_eq!(
        refused("default", &bound("v1", "Pod", "wrong"), 409, "Conflict"),
        "Operation cannot be fulfilled on Pod \"p\": the UID in the bound object reference (wrong) does not match the UID in \
         record. The object might have been deleted and then recreated"
    );
    for (version, kind, told) in [
        ("v1", "ConfigMap", "/v1, Kind=ConfigMap"),
        ("apps/v1", "Pod", "apps/v1, Kind=Pod"),
        ("", "", "/, Kind="),
    ] {
        let message = refused("default", &bound(version, kind, ""), 400, "BadRequest");
        assert_eq!(message, format!("cannot bind token to object of type {told}"));
    }
}

/// What admission adds to a pod, and where it leaves it alone.
fn mounts(rest: &Rest, ns: &str) {
    let accounts = format!("/api/v1/namespaces/{ns}/serviceaccounts");
    rest.create(&accounts, &json!({"metadata": {"name": "mount"}, "automountServiceAccountToken": true}));
    rest.create(&accounts, &json!({"metadata": {"name": "nomount"}, "automountServiceAccountToken": false}));
    for account in ["default", "mount", "nomount"] {
        for wish in [Value::Null, json!(true), json!(false)] {
            let name = format!("pod-{account}-{wish}");
            let pod = json!({
                "metadata": {"name": name},
                "spec": {
                    "serviceAccountName": account, "automountServiceAccountToken": wish,
                    "schedulerName": "nobody", "containers": [{"name": "c", "image": "nginx"}],
                },
            });
            let made = rest.create(&format!("/api/v1/namespaces/{ns}/pods"), &pod);
            let expected = wish.as_bool().unwrap_or(account != "nomount");
            let mounts =
                made["spec"]["containers"][0]["volumeMounts"].as_array().cloned().unwrap_or_default();
            let there =
                mounts.iter().any(|m| m["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount");
            assert_eq!(there, expected, "{name}: {made}");
        }
    }
}

fn issuer_discovery(rest: &Rest) {
    let document = rest.get("/.well-known/openid-configuration");
    let keys = rest.get("/openid/v1/jwks");
    assert_eq!(document["subject_types_supported"], json!(["public"]));
    assert_eq!(document["response_types_supported"], json!(["id_token"]));
    let key = &keys["keys"][0];
    assert_eq!(document["id_token_signing_alg_values_supported"], json!([key["alg"]]), "{keys}");
    assert!(document["jwks_uri"].as_str().is_some_and(|uri| uri.ends_with("/openid/v1/jwks")), "{document}");
    assert!(key["kid"].is_string() && key["kty"].is_string() && key["use"] == "sig", "{keys}");
    let token = rest.create("/api/v1/namespaces/default/serviceaccounts/default/token", &json!({"spec": {}}));
    let parts: Vec<_> = token["status"]["token"].as_str().expect("a token").split('.').map(decoded).collect();
    assert_eq!((&parts[0]["kid"], &parts[1]["iss"]), (&key["kid"], &document["issuer"]));
}

fn decoded(part: &str) -> Value {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn reviews(rest: &Rest, ns: &str) {
    rest.create(&format!("/api/v1/namespaces/{ns}/serviceaccounts"), &json!({"metadata": {"name": "sa"}}));
    let user = format!("system:serviceaccount:{ns}:sa");
    let attributes = json!({"namespace": ns, "verb": "list", "resource": "configmaps", "version": "v1"});
    let body = json!({"spec": {"user": user, "resourceAttributes": attributes}});
    let review = rest.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &body);
    assert_eq!(review["status"]["allowed"], false, "{review}");
    let local = format!("/apis/authorization.k8s.io/v1/namespaces/{ns}/localsubjectaccessreviews");
    let body =
        json!({"metadata": {"namespace": ns}, "spec": {"user": user, "resourceAttributes": attributes}});
    assert_eq!(rest.create(&local, &body)["status"]["allowed"], false);
    let wrong = json!({"spec": {"user": user, "resourceAttributes": {"namespace": "elsewhere", "verb": "list", "resource": "configmaps"}}});
    let reply = rest.call("POST", &local, &[], &wrong.to_string());
    assert_eq!(reply.code, 422, "{}", reply.body);
    let roles = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}");
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    rest.create(&format!("{roles}/roles"), &json!({"metadata": {"name": "r"}, "rules": rules}));
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "namespace": ns, "name": "sa"}],
    });
    rest.create(&format!("{roles}/rolebindings"), &binding);
    eventually("the role's effect", || {
        let review = rest.create(&local, &body);
        (review["status"]["allowed"] == true).then(|| {
            assert!(
                review["status"]["reason"].as_str().is_some_and(|r| r.contains("allowed by RoleBinding")),
                "{review}"
            );
        })
    });
    let rules = rest
        .create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &json!({"spec": {"namespace": ns}}));
    assert_eq!(rules["status"]["incomplete"], false);
    let me = rest.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}));
    assert!(me["status"]["userInfo"]["username"].is_string(), "{me}");
    let own = json!({"spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}});
    let own = rest.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &own);
    assert_eq!(own["status"]["allowed"], true);
}
