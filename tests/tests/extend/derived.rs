//! Definitions that kube-rs' derive makes: schemas of Rust types, rules in CEL, columns, scale, status, selectable
//! fields; and typed clients on them.

use crate::{client, runtime, soon};
use coracle_tests::Cluster;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A garden of so many beds.
// Two columns of one type are no mistake.
#[allow(clippy::duplicated_attributes)]
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(group = "example.coracle.dev", version = "v1", kind = "Garden", namespaced)]
#[kube(status = "GardenStatus", shortname = "gd", category = "plants", selectable = ".spec.owner")]
#[kube(scale(
    spec_replicas_path = ".spec.beds",
    status_replicas_path = ".status.beds",
    label_selector_path = ".status.selector"
))]
#[kube(printcolumn(name = "Owner", type_ = "string", json_path = ".spec.owner"))]
#[kube(printcolumn(name = "Beds", type_ = "integer", json_path = ".spec.beds"))]
#[kube(printcolumn(name = "Soil", type_ = "string", json_path = ".spec.soil.kind", priority = 1))]
#[kube(validation = Rule::new("size(self.metadata.name) <= 20").message("the name is too long for its sign"))]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.beds <= self.maxBeds").message(Message::Expression("'at most %d beds'.format([self.maxBeds])".into())))]
pub struct GardenSpec {
    /// Whose it is.
    #[schemars(length(min = 1, max = 40))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("gardens are not sold").reason(Reason::FieldValueForbidden))]
    owner: String,
    #[schemars(range(min = 0, max = 100))]
    beds: i32,
    #[serde(default = "ten")]
    max_beds: i32,
    #[serde(default)]
    soil: Soil,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    plants: Vec<Plant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^\d{4}-\d{2}-\d{2}$"))]
    planted: Option<String>,
}

