//! Protobuf in both directions, YAML, and which of them is chosen.

use crate::support::*;
use axum::body::Body;
use coracle_api::protobuf;
use http::Request;
use http_body_util::{BodyExt, BodyStream};
use serde_json::{Value, json};
use std::io::Read;

const PROTOBUF: &str = protobuf::MEDIA_TYPE;
const TYPED: &str = "application/vnd.kubernetes.protobuf,application/json";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

impl Answer {
    /// The object of a protobuf body, if status and media type are as expected.
    fn message(&self, status: u16) -> Value {
        assert_eq!(self.header("content-type"), PROTOBUF);
        assert_eq!(self.status.as_u16(), status);
        protobuf::decode(&self.body, None).unwrap_or_else(|e| panic!("no message: {e}"))
    }
}

impl Fixture {
    async fn send_message(&self, method: &str, uri: &str, object: &Value) -> Answer {
        let request = Request::builder().method(method).uri(uri);
        let request = request.header("content-type", PROTOBUF).header("accept", TYPED);
        self.call(request.body(Body::from(protobuf::encode(object).unwrap())).unwrap()).await
    }
}

#[tokio::test]
async fn an_object_from_birth_to_death() {
    let api = Fixture::new().await;
    let created = api.send_message("POST", CONFIG_MAPS, &config_map("a")).await.message(201);
    assert_eq!(created["data"], json!({"k": "v"}));
    let uri = format!("{CONFIG_MAPS}/a");
    let in_json = api.get(&uri).await.expect(200);
    assert_eq!(api.get_as(&uri, TYPED).await.message(200), in_json);
    let mut changed = created.clone();
    changed["data"]["k"] = "w".into();
    let updated = api.send_message("PUT", &uri, &changed).await.message(200);
    assert_eq!(updated["data"]["k"], "w");
    assert!(version(&updated) > version(&created));
    let conflict = api.send_message("PUT", &uri, &changed).await.message(409);
    assert_eq!((&conflict["kind"], &conflict["reason"]), (&json!("Status"), &json!("Conflict")));
    assert_eq!(conflict["details"]["name"], "a");
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
        "preconditions": {"uid": created["metadata"]["uid"]}});
    let deleted = api.send_message("DELETE", &uri, &options).await.message(200);
    assert_eq!(deleted["status"], "Success");
    assert_eq!(api.get_as(&uri, TYPED).await.message(404)["reason"], "NotFound");
}

#[tokio::test]
async fn lists_say_the_same_in_both_formats() {
    let api = Fixture::new().await;
    for n in 0..40 {
        let mut body = config_map(&format!("cm-{n}"));
        body["data"]["k"] = "x".repeat(n * 200).into();
        api.post(CONFIG_MAPS, &body).await.expect(201);
    }
    // Twice: the second time the lengths are known.
    for uri in [CONFIG_MAPS.to_owned(), CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}?limit=7")] {
        let mut in_json = api.get(&uri).await.expect(200);
        let message = api.get_as(&uri, TYPED).await.message(200);
        if let Some(token) = message["metadata"]["continue"].as_str() {
            in_json["metadata"]["continue"] = token.into();
        }
        assert_eq!(message, in_json);
    }
    let request = Request::get(CONFIG_MAPS).header("accept", TYPED).header("accept-encoding", "gzip");
    let packed = api.call(request.body(Body::empty()).unwrap()).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut plain).unwrap();
    assert_eq!(plain, api.get_as(CONFIG_MAPS, TYPED).await.body);
}

#[tokio::test]
async fn empty_lists_and_events_of_another_version() {
    let api = Fixture::new().await;
    let empty = api.get_as(PODS, TYPED).await.message(200);
    assert_eq!((&empty["kind"], empty.get("items")), (&json!("PodList"), None));
    let event = json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "R", "message": "m"});
    api.post("/api/v1/namespaces/default/events", &event).await.expect(201);
    let list = api.get_as("/apis/events.k8s.io/v1/events", TYPED).await.message(200);
    assert_eq!((&list["apiVersion"], &list["items"][0]["note"]), (&json!("events.k8s.io/v1"), &json!("m")));
}

#[tokio::test]
async fn metadata_alone() {
    let api = Fixture::new().await;
    let made = api.post(CONFIG_MAPS, &labelled("a", "x")).await.expect(201);
    let list = api.get_as(CONFIG_MAPS, METADATA_LIST).await.message(200);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(list["items"], json!([{"metadata": made["metadata"]}]));
    let uri = format!("{CONFIG_MAPS}/a");
    let single = api.get_as(&uri, METADATA).await.message(200);
    assert_eq!(single["metadata"], made["metadata"]);
    let beta = api.get_as(&uri, &METADATA.replace("v=v1", "v=v1beta1")).await.message(200);
    assert_eq!(beta["apiVersion"], "meta.k8s.io/v1beta1");
    let refused = api.get_as(CONFIG_MAPS, METADATA).await;
    assert_eq!(refused.header("content-type"), "application/json");
    assert_eq!(refused.expect(406)["reason"], "NotAcceptable");
}

