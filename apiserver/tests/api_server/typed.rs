//! Built-in objects are what their types write, whatever was sent: what is stored, shown and owned.

use crate::custom_support::{DEFINITIONS, WIDGETS, definition, establish};
use crate::support::{CONFIG_MAPS, Fixture, PATIENCE, PODS};
use coracle_apiserver::store::{Durability, Op, Txn};
use serde_json::{Value, json};

const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// What the only manager owns, as text.
fn owned(object: &Value) -> String {
    let owners = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(owners.len(), 1, "{object}");
    owners[0]["fieldsV1"].to_string()
}

fn template(spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{ "name": "c", "image": "i" }]);
    }
    json!({ "metadata": { "labels": { "a": "b" } }, "spec": spec })
}

fn workload(kind: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["selector"] = json!({ "matchLabels": { "a": "b" } });
    if spec.get("template").is_none() {
        spec["template"] = template(json!({}));
    }
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "w" }, "spec": spec })
}

#[tokio::test]
async fn zeros_that_go_leaves_out_are_neither_kept_nor_owned() {
    let api = Fixture::new().await;
    let pod = json!({ "metadata": { "name": "p", "generateName": "" }, "spec": { "hostNetwork": false, "serviceAccountName": "",
        "containers": [{ "name": "c", "image": "i", "env": [{ "name": "E", "value": "" }],
            "ports": [{ "containerPort": 80, "hostPort": 0 }], "livenessProbe": { "initialDelaySeconds": 0, "tcpSocket": { "port": 80 } },
            "volumeMounts": [{ "name": "g", "mountPath": "/g", "readOnly": false, "subPath": "" }] }],
        "volumes": [{ "name": "g", "glusterfs": { "endpoints": "e", "path": "p", "readOnly": false } },
            { "name": "f", "azureFile": { "secretName": "s", "shareName": "n", "readOnly": false } },
            { "name": "q", "quobyte": { "registry": "r:1", "volume": "v", "readOnly": false } },
            { "name": "c", "persistentVolumeClaim": { "claimName": "c", "readOnly": false } }] } });
    let made = api.post(PODS, &pod).await.expect(201);
    let gone =
        ["generateName", "hostNetwork", "readOnly", "subPath", "value", "hostPort", "initialDelaySeconds"];
    for field in gone {
        assert!(!made.to_string().contains(&format!("\"{field}\"")), "{field}: {made}");
        assert!(!owned(&made).contains(&format!("f:{field}\"")), "{field}");
    }
    assert!(
        owned(&made).contains(r#""f:env":{".":{},"k:{\"name\":\"E\"}":{".":{},"f:name":{}}}"#),
        "{}",
        owned(&made)
    );
    let others = [
        (DEPLOYMENTS, workload("Deployment", json!({ "minReadySeconds": 0 })), "minReadySeconds"),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({ "metadata": { "name": "c" }, "value": 1, "globalDefault": false }),
            "globalDefault",
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({ "metadata": { "name": "s" },
            "spec": { "clusterIP": "None", "ports": [{ "port": 80, "nodePort": 0 }] } }),
            "nodePort",
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            json!({ "metadata": { "name": "h" }, "webhooks": [{
            "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": { "url": "https://h/", "caBundle": "" } }] }),
            "caBundle",
        ),
    ];
    for (uri, object, field) in others {
        let made = api.post(uri, &object).await.expect(201);
        assert!(!made.to_string().contains(field), "{field}: {made}");
    }
    let mut crd = definition(&json!({}));
    crd["spec"]["preserveUnknownFields"] = false.into();
    let made = api.post(DEFINITIONS, &crd).await.expect(201);
    assert!(!made.to_string().contains("preserveUnknownFields"), "{made}");
    assert_eq!(
        made["status"].get("conditions").filter(|list| !list.is_array()),
        Some(&Value::Null),
        "{made}"
    );
}

