//! Certificates: for whom they are, whose they may be, and how long.

use coracle_tests::rest::Rest;
use coracle_tests::{Cluster, Output};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const NODES: &str = "/api/v1/nodes";

/// Common names in their order, and groups. More than one common name is what no honest tool makes: the second attribute
/// type is the first one's number, written out.
fn subject(names: &[&str], groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    let kinds = [DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])];
    for (kind, name) in kinds.into_iter().zip(names) {
        params.distinguished_name.push(kind, *name);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// A certificate and its key by the cluster's own authority, as its signer might have been tricked into.
fn signed(cluster: &Cluster, params: &CertificateParams, file: &str) -> PathBuf {
    let read = |name: &str| std::fs::read_to_string(cluster.data_dir().join("pki").join(name)).expect(name);
    let authority = KeyPair::from_pem(&read("ca.key")).expect("the authority's key");
    let issuer = Issuer::from_ca_cert_pem(&read("ca.crt"), authority).expect("the authority");
    let key = KeyPair::generate().expect("a key");
    let text = params.signed_by(&key, &issuer).expect("a certificate").pem() + &key.serialize_pem();
    let path = cluster.home().join(file);
    std::fs::write(&path, text).expect("a file in HOME");
    path
}

/// kubectl with nothing but this certificate.
fn kubectl(cluster: &Cluster, certificate: &std::path::Path, line: &str) -> Output {
    let (own, ca) = (certificate.display(), cluster.data_dir().join("pki/ca.crt"));
    cluster.run(&format!(
        "kubectl --kubeconfig /dev/null --server https://127.0.0.1:{} --certificate-authority {} --client-certificate {own} --client-key {own} {line}",
        cluster.port(),
        ca.display()
    ))
}

/// The status code of `path` with the certificate and key of these files.
fn code(cluster: &Cluster, certificate: &str, key: &str, path: &str) -> String {
    let line = format!(
        "curl -sk -o /dev/null -w '%{{http_code}}' --cert {certificate} --key {key} https://127.0.0.1:{}{path}",
        cluster.port()
    );
    cluster.ok(&line)
}

fn request(params: &CertificateParams) -> String {
    use base64::Engine as _;
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).and_then(|r| r.pem()).expect("a request");
    base64::engine::general_purpose::STANDARD.encode(pem)
}

fn csr(name: &str, signer: &str, usage: &str, params: &CertificateParams) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": name },
        "spec": { "request": request(params), "signerName": signer, "usages": ["digital signature", usage] },
    })
}

/// The kubelet took the first common name, the API server and the signer the last.
#[test]
fn two_names_in_one_certificate_are_nobodys() {
    let cluster = Cluster::start(&[]);
    let rest = Rest::new(cluster.kubeconfig());
    for names in [["kubernetes-admin", "system:node:n1"], ["system:node:n1", "kubernetes-admin"]] {
        let params = subject(&names, &["system:nodes"]);
        for signer in ["kubernetes.io/kube-apiserver-client-kubelet", "example.com/mine"] {
            let asked = csr("two", signer, "client auth", &params).to_string();
            let why = rest.call("POST", CSRS, &[], &asked).refused(422, "Invalid");
            assert!(why.contains("the subject has 2 common names"), "{why}");
        }
        let file = signed(&cluster, &subject(&names, &["system:masters"]), "two.pem");
        let file = file.display().to_string();
        assert_eq!(code(&cluster, &file, &file, "/api"), "401", "{names:?}");
    }
    let file =
        signed(&cluster, &subject(&["somebody"], &["system:masters"]), "one.pem").display().to_string();
    assert_eq!(code(&cluster, &file, &file, "/api"), "200", "the same with one name is somebody");
}

fn with_names(node: &str, hosts: &[&str]) -> CertificateParams {
    let mut params = subject(&[&format!("system:node:{node}")], &["system:nodes"]);
    params.extended_key_usages = Vec::new();
    params.subject_alt_names = hosts
        .iter()
        .map(|host| match host.parse() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => SanType::DnsName((*host).try_into().expect("a name")),
        })
        .collect();
    params
}

