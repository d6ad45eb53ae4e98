//! Volumes of local-path as a kubelet mounts them: its own, and those of whoever calls itself as this node does.

use crate::node::{Node, of_claim, pod};
use serde_json::{Value, json};
use std::path::Path;

fn provisioned(node: &Node, path: &Path) {
    node.claim(json!({ "hostPath": { "path": path, "type": "DirectoryOrCreate" } }));
    let mut volume = node.table.find::<Value>("persistentvolume", "pv").unwrap();
    volume["metadata"]["annotations"] = json!({ "pv.kubernetes.io/provisioned-by": "coracle.io/local-path" });
    node.table.put("persistentvolume", "pv", volume);
}

#[tokio::test]
async fn a_volume_that_is_none_of_this_nodes_leads_nowhere_on_it() {
    let node = Node::start(&[]).await;
    let (root, tenant) = (node.dir.path().join("local-path"), node.dir.path().join("tenant"));
    for dir in [root.join("@big"), root.join("own/inner"), tenant.clone(), node.dir.path().join("secret")] {
        std::fs::create_dir_all(dir).unwrap();
    }
    // What a tenant has made of its volume, and nobody of the node's root.
    std::os::unix::fs::symlink(node.dir.path().join("secret"), tenant.join("pvc-u_x_data")).unwrap();
    std::os::unix::fs::symlink(node.dir.path().join("secret"), root.join("linked")).unwrap();
    for (path, why) in [
        (tenant.join("pvc-u_x_data"), "where this node keeps volumes"),
        (tenant.join("new"), "where this node keeps volumes"),
        (root.join("own/inner"), "where this node keeps volumes"),
        (root.join("@big/../../tenant"), "where this node keeps volumes"),
        (root.clone(), "where this node keeps volumes"),
        (root.join("@none/new"), "@none on this node"),
        (root.join("linked"), "is no directory"),
    ] {
        provisioned(&node, &path);
        let error = node.mount(&pod("u1", &of_claim())).await.unwrap_err();
        assert!(error.ends_with(why), "{}: {error}", path.display());
    }
    assert!(!tenant.join("new").exists() && !root.join("@none").exists());
    for own in ["own", "new", "@big/own"] {
        provisioned(&node, &root.join(own));
        node.mount(&pod(&own.replace(['@', '/'], "-"), &of_claim())).await.unwrap();
        assert!(root.join(own).is_dir());
    }
}