#[tokio::test]
async fn what_go_always_writes_is_there_and_nobodys() {
    let api = Fixture::new().await;
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } });
    let pod = json!({ "securityContext": { "sysctls": [{ "name": "kernel.shm_rmid_forced" }] }, "volumes": [{ "name": "e",
        "ephemeral": { "volumeClaimTemplate": { "spec": claim["spec"] } } }] });
    let set = workload("StatefulSet", json!({ "template": template(pod), "volumeClaimTemplates": [claim] }));
    let made = api.post(STATEFUL_SETS, &set).await.expect(201);
    let spec = &made["spec"];
    assert_eq!(spec["serviceName"], "");
    assert!(!owned(&made).contains("f:serviceName"), "{}", owned(&made));
    assert_eq!(
        (&spec["volumeClaimTemplates"][0]["kind"], &spec["volumeClaimTemplates"][0]["apiVersion"]),
        (&json!("PersistentVolumeClaim"), &json!("v1"))
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["securityContext"]["sysctls"][0]["value"], "");
    assert_eq!(pod["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["metadata"], json!({}));
    assert_eq!(pod["containers"][0]["resources"], json!({}));

    for rules in [json!({}), json!({ "rules": [] })] {
        let mut role = rules;
        role["metadata"] = json!({ "generateName": "r-" });
        let made = api.post(ROLES, &role).await.expect(201);
        assert_eq!(made.get("rules"), Some(&Value::Null), "{made}");
    }
    let claim = json!({ "metadata": { "name": "c" }, "spec": { "accessModes": ["ReadWriteOnce"], "volumeName": "v",
        "resources": { "requests": { "storage": "1Gi" } }, "dataSource": { "kind": "PersistentVolumeClaim", "name": "x" } } });
    let made = api.post("/api/v1/namespaces/default/persistentvolumeclaims", &claim).await.expect(201);
    for source in ["dataSource", "dataSourceRef"] {
        assert_eq!(made["spec"][source].get("apiGroup"), Some(&Value::Null), "{made}");
    }
    let volume = json!({ "metadata": { "name": "v" }, "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
        "azureFile": { "secretName": "s", "shareName": "n" } } });
    let made = api.post("/api/v1/persistentvolumes", &volume).await.expect(201);
    assert_eq!(made["spec"]["azureFile"].get("secretNamespace"), Some(&Value::Null), "{made}");
    let scaler = json!({ "metadata": { "name": "h" }, "spec": { "maxReplicas": 3,
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "w" } } });
    let made = api
        .post("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", &scaler)
        .await
        .expect(201);
    assert_eq!(made["status"], json!({ "currentMetrics": null, "desiredReplicas": 0 }), "{made}");
    let old = api.get("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h").await.expect(200);
    assert_eq!(old["status"], json!({ "currentReplicas": 0, "desiredReplicas": 0 }), "{old}");
    let policy = json!({ "metadata": { "name": "p" }, "spec": { "validations": [{ "expression": "true" }], "matchConstraints": {
        "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] }] } } });
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    assert_eq!(api.post(policies, &policy).await.expect(201)["status"], json!({}));
    let node = api.post("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await.expect(201);
    assert_eq!(node["status"]["daemonEndpoints"], json!({ "kubeletEndpoint": { "Port": 0 } }), "{node}");
}

#[tokio::test]
async fn every_way_to_write_leads_through_the_type() {
    let api = Fixture::new().await;
    let made = api.post(DEPLOYMENTS, &workload("Deployment", json!({}))).await.expect(201);
    let uri = format!("{DEPLOYMENTS}/w");
    let zero = json!({ "spec": { "paused": false, "minReadySeconds": 0 } });
    for kind in ["merge-patch", "strategic-merge-patch"] {
        let patched = api.patch(&uri, kind, &zero).await.expect(200);
        assert_eq!(patched, made, "{kind}");
    }
    let operation = json!([{ "op": "add", "path": "/spec/paused", "value": false }]);
    assert_eq!(api.patch(&uri, "json-patch", &operation).await.expect(200), made);
    let mut sent = made.clone();
    sent["spec"]["paused"] = false.into();
    assert_eq!(api.put(&uri, &sent).await.expect(200), made);
    // An applied configuration is owned as it was sent, and stored as the type writes it.
    let mut configuration = workload("Deployment", json!({}));
    configuration["spec"] = zero["spec"].clone();
    let applied = api
        .ask(
            "PATCH",
            &format!("{uri}?fieldManager=m"),
            "application/apply-patch+yaml",
            configuration.to_string(),
        )
        .await;
    let applied = applied.expect(200);
    assert_eq!(applied["spec"], made["spec"]);
    let owners = applied["metadata"]["managedFields"].as_array().unwrap();
    let fields = &owners.iter().find(|entry| entry["manager"] == "m").unwrap()["fieldsV1"];
    assert_eq!(fields, &json!({ "f:spec": { "f:minReadySeconds": {}, "f:paused": {} } }));
}

#[tokio::test]
async fn keys_have_the_order_of_the_types() {
    let api = Fixture::new().await;
    let text = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
    let in_order = |text: &str, keys: &[&str]| {
        let at: Vec<usize> = keys
            .iter()
            .map(|key| text.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key}: {text}")))
            .collect();
        assert!(at.is_sorted(), "{keys:?}: {text}");
    };
    let map = json!({ "data": { "b": "1", "a": "2" }, "metadata": { "name": "m", "labels": { "z": "1", "y": "2" } } });
    let made = api.post(CONFIG_MAPS, &map).await;
    let keys = [
        "kind",
        "apiVersion",
        "metadata",
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "labels",
        "managedFields",
        "data",
    ];
    in_order(&text(&made.body), &keys);
    let uri = format!("{CONFIG_MAPS}/m");
    assert_eq!(text(&api.get(&uri).await.body), text(&made.body).trim_end());
    in_order(
        &text(&api.get(CONFIG_MAPS).await.body),
        &["kind", "items", "name", "uid", "creationTimestamp", "data"],
    );
    in_order(
        &text(
            &api.get(&format!("{uri}?pretty=true"))
                .await
                .body
                .iter()
                .copied()
                .filter(|b| *b != b' ')
                .collect::<Vec<_>>(),
        ),
        &keys,
    );
    in_order(
        &text(&api.get(&format!("{CONFIG_MAPS}/none")).await.body),
        &["kind", "apiVersion", "metadata", "status", "message", "reason", "details", "name", "code"],
    );
    let dry = api.post(&format!("{DEPLOYMENTS}?dryRun=All"), &workload("Deployment", json!({}))).await;
    in_order(
        &text(&dry.body),
        &[
            "kind",
            "metadata",
            "spec",
            "replicas",
            "selector",
            "template",
            "containers",
            "restartPolicy",
            "strategy",
            "status",
        ],
    );
}

#[tokio::test]
async fn objects_from_before_are_read_and_written_on() {
    let api = Fixture::new().await;
    let made = api
        .post(
            STATEFUL_SETS,
            &workload(
                "StatefulSet",
                json!({ "volumeClaimTemplates": [{ "metadata": { "name": "d" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }] }),
            ),
        )
        .await
        .expect(201);
    // As it was kept before: by name, without what nobody had sent.
    let mut before = made.clone();
    before["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    before["spec"].as_object_mut().unwrap().remove("serviceName");
    before["spec"]["minReadySeconds"] = 0.into();
    before["spec"]["volumeClaimTemplates"][0]
        .as_object_mut()
        .unwrap()
        .retain(|key, _| key != "kind" && key != "apiVersion");
    let mut fields = before.clone();
    fields.as_object_mut().unwrap().retain(|key, _| key != "kind" && key != "apiVersion");
    let bytes = fields.to_string().replacen('{', r#"{"kind":"StatefulSet","apiVersion":"apps/v1","#, 1);
    let put = Op::Put { key: "statefulsets.apps/default/w".into(), value: bytes.into() };
    let txn = Txn { guards: Vec::new(), ops: vec![put], durability: Durability::Synced };
    let revision = api.api.registry().store.commit(txn).await.unwrap();
    assert!(api.api.cache().wait_for(revision, PATIENCE).await);

    let uri = format!("{STATEFUL_SETS}/w");
    let mut read = api.get(&uri).await.expect(200);
    assert_eq!(read["metadata"]["resourceVersion"], revision.0.to_string());
    read["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(read, before);
    let patched = api.patch(&uri, "merge-patch", &json!({ "spec": { "replicas": 2 } })).await.expect(200);
    let mut expected = made["spec"].clone();
    expected["replicas"] = 2.into();
    assert_eq!(patched["spec"], expected);
}

#[tokio::test]
async fn custom_resources_are_as_they_were_sent() {
    let api = Fixture::new().await;
    let mut with_status = definition(&json!({ "subresources": { "status": {} } }));
    with_status["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["default"] =
        json!({});
    establish(&api, &with_status).await;
    let widget = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w", "labels": {}, "generateName": "" },
        "spec": { "color": "", "tags": [], "free": { "zero": 0, "no": false, "none": null } } });
    let made = api.post(WIDGETS, &widget).await.expect(201);
    assert_eq!(made["spec"], widget["spec"]);
    assert_eq!(made["status"], json!({}));
    assert_eq!(made["metadata"].get("labels").or(made["metadata"].get("generateName")), None, "{made}");
}