/// A compromised worker writes other machines' addresses into its own status, and asks for a certificate for them.
#[test]
fn a_node_gets_no_serving_certificate_for_anybody_else() {
    let cluster = Cluster::start(&["--node-name", "box"]);
    let rest = Rest::new(cluster.kubeconfig());
    rest.create(NODES, &json!({ "metadata": { "name": "good" } }));
    let address = |ip: &str| json!({ "type": "InternalIP", "address": ip });
    rest.merge(
        &format!("{NODES}/good/status"),
        &json!({ "status": { "addresses": [address("192.0.2.2")] } }),
    );
    let own = signed(&cluster, &subject(&["system:node:evil"], &["system:nodes"]), "evil.pem");
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "evil" } });
    let apply = |object: &Value, name: &str| {
        std::fs::write(cluster.home().join(name), object.to_string()).expect("a file");
        let made = kubectl(&cluster, &own, &format!("create -f {name}"));
        assert_eq!(made.code, 0, "{made}");
    };
    apply(&node, "node.json");
    let claims = ["192.0.2.1", "192.0.2.2", "10.43.0.1", "10.42.0.9", "127.0.0.1", "169.254.169.254"];
    let mut claimed: Vec<Value> = claims.iter().map(|ip| address(ip)).collect();
    for name in ["kubernetes.default.svc", "good", "localhost"] {
        claimed.push(json!({ "type": "InternalDNS", "address": name }));
    }
    // Whatever the API lets a node say of itself, the approver does not believe it.
    rest.merge(&format!("{NODES}/evil/status"), &json!({ "status": { "addresses": claimed } }));
    let stolen: [&[&str]; 9] = [
        &["192.0.2.2"],
        &["10.43.0.1"],
        &["10.42.0.9"],
        &["127.0.0.1"],
        &["169.254.169.254"],
        &["kubernetes.default.svc"],
        &["evil", "good"],
        &["localhost"],
        &["192.0.2.1", "192.0.2.2"],
    ];
    for (i, hosts) in stolen.iter().enumerate() {
        let params = with_names("evil", hosts);
        apply(
            &csr(&format!("stolen-{i}"), "kubernetes.io/kubelet-serving", "server auth", &params),
            "csr.json",
        );
    }
    // Nor is it the server's own node, whoever asks.
    let masquerade = signed(&cluster, &subject(&["system:node:box"], &["system:nodes"]), "box.pem");
    let params = subject(&["system:node:box"], &["system:nodes"]);
    let asked = csr("box", "kubernetes.io/kube-apiserver-client-kubelet", "client auth", &params);
    std::fs::write(cluster.home().join("box.json"), asked.to_string()).expect("a file");
    assert_eq!(kubectl(&cluster, &masquerade, "create -f box.json").code, 0);
    // What is its own it gets, and by then the others have been looked at.
    let params = with_names("evil", &["evil", "192.0.2.1"]);
    apply(&csr("own", "kubernetes.io/kubelet-serving", "server auth", &params), "csr.json");
    cluster.until_that("kubectl get csr own -o jsonpath='{.status.certificate}'", |text| !text.is_empty());
    cluster.says(
        "kubectl get csr -o jsonpath='{range .items[?(@.status.conditions)]}{.metadata.name} {end}'",
        "own",
    );
    // It is worth nothing beyond the API server's way to kubelets.
    cluster.ok("kubectl get csr own -o jsonpath='{.status.certificate}' | base64 -d >own.crt");
    let pki = cluster.data_dir().join("pki");
    let verified =
        |ca: &str| cluster.run(&format!("openssl verify -CAfile {} own.crt", pki.join(ca).display()));
    assert_eq!(verified("kubelet-serving-ca.crt").code, 0, "{}", verified("kubelet-serving-ca.crt"));
    assert_ne!(verified("ca.crt").code, 0);
}

