"""The node that is looked at: its process, settings, files and API."""
import glob
import json
import os
import re
import socket
import stat
import subprocess
import sys

POINTS = []


def point(number, title):
    """Adds a check; it returns the state and what was seen."""
    def add(check):
        POINTS.append((number, title, check))
        return check
    return add


def always(number, title, state, why):
    POINTS.append((number, title, lambda node: (state, why)))


def plugin(number, title, name, default):
    def check(node):
        enabled = name in node.words("enable-admission-plugins")
        disabled = name in node.words("disable-admission-plugins")
        if (default and not disabled) or enabled:
            return "PASS", f"{name} is on"
        return ("FAIL", f"{name} is turned off") if default else ("WARN", f"--enable-admission-plugins {name} turns it on")
    POINTS.append((number, title, check))


class Node:
    """The process, its settings, its files and its API."""

    def __init__(self, options):
        self.pid = options.pid or find_process()
        words = open(f"/proc/{self.pid}/cmdline", "rb").read().decode().split("\0")[:-1]
        self.owner = os.stat(f"/proc/{self.pid}").st_uid
        self.agent = words[1:2] == ["agent"]
        given = command_line(words[2:])
        self.data_dir = options.data_dir or given.get("data-dir", "/var/lib/coracle")
        usual = "/etc/coracle/admin.conf" if self.data_dir == "/var/lib/coracle" else f"{self.data_dir}/admin.conf"
        self.kubeconfig = options.kubeconfig or given.get("write-kubeconfig", usual)
        self.flags = given if self.agent else (self.flagz() or given)
        self.config = given.get("config")
        off = self.flags.get("disable", "").split(",")
        self.kubelet, self.proxy = "kubelet" not in off, "proxy" not in off
        self.name = self.flags.get("node-name", socket.gethostname().lower())
        self.port = self.api_port()
        self.ca = f"{self.data_dir}/pki/ca.crt"
        self.cache = {}

    def flagz(self):
        text = self.kubectl("get", "--raw", "/flagz")
        lines = [line.split("=", 1) for line in (text or "").splitlines()]
        return {name: value for name, value in (line for line in lines if len(line) == 2)}

    def kubectl(self, *words):
        command = ["kubectl", "--kubeconfig", self.kubeconfig, "--request-timeout", "20s", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    def objects(self, kind):
        if kind not in self.cache:
            text = self.kubectl("get", kind, "-A", "-o", "json")
            if text is None:
                raise Unseen(f"kubectl cannot list {kind}")
            self.cache[kind] = json.loads(text)["items"]
        return self.cache[kind]

    def api_port(self):
        if self.agent:
            return None
        text = self.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}") or ""
        return int(text.rsplit(":", 1)[1]) if re.fullmatch(r"https://.*:\d+", text) else None

    def flag(self, name, default=None):
        return self.flags.get(name, default)

    def words(self, name, default=""):
        return [word for word in self.flag(name, default).split(",") if word]

    def kubelet_settings(self):
        if "configz" not in self.cache:
            text = self.kubectl("get", "--raw", f"/api/v1/nodes/{self.name}/proxy/configz")
            if text is None:
                raise Unseen("the kubelet's /configz is not reached")
            self.cache["configz"] = json.loads(text)["kubeletconfig"]
        return self.cache["configz"]


class Unseen(Exception):
    pass


def find_process():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        words = open(path, "rb").read().split(b"\0") if os.access(path, os.R_OK) else []
        if words[1:2] in ([b"server"], [b"agent"]) and os.path.basename(words[0]) == b"coracle":
            return int(path.split("/")[2])
    print("cis: no coracle server or agent runs here", file=sys.stderr)
    sys.exit(2)


def command_line(words):
    flags, index = {}, 0
    while index < len(words):
        name, equals, value = words[index].lstrip("-").partition("=")
        if not equals and index + 1 < len(words) and not words[index + 1].startswith("--"):
            index += 1
            value = words[index]
        flags[name] = value if equals or value else "true"
        index += 1
    return flags


def judge_files(node, paths, most=None, owner=False):
    """Whether none of the files has a mode beyond `most`, or somebody else's owner."""
    paths = [path for path in paths if path and os.path.exists(path)]
    if not paths:
        return "INFO", "no such file"
    bad = []
    for path in paths:
        found = os.stat(path)
        mode = stat.S_IMODE(found.st_mode)
        if most is not None and mode & ~most:
            bad.append(f"{path} has mode {mode:o}, at most {most:o}")
        if owner and found.st_uid not in (0, node.owner):
            bad.append(f"{path} belongs to user {found.st_uid}")
    return ("FAIL", "; ".join(bad)) if bad else ("PASS", f"{len(paths)} looked at")
