//! Certificates of clients and of proxies.

use super::*;
use coracle_pki::Signer;

fn peer(authenticator: &Authenticator, pem: &str) -> PeerIdentity {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    authenticator.peer(Some(&[der])).unwrap()
}

#[test]
fn proxies_name_the_user_and_others_do_not() {
    let setup = Setup::new();
    let mut headers = HeaderMap::new();
    headers.insert("x-remote-user", "jane".parse().unwrap());
    let ask = |pem: &str| {
        let peer = peer(&setup.authenticator, pem);
        setup.authenticate(Some(&peer), &headers, "/api").map(|u| u.name).map_err(|e| e.code)
    };
    assert_eq!(ask(&setup.pki.leaf_pem(Leaf::Admin).0), Ok("kubernetes-admin".to_owned()));
    assert_eq!(
        ask(&setup.pki.sign_front_proxy("front-proxy-client").unwrap().cert_pem),
        Ok("jane".to_owned())
    );
    assert_eq!(ask(&setup.pki.sign_front_proxy("somebody").unwrap().cert_pem), Err(401));
    assert_eq!(setup.authenticate(None, &headers, "/api").unwrap(), UserInfo::anonymous());
}

#[test]
fn the_subject_may_carry_a_uid() {
    let setup = Setup::new();
    let ask = |uids: &[&str]| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
        for uid in uids {
            let kind = rcgen::DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
            params.distinguished_name.push(kind, *uid);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let life = std::time::Duration::from_secs(3600);
        let signed = setup.pki.sign_request(Signer::Cluster, request.as_bytes(), &["client auth"], life);
        let Ok(pem) = signed else { return Err(422) };
        let peer = peer(&setup.authenticator, &pem);
        setup.authenticate(Some(&peer), &HeaderMap::new(), "/api").map(|u| u.uid).map_err(|e| e.code)
    };
    assert_eq!(ask(&[]), Ok(String::new()));
    assert_eq!(ask(&["8d1f"]), Ok("8d1f".to_owned()));
    assert_eq!(ask(&[""]), Err(422), "nor is such a request signed");
}

#[test]
fn certificates_become_users_until_they_expire() {
    let setup = Setup::new();
    let (cert, _) = setup.pki.leaf_pem(Leaf::Admin);
    let der = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    let peer = setup.authenticator.peer(Some(&[der])).unwrap();
    let ask = || setup.authenticate(Some(&peer), &HeaderMap::new(), "/api");
    let user = ask().unwrap();
    assert_eq!(user.name, "kubernetes-admin");
    assert_eq!(user.groups, ["kubeadm:cluster-admins", "system:authenticated"]);
    assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
    setup.now.fetch_add(366 * 24 * 3600, Ordering::SeqCst);
    assert_eq!(ask().unwrap_err().code, 401);
    assert!(setup.authenticator.peer(Some(&[])).is_none());
}

#[test]
fn a_strangers_certificate_is_401_but_a_good_token_beside_it_counts() {
    let (setup, stranger) = (Setup::new(), Setup::new());
    let (cert, _) = stranger.pki.leaf_pem(Leaf::Admin);
    let der = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    let peer = setup.authenticator.peer(Some(&[der])).unwrap();
    let mut headers = HeaderMap::new();
    for path in ["/api", "/livez"] {
        assert_eq!(setup.authenticate(Some(&peer), &headers, path).unwrap_err().code, 401);
    }
    let token = setup.issue(3600, &[], Bound::default());
    headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    setup.authenticate(Some(&peer), &headers, "/api").unwrap();
}

