//! ComponentStatuses, which are made when somebody asks.

use crate::support::*;
use coracle_apiserver::health::Matters;
use serde_json::{Value, json};

const ALL: &str = "/api/v1/componentstatuses";

fn table(api: &Answer) -> Vec<Vec<String>> {
    let rows = api.expect(200)["rows"].as_array().unwrap().clone();
    let text = |cell: &Value| cell.as_str().unwrap().to_owned();
    rows.iter().map(|row| row["cells"].as_array().unwrap().iter().map(text).collect()).collect()
}

#[tokio::test]
async fn components_tell_how_they_are() {
    let api = Fixture::new().await;
    api.api.health().report("scheduler", Matters::Ready, Ok(()));
    api.api.health().report("controllers", Matters::Ready, Err("panicked".to_owned()));
    let list = api.get(ALL).await;
    assert!(list.header("warning").contains("v1 ComponentStatus is deprecated in v1.19+"));
    let list = list.expect(200);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ComponentStatusList"), &json!("v1")));
    let names: Vec<&Value> =
        list["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!(names, ["controller-manager", "scheduler", "etcd-0"]);
    let one = api.get(&format!("{ALL}/scheduler")).await.expect(200);
    let healthy = json!([{ "type": "Healthy", "status": "True", "message": "ok" }]);
    assert_eq!((&one["kind"], &one["conditions"]), (&json!("ComponentStatus"), &healthy));
    assert_eq!(one["metadata"], json!({ "name": "scheduler" }));
    let none = api.get(&format!("{ALL}/kubelet")).await.expect(404);
    assert_eq!(none["message"], "componentstatuses \"kubelet\" not found");

    let as_table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let rows = table(&api.get_as(ALL, as_table).await);
    assert_eq!(rows[0], ["controller-manager", "Unhealthy", "", "panicked"]);
    assert_eq!(rows[1], ["scheduler", "Healthy", "ok", ""]);
    let selected = api.get(&format!("{ALL}?fieldSelector=metadata.name%3Detcd-0")).await.expect(200);
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    api.get(&format!("{ALL}?fieldSelector=spec.x%3Dy")).await.expect(400);
    let labelled = api.get(&format!("{ALL}?labelSelector=a%3Db")).await.expect(200);
    assert_eq!(labelled["items"], json!([]));
    assert_eq!(api.post(ALL, &json!({})).await.status, 405);
    let protobuf = api.get_as(ALL, "application/vnd.kubernetes.protobuf").await;
    assert_eq!((protobuf.status.as_u16(), &protobuf.body[..4]), (200, &b"k8s\0"[..]));
}
