"""What a user of the Python package `kubernetes` does. Prints one line a check; ends with 1 when one failed."""

import json
import sys
import threading
import time
import traceback

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock

NS = "python"
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def refused(code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ApiException as e:
        assert e.status == code, f"{e.status} instead of {code}: {e.body}"
        return e
    raise AssertionError(f"not refused with {code}")


def config_map(name, data=None, labels=None):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels), data=data)


@check
def create_read_replace_delete():
    made = core.create_namespaced_config_map(NS, config_map("crud", {"a": "1"}))
    assert made.metadata.uid and made.metadata.creation_timestamp
    refused(409, core.create_namespaced_config_map, NS, config_map("crud"))
    found = core.read_namespaced_config_map("crud", NS)
    found.data["b"] = "2"
    changed = core.replace_namespaced_config_map("crud", NS, found)
    assert changed.data == {"a": "1", "b": "2"}
    stale = refused(409, core.replace_namespaced_config_map, "crud", NS, found)
    assert "the object has been modified" in stale.body, stale.body
    status = core.delete_namespaced_config_map("crud", NS)
    assert status.status == "Success" and status.details.name == "crud", status
    gone = refused(404, core.read_namespaced_config_map, "crud", NS)
    assert 'configmaps \\"crud\\" not found' in gone.body, gone.body


@check
def patches():
    apps = client.AppsV1Api(api)
    body = {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]},
            },
        },
    }
    apps.create_namespaced_deployment(NS, body)
    side = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}}}
    merged = apps.patch_namespaced_deployment("web", NS, side)
    assert {c.name for c in merged.spec.template.spec.containers} == {"web", "side"}
    by_json = [{"op": "replace", "path": "/spec/replicas", "value": 2}]
    assert apps.patch_namespaced_deployment("web", NS, by_json).spec.replicas == 2
    kind = "application/merge-patch+json"
    label = apps.patch_namespaced_deployment("web", NS, {"metadata": {"labels": {"x": "y"}}}, _content_type=kind)
    assert label.metadata.labels == {"x": "y"}
    scale = apps.read_namespaced_deployment_scale("web", NS)
    # Controllers write the status meanwhile.
    scale.metadata.resource_version = None
    scale.spec.replicas = 3
    assert apps.replace_namespaced_deployment_scale("web", NS, scale).spec.replicas == 3
    assert apps.patch_namespaced_deployment_scale("web", NS, {"spec": {"replicas": 1}}).spec.replicas == 1
    status = apps.read_namespaced_deployment_status("web", NS)
    assert status.metadata.name == "web"
    apps.delete_namespaced_deployment("web", NS, propagation_policy="Foreground")


@check
def server_side_apply():
    apply = "application/apply-patch+yaml"

    def applied(manager, data, force=None):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ssa"}, "data": data}
        return core.patch_namespaced_config_map(
            "ssa", NS, body, field_manager=manager, force=force, _content_type=apply
        )

    assert applied("one", {"a": "1", "b": "1"}).metadata.managed_fields[0].manager == "one"
    conflict = refused(409, applied, "two", {"a": "2"})
    assert 'conflict with \\"one\\": .data.a' in conflict.body, conflict.body
    assert applied("two", {"a": "2"}, True).data == {"a": "2", "b": "1"}
    assert applied("one", {}).data == {"a": "2"}


