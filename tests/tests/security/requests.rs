//! Requests that can be read in two ways: what is allowed is what is done.

use super::fails;
use coracle_tests::{Cluster, wait_for};
use rcgen::{CertificateParams, DnType, KeyPair};
use std::time::Duration;

/// Somebody with credentials of their own, who writes requests by hand.
struct Asker<'a> {
    cluster: &'a Cluster,
    server: String,
    /// curl's arguments.
    credentials: String,
}

impl<'a> Asker<'a> {
    fn new(cluster: &'a Cluster, credentials: String) -> Self {
        let server = cluster.ok("kubectl config view -o jsonpath='{.clusters[0].cluster.server}'");
        Self { cluster, server: server.trim().to_owned(), credentials }
    }

    /// Code and body of the answer; the path goes out as it is written.
    fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let Self { server, credentials, .. } = self;
        let body = if method == "PATCH" {
            "--data '{\"metadata\":{\"labels\":{\"taken\":\"yes\"}}}' -H 'Content-Type: application/merge-patch+json'"
        } else {
            ""
        };
        let printed = self.cluster.ok(&format!(
            "curl -sk --http1.1 --globoff --path-as-is --max-time 30 -w '\\n%{{http_code}}' -X {method} {credentials} {body} '{server}{path}'"
        ));
        let (text, code) = printed.rsplit_once('\n').expect("curl prints the code last");
        (code.parse().expect("a code"), text.to_owned())
    }

    /// Nothing is found there, or nothing allowed.
    fn gets_nothing(&self, method: &str, path: &str) {
        let (code, text) = self.ask(method, path);
        assert!(matches!(code, 400 | 403 | 404 | 405), "{method} {path}: {code} {text}");
    }
}

/// A service account that may do everything in the namespace `n`, and nothing elsewhere.
fn tenant(cluster: &Cluster) -> Asker<'_> {
    cluster.ok("kubectl create namespace n && kubectl -n n create serviceaccount tenant");
    cluster.ok("kubectl -n n create rolebinding all --clusterrole=cluster-admin --serviceaccount=n:tenant");
    let token = cluster.ok("kubectl -n n create token tenant");
    Asker::new(cluster, format!("-H 'Authorization: Bearer {}'", token.trim()))
}

const VOLUME: &str = r#"
apiVersion: v1
kind: PersistentVolume
metadata: {name: "n"}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: /x}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: towers.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: towers, kind: Tower}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
"#;

#[test]
fn a_tenant_reaches_nothing_outside_of_its_namespace() {
    let cluster = Cluster::simulated();
    cluster.apply(VOLUME);
    cluster.ok("kubectl wait --for=condition=Established crd/towers.example.com --timeout=100s");
    cluster.apply("apiVersion: example.com/v1\nkind: Tower\nmetadata: {name: \"n\"}\n");
    let tenant = tenant(&cluster);
    assert_eq!(tenant.ask("GET", "/api/v1/namespaces/n/configmaps").0, 200);
    let kinds = cluster.ok("kubectl api-resources --namespaced=false --no-headers");
    let mut paths = Vec::new();
    for line in kinds.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (plural, version) = (words[0], words[words.len() - 3]);
        let root = if version.contains('/') { "apis" } else { "api" };
        paths.push(format!("/{root}/{version}/namespaces/n/{plural}/n"));
    }
    for known in ["api/v1/namespaces/n/persistentvolumes/n", "example.com/v1/namespaces/n/towers/n"] {
        assert!(paths.iter().any(|path| path.ends_with(known)), "{known} is not in {paths:#?}");
    }
    for path in &paths {
        for method in ["GET", "PATCH", "DELETE"] {
            tenant.gets_nothing(method, path);
        }
    }
    for path in [
        "/api/v1/namespaces/n/%70ersistentvolumes/n",
        "/api/v1/namespaces/n/../../persistentvolumes/n",
        "/api/v1/namespaces/n/..%2F..%2Fpersistentvolumes/n",
        "/api/v1/namespaces/n/%2e%2e/%2e%2e/persistentvolumes/n",
        "/api/v1/namespaces//persistentvolumes/n",
        "/api/v1/namespaces/n//persistentvolumes/n",
        "/api/v1/namespaces/n/persistentvolumes/n/",
        "/api/v1//persistentvolumes/n",
        "//api/v1/persistentvolumes/n",
        "/api/v1/namespaces/n/persistentvolumes?fieldSelector=metadata.name%3Dn",
    ] {
        for method in ["GET", "PATCH", "DELETE"] {
            tenant.gets_nothing(method, path);
        }
    }
    let node = cluster.ok("kubectl get nodes -o jsonpath='{.items[0].metadata.name}'");
    for method in ["OPTIONS", "GET", "POST", "TRACE"] {
        tenant.gets_nothing(method, &format!("/api/v1/namespaces/n/nodes/{}/proxy/pods", node.trim()));
    }
    let left = "-o jsonpath='{.metadata.name}{.metadata.labels}{.metadata.deletionTimestamp}'";
    cluster.says(&format!("kubectl get persistentvolume n {left}"), "n");
    cluster.says(&format!("kubectl get tower n {left}"), "n");
}

