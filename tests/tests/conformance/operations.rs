//! Every verb of every built-in resource: create, get, list, watch, patch, update, status, apply, delete,
//! deletecollection; as Table, metadata, YAML and protobuf.

use crate::samples::{SAMPLES, Sample};
use crate::schemas::Document;
use crate::{Suite, make_namespace};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

const MARK: &str = "conformance";
pub const NAMESPACE: &str = "operations";

impl Sample {
    fn group_version_path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub fn collection(&self) -> String {
        let base = self.group_version_path();
        if self.namespaced {
            format!("{base}/namespaces/{NAMESPACE}/{}", self.plural)
        } else {
            format!("{base}/{}", self.plural)
        }
    }

    /// The nth object; `@` in the sample stands for its number.
    pub fn object(&self, n: usize) -> Value {
        let text = self.json.replace('@', &n.to_string());
        let mut object: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", self.kind));
        object["apiVersion"] = json!(self.api_version());
        object["kind"] = json!(self.kind);
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = json!(format!("conformance-{n}"));
        }
        object["metadata"]["labels"] = json!({ MARK: "yes" });
        object
    }
}

#[test]
fn every_resource_supports_its_api_operations() {
    let mut suite = Suite::start();
    make_namespace(&suite.rest, NAMESPACE);
    for sample in SAMPLES {
        suite.check(&format!("{}.{}", sample.plural, sample.group), |rest| life(rest, sample));
    }
    suite.check("every resource has a sample", every_resource_has_a_sample);
    suite.check("objects are as published", objects_are_as_published);
    suite.end();
}

/// Whatever discovery lists with the verb create, but for reviews and the like, is tried above.
fn every_resource_has_a_sample(rest: &Rest) {
    let groups = rest.get("/apis");
    let versions = groups["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .flat_map(|g| g["versions"].as_array().cloned().unwrap_or_default());
    let mut paths = vec!["/api/v1".to_owned()];
    paths.extend(versions.map(|v| format!("/apis/{}", v["groupVersion"].as_str().expect("a version"))));
    let mut lacking = Vec::new();
    for path in paths {
        let list = rest.get(&path);
        for resource in list["resources"].as_array().expect("resources") {
            let name = resource["name"].as_str().expect("a name");
            let verbs = resource["verbs"].as_array().expect("verbs");
            let plain =
                !name.contains('/') && verbs.contains(&json!("create")) && verbs.contains(&json!("list"));
            let tried = SAMPLES.iter().any(|s| s.group_version_path() == path && s.plural == name);
            if plain && !tried {
                lacking.push(format!("{path}/{name}"));
            }
        }
    }
    assert!(lacking.is_empty(), "no sample of {lacking:?}");
}

/// One of every kind, taken with no field dropped, and all that a cluster begins with.
fn objects_are_as_published(rest: &Rest) {
    let mut versions: Vec<String> = SAMPLES.iter().map(Sample::group_version_path).collect();
    versions.sort();
    versions.dedup();
    let mut misfits = Vec::new();
    for version in versions {
        let document = Document::get(rest, &version);
        for sample in SAMPLES.iter().filter(|sample| sample.group_version_path() == version) {
            let (path, object) = (sample.collection(), sample.object(9));
            let made = rest.create(&format!("{path}?dryRun=All&fieldValidation=Strict"), &object);
            let list = rest.get(&format!("{version}/{}", sample.plural));
            misfits.extend(document.misfits(&sample.api_version(), sample.kind, &made));
            misfits.extend(document.misfits(&sample.api_version(), &format!("{}List", sample.kind), &list));
        }
    }
    assert!(misfits.is_empty(), "{misfits:#?}");
}

fn life(rest: &Rest, sample: &Sample) {
    in_discovery(rest, sample);
    let path = sample.collection();
    let selected = format!("{path}?labelSelector={MARK}");
    let list = rest.get(&selected);
    assert_eq!(list["kind"], format!("{}List", sample.kind));
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let watch = rest.watch(&format!("{selected}&watch=true&resourceVersion={version}"));
    let names: Vec<String> = (1..=3).map(|n| create(rest, sample, n)).collect();
    for name in &names {
        watch.until(&format!("ADDED {name}"), |_| true);
    }
    let one = format!("{path}/{}", names[0]);
    read(rest, sample, &one, &selected);
    change(rest, sample, &one);
    let wanted = |key: &'static str| move |o: &Value| o["metadata"]["annotations"][key] == "true";
    watch.until(&format!("MODIFIED {}", names[0]), wanted("patched"));
    watch.until(&format!("MODIFIED {}", names[0]), wanted("updated"));
    if sample.status.is_empty() {
        assert_ne!(
            rest.call("GET", &format!("{one}/status"), &[], "").code,
            200,
            "a status that discovery lacks"
        );
    } else {
        status(rest, sample, &one);
    }
    apply(rest, sample, &one);
    formats(rest, sample, &one, &selected);
    remove(rest, &one, &selected);
    watch.until(&format!("DELETED {}", names[0]), |_| true);
    // A namespace goes when it has been emptied, and which one is first, nobody promises.
    let mut left: Vec<String> = names[1..].iter().map(|name| format!("DELETED {name}")).collect();
    while !left.is_empty() {
        let (event, _) = watch.next();
        left.retain(|expected| *expected != event);
    }
}

fn in_discovery(rest: &Rest, sample: &Sample) {
    if !sample.group.is_empty() {
        let groups = rest.get("/apis");
        let groups = groups["groups"].as_array().expect("groups");
        let group = groups.iter().find(|g| g["name"] == sample.group).expect("the group in /apis");
        assert!(
            group["versions"].as_array().is_some_and(|v| v.iter().any(|v| v["version"] == sample.version))
        );
        let group = rest.get(&format!("/apis/{}", sample.group));
        assert_eq!(group["kind"], "APIGroup");
    }
    let list = rest.get(&sample.group_version_path());
    let resources = list["resources"].as_array().expect("resources");
    let resource = resources.iter().find(|r| r["name"] == sample.plural).expect("the resource");
    assert_eq!(
        (&resource["kind"], &resource["namespaced"]),
        (&json!(sample.kind), &json!(sample.namespaced))
    );
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    for verb in verbs {
        assert!(
            resource["verbs"].as_array().is_some_and(|v| v.contains(&json!(verb)))
                || sample.kind == "Namespace",
            "{verb}"
        );
    }
    let status = resources.iter().any(|r| r["name"] == format!("{}/status", sample.plural));
    assert_eq!(status, !sample.status.is_empty(), "status in discovery");
}

fn create(rest: &Rest, sample: &Sample, n: usize) -> String {
    let object = sample.object(n);
    let dry = rest.call("POST", &format!("{}?dryRun=All", sample.collection()), &[], &object.to_string());
    assert_eq!(dry.code, 201, "dry run: {}", dry.body);
    let made = rest.create(&format!("{}?fieldValidation=Strict", sample.collection()), &object);
    assert!(
        made["metadata"]["uid"].is_string() && made["metadata"]["creationTimestamp"].is_string(),
        "{made}"
    );
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!(sample.kind), &json!(sample.api_version())));
    let manager = &made["metadata"]["managedFields"][0];
    assert_eq!(manager["operation"], "Update", "{made}");
    let again = rest.call("POST", &sample.collection(), &[], &object.to_string());
    if ["Event", "IPAddress", "ServiceCIDR"].iter().all(|kind| sample.kind != *kind) {
        again.refused(409, "AlreadyExists");
    }
    made["metadata"]["name"].as_str().expect("a name").to_owned()
}

