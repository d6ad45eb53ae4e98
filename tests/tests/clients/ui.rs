//! The status page in a real browser: log in, see what there is, and nothing that the cluster says becomes markup.

use coracle_tests::Cluster;
use coracle_tests::browser::Browser;
use coracle_tests::http::Caller;
use std::path::PathBuf;

/// A name and a message as an attacker would write them.
const EVIL: &str =
    "<img src=x onerror=document.title=String.fromCharCode(88)><script>document.title='X'</script>";

fn cluster() -> Cluster {
    let cluster = Cluster::simulated();
    cluster.ok("kubectl create serviceaccount viewer && kubectl create clusterrolebinding viewer --clusterrole=cluster-admin --serviceaccount=default:viewer");
    cluster.ok("kubectl create serviceaccount nobody");
    cluster.ok("kubectl create deployment web --image=nginx --replicas=3 && kubectl rollout status deployment/web --timeout=60s");
    cluster.ok(r#"kubectl run huge --image=x --overrides='{"spec":{"nodeSelector":{"where":"moon"}}}'"#);
    let event = serde_json::json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "evil", "namespace": "default" },
        "involvedObject": { "kind": "Pod", "namespace": "default", "name": EVIL },
        "type": "Warning", "reason": EVIL, "message": EVIL, "lastTimestamp": "2040-01-01T00:00:00Z",
    });
    let made = cluster.raw("POST", "/api/v1/namespaces/default/events", &event.to_string());
    assert_eq!(made.code, 201, "{made:?}");
    cluster
}

async fn log_in(browser: &mut Browser, token: &str) {
    browser.shows("Log in").await;
    browser.value(&format!("document.getElementById('token').value = '{}'", token.trim())).await;
    browser.press("#login button").await;
}

async fn go(browser: &mut Browser, view: &str) {
    browser.value(&format!("location.hash = '#{view}'")).await;
}

/// Where pictures for the documentation go, if somebody wants new ones.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("CORACLE_SCREENSHOTS").map(PathBuf::from)
}

async fn picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = pictures() {
        browser.screenshot(&folder.join(name)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_sees_the_cluster_and_nobody_else_does() {
    let cluster = cluster();
    let address = format!("https://127.0.0.1:{}/ui", cluster.port());
    let mut browser = Browser::open(&address, 1000, 560).await;
    log_in(&mut browser, "wrong").await;
    browser.shows("The token is not good.").await;
    let token = cluster.ok("kubectl create token viewer");
    log_in(&mut browser, &token).await;
    browser.shows("sim-0").await;
    let nodes = browser.shows("sim-1").await;
    assert!(nodes.contains("Ready") && nodes.contains("v1.36"), "{nodes}");
    go(&mut browser, "Pods").await;
    browser.shows("web-").await;
    browser.shows("Running").await;
    picture(&mut browser, "ui-pods.png").await;
    // Live: what changes is there without a reload.
    cluster.ok("kubectl create deployment later --image=nginx");
    browser.shows("later-").await;
    go(&mut browser, "Pending").await;
    browser.shows("didn't match Pod's node affinity/selector").await;
    go(&mut browser, "Events").await;
    browser.shows("<img src=x onerror").await;
    go(&mut browser, "System").await;
    browser.shows("checks pass").await;
    browser.shows("apiserver-kubelet-client.crt").await;
    browser.shows("Last backup").await;
    let pod = cluster.ok("kubectl get pods -l app=web -o jsonpath='{.items[0].metadata.name}'");
    go(&mut browser, &format!("pod/default/{}", pod.trim())).await;
    browser.shows("Images").await;
    // A telephone: nothing is wider than the screen.
    browser.resize(390, 780).await;
    for view in ["Nodes", "Pods", "Pending", "Events", "System"] {
        go(&mut browser, view).await;
        browser.shows("live").await;
        let wide = browser.value("document.documentElement.scrollWidth").await;
        assert!(wide.as_u64().expect("a number") <= 390, "{view} is {wide} wide");
    }
    go(&mut browser, "Pods").await;
    browser.shows("web-").await;
    picture(&mut browser, "ui-telephone.png").await;
    let title = browser.value("document.title").await;
    assert_eq!(title, "Coracle", "something that the cluster said was run");
    assert_eq!(browser.value("document.images.length + document.scripts.length").await, 2);
    // Nothing of it stays in the browser.
    assert_eq!(
        browser.value("localStorage.length + sessionStorage.length + document.cookie.length").await,
        0
    );
    // What the server refuses is no mistake of the page: a wrong token, and logs of a node without a kubelet.
    let refused = |said: &&String| said.contains("\"source\":\"network\"");
    let forbidden: Vec<&String> = browser.complaints.iter().filter(|said| !refused(said)).collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    // Logged out, and who may see nothing is told so in the server's words.
    browser.value("document.getElementById('out').click()").await;
    log_in(&mut browser, &cluster.ok("kubectl create token nobody")).await;
    browser.shows("pods is forbidden: User \"system:serviceaccount:default:nobody\"").await;
}

#[test]
fn the_page_is_for_anybody_and_says_nothing() {
    let cluster = Cluster::start(&[]);
    let head = cluster.ok(&format!("curl -sk -D - -o /dev/null https://127.0.0.1:{}/ui/", cluster.port()));
    for line in [
        "content-security-policy: default-src 'none'; script-src 'self'",
        "x-frame-options: DENY",
        "x-content-type-options: nosniff",
        "cache-control: no-cache",
    ] {
        assert!(head.contains(line), "{line} is not in {head}");
    }
    assert_eq!(cluster.http(&Caller::Nobody, "GET", "/ui/ui.js", "").code, 200);
    assert_eq!(cluster.http(&Caller::Nobody, "GET", "/ui/none.js", "").code, 403);
    assert_eq!(cluster.http(&Caller::Nobody, "POST", "/ui/", "").code, 403);
    let without = Cluster::start(&["--disable", "kubelet,proxy,dns,ui"]);
    assert_eq!(without.http(&Caller::Nobody, "GET", "/ui/", "").code, 403);
}
