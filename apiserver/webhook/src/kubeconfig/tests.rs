use super::*;
use coracle_pki::{Leaf, Pki, PkiOptions};

const HEAD: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{ name: c, context: { cluster: a, user: u } }]\n";

fn remote(dir: &Path, cluster: &str, user: &str) -> Result<Remote, Vec<String>> {
    let path = dir.join("kubeconfig");
    let clusters = format!("clusters: [{{ name: a, cluster: {cluster} }}]\n");
    let users = format!("users: [{{ name: u, user: {user} }}]\n");
    std::fs::write(&path, format!("{HEAD}{clusters}{users}")).unwrap();
    Remote::load(&path, "test").map_err(|error| error.mistakes)
}

fn mistakes(cluster: &str, user: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    remote(dir.path(), cluster, user).err().expect("mistakes")
}

#[test]
fn everything_that_is_not_done_is_named_at_once() {
    let all = mistakes(
        "{ server: 'http://a.b/c', insecure-skip-tls-verify: true, proxy-url: 'http://p' }",
        "{ exec: { command: x }, auth-provider: {}, as: jane, username: a, token: b, client-key-data: '%' }",
    );
    for word in [
        "cluster.server: \"http://a.b/c\" must use 'https'",
        "cluster.insecure-skip-tls-verify",
        "cluster.proxy-url",
        "user.exec",
        "user.auth-provider",
        "user.as:",
        "user: more than one",
        "user.client-key-data",
    ] {
        assert!(all.iter().any(|mistake| mistake.starts_with(word)), "{word}: {all:?}");
    }
    assert_eq!(all.len(), 8, "{all:?}");
}

#[test]
fn files_are_beside_the_kubeconfig_and_must_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::ensure(&dir.path().join("pki"), PkiOptions::default()).unwrap();
    let (certificate, key) = pki.leaf_pem(Leaf::Admin);
    std::fs::write(dir.path().join("ca.crt"), pki.ca_pem()).unwrap();
    std::fs::write(dir.path().join("me.crt"), certificate).unwrap();
    let cluster =
        "{ server: 'https://[::1]:8443/a/', certificate-authority: ca.crt, tls-server-name: hooks.example }";
    let user = "{ client-certificate: me.crt, client-key: me.key, tokenFile: token }";
    let missing = remote(dir.path(), cluster, user).err().unwrap();
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert!(missing[0].starts_with("user.client-key: ") && missing[1].starts_with("user.tokenFile: "));
    std::fs::write(dir.path().join("me.key"), &key).unwrap();
    std::fs::write(dir.path().join("token"), "secret\n").unwrap();
    let made = remote(dir.path(), cluster, user).unwrap();
    assert_eq!(made.url(), "https://[::1]:8443/a");
    std::fs::write(dir.path().join("me.crt"), pki.ca_pem()).unwrap();
    let foreign = remote(dir.path(), cluster, user).err().unwrap();
    assert!(foreign[0].contains("do not belong together"), "{foreign:?}");
}

#[test]
fn documents_that_lead_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Remote::load(&path, "test").err().expect("an error").to_string()
    };
    assert!(load("kind: Config\n").contains("current-context: Required value"));
    assert!(load("current-context: x\n").contains("context \"x\" does not exist"));
    let dangling = load("current-context: x\ncontexts: [{ name: x, context: { cluster: a, user: b } }]\n");
    assert!(dangling.contains("cluster \"a\"") && dangling.contains("user \"b\""), "{dangling}");
    assert!(load("clusters: [{ name: a, cluster: { sever: x } }]\n").contains("sever"));
    assert!(Remote::load(&dir.path().join("none"), "test").err().unwrap().to_string().contains("none: "));
}

#[test]
fn a_change_is_taken_up_and_a_broken_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let made = remote(dir.path(), "{ server: 'https://localhost:1' }", "{ tokenFile: token }");
    assert!(made.is_err());
    std::fs::write(dir.path().join("token"), "one").unwrap();
    let made = remote(dir.path(), "{ server: 'https://localhost:1' }", "{ tokenFile: token }").unwrap();
    let before = made.current();
    let look = || {
        made.state.lock().looked = Instant::now() - LOOK_INTERVAL;
        made.current()
    };
    assert!(Arc::ptr_eq(&before, &look()), "nothing had changed");
    std::fs::remove_file(dir.path().join("token")).unwrap();
    assert!(Arc::ptr_eq(&before, &look()), "a file that is gone took the target away");
    std::fs::write(dir.path().join("token"), "another").unwrap();
    assert!(!Arc::ptr_eq(&before, &look()), "a new token was not taken up");
}
