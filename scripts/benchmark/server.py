"""The API server, controllers, scheduler, store and audit: points 1.2 to 3.2."""
import glob
import os
import re
import socket
import ssl

from benchmark.files import files
from benchmark.node import POINTS, always, command_line, plugin, point
from benchmark.probes import answers, ask, judge_ciphers


@point("1.2.1", "requests without credentials")
def _(node):
    if node.flag("anonymous-auth") == "false":
        return "PASS", "--anonymous-auth=false"
    if (code := ask(node.port, "/api/v1/namespaces")) != 403:
        return "FAIL", f"anybody reads /api/v1/namespaces: {code}"
    return "WARN", "on, for health and discovery alone; --anonymous-auth=false turns it off"


always("1.2.2", "no file of tokens", "PASS", "there is no such flag")


plugin("1.2.3", "Services' external addresses", "DenyServiceExternalIPs", False)
always("1.2.4", "certificate towards kubelets", "PASS", "made and renewed by the server")
always("1.2.5", "authority of kubelets' certificates", "PASS", "the cluster's own, always judged")


def modes(node):
    return node.words("authorization-mode", "Node,RBAC")


@point("1.2.6", "authorization is not AlwaysAllow")
def _(node):
    if "AlwaysAllow" in modes(node):
        return "FAIL", "--authorization-mode has AlwaysAllow"
    return ("PASS", ",".join(modes(node))) if ask(node.port, "/api/v1/secrets") in (401, 403) else ("FAIL", "anybody reads Secrets")


def mode(number, name):
    def check(node):
        if "authorization-config" in node.flags:
            return "WARN", f"look for {name} in {node.flag('authorization-config')}"
        return ("PASS", ",".join(modes(node))) if name in modes(node) else ("FAIL", f"--authorization-mode lacks {name}")
    POINTS.append((number, f"authorization has {name}", check))


mode("1.2.7", "Node")
mode("1.2.8", "RBAC")
plugin("1.2.9", "events are limited", "EventRateLimit", False)


@point("1.2.10", "not everything is admitted")
def _(node):
    on = "AlwaysAdmit" in node.words("enable-admission-plugins")
    return ("FAIL", "AlwaysAdmit is on") if on else ("PASS", "AlwaysAdmit is off")


plugin("1.2.11", "images are asked for anew", "AlwaysPullImages", False)
plugin("1.2.12", "pods' service accounts", "ServiceAccount", True)
plugin("1.2.13", "namespaces' life", "NamespaceLifecycle", True)
plugin("1.2.14", "what nodes may write", "NodeRestriction", True)


def profiling(node):
    found = node.kubectl("get", "--raw", "/debug/pprof/")
    return ("FAIL", "/debug/pprof/ answers") if found else ("PASS", "there is none")


point("1.2.15", "no profiling")(profiling)


@point("1.2.16", "an audit log")
def _(node):
    given = [f for f in ("audit-log-path", "audit-webhook-config-file") if f in node.flags]
    return ("PASS", given[0]) if given else ("FAIL", "--audit-log-path and --audit-policy-file write one")


def number_flag(number, title, name, least, default):
    def check(node):
        if "audit-log-path" not in node.flags:
            return "FAIL", "there is no audit log"
        value = node.flag(name)
        if value is None:
            return "PASS", default
        return ("PASS", value) if int(value) == 0 or int(value) >= least else ("FAIL", f"{value}, at least {least}")
    POINTS.append((number, title, check))


number_flag("1.2.17", "audit logs are kept for 30 days", "audit-log-maxage", 30, "366 days")
number_flag("1.2.18", "ten audit logs are kept", "audit-log-maxbackup", 10, "100")
number_flag("1.2.19", "an audit log has 100 megabytes", "audit-log-maxsize", 100, "100")


@point("1.2.20", "requests end")
def _(node):
    value = node.flag("request-timeout", "1m0s")
    return ("FAIL", "no limit") if re.fullmatch(r"0+[a-z]*", value) else ("PASS", value)


always("1.2.21", "service accounts are looked up", "PASS", "always; there is no such flag")
files("1.2.22", "a key of service accounts' tokens", lambda n: [f"{n.data_dir}/pki/sa.key"], 0o600)
always("1.2.23", "certificate towards etcd", "INFO", "the store is a part of the process")


@point("1.2.24", "certificate of the API")
def _(node):
    context = ssl.create_default_context(cafile=node.ca)
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", node.port), timeout=10) as plain, context.wrap_socket(plain) as secure:
        return "PASS", f"{secure.version()}, signed by {node.ca}, until {secure.getpeercert()['notAfter']}"


@point("1.2.25", "authority of clients")
def _(node):
    code = ask(node.port, "/api/v1/nodes", headers={"Authorization": "Bearer none"})
    return ("PASS", "clients are known by certificates of the cluster's CA") if code == 401 else ("FAIL", f"bad credentials get {code}")


