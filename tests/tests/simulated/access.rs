//! Who may do what: kubectl auth, tokens, and the API without or with the wrong credentials.

use coracle_tests::Cluster;
use coracle_tests::http::Caller;

fn with_robot() -> Cluster {
    let cluster = Cluster::simulated();
    cluster.ok("kubectl create serviceaccount robot");
    cluster.ok("kubectl create role reader --verb=get,list --resource=pods");
    cluster.ok("kubectl create rolebinding readers --role=reader --serviceaccount=default:robot");
    cluster
}

#[test]
fn can_i() {
    let cluster = with_robot();
    let robot = "--as=system:serviceaccount:default:robot";
    cluster.says("kubectl auth can-i '*' '*'", "yes");
    cluster.says(&format!("kubectl auth can-i list pods {robot}"), "yes");
    let no = cluster.run(&format!("kubectl auth can-i delete pods {robot}"));
    assert_eq!((no.code, no.stdout.as_str()), (1, "no\n"), "{no}");
    let elsewhere = cluster.run(&format!("kubectl auth can-i list pods -n kube-system {robot}"));
    assert_eq!((elsewhere.code, elsewhere.stdout.as_str()), (1, "no\n"), "{elsewhere}");
    let list = cluster.ok(&format!("kubectl auth can-i --list {robot}"));
    let row = |resource: &str| {
        list.lines()
            .find(|l| l.starts_with(resource))
            .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    assert_eq!(row("pods").as_deref(), Some("pods [] [] [get list]"), "{list}");
    assert_eq!(
        row("selfsubjectreviews").as_deref(),
        Some("selfsubjectreviews.authentication.k8s.io [] [] [create]"),
        "{list}"
    );
    cluster.shows("kubectl auth can-i --list", &["*.*", "[*]"]);
}

#[test]
fn whoami() {
    let cluster = with_robot();
    cluster.shows(
        "kubectl auth whoami",
        &["ATTRIBUTE", "VALUE", "Username", "Groups", "kubeadm:cluster-admins", "system:authenticated"],
    );
    cluster.says("kubectl auth whoami --token=$(kubectl create token robot) --kubeconfig=/dev/null --server=$(kubectl config view -o jsonpath='{.clusters[0].cluster.server}') --insecure-skip-tls-verify -o jsonpath='{.status.userInfo.username}'",
        "system:serviceaccount:default:robot");
}

#[test]
fn a_token_carries_its_accounts_rights_and_no_more() {
    let cluster = with_robot();
    let token = Caller::Token(cluster.ok("kubectl create token robot").trim().to_owned());
    let ask = |method: &str, path: &str, body: &str| cluster.http(&token, method, path, body);
    assert_eq!(ask("GET", "/api/v1/namespaces/default/pods", "").code, 200);
    assert_eq!(
        ask("GET", "/api/v1/namespaces/default/secrets", "").status(403, "Forbidden"),
        "secrets is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(
        ask("GET", "/api/v1/nodes", "").status(403, "Forbidden"),
        "nodes is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    assert_eq!(
        ask("DELETE", "/api/v1/namespaces/default/pods/x", "").status(403, "Forbidden"),
        "pods \"x\" is forbidden: User \"system:serviceaccount:default:robot\" cannot delete resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    let pod = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"sly"}}"#;
    ask("POST", "/api/v1/namespaces/default/configmaps", pod).status(403, "Forbidden");
    cluster.says("kubectl get configmap sly --ignore-not-found", "");
    assert_eq!(
        ask("GET", "/metrics", "").status(403, "Forbidden"),
        "forbidden: User \"system:serviceaccount:default:robot\" cannot get path \"/metrics\""
    );
}

#[test]
fn a_deleted_accounts_token_is_worth_nothing() {
    let cluster = with_robot();
    let token = Caller::Token(cluster.ok("kubectl create token robot").trim().to_owned());
    assert_eq!(cluster.http(&token, "GET", "/api/v1/namespaces/default/pods", "").code, 200);
    cluster.ok("kubectl delete serviceaccount robot");
    coracle_tests::wait_for("the token's end", std::time::Duration::from_secs(30), || {
        let answer = cluster.http(&token, "GET", "/api/v1/namespaces/default/pods", "");
        if answer.code == 401 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
}

#[test]
fn no_credentials_and_wrong_credentials() {
    let cluster = Cluster::simulated();
    let wrong = Caller::Token("not-a-token".to_owned());
    assert_eq!(cluster.http(&wrong, "GET", "/api/v1/pods", "").status(401, "Unauthorized"), "Unauthorized");
    let anonymous = cluster.http(&Caller::Nobody, "GET", "/api/v1/pods", "");
    // Upstream lets nobody in as system:anonymous and then forbids; with anonymous requests off it is 401.
    if anonymous.code == 403 {
        assert_eq!(
            anonymous.status(403, "Forbidden"),
            "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" at the cluster scope"
        );
    } else {
        assert_eq!(anonymous.status(401, "Unauthorized"), "Unauthorized");
    }
    for open in ["/livez", "/readyz", "/healthz", "/version"] {
        assert_eq!(cluster.http(&Caller::Nobody, "GET", open, "").code, 200, "{open}");
    }
    // A kubectl that has not learnt yet what the server has fails at that, in other words.
    cluster.ok("kubectl get pods");
    cluster.refuses(
        "kubectl get pods --token=not-a-token --kubeconfig=/dev/null --insecure-skip-tls-verify --server=$(kubectl config view -o jsonpath='{.clusters[0].cluster.server}')",
        "error: You must be logged in to the server (Unauthorized)",
    );
    cluster.assert_alive();
}

#[test]
fn nobody_gives_away_rights_he_lacks() {
    let cluster = with_robot();
    cluster.ok("kubectl create role granter --verb=create --resource=roles,rolebindings");
    cluster.ok("kubectl create rolebinding granters --role=granter --serviceaccount=default:robot");
    let output = cluster
        .run("kubectl create role all --verb='*' --resource='*.*' --as=system:serviceaccount:default:robot");
    assert!(output.stderr.contains("attempting to grant RBAC permissions not currently held"), "{output}");
    cluster.says("kubectl get role all --ignore-not-found", "");
}

#[test]
fn keys_are_for_their_owner_only() {
    let cluster = Cluster::simulated();
    let wide = format!(
        "find {} -name '*.key' -perm /077 ; find {0}/.. -maxdepth 1 -name kubeconfig -perm /077",
        cluster.data_dir().display()
    );
    cluster.says(&wide, "");
}
