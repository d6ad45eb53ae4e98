//! Tables, metadata alone, YAML, pretty printing, compression.

use crate::support::*;
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use std::io::Read;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn tables() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let table = api.get_as(CONFIG_MAPS, TABLE).await.expect(200);
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns = table["columnDefinitions"].as_array().unwrap();
    assert_eq!(columns[0]["name"], "Name");
    let row = &table["rows"][0];
    assert_eq!(row["cells"].as_array().unwrap().len(), columns.len());
    assert_eq!(row["cells"][0], "a");
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    assert!(row["object"].get("data").is_none());
    assert!(version(&table) > 0);
    let single = api.get_as(&format!("{CONFIG_MAPS}/a?includeObject=Object"), TABLE).await.expect(200);
    assert_eq!(single["rows"][0]["object"]["data"], json!({"k": "v"}));
    let bare = api.get_as(&format!("{CONFIG_MAPS}?includeObject=None"), TABLE).await.expect(200);
    assert_eq!(bare["rows"][0]["object"], Value::Null);
    api.get_as(&format!("{CONFIG_MAPS}?includeObject=Some"), TABLE).await.expect(400);
}

#[tokio::test]
async fn every_resource_prints() {
    let api = Fixture::new().await;
    for resource in coracle_api::catalogue::catalogue().iter().filter(|r| r.is_stored()) {
        let root =
            if resource.group.is_empty() { "/api".into() } else { format!("/apis/{}", resource.group) };
        let uri = format!("{root}/{}/{}", resource.version, resource.plural);
        let table = api.get_as(&uri, TABLE).await.expect(200);
        let columns = table["columnDefinitions"].as_array().unwrap();
        assert!(columns.iter().any(|c| c["name"] == "Name" || c["name"] == "Object"), "{uri}: {columns:?}");
        assert_eq!(table["rows"], json!([]), "{uri}");
    }
}

#[tokio::test]
async fn watched_tables_bring_columns_once() {
    let api = Fixture::new().await;
    let request = Request::get(format!("{CONFIG_MAPS}?watch=true")).header("accept", TABLE);
    let body = api.send(request.body(Body::empty()).unwrap()).await.into_body();
    let mut frames = http_body_util::BodyStream::new(body);
    for (name, columns) in [("a", true), ("b", false)] {
        use futures::StreamExt;
        api.post(CONFIG_MAPS, &config_map(name)).await.expect(201);
        let frame = frames.next().await.unwrap().unwrap().into_data().unwrap();
        let event: Value = serde_json::from_slice(&frame).unwrap();
        assert_eq!(event["object"]["rows"][0]["cells"][0], name);
        assert_eq!(event["object"]["columnDefinitions"].is_array(), columns);
    }
}

#[tokio::test]
async fn metadata_alone() {
    let api = Fixture::new().await;
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let list = api.get_as(CONFIG_MAPS, METADATA).await.expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(
        list["items"][0],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"]})
    );
}

#[tokio::test]
async fn yaml_bodies() {
    let api = Fixture::new().await;
    let yaml = "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: yam\ndata:\n  k: \"1\"\n";
    let made = api.ask("POST", CONFIG_MAPS, "application/yaml", yaml).await.expect(201);
    assert_eq!(made["data"]["k"], "1");
    api.ask("POST", CONFIG_MAPS, "application/yaml", "a: [").await.expect(400);
}

#[tokio::test]
async fn pretty() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    for uri in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}/a"), "/apis".into()] {
        let plain = api.get(&uri).await;
        let pretty = api.get(&format!("{uri}?pretty=true")).await;
        assert!(!plain.body.starts_with(b"{\n") && pretty.body.starts_with(b"{\n"), "{uri}");
        assert_eq!(plain.json(), pretty.json());
    }
    assert!(api.get("/version").await.body.starts_with(b"{\n  \"major\""), "in any case");
}

#[tokio::test]
async fn large_answers_are_compressed_if_asked() {
    let api = Fixture::new().await;
    for n in 0..5 {
        let mut body = config_map(&format!("big-{n}"));
        body["data"]["k"] = "abc".repeat(20_000).into();
        api.post(CONFIG_MAPS, &body).await.expect(201);
    }
    let plain = api.get(CONFIG_MAPS).await;
    assert_eq!(plain.header("content-encoding"), "");
    let request =
        |uri: &str| Request::get(uri).header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let packed = api.call(request(CONFIG_MAPS)).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert!(packed.body.len() < plain.body.len() / 10);
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut text).unwrap();
    assert_eq!(text, plain.body);
    let small = api.call(request(&format!("{CONFIG_MAPS}/big-0"))).await;
    assert_eq!(small.header("content-encoding"), "");
}
