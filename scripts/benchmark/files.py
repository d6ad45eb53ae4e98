"""Modes and owners: points 1.1."""
import glob
import os

from benchmark.node import POINTS, always, judge_files


def files(number, title, paths, most=None, owner=False):
    POINTS.append((number, title, lambda node: judge_files(node, paths(node), most, owner)))


def below(folder, *endings):
    found = []
    for root, _, names in os.walk(folder):
        found += [os.path.join(root, name) for name in names if not endings or name.endswith(endings)]
    return found


def settings(node):
    return [node.config or ("" if node.agent else "/etc/coracle/config.yaml")]


def unit(_node):
    return ["/etc/systemd/system/coracle.service"]


def cni(node):
    return glob.glob(node.flag("cni-conf-dir", "/etc/cni/net.d") + "/*.conf*") if node.kubelet else []


def pki(node, *endings):
    return below(f"{node.data_dir}/pki", *endings)


IN_PROCESS = "one process, started by no manifest"
files("1.1.1", "mode of the API server's settings", settings, 0o600)
files("1.1.2", "owner of the API server's settings", settings, owner=True)
for number, part in [("1.1.3", "mode: controllers"), ("1.1.4", "owner: controllers"), ("1.1.5", "mode: scheduler"),
                     ("1.1.6", "owner: scheduler"), ("1.1.7", "mode: etcd"), ("1.1.8", "owner: etcd")]:
    always(number, f"manifest's {part}", "INFO", IN_PROCESS)
files("1.1.9", "mode of the pod network's settings", cni, 0o600)
files("1.1.10", "owner of the pod network's settings", cni, owner=True)
files("1.1.11", "mode of the data directory", lambda n: [n.data_dir], 0o700)
files("1.1.12", "owner of the data directory", lambda n: [n.data_dir], owner=True)
files("1.1.13", "mode of the administrators' kubeconfigs", lambda n: glob.glob(os.path.dirname(n.kubeconfig) + "/*admin.conf") + [n.kubeconfig], 0o600)
files("1.1.14", "owner of the administrators' kubeconfigs", lambda n: [n.kubeconfig], owner=True)
for number, part in [("1.1.15", "mode: scheduler"), ("1.1.16", "owner: scheduler"), ("1.1.17", "mode: controllers"),
                     ("1.1.18", "owner: controllers")]:
    always(number, f"kubeconfig's {part}", "INFO", "they speak to the API server in memory, without a file")
files("1.1.19", "owner of keys and certificates", lambda n: [f"{n.data_dir}/pki"] + pki(n), owner=True)
files("1.1.20", "mode of certificates", lambda n: pki(n, ".crt"), 0o644)
files("1.1.21", "mode of keys", lambda n: pki(n, ".key", ".pem"), 0o600)