fn ten() -> i32 {
    10
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct Soil {
    kind: SoilKind,
    #[serde(default)]
    acidity: Option<f64>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub enum SoilKind {
    #[default]
    Loam,
    Sand,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
pub struct Plant {
    name: String,
    #[serde(default)]
    height: Option<i32>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct GardenStatus {
    beds: i32,
    selector: Option<String>,
}

fn garden(name: &str, owner: &str, beds: i32) -> Garden {
    let spec = GardenSpec {
        owner: owner.to_owned(),
        beds,
        max_beds: 10,
        soil: Soil::default(),
        plants: Vec::new(),
        planted: None,
    };
    Garden::new(name, spec)
}

async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let applied = PatchParams::apply("derived").force();
    definitions
        .patch(Garden::crd_name(), &applied, &Patch::Apply(Garden::crd()))
        .await
        .expect("the definition");
    let established = await_condition(definitions, Garden::crd_name(), conditions::is_crd_established());
    soon("an established definition", Box::pin(established)).await.expect("no error");
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, kube::Error>, says: &str) {
    match result {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{status:?}");
            assert!(status.message.contains(says), "{says}: {}", status.message);
        }
        other => panic!("not refused with {says}: {other:?}"),
    }
}

#[test]
fn derived_definitions_hold_what_the_types_say() {
    let cluster = Cluster::simulated();
    runtime().block_on(async {
        let client = client(&cluster).await;
        install(&client).await;
        let gardens: Api<Garden> = Api::default_namespaced(client.clone());
        let made = gardens.create(&PostParams::default(), &garden("a", "ann", 2)).await.expect("create");
        assert_eq!(made.spec, garden("a", "ann", 2).spec);
        invalid(&gardens).await;
        subresources(&gardens).await;
        applied(&gardens).await;
        let selected = ListParams::default().fields("spec.owner=ann");
        assert_eq!(gardens.list(&selected).await.expect("list").items.len(), 1);
    });
    // kubectl keeps categories for hours; this makes it ask again.
    cluster.ok("kubectl api-resources >/dev/null");
    cluster.shows("kubectl get plants", &["NAME", "OWNER", "BEDS", "a", "ann", "3"]);
    cluster.shows("kubectl get gd -o wide", &["NAME", "OWNER", "BEDS", "SOIL", "a", "ann", "3", "Sand"]);
    cluster.shows(
        "kubectl explain garden.spec.soil",
        &[
            "GROUP:",
            "example.coracle.dev",
            "KIND:",
            "Garden",
            "FIELD: soil <Object>",
            "kind",
            "<string>",
            "enum: Loam, Sand",
        ],
    );
    cluster.assert_alive();
}

async fn invalid(gardens: &Api<Garden>) {
    let post = PostParams::default();
    refused(
        gardens.create(&post, &garden("b", "", 1)).await,
        "spec.owner: Invalid value: \"\": spec.owner in body should be at least 1 chars long",
    );
    refused(
        gardens.create(&post, &garden("b", "bob", 101)).await,
        "spec.beds: Invalid value: 101: spec.beds in body should be less than or equal to 100",
    );
    refused(gardens.create(&post, &garden("b", "bob", 11)).await, "at most 10 beds");
    refused(
        gardens.create(&post, &garden("a-name-that-is-too-long", "bob", 1)).await,
        "the name is too long for its sign",
    );
    let merge = |patch: serde_json::Value| Patch::Merge(patch);
    let params = PatchParams::default();
    refused(
        gardens.patch("a", &params, &merge(json!({"spec": {"owner": "eve"}}))).await,
        "spec.owner: Forbidden: gardens are not sold",
    );
    refused(
        gardens.patch("a", &params, &merge(json!({"spec": {"soil": {"kind": "Mud"}}}))).await,
        "spec.soil.kind: Unsupported value: \"Mud\": supported values: \"Loam\", \"Sand\"",
    );
    refused(
        gardens.patch("a", &params, &merge(json!({"spec": {"planted": "spring"}}))).await,
        "spec.planted: Invalid value: \"spring\": spec.planted in body should match",
    );
    refused(
        gardens
            .patch("a", &params, &merge(json!({"spec": {"plants": [{"name": "rose"}, {"name": "rose"}]}})))
            .await,
        "spec.plants[1]: Duplicate value: {\"name\":\"rose\"}",
    );
}

async fn subresources(gardens: &Api<Garden>) {
    let params = PatchParams::default();
    let status = json!({"status": {"beds": 2, "selector": "garden=a"}, "spec": {"beds": 9}});
    let changed = gardens.patch_status("a", &params, &Patch::Merge(status)).await.expect("status");
    assert_eq!((changed.spec.beds, changed.status.map(|s| s.beds)), (2, Some(2)));
    let scale = gardens.get_scale("a").await.expect("scale");
    assert_eq!(
        (scale.spec.and_then(|s| s.replicas), scale.status.and_then(|s| s.selector)),
        (Some(2), Some("garden=a".to_owned()))
    );
    let scaled = gardens.patch_scale("a", &params, &Patch::Merge(json!({"spec": {"replicas": 3}}))).await;
    assert_eq!(scaled.expect("scaling").spec.and_then(|s| s.replicas), Some(3));
    assert_eq!(gardens.get("a").await.expect("get").spec.beds, 3);
    let over = gardens.patch_scale("a", &params, &Patch::Merge(json!({"spec": {"replicas": 30}}))).await;
    refused(over, "at most 10 beds");
}

/// Lists that merge by their key, and defaults that the schema gives.
async fn applied(gardens: &Api<Garden>) {
    let plants = |manager: &'static str, plants: serde_json::Value| {
        let body = json!({"apiVersion": "example.coracle.dev/v1", "kind": "Garden", "metadata": {"name": "a"}, "spec": {"plants": plants}});
        async move { gardens.patch("a", &PatchParams::apply(manager), &Patch::Apply(body)).await.expect("apply") }
    };
    plants("ann", json!([{"name": "rose", "height": 40}])).await;
    let both = plants("bob", json!([{"name": "oak"}])).await;
    assert_eq!(both.spec.plants.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["rose", "oak"]);
    let left = plants("ann", json!([])).await;
    assert_eq!(left.spec.plants.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["oak"]);
    let sand = json!({"spec": {"soil": {"kind": "Sand"}}});
    gardens.patch("a", &PatchParams::default(), &Patch::Merge(sand)).await.expect("patch");
    let body = json!({"apiVersion": "example.coracle.dev/v1", "kind": "Garden", "metadata": {"name": "d"}, "spec": {"owner": "dan", "beds": 1}});
    let made = gardens.patch("d", &PatchParams::apply("dan"), &Patch::Apply(body)).await.expect("apply");
    assert_eq!((made.spec.max_beds, made.spec.soil.kind), (10, SoilKind::Loam));
    gardens.delete("d", &DeleteParams::default()).await.expect("delete");
}