/// The events of a protobuf watch.
struct Frames {
    body: BodyStream<Body>,
    buffer: Vec<u8>,
}

impl Frames {
    async fn open(api: &Fixture, uri: &str, accept: &str) -> Self {
        let request = Request::get(uri).header("accept", accept).body(Body::empty()).unwrap();
        let response = api.send(request).await;
        assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
        Self { body: BodyStream::new(response.into_body()), buffer: Vec::new() }
    }

    /// Type and object.
    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some(length) = self.buffer.first_chunk::<4>() {
                let end = 4 + u32::from_be_bytes(*length) as usize;
                if self.buffer.len() >= end {
                    let frame: Vec<u8> = self.buffer.drain(..end).skip(4).collect();
                    return event(&frame);
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("no event in time");
            self.buffer.extend_from_slice(&frame.expect("the watch ended").unwrap().into_data().unwrap());
        }
    }
}

/// A length-delimited field of this number, as the next of the message.
fn field(message: &[u8], number: u8) -> (&[u8], &[u8]) {
    assert_eq!(message[0], number << 3 | 2);
    let (mut length, mut at) = (0usize, 1);
    loop {
        length |= usize::from(message[at] & 0x7f) << (7 * (at - 1));
        at += 1;
        if message[at - 1] < 0x80 {
            return message[at..].split_at(length);
        }
    }
}

fn event(frame: &[u8]) -> (String, Value) {
    let (kind, rest) = field(frame, 1);
    let (extension, rest) = field(rest, 2);
    assert!(rest.is_empty());
    let (object, rest) = field(extension, 1);
    assert!(rest.is_empty());
    (String::from_utf8(kind.to_vec()).unwrap(), protobuf::decode(object, None).unwrap())
}

#[tokio::test]
async fn watches() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let uri = format!(
        "{CONFIG_MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut objects = Frames::open(&api, &uri, "application/vnd.kubernetes.protobuf;stream=watch").await;
    let mut metadata = Frames::open(&api, &uri, METADATA).await;
    let made = api.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    assert_eq!(objects.next().await, ("ADDED".to_owned(), made.clone()));
    assert_eq!(metadata.next().await.1["metadata"], made["metadata"]);
    for (frames, kind) in [(&mut objects, "ConfigMap"), (&mut metadata, "PartialObjectMetadata")] {
        let (event, object) = frames.next().await;
        assert_eq!((event.as_str(), &object["kind"]), ("BOOKMARK", &json!(kind)));
        assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }
    let changed = api.put(&format!("{CONFIG_MAPS}/a"), &labelled("a", "x")).await.expect(200);
    api.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    assert_eq!(objects.next().await, ("MODIFIED".to_owned(), changed.clone()));
    let (event, object) = metadata.next().await;
    assert_eq!((event.as_str(), &object["metadata"]), ("MODIFIED", &changed["metadata"]));
    assert!(object.get("data").is_none());
    let (event, gone) = objects.next().await;
    assert_eq!(event, "DELETED");
    assert!(version(&gone) > version(&changed));
    assert_eq!(metadata.next().await.0, "DELETED");
}

#[tokio::test(start_paused = true)]
async fn errors_of_a_watch_are_told_in_the_stream() {
    let api = Fixture::new().await;
    let future =
        "watch=true&resourceVersion=1000000&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut frames = Frames::open(&api, &format!("{CONFIG_MAPS}?{future}"), TYPED).await;
    let (event, status) = frames.next().await;
    assert_eq!((event.as_str(), &status["kind"], &status["code"]), ("ERROR", &json!("Status"), &json!(504)));
}

#[tokio::test]
async fn what_cannot_be_had_is_406() {
    let api = Fixture::new().await;
    let all = "only the following media types are accepted: application/json, application/yaml, \
               application/vnd.kubernetes.protobuf";
    let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1";
    for accept in ["application/cbor", "text/html", table, "application/json;as=Table;g=meta.k8s.io;v=v2"] {
        let status = api.get_as(CONFIG_MAPS, accept).await.expect(406);
        assert_eq!(
            (&status["reason"], &status["message"]),
            (&json!("NotAcceptable"), &json!(all)),
            "{accept}"
        );
    }
    let streams = "only the following media types are accepted: application/json;stream=watch, \
                   application/vnd.kubernetes.protobuf;stream=watch";
    let status = api.get_as(&format!("{CONFIG_MAPS}?watch=true"), "application/yaml").await;
    assert_eq!(status.status, 406);
    assert!(String::from_utf8_lossy(&status.body).contains(streams));
    let fallback = format!("{table},application/json;as=Table;g=meta.k8s.io;v=v1beta1");
    assert_eq!(api.get_as(CONFIG_MAPS, &fallback).await.expect(200)["apiVersion"], "meta.k8s.io/v1beta1");
}

