//! Certificate requests, aggregated roles and bootstrap tokens.

use crate::cluster;
use crate::support::{World, until_gone, until_object};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

fn request(cn: &str, organization: &str, names: Vec<SanType>) -> ByteString {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, cn);
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.subject_alt_names = names;
    let key = KeyPair::generate().unwrap();
    ByteString(params.serialize_request(&key).unwrap().pem().unwrap().into_bytes())
}

async fn ask(client: kube::Client, name: &str, signer: &str, usages: Value, request: &ByteString) {
    let csr = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "request": request, "signerName": signer, "usages": usages, "expirationSeconds": 3600 },
    }))
    .unwrap();
    let api: Api<CertificateSigningRequest> = Api::all(client);
    api.create(&PostParams::default(), &csr).await.unwrap();
}

async fn approve(world: &World, name: &str) {
    let api: Api<CertificateSigningRequest> = Api::all(world.admin());
    let mut csr = api.get(name).await.unwrap();
    let condition = serde_json::from_value(json!({ "type": "Approved", "status": "True", "reason": "Test" }));
    csr.status.get_or_insert_default().conditions.get_or_insert_default().push(condition.unwrap());
    api.replace_subresource("approval", name, &PostParams::default(), &csr).await.unwrap();
}

/// Subject, seconds of life and number of alternative names.
fn read(csr: &CertificateSigningRequest) -> (String, i64, usize) {
    let pem = csr.status.clone().unwrap().certificate.unwrap();
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem.0).unwrap();
    let (_, certificate) = X509Certificate::from_der(&block.contents).unwrap();
    let validity = certificate.validity();
    let life = validity.not_after.timestamp() - validity.not_before.timestamp();
    let names = certificate.subject_alternative_name().unwrap();
    (certificate.subject().to_string(), life, names.map_or(0, |n| n.value.general_names.len()))
}

fn issued(csr: &CertificateSigningRequest) -> bool {
    csr.status.as_ref().is_some_and(|s| s.certificate.is_some())
}

#[tokio::test]
async fn a_kubelets_request_is_approved_and_signed_if_it_may_have_it() {
    let world = cluster().await;
    let api: Api<CertificateSigningRequest> = Api::all(world.admin());
    let usages = json!(["digital signature", "client auth"]);
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    // Whoever is in system:nodes may have its own certificate renewed from the beginning.
    let (node, other) =
        (world.user("system:node:n1", &["machines"]), world.user("system:node:n2", &["strangers"]));
    let [wanted, others] =
        ["n1", "n2"].map(|name| request(&format!("system:node:{name}"), "system:nodes", Vec::new()));
    let bind = async |name: &str, role: &str, group_of_subjects: &str| {
        let bindings: Api<ClusterRoleBinding> = Api::all(world.admin());
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": group, "kind": "Group", "name": group_of_subjects }],
        });
        world.create(&bindings, binding).await;
    };
    bind("strangers-ask", "system:node-bootstrapper", "strangers").await;
    bind("machines-ask", "system:node-bootstrapper", "machines").await;
    bind("renew", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "machines").await;
    ask(other, "without-right", signer, usages.clone(), &others).await;
    ask(node, "with-right", signer, usages, &wanted).await;
    let done = until_object("a certificate", &api, "with-right", issued).await;
    let (subject, life, names) = read(&done);
    assert!(subject.contains("CN=system:node:n1") && subject.contains("O=system:nodes"), "{subject}");
    assert_eq!((life, names), (3600 + 300, 0), "an hour, and the backdating of five minutes");
    assert_eq!(done.spec.username.as_deref(), Some("system:node:n1"));
    let approved = done.status.unwrap().conditions.unwrap();
    assert_eq!(approved[0].reason.as_deref(), Some("AutoApproved"));
    let stranger = api.get("without-right").await.unwrap();
    assert!(stranger.status.and_then(|s| s.conditions).is_none(), "it may ask and no more");
}

