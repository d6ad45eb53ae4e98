//! The manifests directory, as its owner uses it: files come, change, break and go, also while the server is killed.

use coracle_tests::{Cluster, clients, wait_for};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

struct Manifests(PathBuf);

impl Manifests {
    fn of(cluster: &Cluster) -> Self {
        Self(cluster.data_dir().join("manifests"))
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("the file")).expect("the file");
        fs::write(path, text).expect("the file");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).expect("the file");
    }
}

fn map(name: &str, value: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{value: {value}}}\n")
}

/// The state that a file has: `Applied`, and what is said about it.
fn state(file: &str) -> String {
    format!(
        "kubectl get configmaps -n kube-system -l coracle.local/manifest -o json | jq -r '.items[].data | select(.file == \"{file}\") | .state + \": \" + .message'"
    )
}

const CUSTOM: &str =
    "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: one, namespace: harbour}\nspec: {oars: 2}\n";
const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: boats.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n  names: {plural: boats, singular: boat, kind: Boat}\n  versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n";

#[test]
fn files_are_applied_changed_and_pruned() {
    let mut cluster = Cluster::start(&[]);
    let files = Manifests::of(&cluster);
    files.write("a.yaml", &[map("one", "a"), map("two", "a")].concat());
    cluster.until(&state("a.yaml"), "Applied:");
    cluster.says("kubectl get configmap one two -o jsonpath='{.items[*].data.value}'", "a a");
    let owner = "kubectl get configmap one --show-managed-fields -o jsonpath='{.metadata.managedFields[*].manager}/{.metadata.managedFields[*].operation}'";
    cluster.says(owner, "coracle-manifests/Apply");
    // A file that breaks harms neither what it made nor its neighbours.
    files.write("a.yaml", "kind: [");
    files.write(
        "folder/b.json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"json"},"data":{"value":"j"}}"#,
    );
    cluster.until_that(&state("a.yaml"), |said| said.starts_with("Broken: document 1: "));
    cluster.until(&state("folder/b.json"), "Applied:");
    cluster.says("kubectl get configmap one two json -o jsonpath='{.items[*].data.value}'", "a a j");
    let events = "kubectl get events -n kube-system -o jsonpath='{range .items[*]}{.type} {.reason} {.message}{\"\\n\"}{end}'";
    cluster.until_that(events, |text| text.contains("Warning ManifestBroken a.yaml: document 1: "));
    // A document goes, another changes.
    files.write("a.yaml", &map("one", "b"));
    cluster.until("kubectl get configmap one -o jsonpath='{.data.value}'", "b");
    cluster.until("kubectl get configmap two --ignore-not-found -o name", "");
    // What two files hold is the other's again when the last one's goes.
    files.write("b.yaml", &map("one", "other"));
    cluster.until("kubectl get configmap one -o jsonpath='{.data.value}'", "other");
    files.remove("b.yaml");
    cluster.until("kubectl get configmap one -o jsonpath='{.data.value}'", "b");
    // What somebody else made under that name meanwhile is left alone.
    cluster.ok("kubectl delete configmap json && kubectl create configmap json --from-literal=value=mine");
    fs::remove_dir_all(files.0.join("folder")).expect("the file");
    cluster.until(&state("folder/b.json"), "");
    let memory = cluster.data_dir().join("manifests-applied.json");
    wait_for("a memory without it", Duration::from_secs(30), || match fs::read_to_string(&memory) {
        Ok(text) if !text.contains("json\"") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    cluster.says("kubectl get configmap json -o jsonpath='{.data.value}'", "mine");
    // Killed, and a file taken away while nobody looks.
    files.write("c.yaml", &map("late", "c"));
    cluster.until("kubectl get configmap late -o jsonpath='{.data.value}'", "c");
    cluster.kill();
    files.remove("c.yaml");
    files.write("d.yaml", &map("new", "d"));
    cluster.restart();
    cluster.until("kubectl get configmap new -o jsonpath='{.data.value}'", "d");
    cluster.until("kubectl get configmap late --ignore-not-found -o name", "");
    cluster.says("kubectl get configmap one -o jsonpath='{.data.value}'", "b");
    assert!(!cluster.log().contains("panicked"), "{}", cluster.log());
}

#[test]
fn what_others_need_is_waited_for() {
    let cluster = Cluster::start(&[]);
    let files = Manifests::of(&cluster);
    files.write("1-boat.yaml", CUSTOM);
    cluster.until_that(&state("1-boat.yaml"), |said| {
        said.starts_with("Waiting: Boat harbour/one: nothing of kind Boat is defined")
    });
    files.write(
        "2-rest.yaml",
        &format!("{DEFINITION}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: harbour}}\n"),
    );
    cluster.until(&state("1-boat.yaml"), "Applied:");
    cluster.says("kubectl get boat one -n harbour -o jsonpath='{.spec.oars}'", "2");
    // Refused by the server: told, and tried again until it is mended.
    files.write(
        "3.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 0}]}\n",
    );
    cluster.until_that(&state("3.yaml"), |said| {
        said.starts_with("Failed: Service bad: Service \"bad\" is invalid")
    });
    files.write(
        "3.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 1}]}\n",
    );
    cluster.until(&state("3.yaml"), "Applied:");
    files.write("lonely.helm.yaml", "namespace: apps\n");
    cluster.until(&state("lonely.helm.yaml"), "Refused: there is no chart archive of this name beside it");
    // With its kind an object goes, and both are forgotten.
    files.remove("2-rest.yaml");
    files.remove("1-boat.yaml");
    cluster.until("kubectl get crd boats.example.com --ignore-not-found -o name", "");
    cluster.until("kubectl get namespace harbour --ignore-not-found -o name", "");
    let memory = cluster.data_dir().join("manifests-applied.json");
    wait_for("a memory without them", Duration::from_secs(60), || match fs::read_to_string(&memory) {
        Ok(text) if !text.contains("harbour") && !text.contains("boats") => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

/// The archive of a chart whose ConfigMap says its version and a value, after a hook.
fn chart(name: &str, version: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |file: &str, text: &str| {
        let path = dir.path().join(name).join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    write("Chart.yaml", &format!("apiVersion: v2\nname: {name}\nversion: {version}\n"));
    write("values.yaml", "colour: red\n");
    write(
        "templates/map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-is}\ndata: {said: {{ printf \"%s %s\" .Chart.Version .Values.colour | quote }}}\n",
    );
    write(
        "templates/hook.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-before, annotations: {helm.sh/hook: pre-install}}\ndata: {at: {{ .Release.Revision | quote }}}\n",
    );
    let tar = std::process::Command::new("tar").args(["-czf", "-", "-C"]).arg(dir.path()).arg(name).output();
    let tar = tar.expect("tar runs");
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
    tar.stdout
}

/// Whoever may write Secrets in a chart's namespace: helm would do what they say with an administrator's rights.
fn a_tenant_has_no_part_in_it(cluster: &Cluster) {
    cluster.ok("kubectl create rolebinding tenant -n apps --clusterrole=cluster-admin --user=tenant");
    let secret = |name: &str, labels: &str| {
        format!(
            "echo '{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{{\"name\":\"{name}\",\"labels\":{{{labels}}}}}}}' | kubectl create -n apps --as tenant -f -"
        )
    };
    cluster.ok(&secret("plain", ""));
    let whose = "the manifests directory keeps the release web: it is written by who may update Secrets of all namespaces";
    let of_web = r#""owner":"helm","name":"web","version":"9","status":"deployed""#;
    let hash = "the label coracle.local/manifest-hash is of releases";
    for (command, why) in [
        (secret("x", of_web), whose),
        (secret("sh.helm.release.v1.web.v9", ""), whose),
        (secret("x", r#""coracle.local/manifest-hash":"h""#), hash),
        ("kubectl label secret -n apps plain owner=helm name=web --as tenant".to_owned(), whose),
        ("kubectl label secret -n apps -l owner=helm status=failed --overwrite --as tenant".to_owned(), hash),
        (
            "kubectl annotate namespace apps release.coracle.local/web- --as tenant".to_owned(),
            "name releases that the manifests directory keeps",
        ),
    ] {
        let refused = cluster.run(&command);
        assert!(refused.code != 0 && refused.stderr.contains(why), "{command}: {refused}");
    }
    // Another release of their own is theirs.
    cluster.ok(&secret(
        "sh.helm.release.v1.mine.v1",
        r#""owner":"helm","name":"mine","version":"1","status":"deployed""#,
    ));
    cluster.ok("kubectl delete secret -n apps plain sh.helm.release.v1.mine.v1 --as tenant");
}

/// They stay what they are, and what was there before an archive is believed as little.
fn releases_of_others(cluster: &Cluster, files: &Manifests) {
    fs::write(cluster.home().join("own.tgz"), chart("own", "1.0.0")).expect("the archive");
    cluster.ok("helm install own own.tgz");
    fs::copy(cluster.home().join("own.tgz"), files.0.join("own-1.0.0.tgz")).expect("the archive");
    cluster.until(
        &state("own-1.0.0.tgz"),
        "Failed: Release own: somebody else has installed a release of this name",
    );
    cluster.ok("kubectl create secret generic sh.helm.release.v1.trap.v7");
    fs::write(files.0.join("trap-1.0.0.tgz"), chart("trap", "1.0.0")).expect("the archive");
    cluster.until(
        &state("trap-1.0.0.tgz"),
        "Failed: Release trap: somebody else has installed a release of this name",
    );
    cluster.ok("kubectl delete secret sh.helm.release.v1.trap.v7");
    cluster.until(&state("trap-1.0.0.tgz"), "Applied:");
    files.remove("trap-1.0.0.tgz");
    cluster.until("helm list -o json | jq -r '.[].name'", "own");
}

#[test]
fn charts_become_releases_that_follow_their_archives() {
    let tools = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start_in(&[], &[("PATH", &tools.path().display().to_string())]);
    cluster.provide("helm", &clients::helm());
    let files = Manifests::of(&cluster);
    files.write("web.helm.yaml", "namespace: apps\nvalues: {colour: blue}\n");
    fs::write(files.0.join("web-0.1.0.tgz"), chart("web", "0.1.0")).expect("the archive");
    cluster.until_that(&state("web-0.1.0.tgz"), |said| {
        said.contains("Waiting: Release apps/web: ") && said.contains("not on the server's PATH")
    });
    // The program comes, and nobody has to say so.
    std::os::unix::fs::symlink(clients::helm(), tools.path().join("helm")).expect("a link");
    cluster.until(&state("web-0.1.0.tgz"), "Applied:");
    let said = "kubectl get configmap web-is -n apps -o jsonpath={.data.said}";
    cluster.says(said, "0.1.0 blue");
    cluster.says("kubectl get configmap web-before -n apps -o jsonpath={.data.at}", "1");
    let releases = "helm list -n apps -o json | jq -r '.[] | .name + \" \" + .revision + \" \" + .status'";
    cluster.says(releases, "web 1 deployed");
    // A start installs nothing again.
    cluster.kill_and_restart();
    files.write("later.yaml", &map("later", "l"));
    cluster.until(&state("later.yaml"), "Applied:");
    cluster.says(releases, "web 1 deployed");
    // Settings and the next version's archive are upgrades; the older archive goes a moment later.
    files.write("web.helm.yaml", "namespace: apps\nvalues: {colour: green}\n");
    cluster.until(said, "0.1.0 green");
    fs::write(files.0.join("web-0.2.0.tgz"), chart("web", "0.2.0")).expect("the archive");
    cluster.until(said, "0.2.0 green");
    files.remove("web-0.1.0.tgz");
    cluster.until(&state("web-0.1.0.tgz"), "");
    cluster.says(releases, "web 3 deployed");
    a_tenant_has_no_part_in_it(&cluster);
    // One that helm refuses, and names that somebody has taken.
    files.write("bad-1.0.0.tgz", "no archive");
    cluster.until_that(&state("bad-1.0.0.tgz"), |said| {
        said.starts_with("Failed: Release bad: helm: exit status: 1: ")
    });
    releases_of_others(&cluster, &files);
    // Gone with its archive.
    files.remove("web-0.2.0.tgz");
    files.remove("own-1.0.0.tgz");
    cluster.until(releases, "");
    cluster.says("kubectl get configmap web-is -n apps --ignore-not-found -o name", "");
    cluster.says("helm list -o json | jq -r '.[].name'", "own");
    cluster.until(&state("web.helm.yaml"), "Refused: there is no chart archive of this name beside it");
}

#[test]
fn who_disables_it_has_no_directory() {
    let cluster = Cluster::start(&["--disable", "kubelet,proxy,dns,manifests"]);
    assert!(!cluster.data_dir().join("manifests").exists());
}