/// The certificate that the API server shows to kubelets, and a node that says it is the API server.
#[test]
fn the_way_to_kubelets_leads_nowhere_else() {
    let cluster = Cluster::start(&["--node-name", "box"]);
    let pki = cluster.data_dir().join("pki");
    let file = |name: &str| pki.join(name).display().to_string();
    let (own, key) = (file("apiserver-kubelet-client.crt"), file("apiserver-kubelet-client.key"));
    assert_eq!(code(&cluster, &own, &key, "/api"), "401");
    assert_eq!(code(&cluster, &file("kubelet.crt"), &file("kubelet.key"), "/api"), "401");
    let rest = Rest::new(cluster.kubeconfig());
    rest.create(NODES, &json!({ "metadata": { "name": "evil" } }));
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "::1", "10.43.0.1", "localhost"] {
        let kind = if address == "localhost" { "Hostname" } else { "InternalIP" };
        let status = json!({ "status": {
            "addresses": [{ "type": kind, "address": address }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": cluster.port() } },
        } });
        rest.merge(&format!("{NODES}/evil/status"), &status);
        for name in ["evil".to_owned(), format!("https:evil:{}", cluster.port())] {
            let path = format!("{NODES}/{name}/proxy/api/v1/secrets");
            let why = rest.call("GET", &path, &[], "").refused(400, "BadRequest");
            assert_eq!(why, "address not allowed", "{address} {name}");
        }
    }
    // Not even as its own node does the API server take itself for a kubelet.
    rest.create(NODES, &json!({ "metadata": { "name": "box" } }));
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": cluster.port() } },
    } });
    rest.merge(&format!("{NODES}/box/status"), &status);
    let why = rest.call("GET", &format!("{NODES}/box/proxy/api"), &[], "").refused(503, "ServiceUnavailable");
    assert!(why.contains("UnknownIssuer"), "{why}");
}

const END: &str = "openssl x509 -noout -enddate -checkend";

/// The administrator is somebody whom roles bind, for days, and every certificate can be seen.
#[test]
fn the_administrators_certificate_is_short_lived_and_bound_by_roles() {
    let cluster = Cluster::start(&[]);
    let data = cluster.data_dir().display().to_string();
    let admin = format!("{data}/pki/admin.crt");
    let days = |n: u32| cluster.run(&format!("{END} {} -in {admin}", n * 86_400)).code;
    assert_eq!((days(6), days(8)), (0, 1), "it lives for a week");
    cluster.says(
        "kubectl auth whoami -o jsonpath='{.status.userInfo.username} {.status.userInfo.groups}'",
        "kubernetes-admin [\"kubeadm:cluster-admins\",\"system:authenticated\"]",
    );
    let conf = format!("--kubeconfig {}", cluster.kubeconfig().display());
    let shown = cluster.ok(&format!("coracle cert check --data-dir {data} {conf}"));
    for words in [
        "ca.crt",
        "kubelet-serving-ca.crt",
        "O=kubeadm:cluster-admins,CN=kubernetes-admin",
        "CN=kubernetes-ca",
        "O=system:nodes,CN=system:node:",
        "CN=kubernetes-kubelet-serving-ca",
        "CN=kube-apiserver-kubelet-client",
    ] {
        assert!(shown.contains(words), "{words} is missing from {shown}");
    }
    // Somebody else's kubeconfig, for a day; in emergencies one that nothing binds, for as long as is said.
    cluster.ok(&format!("coracle cert admin --data-dir {data} {conf} --user jane -o jane.conf"));
    cluster.says("stat -c %a jane.conf", "600");
    cluster
        .says("kubectl --kubeconfig jane.conf auth whoami -o jsonpath='{.status.userInfo.username}'", "jane");
    cluster.refuses(
        &format!("coracle cert admin --data-dir {data} {conf} --super"),
        "coracle: --super needs --ttl: say how long, at most 24h",
    );
    cluster.ok(&format!("coracle cert admin --data-dir {data} {conf} --super --ttl 15m -o super.conf"));
    cluster.ok("kubectl --kubeconfig super.conf delete clusterrolebinding kubeadm:cluster-admins");
    for conf in ["jane.conf", &cluster.kubeconfig().display().to_string()] {
        let line = format!("kubectl --kubeconfig {conf} get secrets -A 2>&1 || true");
        cluster.until_that(&line, |text| text.contains("Forbidden"));
    }
    cluster.ok("kubectl --kubeconfig super.conf get secrets -A");
}