fn read(rest: &Rest, sample: &Sample, one: &str, selected: &str) {
    let found = rest.get(one);
    assert_eq!(found["kind"], sample.kind);
    let list = rest.get(selected);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(3), "{list}");
    if sample.namespaced {
        let everywhere =
            rest.get(&format!("{}/{}?labelSelector={MARK}", sample.group_version_path(), sample.plural));
        assert!(everywhere["items"].as_array().is_some_and(|items| items.len() >= 3), "{everywhere}");
    }
    let by_name =
        format!("{}&fieldSelector=metadata.name={}", selected, one.rsplit('/').next().unwrap_or_default());
    assert_eq!(rest.get(&by_name)["items"].as_array().map(Vec::len), Some(1));
    let missing = format!("{}/nothing-here", sample.collection());
    rest.call("GET", &missing, &[], "").refused(404, "NotFound");
}

fn change(rest: &Rest, sample: &Sample, one: &str) {
    let patched = rest.merge(one, &json!({"metadata": {"annotations": {"patched": "true"}}}));
    assert_eq!(patched["metadata"]["annotations"]["patched"], "true", "{patched}");
    let body = r#"[{"op": "add", "path": "/metadata/annotations/by-json", "value": "true"}]"#;
    let by_json = rest.call("PATCH", one, &["Content-Type: application/json-patch+json"], body).ok();
    assert_eq!(by_json["metadata"]["annotations"]["by-json"], "true");
    let strategic = "Content-Type: application/strategic-merge-patch+json";
    let body = r#"{"metadata": {"annotations": {"strategic": "true", "by-json": null}}}"#;
    let strategic = rest.call("PATCH", one, &[strategic], body).ok();
    assert_eq!(strategic["metadata"]["annotations"]["strategic"], "true");
    assert!(strategic["metadata"]["annotations"]["by-json"].is_null(), "{strategic}");
    // A controller may write meanwhile.
    crate::eventually("an update", || {
        let mut found = rest.get(one);
        found["metadata"]["annotations"]["updated"] = json!("true");
        let reply = rest.call("PUT", one, &[], &found.to_string());
        assert!(reply.code == 200 || reply.code == 409, "{}: {}", sample.kind, reply.body);
        (reply.code == 200).then(|| assert_eq!(reply.body["metadata"]["annotations"]["updated"], "true"))
    });
    let mut stale = rest.get(one);
    stale["metadata"]["resourceVersion"] = json!("1");
    let reply = rest.call("PUT", one, &[], &stale.to_string());
    assert_eq!(reply.code, 409, "an update of an old version: {}", reply.body);
}

