//! An etcd that is away, slow, somebody else's or without rights: the server says which and goes on trying, and no write is
//! acknowledged that was not done.

use coracle_tests::cluster::free_port;
use coracle_tests::etcd::Etcd;
use coracle_tests::shell::Background;
use coracle_tests::{Cluster, Shell, wait_for};
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP, SIGTERM};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn terminal() -> (TempDir, Shell) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let shell = Shell::new(dir.path(), &dir.path().join("kubeconfig"));
    (dir, shell)
}

/// A server that may never be ready, and its port.
fn begin(shell: &Shell, flags: &str) -> (Background, u16) {
    let port = free_port();
    let line = format!(
        "coracle server --data-dir ./d --https-port {port} --bind-address 127.0.0.1 --node-ip 127.0.0.1 --disable kubelet,proxy,dns --write-kubeconfig ./kubeconfig --storage-backend etcd {flags}"
    );
    (shell.start(&line, "server.log"), port)
}

/// It says so, and is not ready.
fn says_until_stopped(flags: &str, words: &[&str]) {
    let (_dir, shell) = terminal();
    let (server, port) = begin(&shell, flags);
    let told = |text: &str| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    server.until_that(&format!("{words:?}"), told);
    assert_ne!(shell.run(&format!("curl -sk --max-time 5 https://127.0.0.1:{port}/readyz")).stdout, "ok");
    server.signal(SIGTERM);
    assert_eq!(server.wait(), 0, "it ends when it is told to");
}

/// Status code, `Retry-After` and message of the answer to the creation of a ConfigMap.
fn create(cluster: &Cluster, name: &str) -> (u16, String, String) {
    let pki = cluster.data_dir().join("pki").display().to_string();
    let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
    let printed = cluster.run(&format!(
        "curl -s --max-time 30 --cacert {pki}/ca.crt --cert {pki}/admin.crt --key {pki}/admin.key -H 'Content-Type: application/json' -d '{body}' -w '\\n%{{http_code}}/%header{{retry-after}}' https://127.0.0.1:{}{MAPS}",
        cluster.port()
    ));
    let (text, line) = printed.stdout.rsplit_once('\n').expect("an answer");
    let (code, retry) = line.split_once('/').expect("a code");
    (code.parse().expect("a code"), retry.to_owned(), text.to_owned())
}

fn created(cluster: &Cluster, name: &str) {
    wait_for(&format!("the creation of {name}"), PATIENCE, || match create(cluster, name) {
        (201 | 409, ..) => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
    cluster.ok(&format!("kubectl get configmap {name}"));
}

fn is_there(cluster: &Cluster, name: &str) -> bool {
    !cluster.ok(&format!("kubectl get configmap {name} -o name --ignore-not-found")).is_empty()
}

#[test]
fn an_etcd_that_is_away_is_named_and_waited_for() {
    let mut etcd = Etcd::start();
    etcd.stop();
    let (_dir, shell) = terminal();
    let (server, port) = begin(&shell, &format!("--etcd-servers {}", etcd.url));
    let address = etcd.url.clone();
    // Once: the log counts what is said again.
    server.until_that("what is away", |text| {
        text.lines().any(|line| line.contains("etcd cannot be used") && line.contains(&address))
    });
    etcd.start_again();
    shell.within(PATIENCE, &format!("curl -sk https://127.0.0.1:{port}/readyz"), |text| text == "ok");
    server.signal(SIGTERM);
    assert_eq!(server.wait(), 0);
}

#[test]
fn writes_are_refused_while_etcd_is_away_and_what_was_refused_is_not_there() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::start(&etcd.arguments("192.0.2.1"));
    created(&cluster, "before");
    etcd.stop();
    let mut unknown = false;
    for n in 0..3 {
        match create(&cluster, &format!("refused-{n}")) {
            (503, retry, text) => {
                assert!(retry == "1" && text.contains("nothing was written"), "{retry} {text}")
            }
            // Under way when etcd went.
            (504, _, text) if n == 0 => unknown = text.contains("look before you try again"),
            answer => panic!("{answer:?}"),
        }
    }
    wait_for("a server that is not ready", PATIENCE, || {
        let answer = cluster.raw("GET", "/readyz", "");
        if answer.text.contains("[-]etcd-readiness failed") { Ok(()) } else { Err(format!("{answer:?}")) }
    });
    etcd.start_again();
    created(&cluster, "after");
    assert!(
        is_there(&cluster, "before") && !is_there(&cluster, "refused-1") && !is_there(&cluster, "refused-2")
    );
    assert!(unknown || !is_there(&cluster, "refused-0"));
    cluster.until("kubectl get --raw /readyz", "ok");
}

#[test]
fn a_slow_etcd_is_waited_for_and_told_and_one_that_does_not_answer_is_no_success() {
    let etcd = Etcd::start();
    let cluster = Cluster::start(&etcd.arguments("192.0.2.1"));
    created(&cluster, "before");
    etcd.signal(SIGSTOP);
    let slow = std::thread::scope(|scope| {
        let slow = scope.spawn(|| create(&cluster, "slow"));
        // Slower than a second, and not yet given up.
        std::thread::sleep(Duration::from_millis(1_500));
        etcd.signal(SIGCONT);
        slow.join().expect("an answer")
    });
    assert!(slow.0 == 201 && is_there(&cluster, "slow"), "{slow:?}");
    wait_for("the log's word for it", PATIENCE, || {
        if cluster.log().contains("etcd is slow") { Ok(()) } else { Err(cluster.log()) }
    });
    etcd.signal(SIGSTOP);
    let silent = create(&cluster, "silent");
    assert!([503, 504].contains(&silent.0), "{silent:?}");
    etcd.signal(SIGCONT);
    created(&cluster, "after");
    assert!(silent.0 == 504 || !is_there(&cluster, "silent"), "{silent:?}");
}

/// An authority and what it has signed, in the directory: `NAME.crt` and `NAME.key`.
fn certificates(dir: &Path, authority: &str, names: &[&str]) {
    let write = |name: &str, certificate: String, key: &KeyPair| {
        std::fs::write(dir.join(format!("{name}.crt")), certificate).expect("a certificate");
        std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).expect("a key");
    };
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, authority);
    let own = params.self_signed(&key).expect("a certificate").pem();
    write(authority, own.clone(), &key);
    let issuer = Issuer::from_ca_cert_pem(&own, key).expect("an authority");
    for name in names {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, *name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        write(name, params.signed_by(&key, &issuer).expect("a certificate").pem(), &key);
    }
}

