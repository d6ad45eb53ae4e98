//! Tokens by which machines join, and machines that may not. Those that may are of the tests of real nodes.

use coracle_tests::{Cluster, Shell};
use std::time::Duration;

/// The value behind a flag of the command that is to be typed.
fn after(command: &str, flag: &str) -> String {
    let mut words = command.split_whitespace().skip_while(|word| *word != flag);
    words.nth(1).unwrap_or_else(|| panic!("no {flag} in {command}")).to_owned()
}

#[test]
fn tokens_are_made_listed_and_deleted() {
    let cluster = Cluster::start(&[]);
    let group = "system:bootstrappers:kubeadm:default-node-token";
    cluster.says(
        "coracle token create abcdef.0123456789abcdef --ttl 90m --description 'for the shed'",
        "abcdef.0123456789abcdef",
    );
    cluster.refuses(
        "coracle token create abcdef.0123456789abcdee",
        "coracle: a token with id \"abcdef\" already exists",
    );
    cluster.refuses(
        "coracle token create abc",
        "coracle: token: must be of the form [a-z0-9]{6}.[a-z0-9]{16}; coracle token create makes one",
    );
    cluster.refuses(
        "coracle token create --ttl soon",
        "coracle: ttl: \"soon\" is no duration such as 24h or 1h30m; 0 is for ever",
    );
    let random = cluster.ok("coracle token create --ttl 0");
    let random = random.trim();
    assert!(random.len() == 23 && random.as_bytes()[6] == b'.', "{random}");
    let list = cluster.ok("coracle token list");
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA", "GROUPS"]);
    let row = |token: &str| lines.iter().find(|row| row[0] == token).unwrap_or_else(|| panic!("{list}"));
    let named = row("abcdef.0123456789abcdef");
    assert_eq!((named[1], &named[3..]), ("1h", &["authentication,signing", "for", "the", "shed", group][..]));
    assert_eq!(row(random)[1..], ["<forever>", "<never>", "authentication,signing", "<none>", group]);
    // The token is somebody, and no more than somebody who may join.
    cluster.says(
        "kubectl --token abcdef.0123456789abcdef --kubeconfig /dev/null auth whoami --server $(kubectl config view -o jsonpath='{.clusters[0].cluster.server}') --insecure-skip-tls-verify -o jsonpath='{.status.userInfo.username} {.status.userInfo.groups}'",
        &format!("system:bootstrap:abcdef [\"system:bootstrappers\",\"{group}\",\"system:authenticated\"]"),
    );
    let may = |what: &str| {
        cluster
            .run(&format!("kubectl auth can-i {what} --as=system:bootstrap:abcdef --as-group={group}"))
            .stdout
    };
    assert_eq!((may("create certificatesigningrequests").trim(), may("list secrets").trim()), ("yes", "no"));
    cluster.says(
        &format!("coracle token delete abcdef {random}"),
        &format!("bootstrap token \"abcdef\" deleted\nbootstrap token \"{}\" deleted", &random[..6]),
    );
    cluster.refuses("coracle token delete abcdef", "coracle: there is no token with the id \"abcdef\"");
    cluster.ok("coracle token create bbbbbb.0123456789abcdef --ttl 2s");
    cluster.within(Duration::from_secs(60), "coracle token list", |text| text.lines().count() == 1);
}

/// The agent ends at once, says why in these words, and leaves nothing behind.
fn refused(shell: &Shell, flags: &str, words: &str) {
    let output = shell.run(&format!("coracle agent --node-name two --data-dir $PWD/agent {flags}"));
    assert!(output.code == 1 && output.stderr.starts_with("coracle: "), "{flags}: {output}");
    assert!(output.stderr.contains(words), "{flags}: {output}");
    assert!(!shell.home().join("agent/pki/kubelet-client.pem").exists(), "{flags}");
}

#[test]
fn who_may_not_join_is_told_why() {
    let cluster = Cluster::start(&["--simulate-nodes", "1"]);
    cluster.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
    let command = cluster.ok("coracle token create --print-join-command");
    let (server, token) = (after(&command, "--server"), after(&command, "--token"));
    let pin = after(&command, "--discovery-token-ca-cert-hash");
    let (id, _) = token.split_once('.').expect("id and secret");
    let refused = |flags: &str, words: &str| refused(&cluster, flags, words);
    let to = format!("--server {server}");
    refused(&to, "--token is needed");
    refused(&format!("{to} --token aaaaaa.0123456789abcdef"), "no token with the id \"aaaaaa\"");
    refused(
        &format!("{to} --token {id}.0123456789abcdef"),
        &format!("not signed with the secret of the token \"{id}\""),
    );
    let foreign = format!("sha256:{}", "0".repeat(64));
    let other = format!("{to} --token {token} --discovery-token-ca-cert-hash {foreign}");
    refused(&other, &format!("the cluster's CA has the hash {pin}"));
    refused(&format!("--server https://127.0.0.1:9 --token {token}"), "Connection refused");
    let all = cluster.run("coracle agent --server http://x --token y --disable scheduler --node-name Z_");
    assert_eq!((all.code, all.stderr.lines().count()), (1, 4), "{all}");
    let taken =
        cluster.run(&format!("coracle agent {to} --token {token} --node-name sim-0 --data-dir $PWD/agent"));
    assert!(
        taken.stderr.contains("a node with name \"sim-0\" and status \"Ready\" already exists"),
        "{taken}"
    );
    // A token that may sign but not speak.
    cluster.ok("coracle token create cccccc.0123456789abcdef && kubectl patch secret -n kube-system bootstrap-token-cccccc -p '{\"stringData\":{\"usage-bootstrap-authentication\":\"false\"}}'");
    refused(&format!("{to} --token cccccc.0123456789abcdef"), "it does not accept the credentials");
    cluster.says("kubectl get csr -o name", "");
}
