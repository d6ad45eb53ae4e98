//! The manifests directory, as its owner uses it: files come, change, break and go, also while the server is killed.

use coracle_tests::{Cluster, wait_for};
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
    files.write("chart-1.0.tgz", "");
    cluster.until_that(&state("chart-1.0.tgz"), |said| {
        said.starts_with("Refused: chart archives are not rendered here")
    });
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

#[test]
fn who_disables_it_has_no_directory() {
    let cluster = Cluster::start(&["--disable", "kubelet,proxy,dns,manifests"]);
    assert!(!cluster.data_dir().join("manifests").exists());
}