fn status(rest: &Rest, sample: &Sample, one: &str) {
    let path = format!("{one}/status");
    assert_eq!(rest.get(&path)["kind"], sample.kind);
    let patch: Value = serde_json::from_str(sample.status).expect("the status's sample");
    let body = json!({"metadata": {"annotations": {"statused": "true"}}, "status": patch});
    let patched = rest.merge(&path, &body);
    contains(&patched["status"], &patch);
    // The status's own path changes the status alone, but for annotations and labels of most kinds.
    crate::eventually("an update of the status", || {
        let found = rest.get(one);
        let reply = rest.call("PUT", &path, &[], &found.to_string());
        assert!(reply.code == 200 || reply.code == 409, "{}: {}", sample.kind, reply.body);
        (reply.code == 200).then_some(())
    });
    if sample.kind != "Namespace" {
        let ignored = rest.merge(one, &json!({"status": {"conformance": null}}));
        assert_eq!(ignored["kind"], sample.kind);
    }
}

/// `whole` has everything that `part` has; what is empty may be left out.
#[track_caller]
fn contains(whole: &Value, part: &Value) {
    match part {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| contains(&whole[name], value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(n, item)| contains(&whole[n], item)),
        Value::String(text) if text.is_empty() && whole.is_null() => {}
        _ => assert_eq!(whole, part),
    }
}

fn apply(rest: &Rest, sample: &Sample, one: &str) {
    let name = one.rsplit('/').next().unwrap_or_default();
    let object = json!({
        "apiVersion": sample.api_version(), "kind": sample.kind,
        "metadata": {"name": name, "annotations": {"applied": "true"}},
    });
    let path = format!("{one}?fieldManager=conformance&force=true");
    let headers = ["Content-Type: application/apply-patch+yaml"];
    let applied = rest.call("PATCH", &path, &headers, &object.to_string()).ok();
    assert_eq!(applied["metadata"]["annotations"]["applied"], "true");
    let managers = applied["metadata"]["managedFields"].as_array().expect("managed fields");
    let ours = managers.iter().find(|m| m["manager"] == "conformance").expect("the manager");
    assert_eq!(ours["operation"], "Apply");
    assert_eq!(ours["fieldsV1"], json!({"f:metadata": {"f:annotations": {"f:applied": {}}}}));
}

fn formats(rest: &Rest, sample: &Sample, one: &str, selected: &str) {
    let table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io";
    for path in [one, selected] {
        let table = rest.call("GET", path, &[table], "").ok();
        assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
        let columns = table["columnDefinitions"].as_array().expect("columns").len();
        let rows = table["rows"].as_array().expect("rows");
        assert!(
            !rows.is_empty()
                && rows.iter().all(|r| r["cells"].as_array().is_some_and(|c| c.len() == columns))
        );
        assert!(rows.iter().all(|r| r["object"]["kind"] == "PartialObjectMetadata"), "{table}");
    }
    let metadata = "Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let partial = rest.call("GET", one, &[metadata], "").ok();
    assert_eq!(partial["kind"], "PartialObjectMetadata");
    assert!(partial["spec"].is_null() && partial["metadata"]["uid"].is_string(), "{partial}");
    let list = "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    assert_eq!(rest.call("GET", selected, &[list], "").ok()["kind"], "PartialObjectMetadataList");
    let yaml = rest.call("GET", one, &["Accept: application/yaml"], "");
    assert_eq!((yaml.code, yaml.header("content-type")), (200, "application/yaml"));
    assert!(yaml.body.as_str().is_some_and(|text| text.contains(&format!("kind: {}", sample.kind))));
    for path in [one, selected] {
        let proto = rest.call("GET", path, &["Accept: application/vnd.kubernetes.protobuf"], "");
        assert_eq!((proto.code, proto.header("content-type")), (200, "application/vnd.kubernetes.protobuf"));
        assert!(proto.body.as_str().is_some_and(|bytes| bytes.starts_with("k8s\0")));
    }
    let strange = rest.call("GET", one, &["Accept: image/png"], "");
    assert_eq!(strange.code, 406, "{}", strange.body);
}

fn remove(rest: &Rest, one: &str, selected: &str) {
    rest.call("DELETE", &format!("{one}?dryRun=All"), &[], "").ok();
    assert_eq!(rest.call("GET", one, &[], "").code, 200, "a dry run deletes nothing");
    let wrong = r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"no-such-uid"}}"#;
    rest.call("DELETE", one, &[], wrong).refused(409, "Conflict");
    let now = r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"propagationPolicy":"Background"}"#;
    rest.call("DELETE", one, &[], now).ok();
    crate::eventually("the deletion", || (rest.call("GET", one, &[], "").code == 404).then_some(()));
    rest.call("DELETE", one, &[], now).refused(404, "NotFound");
    if selected.starts_with("/api/v1/namespaces?") {
        for name in ["conformance-2", "conformance-3"] {
            rest.delete(&format!("/api/v1/namespaces/{name}"));
        }
    } else {
        rest.call("DELETE", selected, &[], now).ok();
    }
    crate::eventually("the end of the collection", || {
        rest.get(selected)["items"].as_array().is_some_and(Vec::is_empty).then_some(())
    });
}