/// It lets in who has a certificate, as the user of that name.
fn guarded() -> Etcd {
    Etcd::start_with("https", |dir| {
        certificates(dir, "ca", &["server", "root", "coracle"]);
        certificates(dir, "stranger", &[]);
        let file = |name: &str| dir.join(name).display().to_string();
        let own = [
            ("--cert-file", file("server.crt")),
            ("--key-file", file("server.key")),
            ("--trusted-ca-file", file("ca.crt")),
        ];
        let own = own.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        own.chain(["--client-cert-auth".to_owned()]).collect()
    })
}

#[test]
fn an_etcd_that_is_not_believed_or_does_not_believe_says_so() {
    let etcd = guarded();
    let flags = |ca: &str| format!("--etcd-servers {} --etcd-cafile {}", etcd.url, etcd.file(ca));
    says_until_stopped(&flags("stranger.crt"), &["etcd cannot be used", &etcd.url, "UnknownIssuer"]);
    says_until_stopped(&flags("ca.crt"), &["etcd cannot be used", &etcd.url, "ertificate"]);
}

#[test]
fn rights_in_etcd_end_at_the_prefix_and_one_that_is_taken_away_is_told() {
    let etcd = guarded();
    let (_dir, shell) = terminal();
    let ctl = |words: &str| {
        let line = format!(
            "ETCDCTL_API=3 etcdctl --endpoints {} --cacert {} --cert {} --key {} {words}",
            etcd.url,
            etcd.file("ca.crt"),
            etcd.file("root.crt"),
            etcd.file("root.key")
        );
        shell.within(PATIENCE, &format!("{line} 2>&1; echo $?"), |text| text.trim_end().ends_with('0'))
    };
    for words in [
        "user add root --no-password",
        "role add root",
        "user grant-role root root",
        "user add coracle --no-password",
        "role add servers",
        "user grant-role coracle servers",
        "auth enable",
    ] {
        ctl(words);
    }
    let own = [etcd.file("ca.crt"), etcd.file("coracle.crt"), etcd.file("coracle.key")];
    let flags = format!(
        "--etcd-servers {} --etcd-cafile {} --etcd-certfile {} --etcd-keyfile {}",
        etcd.url, own[0], own[1], own[2]
    );
    says_until_stopped(&flags, &["etcd cannot be used", "permission denied"]);
    ctl("role grant-permission servers readwrite /registry/ --prefix");
    says_until_stopped(
        &format!("{flags} --etcd-prefix /elsewhere"),
        &["etcd cannot be used", "permission denied"],
    );
    let mut arguments = etcd.arguments("192.0.2.1").to_vec();
    arguments.extend(["--etcd-cafile", &own[0], "--etcd-certfile", &own[1], "--etcd-keyfile", &own[2]]);
    let cluster = Cluster::start(&arguments);
    created(&cluster, "before");
    ctl("role revoke-permission servers /registry/ --prefix");
    ctl("role grant-permission servers read /registry/ --prefix");
    let (code, retry, text) = create(&cluster, "refused");
    assert!(code == 503 && retry == "1" && text.contains("permission denied"), "{code} {retry} {text}");
    assert!(is_there(&cluster, "before"), "it may still read");
    ctl("role grant-permission servers readwrite /registry/ --prefix");
    created(&cluster, "after");
    assert!(!is_there(&cluster, "refused"));
}
