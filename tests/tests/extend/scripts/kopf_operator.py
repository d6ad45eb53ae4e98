"""An operator of bells, as users of kopf write them."""
import kopf
from kubernetes import client, config

config.load_kube_config()
core = client.CoreV1Api()
WORDS = {2: "twice", 3: "three times"}


def rings(name, count):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-rings"}, "data": {"rings": str(count)}}


@kopf.on.create("python.coracle.dev", "v1", "bells")
def create(spec, name, namespace, **_):
    child = rings(name, spec["rings"])
    kopf.adopt(child)
    core.create_namespaced_config_map(namespace, child)
    return {"heard": spec["rings"]}


@kopf.on.field("python.coracle.dev", "v1", "bells", field="spec.rings")
def changed(old, new, name, namespace, body, patch, **_):
    if old is None:
        return
    core.patch_namespaced_config_map(f"{name}-rings", namespace, {"data": {"rings": str(new)}})
    kopf.event(body, type="Normal", reason="Rung", message=f"rung {WORDS[new]}")
    patch.status["count"] = (body.get("status") or {}).get("count", 0) + 1


@kopf.on.delete("python.coracle.dev", "v1", "bells")
def deleted(name, namespace, **_):
    note = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "silence"}, "data": {"after": name}}
    core.create_namespaced_config_map(namespace, note)