@check
def lists_in_chunks_with_selectors():
    for n in range(7):
        core.create_namespaced_config_map(NS, config_map(f"chunk-{n}", labels={"chunk": "yes", "odd": str(n % 2)}))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(NS, label_selector="chunk", limit=3, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
        assert page.metadata.remaining_item_count is None or page.metadata.remaining_item_count > 0
    assert names == [f"chunk-{n}" for n in range(7)], names
    odd = core.list_namespaced_config_map(NS, label_selector="chunk,odd=1").items
    assert len(odd) == 3
    one = core.list_namespaced_config_map(NS, field_selector="metadata.name=chunk-3").items
    assert [item.metadata.name for item in one] == ["chunk-3"]
    refused(400, core.list_namespaced_config_map, NS, label_selector="a=b=c")
    core.delete_collection_namespaced_config_map(NS, label_selector="chunk")
    assert not core.list_namespaced_config_map(NS, label_selector="chunk").items


@check
def watch_resumes_from_a_version():
    start = core.list_namespaced_config_map(NS).metadata.resource_version
    for name in ("w1", "w2"):
        core.create_namespaced_config_map(NS, config_map(name, labels={"w": "yes"}))
    seen, versions = [], []
    w = watch.Watch()
    for event in w.stream(
        core.list_namespaced_config_map, NS, label_selector="w", resource_version=start, timeout_seconds=20
    ):
        seen.append((event["type"], event["object"].metadata.name))
        versions.append(event["object"].metadata.resource_version)
        if len(seen) == 2:
            w.stop()
    assert seen == [("ADDED", "w1"), ("ADDED", "w2")], seen
    core.patch_namespaced_config_map("w1", NS, {"metadata": {"labels": {"w": None}}})
    core.delete_namespaced_config_map("w2", NS)
    seen = []
    for event in w.stream(
        core.list_namespaced_config_map, NS, label_selector="w", resource_version=versions[0], timeout_seconds=20
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 3:
            w.stop()
    assert seen == [("ADDED", "w2"), ("DELETED", "w1"), ("DELETED", "w2")], seen
    begun = time.time()
    assert not list(w.stream(core.list_namespaced_config_map, NS, label_selector="none", timeout_seconds=1))
    assert time.time() - begun < 10


@check
def the_dynamic_client():
    d = dynamic.DynamicClient(api)
    maps = d.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dyn"}, "data": {"a": "1"}}
    assert maps.create(body=body, namespace=NS).data.a == "1"
    assert maps.get(name="dyn", namespace=NS).metadata.name == "dyn"
    patch = {"data": {"b": "2"}}
    kind = "application/merge-patch+json"
    assert maps.patch(name="dyn", namespace=NS, body=patch, content_type=kind).data.b == "2"
    body["data"] = {"c": "3"}
    assert maps.server_side_apply(name="dyn", namespace=NS, body=body, field_manager="dyn").data.c == "3"
    assert "dyn" in [item.metadata.name for item in maps.get(namespace=NS).items]
    maps.delete(name="dyn", namespace=NS)
    found = {(r.group, r.kind) for r in d.resources.search(api_version="v1")}
    for kind in [("", "Pod"), ("apps", "Deployment"), ("rbac.authorization.k8s.io", "Role"), ("batch", "Job")]:
        assert kind in found, kind
    assert d.version["kubernetes"]["gitVersion"].startswith("v1.36")


@check
def leader_election():
    events, first_gone = [], threading.Event()

    def candidate(name, run):
        lock = ConfigMapLock("leader", NS, name)
        settings = electionconfig.Config(lock, 30, 20, 2, onstarted_leading=run, onstopped_leading=lambda: None)
        thread = threading.Thread(target=leaderelection.LeaderElection(settings).run, daemon=True)
        thread.start()
        return thread

    candidate("one", lambda: (events.append("one"), first_gone.wait()))
    deadline = time.time() + 20
    while not events and time.time() < deadline:
        time.sleep(0.1)
    assert events == ["one"], events
    lock = core.read_namespaced_config_map("leader", NS)
    record = json.loads(lock.metadata.annotations["control-plane.alpha.kubernetes.io/leader"])
    assert record["holderIdentity"] == "one", record
    candidate("two", lambda: events.append("two"))
    time.sleep(1.5)
    assert events == ["one"], events


@check
def pods_status_and_reviews():
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    core.create_namespaced_pod(NS, pod)
    w = watch.Watch()
    for event in w.stream(core.list_namespaced_pod, NS, field_selector="metadata.name=p", timeout_seconds=30):
        if event["object"].status.phase == "Running":
            w.stop()
    found = core.read_namespaced_pod_status("p", NS)
    assert found.status.phase == "Running" and found.status.pod_ip, found.status
    auth = client.AuthorizationV1Api(api)
    attributes = {"namespace": NS, "verb": "get", "resource": "pods"}
    review = auth.create_subject_access_review({"spec": {"user": "nobody", "resourceAttributes": attributes}})
    assert review.status.allowed is False
    review = auth.create_self_subject_access_review({"spec": {"resourceAttributes": attributes}})
    assert review.status.allowed is True
    token = core.create_namespaced_service_account_token("default", NS, {"spec": {"expirationSeconds": 600}})
    seen = client.AuthenticationV1Api(api).create_token_review({"spec": {"token": token.status.token}})
    assert seen.status.authenticated and seen.status.user.username == f"system:serviceaccount:{NS}:default"
    binding = {"target": {"apiVersion": "v1", "kind": "Node", "name": "sim-0"}, "metadata": {"name": "p"}}
    refused(409, core.create_namespaced_pod_binding, "p", NS, binding, _preload_content=False)
    core.create_namespaced_pod_eviction("p", NS, {"metadata": {"name": "p", "namespace": NS}})
    invalid = refused(422, core.create_namespaced_pod, NS, {"metadata": {"name": "q"}, "spec": {"containers": []}})
    assert "spec.containers: Required value" in invalid.body, invalid.body


@check
def every_group_is_served():
    groups = {group.name for group in client.ApisApi(api).get_api_versions().groups}
    for group in (
        "apps batch autoscaling policy storage.k8s.io networking.k8s.io certificates.k8s.io node.k8s.io "
        "scheduling.k8s.io discovery.k8s.io events.k8s.io flowcontrol.apiserver.k8s.io resource.k8s.io "
        "admissionregistration.k8s.io apiextensions.k8s.io apiregistration.k8s.io coordination.k8s.io"
    ).split():
        assert group in groups, group
    assert client.SchedulingV1Api(api).list_priority_class().items
    assert client.FlowcontrolApiserverV1Api(api).list_flow_schema().items
    client.NetworkingV1Api(api).list_service_cidr()
    assert client.ApiregistrationV1Api(api).list_api_service().items
    client.CertificatesV1Api(api).list_certificate_signing_request()
    client.ResourceV1Api(api).list_device_class()
    client.StorageV1Api(api).list_volume_attributes_class()


config.load_kube_config()
api = client.ApiClient()
core = client.CoreV1Api(api)
failed = 0
for function in CHECKS:
    try:
        function()
        print("ok", function.__name__, flush=True)
    except Exception:
        failed += 1
        print("FAILED", function.__name__, flush=True)
        traceback.print_exc(file=sys.stdout)
sys.exit(1 if failed else 0)
