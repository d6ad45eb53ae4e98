use super::plan::*;
use super::request::Wanted;
use coracle_api::certificate::Name;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::{Value, json};
use std::time::Duration;

fn wanted(name: &str, organizations: &[&str], usages: &[&str]) -> Wanted {
    Wanted {
        common_name: name.to_owned(),
        organizations: organizations.iter().map(|o| (*o).to_owned()).collect(),
        usages: usages.iter().map(|u| (*u).to_owned()).collect(),
        ..Wanted::default()
    }
}

fn named(wanted: Wanted, names: &[Name]) -> Wanted {
    Wanted { names: names.to_vec(), ..wanted }
}

fn dns() -> Name {
    Name::Dns("n1".to_owned())
}

fn ip() -> Name {
    Name::Ip([192, 0, 2, 1].into())
}

fn email() -> Name {
    Name::Email("a@b".to_owned())
}

fn uri() -> Name {
    Name::Uri("a://b".to_owned())
}

fn kubelet() -> Wanted {
    wanted("system:node:n1", &["system:nodes"], &["client auth", "digital signature"])
}

fn told(signer: &str, wanted: &Wanted) -> String {
    verdict(signer, wanted).expect("one of ours").err().unwrap_or_default()
}

#[test]
fn kubelets_client_certificates() {
    assert_eq!(told(KUBELET_CLIENT, &kubelet()), "");
    let mut rsa = kubelet();
    rsa.usages.insert("key encipherment".to_owned());
    assert_eq!(told(KUBELET_CLIENT, &rsa), "");
    rsa.usages.insert("server auth".to_owned());
    assert_eq!(
        told(KUBELET_CLIENT, &rsa),
        "usages did not match [client auth digital signature key encipherment]"
    );
    for (changed, why) in [
        (named(kubelet(), &[dns()]), "DNS subjectAltNames are not allowed"),
        (named(kubelet(), &[email()]), "Email subjectAltNames are not allowed"),
        (named(kubelet(), &[ip()]), "IP subjectAltNames are not allowed"),
        (named(kubelet(), &[uri()]), "URI subjectAltNames are not allowed"),
        (
            wanted("n1", &["system:nodes"], &["client auth"]),
            "subject common name does not begin with system:node: ",
        ),
        (wanted("system:node:n1", &["system:nodes", "x"], &[]), "subject organization is not system:nodes"),
    ] {
        assert_eq!(told(KUBELET_CLIENT, &changed), why);
    }
}

#[test]
fn kubelets_serving_certificates() {
    let server = wanted("system:node:n1", &["system:nodes"], &["server auth", "digital signature"]);
    assert_eq!(told(KUBELET_SERVING, &server), "DNS or IP subjectAltName is required");
    assert_eq!(told(KUBELET_SERVING, &named(server.clone(), &[ip()])), "");
    let mail = named(server, &[dns(), email()]);
    assert_eq!(told(KUBELET_SERVING, &mail), "Email subjectAltNames are not allowed");
}

#[test]
fn clients_of_the_api() {
    let client = |usages: &[&str]| told(API_CLIENT, &wanted("jane", &["dev"], usages));
    assert_eq!(client(&["client auth", "digital signature", "key encipherment"]), "");
    assert_eq!(client(&["digital signature"]), "missing required usage for client certificate: client auth");
    assert_eq!(client(&["client auth", "server auth"]), "invalid usage for client certificate: server auth");
    let nobody = wanted("", &["dev"], &["client auth"]);
    assert_eq!(told(API_CLIENT, &nobody), "the subject has no common name");
    assert_eq!(verdict("example.com/s", &kubelet()), None);
}

#[test]
fn who_may_have_a_kubelets_certificate() {
    let names = |signer: &str, user: &str, wanted: &Wanted| {
        permissions(signer, user, wanted).iter().map(|p| p.subresource).collect::<Vec<_>>()
    };
    assert_eq!(names(KUBELET_CLIENT, "system:node:n1", &kubelet()), ["selfnodeclient", "nodeclient"]);
    assert_eq!(names(KUBELET_CLIENT, "system:bootstrap:abcdef", &kubelet()), ["nodeclient"]);
    assert_eq!(names(API_CLIENT, "system:node:n1", &kubelet()), [] as [&str; 0]);
    assert_eq!(names(KUBELET_CLIENT, "x", &named(kubelet(), &[uri()])), [] as [&str; 0]);
}

#[test]
fn who_may_have_a_nodes_other_certificates() {
    let names = |signer: &str, user: &str, wanted: &Wanted| {
        permissions(signer, user, wanted).iter().map(|p| p.subresource).collect::<Vec<_>>()
    };
    let none = [] as [&str; 0];
    let serving = wanted("system:node:n1", &["system:nodes"], &["server auth", "digital signature"]);
    let serving = named(serving, &[ip()]);
    assert_eq!(names(KUBELET_SERVING, "system:node:n1", &serving), ["selfnodeserver"]);
    assert_eq!(names(KUBELET_SERVING, "system:node:n2", &serving), none);
    let proxy = wanted("system:kube-proxy", &[], &["client auth", "digital signature"]);
    assert_eq!(names(API_CLIENT, "system:node:n1", &proxy), ["nodeproxyclient"]);
    let masters = wanted("system:kube-proxy", &["system:masters"], &["client auth"]);
    for other in [masters, wanted("admin", &[], &["client auth"]), named(proxy, &[uri()])] {
        assert_eq!(names(API_CLIENT, "system:node:n1", &other), none, "{other:?}");
    }
}

#[test]
fn requests_of_kubelets_are_about_a_node() {
    let wanted = wanted("system:node:n1", &["system:nodes"], &[]);
    assert_eq!(node_of(KUBELET_SERVING, &wanted), Some("n1"));
    assert_eq!(node_of(KUBELET_CLIENT, &wanted), Some("n1"));
    assert_eq!(node_of(API_CLIENT, &wanted), None);
}

#[test]
fn lives() {
    let hours = |h: u64| Duration::from_secs(h * 3600);
    assert_eq!(life(None), hours(24 * 365));
    assert_eq!(life(Some(7200)), hours(2));
    assert_eq!(life(Some(1)), Duration::from_secs(600));
    assert_eq!(life(Some(i32::MAX)), hours(24 * 365));
    assert_eq!(life(Some(-5)), Duration::from_secs(600));
}

fn csr(status: Value) -> CertificateSigningRequest {
    serde_json::from_value(json!({
        "metadata": { "name": "x", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "request": "", "signerName": "a.b/c" }, "status": status,
    }))
    .unwrap()
}

#[test]
fn requests_end() {
    let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
    let condition = |kind: &str| {
        csr(
            json!({ "conditions": [{ "type": kind, "status": "True", "lastUpdateTime": "2026-01-02T00:00:00Z" }] }),
        )
    };
    assert_eq!(end_of(&csr(json!({}))), at("2026-01-02T00:00:00Z"));
    for kind in ["Denied", "Failed"] {
        assert_eq!(end_of(&condition(kind)), at("2026-01-02T01:00:00Z"), "{kind}");
    }
    let mut approved = condition("Approved");
    assert_eq!(end_of(&approved), None, "it waits for its signature");
    approved.status.as_mut().unwrap().certificate = Some(k8s_openapi::ByteString(b"x".to_vec()));
    assert_eq!(end_of(&approved), at("2026-01-02T01:00:00Z"));
    assert_eq!(end_of(&condition("Other")), None);
    assert!(awaits_signature(&condition("Approved")) && is_decided(&condition("Denied")));
    assert!(!awaits_signature(&condition("Failed")));
}
