"""Rights, pods and namespaces: points 5."""
import base64
import ssl

from benchmark.files import cni
from benchmark.node import POINTS, always, plugin, point

END = "-----END CERTIFICATE-----"


def is_own(binding):
    labels = binding["metadata"].get("labels") or {}
    name = binding["metadata"]["name"]
    return labels.get("kubernetes.io/bootstrapping") == "rbac-defaults" or name.startswith(("system:", "kubeadm:", "coracle:"))


def who(subject):
    return ":".join(filter(None, (subject["kind"], subject.get("namespace"), subject["name"])))


def granted(node, verbs, group, resources):
    """Whom bindings that are not the cluster's own give one of the verbs on one of the resources."""
    roles = {("ClusterRole", "", r["metadata"]["name"]): r for r in node.objects("clusterroles")}
    roles |= {("Role", r["metadata"]["namespace"], r["metadata"]["name"]): r for r in node.objects("roles")}
    found = set()
    for binding in node.objects("clusterrolebindings") + node.objects("rolebindings"):
        reference = binding["roleRef"]
        space = binding["metadata"].get("namespace", "") if reference["kind"] == "Role" else ""
        role = roles.get((reference["kind"], space, reference["name"]))
        if role is None or is_own(binding):
            continue
        for rule in role.get("rules") or []:
            allows = lambda key, wanted: {"*", *wanted} & set(rule.get(key) or [])
            if allows("verbs", verbs) and allows("apiGroups", [group]) and allows("resources", resources):
                found |= {who(s) for s in binding.get("subjects") or []}
    return sorted(found)


def grants(number, title, verbs, group, resources):
    def check(node):
        found = granted(node, verbs, group, resources)
        return ("WARN", ", ".join(found)) if found else ("PASS", "nobody but the cluster's own parts")
    POINTS.append((number, title, check))


@point("5.1.1", "who is cluster-admin")
def _(node):
    bindings = [b for b in node.objects("clusterrolebindings") if b["roleRef"]["name"] == "cluster-admin" and not is_own(b)]
    found = sorted({who(s) for b in bindings for s in b.get("subjects") or []})
    return ("WARN", ", ".join(found)) if found else ("PASS", "nobody but administrators")


grants("5.1.2", "who reads Secrets", ["get", "list", "watch"], "", ["secrets"])


@point("5.1.3", "who has rights by *")
def _(node):
    roles = [r for r in node.objects("clusterroles") + node.objects("roles") if not is_own(r)]
    wild = lambda rule: any("*" in (rule.get(key) or []) for key in ("verbs", "resources"))
    found = sorted(r["metadata"]["name"] for r in roles if any(wild(rule) for rule in r.get("rules") or []))
    return ("WARN", ", ".join(found)) if found else ("PASS", "no role but the cluster's own")


grants("5.1.4", "who makes pods", ["create"], "", ["pods"])


@point("5.1.5", "default service accounts have no rights")
def _(node):
    bindings = node.objects("clusterrolebindings") + node.objects("rolebindings")
    has = lambda s: s["kind"] == "ServiceAccount" and s["name"] == "default"
    found = sorted({b["metadata"]["name"] for b in bindings for s in b.get("subjects") or [] if has(s)})
    return ("FAIL", ", ".join(found)) if found else ("PASS", "no binding names one")


def pods_of_tenants(node):
    return [p for p in node.objects("pods") if p["metadata"]["namespace"] != "kube-system"]


def pods_where(number, title, bad):
    def check(node):
        found = sorted(f"{p['metadata']['namespace']}/{p['metadata']['name']}" for p in pods_of_tenants(node) if bad(p["spec"]))
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        return ("WARN", ", ".join(found[:5]) + more) if found else ("PASS", "no pod outside of kube-system")
    POINTS.append((number, title, check))


pods_where("5.1.6", "tokens are mounted only where needed", lambda s: s.get("automountServiceAccountToken") is not False and s.get("serviceAccountName", "default") == "default")


@point("5.1.7", "nobody is of system:masters")
def _(node):
    bindings = [b for b in node.objects("clusterrolebindings") if b["metadata"]["name"] != "cluster-admin"]
    found = sorted(b["metadata"]["name"] for b in bindings for s in b.get("subjects") or [] if s["name"] == "system:masters")
    if found:
        return "WARN", ", ".join(found)
    if b"system:masters" in certificate(node):
        return "WARN", f"{node.kubeconfig} is"
    return "PASS", "no kubeconfig of ours, no binding"


def certificate(node):
    """Of the kubeconfig's user, as DER: names stand in it as they are."""
    text = node.kubectl("config", "view", "--raw", "-o", "jsonpath={.users[0].user.client-certificate-data}") or ""
    pem = base64.b64decode(text).decode()
    return ssl.PEM_cert_to_DER_cert(pem[:pem.index(END) + len(END)]) if END in pem else b""