/// New certificates are asked for on the machine; the old kubeconfig goes on until its end.
#[test]
fn certificates_are_renewed_when_somebody_asks() {
    let cluster = Cluster::start(&[]);
    let data = cluster.data_dir();
    let read = || {
        let crt = std::fs::read_to_string(data.join("pki/apiserver.crt")).expect("a certificate");
        (crt, std::fs::read_to_string(cluster.kubeconfig()).expect("the kubeconfig"))
    };
    let (before, ca) = (read(), std::fs::read_to_string(data.join("pki/ca.crt")).expect("the authority"));
    cluster.says(
        &format!("coracle cert renew --data-dir {}", data.display()),
        "renewed, and the administrator's kubeconfig with them",
    );
    let wait = Duration::from_secs(30);
    cluster.within(wait, &format!("cat {}", cluster.kubeconfig().display()), |text| {
        text.trim() != before.1.trim()
    });
    assert_ne!(read().0, before.0);
    assert_eq!(std::fs::read_to_string(data.join("pki/ca.crt")).expect("the authority"), ca);
    cluster.ok("kubectl get nodes");
    let served = cluster.ok(&format!(
        "openssl s_client -connect 127.0.0.1:{} </dev/null 2>/dev/null | openssl x509",
        cluster.port()
    ));
    assert_eq!(served.trim(), read().0.trim(), "and it is served");
    cluster.refuses(
        "coracle cert renew --data-dir $PWD",
        &format!("coracle: {}/pki: these are not a server's; a joined machine renews its own when four fifths of their life are over", cluster.home().display()),
    );
}

/// A kubeconfig that was lost is taken back; the box itself gets another one at once.
#[test]
fn the_box_gets_a_new_administrator_when_the_old_one_is_revoked() {
    let cluster = Cluster::start(&[]);
    let path = cluster.kubeconfig().display().to_string();
    cluster.ok(&format!("cp {path} lost.conf"));
    let before = std::fs::read_to_string(&path).expect("the kubeconfig");
    let told = cluster.ok("coracle cert revoke --admin");
    let words: Vec<&str> = told.split_whitespace().collect();
    assert_eq!(
        (words[0], words[1].len(), words[2]),
        ("revoked", 64, "O=kubeadm:cluster-admins,CN=kubernetes-admin")
    );
    cluster.until_that(&format!("cat {path}"), |text| text.trim() != before.trim());
    cluster.says(&format!("stat -c %a {path}"), "600");
    cluster.ok("kubectl get secrets -A");
    let list = cluster.ok("coracle cert revoked");
    assert!(
        list.lines().count() == 2 && list.contains(words[1]) && list.contains("CN=kubernetes-admin"),
        "{list}"
    );
    // Of others only the fingerprint may be known.
    let other = "AB:".repeat(31) + "AB";
    cluster.ok(&format!("coracle cert revoke {other}"));
    assert!(cluster.ok("coracle cert revoked").contains(&"ab".repeat(32)));
    let ca = cluster.data_dir().join("pki/ca.crt");
    let refused = cluster.run(&format!("coracle cert revoke {}", ca.display()));
    assert!(refused.code == 1 && refused.stderr.contains("is an authority"), "{refused}");
    assert!(cluster.run("coracle cert revoke").stderr.contains("say which"));
}