#[tokio::test]
async fn signers_hold_to_their_rules() {
    let world = cluster().await;
    let api: Api<CertificateSigningRequest> = Api::all(world.admin());
    let person = request("jane", "dev", Vec::new());
    ask(world.admin(), "person", "kubernetes.io/kube-apiserver-client", json!(["client auth"]), &person)
        .await;
    ask(world.admin(), "bad", "kubernetes.io/kube-apiserver-client", json!(["server auth"]), &person).await;
    ask(world.admin(), "foreign", "example.com/mine", json!(["any"]), &person).await;
    let names = vec![SanType::DnsName("n1".try_into().unwrap()), SanType::IpAddress([192, 0, 2, 7].into())];
    let server = request("system:node:n1", "system:nodes", names);
    let usages = json!(["digital signature", "server auth"]);
    ask(world.admin(), "server", "kubernetes.io/kubelet-serving", usages, &server).await;
    for name in ["person", "bad", "foreign", "server"] {
        approve(&world, name).await;
    }
    let (subject, _, _) = read(&until_object("a person's", &api, "person", issued).await);
    assert!(subject.contains("CN=jane") && subject.contains("O=dev"), "{subject}");
    assert_eq!(read(&until_object("a server's", &api, "server", issued).await).2, 2);
    let failed = until_object("a failure", &api, "bad", |csr| {
        let conditions = csr.status.clone().and_then(|s| s.conditions).unwrap_or_default();
        conditions
            .iter()
            .any(|c| c.type_ == "Failed" && c.reason.as_deref() == Some("SignerValidationFailure"))
    })
    .await;
    let messages: Vec<_> =
        failed.status.unwrap().conditions.unwrap().into_iter().map(|c| c.message).collect();
    assert!(messages.contains(&Some("invalid usage for client certificate: server auth".to_owned())));
    assert!(!issued(&api.get("foreign").await.unwrap()), "other signers' requests are theirs");
}

#[tokio::test]
async fn roles_are_aggregated_as_they_come_and_go() {
    let world = cluster().await;
    let api: Api<ClusterRole> = Api::all(world.admin());
    let rule = json!({ "verbs": ["get"], "apiGroups": ["example.com"], "resources": ["boats"] });
    let labels = json!({ "rbac.authorization.k8s.io/aggregate-to-view": "true" });
    world.create(&api, json!({ "metadata": { "name": "boats", "labels": labels }, "rules": [rule] })).await;
    let holds = |role: &ClusterRole| {
        let rules = role.rules.as_deref().unwrap_or_default();
        rules.iter().any(|r| r.resources.as_deref().is_some_and(|r| r == ["boats"]))
    };
    for role in ["view", "edit", "admin"] {
        until_object("the rule of the new role", &api, role, holds).await;
    }
    api.delete("boats", &Default::default()).await.unwrap();
    for role in ["view", "edit", "admin"] {
        until_object("the rule is gone", &api, role, |r| {
            !holds(r) && r.rules.as_ref().is_some_and(|r| !r.is_empty())
        })
        .await;
    }
}

#[tokio::test]
async fn tokens_sign_the_clusters_description_until_they_expire() {
    let world = cluster().await;
    let secrets = world.in_namespace::<Secret>("kube-system");
    let token = |id: &str, expiration: &str| {
        json!({
            "metadata": { "name": format!("bootstrap-token-{id}") }, "type": "bootstrap.kubernetes.io/token",
            "stringData": { "token-id": id, "token-secret": "0123456789abcdef",
                "usage-bootstrap-signing": "true", "expiration": expiration },
        })
    };
    world.create(&secrets, token("abcdef", "2999-01-01T00:00:00Z")).await;
    world.create(&secrets, token("gone00", "2020-01-01T00:00:00Z")).await;
    let maps = world.in_namespace::<ConfigMap>("kube-public");
    let has = |map: &ConfigMap, id: &str| {
        map.data.as_ref().is_some_and(|d| d.contains_key(&format!("jws-kubeconfig-{id}")))
    };
    let signed = until_object("a signature", &maps, "cluster-info", |m| has(m, "abcdef")).await;
    assert!(!has(&signed, "gone00"));
    until_gone("the expired token", &secrets, "bootstrap-token-gone00").await;
    secrets.delete("bootstrap-token-abcdef", &Default::default()).await.unwrap();
    until_object("no signature", &maps, "cluster-info", |m| !has(m, "abcdef")).await;
}

#[tokio::test]
async fn a_secret_gets_its_accounts_token_and_leaves_its_list() {
    let world = cluster().await;
    let accounts = world.in_namespace::<ServiceAccount>("default");
    let secrets = world.in_namespace::<Secret>("default");
    let listed = json!([{ "name": "t" }, { "name": "other" }]);
    world.create(&accounts, json!({ "metadata": { "name": "robot" }, "secrets": listed })).await;
    let annotations = json!({ "kubernetes.io/service-account.name": "robot" });
    let secret = json!({ "metadata": { "name": "t", "annotations": annotations },
        "type": "kubernetes.io/service-account-token" });
    world.create(&secrets, secret).await;
    let filled = until_object("a token", &secrets, "t", |s| s.data.is_some()).await;
    let data = filled.data.unwrap();
    assert_eq!(data["token"].0, b"a token of robot");
    assert_eq!(data["namespace"].0, b"default");
    secrets.delete("t", &Default::default()).await.unwrap();
    until_object("only the other is listed", &accounts, "robot", |account| {
        let all = account.secrets.clone().unwrap_or_default();
        all.len() == 1 && all[0].name.as_deref() == Some("other")
    })
    .await;
}