grants("5.1.8", "who binds, impersonates, escalates", ["bind", "escalate"], "rbac.authorization.k8s.io", ["roles", "clusterroles"])
grants("5.1.9", "who makes PersistentVolumes", ["create"], "", ["persistentvolumes"])
grants("5.1.10", "who reaches through nodes", ["get", "create"], "", ["nodes/proxy"])
grants("5.1.11", "who approves certificates", ["update", "patch"], "certificates.k8s.io", ["certificatesigningrequests/approval"])
grants("5.1.12", "who configures webhooks", ["create", "update", "patch"], "admissionregistration.k8s.io", ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"])
grants("5.1.13", "who makes tokens", ["create"], "", ["serviceaccounts/token"])


@point("5.2.1", "something judges pods")
def _(node):
    plugins = node.words("disable-admission-plugins")
    if "PodSecurity" in plugins:
        return "FAIL", "PodSecurity is turned off"
    enforced = [n["metadata"]["name"] for n in node.objects("namespaces") if "pod-security.kubernetes.io/enforce" in (n["metadata"].get("labels") or {})]
    policies = node.objects("validatingadmissionpolicies")
    if enforced or policies or "admission-control-config-file" in node.flags:
        return "PASS", f"PodSecurity, enforced in {len(enforced)} namespaces, and {len(policies)} policies"
    return "WARN", "PodSecurity is on, but no namespace enforces a standard"


def containers(spec):
    return (spec.get("containers") or []) + (spec.get("initContainers") or []) + (spec.get("ephemeralContainers") or [])


def secured(spec, key):
    return [(c.get("securityContext") or {}).get(key) for c in containers(spec)]


def capabilities(spec, key):
    return [set((context or {}).get(key) or []) for context in secured(spec, "capabilities")]


pods_where("5.2.2", "privileged containers", lambda s: any(secured(s, "privileged")))
pods_where("5.2.3", "the host's processes", lambda s: s.get("hostPID"))
pods_where("5.2.4", "the host's IPC", lambda s: s.get("hostIPC"))
pods_where("5.2.5", "the host's network", lambda s: s.get("hostNetwork"))
pods_where("5.2.6", "gaining privileges", lambda s: any(v is not False for v in secured(s, "allowPrivilegeEscalation")))
pods_where("5.2.7", "root in containers", lambda s: not (s.get("securityContext") or {}).get("runAsNonRoot") and not all(secured(s, "runAsNonRoot")))
pods_where("5.2.8", "NET_RAW", lambda s: any(not {"ALL", "NET_RAW"} & dropped for dropped in capabilities(s, "drop")))
pods_where("5.2.9", "added capabilities", lambda s: any(capabilities(s, "add")))
pods_where("5.2.10", "capabilities that are not dropped", lambda s: any("ALL" not in dropped for dropped in capabilities(s, "drop")))
pods_where("5.2.11", "Windows' host processes", lambda s: ((s.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess"))
pods_where("5.2.12", "the host's directories", lambda s: any("hostPath" in v for v in s.get("volumes") or []))
pods_where("5.2.13", "the host's ports", lambda s: any(p.get("hostPort") for c in containers(s) for p in c.get("ports") or []))


@point("5.3.1", "the pod network knows NetworkPolicies")
def _(node):
    others = [path for path in cni(node) if "coracle" not in path]
    return "WARN", f"that is up to {others[0]}" if others else "the pod network of scripts/up does not enforce them; Cilium and Calico do"


@point("5.3.2", "every namespace has a NetworkPolicy")
def _(node):
    has = {p["metadata"]["namespace"] for p in node.objects("networkpolicies")}
    lacking = sorted({n["metadata"]["name"] for n in node.objects("namespaces")} - has - {"kube-system", "kube-public", "kube-node-lease"})
    return ("WARN", ", ".join(lacking)) if lacking else ("PASS", f"{len(has)} namespaces")


pods_where("5.4.1", "Secrets in environments", lambda s: any("secretRef" in e for c in containers(s) for e in c.get("envFrom") or []) or any("secretKeyRef" in (e.get("valueFrom") or {}) for c in containers(s) for e in c.get("env") or []))
always("5.4.2", "Secrets outside of the cluster", "WARN", "an external store is installed like any operator")
plugin("5.5.1", "who made an image", "ImagePolicyWebhook", False)


@point("5.7.1", "namespaces part what is not one")
def _(node):
    own = [n["metadata"]["name"] for n in node.objects("namespaces") if not n["metadata"]["name"].startswith("kube-")]
    return ("PASS", ", ".join(own)) if len(own) > 1 else ("WARN", "there is only default")


pods_where("5.7.2", "seccomp of pods", lambda s: not (s.get("securityContext") or {}).get("seccompProfile") and not all(secured(s, "seccompProfile")))
pods_where("5.7.3", "securityContext of pods", lambda s: not s.get("securityContext") and not all(c.get("securityContext") for c in containers(s)))


@point("5.7.4", "nothing is in default")
def _(node):
    found = [p["metadata"]["name"] for p in node.objects("pods") if p["metadata"]["namespace"] == "default"]
    return ("WARN", f"{len(found)} pods") if found else ("PASS", "no pod")
