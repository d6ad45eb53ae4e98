//! Secrets under a key that somebody else keeps: a KMS that is slow, away, and changes its key.

use crate::encryption::{MARKER, assert_readable, create, create_one_more, holders, until_rewritten};
use coracle_tests::kms::Kms;
use coracle_tests::{Cluster, wait_for};
use std::path::Path;
use std::time::Duration;

fn configuration(kms: &Kms, comment: &str) -> String {
    let socket = kms.socket().display();
    format!(
        "# {comment}\nkind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers: [{{kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{socket}', timeout: 3s}}}}]\n"
    )
}

/// Neither a Secret's text nor what the KMS keeps secret: the seeds that keys are made of.
fn nothing_plain_in(data: &Path, kms: &Kms) {
    assert_eq!(holders(data, MARKER.as_bytes()), Vec::<String>::new());
    let seeds = kms.seeds();
    assert!(!seeds.is_empty(), "the KMS was asked");
    for seed in seeds {
        assert_eq!(holders(data, &seed), Vec::<String>::new(), "a seed stands on the disk");
    }
}

#[test]
fn a_kms_is_slow_away_and_has_another_key() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut kms = Kms::start(dir.path(), "first-key");
    let path = dir.path().join("encryption.yaml");
    std::fs::write(&path, configuration(&kms, "one")).expect("write");
    let file = path.display().to_string();
    let flags = ["--encryption-provider-config", &file, "--encryption-provider-config-automatic-reload"];
    let mut cluster = Cluster::start(&flags);
    let data = cluster.data_dir();
    create(&cluster, 20);
    nothing_plain_in(&data, &kms);
    assert!(!holders(&data, b"k8s:enc:kms:v2:vault:").is_empty());
    assert!(!cluster.log().contains(MARKER));

    // Slow: writes do not wait for it, because they do not ask it.
    let asked = (kms.seeds().len(), kms.decrypted());
    create_one_more(&cluster);
    assert_eq!((kms.seeds().len(), kms.decrypted()), asked, "a write asks the KMS");
    kms.slow_down(Duration::from_secs(2));
    // A start asks once for each seed, however many Secrets there are.
    cluster.kill();
    cluster.restart();
    assert_readable(&cluster, 21);
    assert_eq!(kms.decrypted(), 1);
    kms.slow_down(Duration::ZERO);

    // Another key: everything is written anew, and nothing of the former is left.
    kms.rotate("second-key");
    std::fs::write(&path, configuration(&kms, "two")).expect("write");
    until_rewritten(&cluster, 1);
    wait_for("no value under the former key", Duration::from_secs(60), || {
        let left = holders(&data, b"first-key");
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    assert!(!holders(&data, b"second-key").is_empty());
    nothing_plain_in(&data, &kms);
    assert_readable(&cluster, 21);

    // Away: what is read already is served, a start says what is missing, and it is all there when the KMS is back.
    kms.go_away();
    assert_readable(&cluster, 21);
    cluster.kill();
    cluster.restart_unwaited();
    wait_for("the server without its KMS", Duration::from_secs(60), || {
        let answer = cluster.raw("GET", "/api/v1/namespaces/default/secrets/s1", "");
        let told = answer.code == 500
            && answer.text.contains("unable to transform key")
            && answer.text.contains("kms: Decrypt");
        if told { Ok(()) } else { Err(format!("{answer:?}")) }
    });
    let ready = cluster.raw("GET", "/readyz?verbose", "");
    assert!(ready.code == 500 && ready.text.contains("[-]kms-providers"), "{ready:?}");
    cluster.ok("kubectl create configmap c --from-literal=a=b");
    kms.come_back();
    cluster.until_that("kubectl get secret s1 -o jsonpath='{.data.pw}' 2>&1", |text| text == MARKER);
    cluster.until_that("kubectl get secrets --no-headers 2>&1 | wc -l", |count| count.trim() == "21");
    assert_readable(&cluster, 21);
    nothing_plain_in(&data, &kms);
}