always("1.2.26", "authority of etcd", "INFO", "the store is a part of the process")


def encryption(node):
    """The file that says how Secrets are encrypted: one that was given, or the server's own."""
    own = f"{node.data_dir}/pki/encryption-config.yaml"
    return node.flag("encryption-provider-config") or (own if os.path.exists(own) else None)


@point("1.2.27", "Secrets are encrypted in the store")
def _(node):
    path = encryption(node)
    return ("PASS", path) if path else ("WARN", "neither --secrets-encryption nor --encryption-provider-config is given")


@point("1.2.28", "and by a good provider")
def _(node):
    path = encryption(node)
    if not path:
        return "WARN", "none"
    first = re.search(r"providers:\s*(?:#.*\s*)*-\s*([a-z]+)", open(path).read())
    good = first and first[1] in ("aescbc", "kms", "secretbox", "aesgcm")
    return ("PASS", first[1]) if good else ("FAIL", f"{path} begins with {first[1] if first else 'nothing'}")


@point("1.2.29", "ciphers of the API")
def _(node):
    return judge_ciphers(node.port)


@point("1.2.30", "service accounts' tokens live no longer than asked for")
def _(node):
    said = node.flag("service-account-extend-token-expiration")
    return ("PASS", "off") if said == "false" else ("FAIL", "--service-account-extend-token-expiration=false turns it off")


always("1.3.1", "pods that have ended are collected", "PASS", "beyond 12,500, as upstream")
point("1.3.2", "no profiling of controllers")(profiling)


@point("1.3.3", "each controller has its own account")
def _(node):
    own = [b for b in node.objects("clusterrolebindings") if b["metadata"]["name"].startswith("system:controller:")]
    return ("PASS", f"{len(own)} accounts with a role each") if own else ("FAIL", "no roles of controllers")


always("1.3.4", "the tokens' key is given to controllers", "PASS", "in memory, through no file")


@point("1.3.5", "pods get the cluster's authority")
def _(node):
    maps = [m for m in node.objects("configmaps") if m["metadata"]["name"] == "kube-root-ca.crt"]
    good = maps and all("BEGIN CERTIFICATE" in m["data"]["ca.crt"] for m in maps)
    return ("PASS", f"in {len(maps)} namespaces") if good else ("FAIL", "kube-root-ca.crt is missing")


always("1.3.6", "kubelets' certificates are renewed", "PASS", "always")
always("1.3.7", "controllers listen on loopback", "PASS", "they have no port")
point("1.4.1", "no profiling of the scheduler")(profiling)


@point("1.4.2", "the scheduler listens on loopback")
def _(node):
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        words = open(path, "rb").read().decode(errors="replace").split("\0") if os.access(path, os.R_OK) else []
        if words[1:2] == ["scheduler"] and os.path.basename(words[0]) == "coracle":
            address = command_line(words[2:-1]).get("bind-address", "127.0.0.1")
            if address not in ("127.0.0.1", "::1"):
                return "FAIL", f"process {path.split('/')[2]} has --bind-address {address}"
    return "PASS", "the server's own has no port"


@point("2.1", "certificate of etcd")
def _(node):
    if answers(2379):
        return "WARN", "something listens on 2379, and is not ours"
    return "INFO", "the store is a part of the process, and has no port"


for number, title in [("2.2", "etcd asks clients for certificates"), ("2.3", "etcd signs none itself"), ("2.4", "certificates between etcds"),
                      ("2.5", "etcds ask each other for certificates"), ("2.6", "etcd signs none for peers"), ("2.7", "etcd has its own authority")]:
    always(number, title, "INFO", "the store is a part of the process, and has no port")
always("3.1.1", "people are not known by certificates", "WARN", "give people tokens of an OpenID provider; a certificate lives until it ends")
always("3.1.2", "people are not known by service accounts", "WARN", "look at who holds tokens of service accounts")
always("3.1.3", "people are not known by bootstrap tokens", "WARN", "coracle token list shows them; they may join machines, no more")


def audits(node):
    return any(flag in node.flags for flag in ("audit-log-path", "audit-webhook-config-file"))


@point("3.2.1", "an audit policy")
def _(node):
    path = node.flag("audit-policy-file")
    if not audits(node):
        return "FAIL", "there is no audit log"
    return "PASS", path or "the one that is built in"


@point("3.2.2", "the policy records what matters")
def _(node):
    path = node.flag("audit-policy-file")
    if not audits(node):
        return "FAIL", "there is no audit log"
    if not path:
        return "PASS", "the one that is built in: changes, who reads secrets, who enters pods"
    text = open(path).read()
    lacking = [word for word in ("secrets", "configmaps", "tokenreviews") if word not in text]
    return ("WARN", f"{path} names no {', '.join(lacking)}") if lacking else ("PASS", path)