#[test]
fn a_revoked_certificate_is_refused_on_the_next_request_whoever_it_is_of() {
    let setup = Setup::new();
    let headers = HeaderMap::new();
    let (cert, _) = setup.pki.leaf_pem(Leaf::Admin);
    let peer = peer(&setup.authenticator, &cert);
    let ask = || setup.authenticate(Some(&peer), &headers, "/api").map(|u| u.name).map_err(|e| e.code);
    assert_eq!(ask(), Ok("kubernetes-admin".to_owned()));
    let list = |keys: &[&str]| {
        let data: serde_json::Map<String, Value> =
            keys.iter().map(|key| ((*key).to_owned(), "{}".into())).collect();
        let metadata = json!({ "namespace": revocation::NAMESPACE, "name": revocation::NAME });
        setup.world.put("configmaps.", json!({ "metadata": metadata, "data": data }));
    };
    let der = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    let key = revocation::hex(&revocation::fingerprint(&der));
    list(&[&"0".repeat(64)]);
    assert_eq!(ask(), Ok("kubernetes-admin".to_owned()));
    list(&["x", &key.to_uppercase()]);
    assert_eq!(ask(), Err(401));
    let mut named = HeaderMap::new();
    let token = setup.issue(3600, &[], Bound::default());
    named.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    let user = setup.authenticate(Some(&peer), &named, "/api").unwrap();
    assert_eq!(user.name, "system:serviceaccount:a:bot", "a good token beside it counts");
    list(&[]);
    assert_eq!(ask(), Ok("kubernetes-admin".to_owned()));
    setup.world.put(
        "configmaps.",
        json!({ "metadata": { "namespace": "a", "name": revocation::NAME }, "data": { key: "" } }),
    );
    assert_eq!(ask(), Ok("kubernetes-admin".to_owned()), "another namespace's says nothing");
}

#[test]
fn a_revoked_proxy_names_nobody() {
    let setup = Setup::new();
    let cert = setup.pki.sign_front_proxy("front-proxy-client").unwrap().cert_pem;
    let peer = peer(&setup.authenticator, &cert);
    let mut headers = HeaderMap::new();
    headers.insert("x-remote-user", "jane".parse().unwrap());
    setup.authenticate(Some(&peer), &headers, "/api").unwrap();
    let der = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    let key = revocation::hex(&revocation::fingerprint(&der));
    let metadata = json!({ "namespace": revocation::NAMESPACE, "name": revocation::NAME });
    setup.world.put("configmaps.", json!({ "metadata": metadata, "data": { key: "" } }));
    assert_eq!(setup.authenticate(Some(&peer), &headers, "/api").unwrap_err().code, 401);
}

/// What kubelets are shown is worth nothing here, whoever gets hold of it.
#[test]
fn the_client_for_kubelets_is_no_client_of_the_api() {
    let setup = Setup::new();
    let (own, _) = setup.pki.leaf_pem(Leaf::KubeletClient);
    let made = setup.pki.sign_client(coracle_pki::KUBELET_CLIENT, &["system:masters"]).unwrap().cert_pem;
    let serving = setup.pki.leaf_pem(Leaf::Kubelet).0;
    for pem in [own, made, serving] {
        let peer = peer(&setup.authenticator, &pem);
        let answer = setup.authenticate(Some(&peer), &HeaderMap::new(), "/api");
        assert_eq!(answer.unwrap_err().code, 401);
    }
}

#[test]
fn a_certificate_of_two_users_is_nobodys() {
    let setup = Setup::new();
    let (ca, key) =
        (setup.pki.ca_pem().to_owned(), std::fs::read_to_string(setup._dir.path().join("ca.key")).unwrap());
    let issuer = rcgen::Issuer::from_ca_cert_pem(&ca, rcgen::KeyPair::from_pem(&key).unwrap()).unwrap();
    for names in [["system:node:n1", "root"], ["root", "system:node:n1"]] {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, names[0]);
        // The second type has the first one's number.
        params.distinguished_name.push(rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]), names[1]);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &issuer).unwrap().pem();
        let peer = peer(&setup.authenticator, &pem);
        let answer = setup.authenticate(Some(&peer), &HeaderMap::new(), "/api");
        assert_eq!(answer.unwrap_err().code, 401, "{names:?}");
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let life = std::time::Duration::from_secs(3600);
        let signed = setup.pki.sign_request(Signer::Cluster, request.as_bytes(), &["client auth"], life);
        assert!(signed.unwrap_err().to_string().contains("2 common names"));
    }
}
