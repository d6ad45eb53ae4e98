//! Devices by ResourceClaims: made by template, shared out, waited for, given back.

use coracle_tests::Cluster;

/// One simulated node with two devices of class `gpu`, which is an extended resource too.
fn with_devices() -> Cluster {
    let cluster = Cluster::start(&["--simulate-nodes", "1"]);
    cluster.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
    cluster.apply(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec:\n  \
         extendedResourceName: example.com/gpu\n  selectors:\n  \
         - cel: {expression: \"device.driver == 'gpu.example.com'\"}\n---\n\
         apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: sim-0-gpus}\nspec:\n  \
         driver: gpu.example.com\n  nodeName: sim-0\n  pool: {name: sim-0, generation: 1, resourceSliceCount: 1}\n  \
         devices:\n  - {name: gpu-0, capacity: {memory: {value: 40Gi}}}\n  \
         - {name: gpu-1, capacity: {memory: {value: 80Gi}}}\n---\n\
         apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: large}\nspec:\n  spec:\n    \
         devices:\n      requests:\n      - name: gpu\n        exactly:\n          deviceClassName: gpu\n          \
         selectors:\n          - cel: {expression: \"device.capacity['gpu.example.com'].memory.compareTo(quantity('64Gi')) >= 0\"}\n",
    );
    cluster
}

fn claiming(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  \
         resourceClaims: [{{name: card, resourceClaimTemplateName: large}}]\n  containers:\n  \
         - {{name: main, image: nginx, resources: {{claims: [{{name: card}}]}}}}\n"
    )
}

#[test]
fn a_claim_is_made_allocated_and_handed_on() {
    let cluster = with_devices();
    cluster.apply(&claiming("first"));
    cluster.ok("kubectl wait pod/first --for=condition=Ready --timeout=100s");
    let claim = cluster
        .ok("kubectl get pod first -o jsonpath='{.status.resourceClaimStatuses[0].resourceClaimName}'");
    let claim = claim.trim();
    assert!(claim.starts_with("first-card-"), "{claim}");
    cluster.says(
        &format!("kubectl get resourceclaim {claim} -o jsonpath='{{.status.allocation.devices.results[0].device}} {{.status.reservedFor[0].name}}'"),
        "gpu-1 first",
    );
    cluster.until(
        &format!("kubectl get resourceclaim {claim} --no-headers | awk '{{print $2}}'"),
        "allocated,reserved",
    );
    cluster.apply(&claiming("second"));
    cluster.until(
        "kubectl get pod second -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].message}'",
        "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are \
         available: 1 Preemption is not helpful for scheduling.",
    );
    cluster.ok("kubectl delete pod first");
    cluster.ok("kubectl wait pod/second --for=condition=Ready --timeout=100s");
    cluster.until_that("kubectl get resourceclaim -o name", |names| {
        names.lines().count() == 1 && names.contains("second-card-")
    });
}

#[test]
fn an_extended_resource_is_a_device_where_no_plugin_has_it() {
    let cluster = with_devices();
    let pod = |name: &str, amount: u32| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  \
             containers:\n  - {{name: main, image: nginx, resources: {{limits: {{example.com/gpu: {amount}}}}}}}\n"
        )
    };
    cluster.apply(&pod("both", 2));
    cluster.ok("kubectl wait pod/both --for=condition=Ready --timeout=100s");
    cluster.says(
        "kubectl get pod both -o jsonpath='{.status.extendedResourceClaimStatus.requestMappings[0].requestName}'",
        "container-0-request-0",
    );
    let claim = cluster
        .ok("kubectl get pod both -o jsonpath='{.status.extendedResourceClaimStatus.resourceClaimName}'");
    cluster.says(
        &format!(
            "kubectl get resourceclaim {} -o jsonpath='{{.status.allocation.devices.results[*].device}}'",
            claim.trim()
        ),
        "gpu-0 gpu-1",
    );
    cluster.apply(&pod("more", 1));
    cluster.until_that(
        "kubectl get pod more -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].message}'",
        |text| text.starts_with("0/1 nodes are available: 1 cannot allocate all claims."),
    );
    cluster.ok("kubectl delete pod both");
    cluster.ok("kubectl wait pod/more --for=condition=Ready --timeout=100s");
}
