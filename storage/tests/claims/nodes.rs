//! Volumes of local-path that another node makes.

use crate::cluster::{Cluster, claim, cluster, far_node, is_bound, nothing_is_open, selected};
use crate::snapshots::{custom, install_snapshots, snapshot, snapshot_class};
use crate::support::{until_gone, until_object};
use coracle_storage::serve_local_path;
use coracle_storage::volumes::LinuxMounter;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{DeleteParams, Patch};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

#[tokio::test]
async fn another_node_makes_and_removes_its_volumes_itself() {
    let Cluster { world, claims, volumes, root } = cluster().await;
    let far = root.path().join("far");
    far_node(&world, far.clone()).await;
    world.create(&claims, claim("local-path", "1Gi")).await;
    claims.patch("data", &Default::default(), &selected("far")).await.unwrap();
    let bound = until_object("bound", &claims, "data", is_bound).await;
    let name = bound.spec.unwrap().volume_name.unwrap();
    let volume = volumes.get(&name).await.unwrap().spec.unwrap();
    let path = std::path::PathBuf::from(volume.host_path.unwrap().path);
    assert_eq!(path, far.join(format!("{name}_default_data")));
    let terms = volume.node_affinity.unwrap().required.unwrap().node_selector_terms;
    assert_eq!(terms[0].match_expressions.as_ref().unwrap()[0].values.as_ref().unwrap(), &["far.example"]);
    std::fs::write(path.join("file"), "gold").unwrap();

    let mut copy = claim("local-path", "1Gi");
    copy["metadata"]["name"] = "copy".into();
    copy["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": "data" });
    world.create(&claims, copy).await;
    claims.patch("copy", &Default::default(), &selected("far")).await.unwrap();
    let copied = until_object("bound", &claims, "copy", is_bound).await.spec.unwrap().volume_name.unwrap();
    let file = far.join(format!("{copied}_default_copy/file"));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "gold");

    for claim in ["data", "copy"] {
        claims.delete(claim, &DeleteParams::default()).await.unwrap();
    }
    for volume in [&name, &copied] {
        until_gone("the volume", &volumes, volume).await;
    }
    assert_eq!(std::fs::read_dir(&far).unwrap().count(), 0);
    // What was said between the two is taken away.
    let nodes: Api<Node> = Api::all(world.admin());
    until_object("clean", &nodes, "far", nothing_is_open).await;
}

#[tokio::test]
async fn a_claim_that_goes_before_its_node_answers_leaves_nothing_there() {
    let Cluster { world, claims, root, .. } = cluster().await;
    let (nodes, far) = (Api::<Node>::all(world.admin()), root.path().join("far"));
    let annotations = json!({ "coracle.io/local-path-root": far });
    world.create(&nodes, json!({ "metadata": { "name": "far", "annotations": annotations } })).await;
    world.create(&claims, claim("local-path", "1Gi")).await;
    claims.patch("data", &Default::default(), &selected("far")).await.unwrap();
    until_object("asked", &nodes, "far", |node| node.annotations().len() == 2).await;
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    until_gone("the claim", &claims, "data").await;
    let (sender, own) = tokio::sync::watch::channel(None);
    world.informers.of::<Node>().on_change(move |delta| {
        if let Some(node) = delta.new.as_ref().filter(|node| node.name_any() == "far") {
            sender.send_replace(Some(node.clone()));
        }
    });
    tokio::spawn(serve_local_path(world.admin(), own, far.clone(), std::sync::Arc::new(LinuxMounter)));
    // The node hears of it at its next change.
    let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    nodes.patch("far", &Default::default(), &label).await.unwrap();
    until_object("clean", &nodes, "far", nothing_is_open).await;
    assert_eq!(std::fs::read_dir(&far).unwrap().count(), 0);
}

