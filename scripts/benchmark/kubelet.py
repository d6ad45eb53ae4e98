"""The kubelet and the proxy: points 4."""
import glob
import json
import os
import re
import socket
import ssl
import subprocess

from benchmark.files import settings, unit
from benchmark.node import POINTS, judge_files, point
from benchmark.probes import answers, ask, judge_ciphers


def kubelet_point(number, title):
    def add(check):
        POINTS.append((number, title, lambda node: check(node) if node.kubelet else ("INFO", "no kubelet runs")))
        return check
    return add


def kubelet_always(number, title, why):
    kubelet_point(number, title)(lambda node: ("PASS", why))


def kubelet_files(number, title, paths, most=None, owner=False):
    kubelet_point(number, title)(lambda node: judge_files(node, paths(node), most, owner))


kubelet_files("4.1.1", "mode of the service's file", unit, 0o600)
kubelet_files("4.1.2", "owner of the service's file", unit, owner=True)
kubelet_files("4.1.3", "mode of the proxy's credentials", lambda n: [f"{n.data_dir}/pki/kube-proxy.pem"], 0o600)
kubelet_files("4.1.4", "owner of the proxy's credentials", lambda n: [f"{n.data_dir}/pki/kube-proxy.pem"], owner=True)
kubelet_files("4.1.5", "mode of the kubelet's credentials", lambda n: glob.glob(f"{n.data_dir}/pki/kubelet-*.pem"), 0o600)
kubelet_files("4.1.6", "owner of the kubelet's credentials", lambda n: glob.glob(f"{n.data_dir}/pki/kubelet-*.pem"), owner=True)
kubelet_files("4.1.7", "mode of the authority's certificate", lambda n: [n.ca], 0o644)
kubelet_files("4.1.8", "owner of the authority's certificate", lambda n: [n.ca], owner=True)
kubelet_files("4.1.9", "mode of the kubelet's settings", settings, 0o600)
kubelet_files("4.1.10", "owner of the kubelet's settings", settings, owner=True)


@kubelet_point("4.2.1", "the kubelet answers nobody without credentials")
def _(node):
    code = ask(10250, "/pods")
    return ("PASS", "401") if code == 401 else ("FAIL", f"/pods without credentials: {code or 'no answer'}")


@kubelet_point("4.2.2", "the kubelet asks the API who may")
def _(node):
    code = ask(10250, "/pods", headers={"Authorization": "Bearer none"})
    return ("PASS", "tokens and rights are asked of the API") if code == 401 else ("FAIL", f"a token that is none gets {code}")


kubelet_always("4.2.3", "authority of the kubelet's clients", "the cluster's CA, always")


@kubelet_point("4.2.4", "no port without credentials")
def _(node):
    return ("FAIL", "10255 answers") if answers(10255) else ("PASS", "10255 is closed")


@kubelet_point("4.2.5", "idle streams end")
def _(node):
    value = node.kubelet_settings().get("streamingConnectionIdleTimeout")
    if value is None:
        return "WARN", "/configz does not say"
    return ("FAIL", "never") if re.fullmatch(r"0+[a-z]*", str(value)) else ("PASS", value)


kubelet_always("4.2.6", "chains of the packet filter are kept", "the proxy writes them again within a minute")


@kubelet_point("4.2.7", "the node has its host's name")
def _(node):
    return ("WARN", f"--node-name {node.name}") if "node-name" in node.flags else ("PASS", node.name)


kubelet_always("4.2.8", "events are limited", "25 of one source at once and then one in five minutes, as upstream")


@kubelet_point("4.2.9", "certificate of the kubelet")
def _(node):
    context = ssl.create_default_context(cafile=node.ca)
    own = f"{node.data_dir}/pki/kubelet-serving-ca.crt"
    if os.path.exists(own):
        context.load_verify_locations(own)
    context.check_hostname = False
    try:
        with socket.create_connection(("127.0.0.1", 10250), timeout=10) as plain, context.wrap_socket(plain) as secure:
            return "PASS", f"signed by the cluster, until {secure.getpeercert()['notAfter']}"
    except ssl.SSLCertVerificationError as error:
        return "FAIL", f"not signed by the cluster: {error.verify_message}"


kubelet_always("4.2.10", "the kubelet's client certificate is renewed", "always")
kubelet_always("4.2.11", "the kubelet's serving certificate is renewed", "always")


@kubelet_point("4.2.12", "ciphers of the kubelet")
def _(node):
    return judge_ciphers(10250)


@kubelet_point("4.2.13", "processes of a pod are limited")
def _(node):
    value = node.kubelet_settings().get("podPidsLimit", -1)
    return ("PASS", str(value)) if value > 0 else ("WARN", "no limit")


@kubelet_point("4.2.14", "seccomp by default")
def _(node):
    return ("PASS", "on") if node.kubelet_settings().get("seccompDefault") is True else ("WARN", "off")


kubelet_point("4.2.15", "the service's addresses are limited")(
    lambda node: ("WARN", "IPAddressDeny of the unit is not set: pods need the network, and so does the API"))


@point("4.3.1", "the proxy's figures are on loopback")
def _(node):
    if not node.proxy:
        return "INFO", "no proxy runs"
    return ("WARN", "10249 answers from outside") if any(answers(10249, ip) for ip in own_addresses()) else ("PASS", "10249 is closed to others")


def own_addresses():
    found = subprocess.run(["ip", "-4", "-j", "address"], capture_output=True, text=True).stdout or "[]"
    return [a["local"] for i in json.loads(found) for a in i["addr_info"] if not a["local"].startswith("127.")]