#[tokio::test]
async fn what_cannot_be_read_is_415_or_400() {
    let api = Fixture::new().await;
    let accepted = "the body of the request was in an unknown format - accepted media types include: \
                    application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for kind in ["application/cbor", "text/plain", "application/x-www-form-urlencoded"] {
        let status = api.ask("POST", CONFIG_MAPS, kind, "{}").await.expect(415);
        let want = (&json!("UnsupportedMediaType"), &json!(accepted));
        assert_eq!((&status["reason"], &status["message"]), want, "{kind}");
    }
    let body = config_map("a").to_string();
    for kind in ["", "application/json;charset=utf-8", "application/json; charset=UTF-8"] {
        api.ask("POST", &format!("{CONFIG_MAPS}?dryRun=All"), kind, body.clone()).await.expect(201);
    }
    for bytes in [&b"k8s\0\xff"[..], b"{}", b"", b"k8s\0"] {
        let answer = api.ask("POST", CONFIG_MAPS, PROTOBUF, bytes.to_vec()).await;
        assert!(matches!(answer.status.as_u16(), 400 | 422), "{bytes:?}: {}", answer.status);
    }
    let foreign = protobuf::encode(&json!({"kind": "Secret", "apiVersion": "v1"})).unwrap();
    api.ask("POST", CONFIG_MAPS, PROTOBUF, foreign).await.expect(400);
}

#[tokio::test]
async fn yaml_answers() {
    let api = Fixture::new().await;
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let answer = api.get_as(&format!("{CONFIG_MAPS}/a"), "application/yaml").await;
    assert_eq!(answer.header("content-type"), "application/yaml");
    let text = std::str::from_utf8(&answer.body).unwrap();
    assert!(text.starts_with("apiVersion: v1\ndata:\n  k: v\nkind: ConfigMap\nmetadata:\n"), "{text}");
    assert_eq!(serde_saphyr::from_str::<Value>(text).unwrap(), made);
    let list = api.get_as(CONFIG_MAPS, "application/yaml").await;
    let list: Value = serde_saphyr::from_str(std::str::from_utf8(&list.body).unwrap()).unwrap();
    assert_eq!((&list["kind"], &list["items"][0]["data"]["k"]), (&json!("ConfigMapList"), &json!("v")));
    let missing = api.get_as(&format!("{CONFIG_MAPS}/none"), "application/yaml").await;
    assert_eq!((missing.status.as_u16(), missing.header("content-type")), (404, "application/yaml"));
    let table = "application/yaml;as=Table;g=meta.k8s.io;v=v1";
    let table = api.get_as(CONFIG_MAPS, table).await;
    assert!(table.body.starts_with(b"apiVersion: meta.k8s.io/v1\ncolumnDefinitions:\n- "));
}

#[tokio::test]
async fn subresources_and_reviews() {
    let api = Fixture::new().await;
    api.send_message("POST", PODS, &pod("p")).await.message(201);
    let binding = json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"}});
    let bound = api.send_message("POST", &format!("{PODS}/p/binding"), &binding).await.message(201);
    assert_eq!(bound["status"], "Success");
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let uri = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = api.send_message("POST", uri, &review).await.message(201);
    assert_eq!(answer["status"]["allowed"], true);
    let rc = json!({"kind": "ReplicationController", "apiVersion": "v1", "metadata": {"name": "r"}, "spec": {"replicas": 2,
        "selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c",
        "image": "i"}]}}}});
    let all = "/api/v1/namespaces/default/replicationcontrollers";
    api.send_message("POST", all, &rc).await.message(201);
    let mut scale = api.get_as(&format!("{all}/r/scale"), TYPED).await.message(200);
    assert_eq!(scale["spec"]["replicas"], 2);
    scale["spec"]["replicas"] = 0.into();
    let scaled = api.send_message("PUT", &format!("{all}/r/scale"), &scale).await.message(200);
    assert_eq!(scaled["spec"].get("replicas"), None);
    assert_eq!(api.get(&format!("{all}/r")).await.expect(200)["spec"]["replicas"], 0);
}