#[tokio::test]
async fn a_snapshot_is_taken_where_its_volume_lies_and_claims_are_made_of_it() {
    let Cluster { world, claims, volumes, root } = cluster().await;
    let (client, far) = (world.admin(), root.path().join("far"));
    install_snapshots(&client).await;
    far_node(&world, far.clone()).await;
    world.create(&claims, claim("local-path", "1Gi")).await;
    claims.patch("data", &Default::default(), &selected("far")).await.unwrap();
    let bound = until_object("bound", &claims, "data", is_bound).await.spec.unwrap().volume_name.unwrap();
    std::fs::write(far.join(format!("{bound}_default_data/file")), "gold").unwrap();
    snapshot_class(&client, "copies", "coracle.io/local-path", json!({})).await;
    snapshot(&client, "then", "copies", json!({ "persistentVolumeClaimName": "data" })).await;
    let read = || custom(&client, "GET", "namespaces/default/volumesnapshots/then", Value::Null);
    let ready = || async { Some(read().await).filter(|snapshot| snapshot["status"]["readyToUse"] == true) };
    let taken = crate::support::until("ready", ready, || async { read().await.to_string() }).await;
    assert_eq!(taken["status"]["restoreSize"], "1Gi", "{taken}");
    std::fs::write(far.join(format!("{bound}_default_data/file")), "silver").unwrap();

    let mut restored = claim("local-path", "1Gi");
    restored["metadata"]["name"] = "restored".into();
    restored["spec"]["dataSource"] =
        json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "then" });
    world.create(&claims, restored).await;
    claims.patch("restored", &Default::default(), &selected("far")).await.unwrap();
    let copy = until_object("bound", &claims, "restored", is_bound).await.spec.unwrap().volume_name.unwrap();
    let file = far.join(format!("{copy}_default_restored/file"));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "gold");

    custom(&client, "DELETE", "namespaces/default/volumesnapshots/then", Value::Null).await;
    for claim in ["data", "restored"] {
        claims.delete(claim, &DeleteParams::default()).await.unwrap();
    }
    for volume in [&bound, &copy] {
        until_gone("the volume", &volumes, volume).await;
    }
    let contents = || custom(&client, "GET", "volumesnapshotcontents", Value::Null);
    let none = || async { contents().await["items"].as_array().unwrap().is_empty().then_some(()) };
    crate::support::until("no content", none, || async { contents().await.to_string() }).await;
    assert_eq!(std::fs::read_dir(&far).unwrap().count(), 0);
}

/// A node says itself what it is called and where it keeps volumes: by another one's hostname it would choose what pods find
/// on that one.
#[tokio::test]
async fn a_node_with_the_hostname_of_another_gets_no_volumes() {
    let Cluster { world, claims, volumes, root } = cluster().await;
    let (nodes, tenants) = (Api::<Node>::all(world.admin()), root.path().join("tenants"));
    let labels = json!({ "kubernetes.io/hostname": "n" });
    let annotations = json!({ "coracle.io/local-path-root": tenants });
    let meta = json!({ "name": "mimic", "labels": labels, "annotations": annotations });
    world.create(&nodes, json!({ "metadata": meta })).await;
    world.create(&claims, claim("local-path", "1Gi")).await;
    claims.patch("data", &Default::default(), &selected("mimic")).await.unwrap();
    let events = world.in_namespace::<Event>("default");
    crate::support::until_list("told", &events, "", |all| {
        let why = "node mimic has the hostname of node n, n: volumes could not be told apart";
        all.iter().any(|event| event.message.as_deref().is_some_and(|text| text.ends_with(why)))
    })
    .await;
    let mimic = nodes.get("mimic").await.unwrap();
    assert!(nothing_is_open(&mimic), "it is asked for nothing: {:?}", mimic.annotations());
    // The node that is named so goes on.
    claims.patch("data", &Default::default(), &selected("n")).await.unwrap();
    let bound = until_object("bound", &claims, "data", is_bound).await.spec.unwrap().volume_name.unwrap();
    let path = volumes.get(&bound).await.unwrap().spec.unwrap().host_path.unwrap().path;
    assert!(path.starts_with(&*root.path().join("volumes").to_string_lossy()), "{path}");
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    until_gone("the volume", &volumes, &bound).await;
    assert_eq!(std::fs::read_dir(root.path().join("volumes")).unwrap().count(), 0);
}