/// A kubelet's certificate for this node, as a node gets it.
fn kubelet<'a>(cluster: &'a Cluster, node: &str) -> Asker<'a> {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    let request = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    std::fs::write(cluster.home().join("node.key"), key.serialize_pem()).expect("the key");
    std::fs::write(cluster.home().join("node.csr"), request).expect("the request");
    cluster.ok(r#"kubectl create -f - <<EOF
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: node}
spec:
  request: $(base64 -w0 node.csr)
  signerName: kubernetes.io/kube-apiserver-client-kubelet
  usages: [digital signature, client auth]
EOF
kubectl certificate approve node"#);
    wait_for("the certificate", Duration::from_secs(60), || {
        let found =
            cluster.ok("kubectl get csr node -o jsonpath='{.status.certificate}' | base64 -d | tee node.crt");
        if found.contains("BEGIN CERTIFICATE") { Ok(()) } else { Err(found) }
    });
    Asker::new(cluster, "--cert node.crt --key node.key".to_owned())
}

fn pod(name: &str, node: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{k: v}}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: {node}\n  \
         containers: [{{name: c, image: i}}]\n  volumes: [{{name: s, secret: {{secretName: {name}}}}}]\n"
    )
}

/// `ALLOWED` is a selector for what the node may see.
const TRICKS: [&str; 9] = [
    "fieldSelector=&fieldSelector=ALLOWED",
    "fieldSelector&fieldSelector=ALLOWED",
    "fieldSelector=+&fieldSelector=ALLOWED",
    "%66ieldSelector=&fieldSelector=ALLOWED",
    "fieldSelector=metadata.namespace%21%3Dx&fieldSelector=ALLOWED",
    "fieldSelector=metadata.namespace%21%3D%5C%2CALLOWED",
    "fieldSelector=x;fieldSelector=ALLOWED",
    "fieldSelector=ALLOWED%zz",
    "fieldSelector=%ff&fieldSelector=ALLOWED",
];

#[test]
fn a_node_sees_what_is_its_own() {
    let cluster = Cluster::simulated();
    let nodes = cluster.ok("kubectl get nodes -o jsonpath='{.items[*].metadata.name}'");
    let [own, foreign] = nodes.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{nodes}") };
    cluster.apply(&format!("{}---\n{}", pod("own-thing", own), pod("foreign-thing", foreign)));
    let node = kubelet(&cluster, own);
    let collections = [
        ("/api/v1/pods", format!("spec.nodeName%3D{own}")),
        ("/api/v1/namespaces/default/pods", format!("spec.nodeName%3D{own}")),
        ("/api/v1/namespaces/default/pods", "metadata.name%3Down-thing".to_owned()),
        ("/api/v1/namespaces/default/secrets", "metadata.name%3Down-thing".to_owned()),
    ];
    for (collection, allowed) in collections {
        let (code, text) = node.ask("GET", &format!("{collection}?fieldSelector={allowed}"));
        assert!(
            code == 200 && text.contains("own-thing") && !text.contains("foreign-thing"),
            "{code} {text}"
        );
        let old = collection.replacen("/api/v1/", "/api/v1/watch/", 1);
        for trick in TRICKS {
            let query = trick.replace("ALLOWED", &allowed);
            for path in [
                format!("{collection}?{query}"),
                format!("{collection}?watch=1&timeoutSeconds=1&{query}"),
                format!("{old}?timeoutSeconds=1&{query}"),
            ] {
                let (code, text) = node.ask("GET", &path);
                assert!(!text.contains("foreign-thing"), "{path}: {code} {text}");
                assert!(matches!(code, 200 | 400 | 403), "{path}: {code} {text}");
                node.ask("DELETE", &path);
            }
        }
    }
    cluster.ok("kubectl get pod/foreign-thing secret/foreign-thing secret/own-thing");
}

#[test]
fn an_answer_arrives_whole_though_its_request_is_not_read() {
    let cluster = Cluster::start(&[]);
    let server = cluster.ok("kubectl config view -o jsonpath='{.clusters[0].cluster.server}'");
    let (server, pki) = (server.trim(), cluster.data_dir().join("pki"));
    let pki = pki.display();
    // Within the client's window, beyond it, beyond what the API takes, and beyond what is read away.
    for bytes in [10, 200_000, 5_000_000, 20_000_000] {
        cluster.ok(&format!("head -c {bytes} /dev/zero > body"));
        for (protocol, rounds) in [("--http2", 10), ("--http1.1", 3)] {
            for _ in 0..rounds {
                let printed = cluster.ok(&format!(
                    "curl -sk {protocol} --max-time 30 -w '\\n%{{http_code}}' -X PATCH --data-binary @body \
                     -H 'Expect:' --cert {pki}/admin.crt --key {pki}/admin.key {server}/nothing"
                ));
                let (text, code) = printed.rsplit_once('\n').expect("curl prints the code last");
                assert_eq!(code, "404", "{bytes} bytes by {protocol}: {text}");
                assert!(
                    text.ends_with("}\n") && text.contains("NotFound"),
                    "{bytes} bytes by {protocol}: {text}"
                );
            }
        }
    }
}

/// A WebSocket begins with a GET. Who may read everything of pods and no more enters none.
#[test]
fn a_right_to_read_opens_no_stream() {
    let cluster = Cluster::simulated();
    cluster.until("kubectl get serviceaccount default -o name", "serviceaccount/default");
    cluster.ok("kubectl run web --image=web && kubectl wait pod/web --for=condition=Ready --timeout=60s");
    cluster.ok("kubectl create role reader --verb=get,list,watch --resource=pods,pods/exec,pods/attach,pods/portforward,pods/log && kubectl create rolebinding reader --role=reader --user=jane");
    cluster.ok("kubectl create role enters --verb=create --resource=pods/exec,pods/attach,pods/portforward");
    let pod = "/api/v1/namespaces/default/pods/web";
    let paths = ["exec?command=sh&stdout=1", "attach?stdout=1", "portforward?ports=80"];
    let ask = |path: &str| cluster.run(&format!("kubectl get --raw '{pod}/{path}' --as jane")).stderr;
    for path in paths {
        let told = ask(path);
        assert!(told.contains("pods \"web\" is forbidden: "), "{path}: {told}");
    }
    fails(&cluster, "kubectl exec web --as jane -- true", "is forbidden");
    // Admission is asked before: it hears of every stream that somebody wants.
    cluster.apply(NO_EXEC);
    cluster.until_that(&format!("kubectl get --raw '{pod}/{}' --as jane 2>&1 || true", paths[0]), |told| {
        told.contains("nobody enters")
    });
    cluster.ok("kubectl delete validatingadmissionpolicybindings,validatingadmissionpolicies nobody-enters");
    cluster.ok("kubectl create rolebinding enters --role=enters --user=jane");
    for path in paths {
        cluster.until_that(&format!("kubectl get --raw '{pod}/{path}' --as jane 2>&1 || true"), |told| {
            !told.contains("nobody enters")
        });
        assert!(!ask(path).contains("is forbidden"), "{path}: {}", ask(path));
    }
}

const NO_EXEC: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: nobody-enters}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec]}]
  validations: [{expression: "false", message: nobody enters}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: nobody-enters}
spec: {policyName: nobody-enters, validationActions: [Deny]}
"#;
