#!/usr/bin/env python3
"""Makes src/generated/messages.rs: the numbers of fields on the wire, for built-in types.

    api/generate_messages.py <sources of the k8s-pb crate> <upstream's openapi-v2.json> > api/src/generated/messages.rs

Numbers come from the crate's prost attributes, those it does not know yet from newer_messages.txt; JSON names come from
the OpenAPI document. What has no JSON name of its own there is an embedded struct, whose fields stand beside its
neighbours in JSON. Fields that are left without a number are named on standard error.
"""
import json
import os
import re
import sys

SOURCES, OPENAPI = sys.argv[1:3]
DEFINITIONS = json.load(open(OPENAPI))["definitions"]
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
SPECIAL = {
    META + "Time": "Time",
    META + "MicroTime": "MicroTime",
    META + "Duration": "Duration",
    META + "FieldsV1": "Raw",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "Raw",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "Quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "IntOrString",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "Raw",
}
SCALARS = {"string": "String", "int32": "Int", "int64": "Int", "bool": "Bool", "double": "Double", "bytes": "Bytes"}
# Messages that stand for one of their fields: in JSON there is the bare value of the one that is set.
SCHEMA = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
UNIONS = {SCHEMA + "OrArray", SCHEMA + "OrBool", SCHEMA + "OrStringArray"}
# Fields that the crate has and upstream does not have any more.
GONE = {"io.k8s.api.core.v1.PodSpec.workload_ref"}
# JSON names that are no identifiers.
RENAMED = {"schema": "$schema", "r#ref": "$ref"}
# prost spells names its own way (HttpGetAction for HTTPGetAction).
SPELLING = {name.lower(): name for name in DEFINITIONS}


def spelled(name):
    name = name.replace("apiextensions_apiserver", "apiextensions-apiserver")
    return SPELLING.get(name.lower(), name)


def plain(name):
    return name.replace("_", "").replace("r#", "").lower()


def resolve(text, own):
    """The message that a Rust type names, seen from the package `own`."""
    text = re.sub(r"\s+", "", text)
    text = re.sub(r"::core::option::Option<|::prost::alloc::vec::Vec<|::prost::alloc::boxed::Box<", "", text)
    if "BTreeMap<" in text:
        text = text.rstrip(",>").split(",")[-1]
    parts = text.strip("<>,").split("::")
    if len(parts) == 1:
        return spelled(own + parts[0])
    base = own.rstrip(".").split(".")
    if parts[0] == "crate":
        base, parts = ["io", "k8s"], parts[1:]
    while parts[0] == "super":
        base, parts = base[:-1], parts[1:]
    return spelled(".".join(base + parts))


STRUCT = re.compile(r"pub struct (\w+) \{(\}|.*?\n\})", re.S)
FIELD = re.compile(r'#\[prost\((.*?), tag = "(\d+)"\)\]\s*pub ([\w#]+):\s*([^<,]+(?:<(?:[^<>]|<[^<>]*>)*>)?),\n', re.S)


def read_messages():
    messages = {}
    for directory, _, files in os.walk(SOURCES):
        if "mod.rs" not in files:
            continue
        own = "io.k8s." + os.path.relpath(directory, SOURCES).replace(os.sep, ".") + "."
        for struct in STRUCT.finditer(open(os.path.join(directory, "mod.rs")).read()):
            fields = []
            for kind, tag, name, rust in FIELD.findall(struct.group(2) + "\n"):
                mapped = re.match(r'btree_map = "string, (\w+)"', kind)
                form = "Map" if mapped else "List" if "repeated" in kind else "One"
                scalar = mapped.group(1) if mapped else kind.split(",")[0].split(" ")[0]
                message = resolve(rust, own) if scalar == "message" else None
                fields.append((int(tag), name, form, scalar, message))
            messages[spelled(own + struct.group(1))] = fields
    return messages


def properties(name):
    if name in UNIONS:
        return {field: {} for field in ("schema", "jSONSchemas", "allows", "property")}
    return DEFINITIONS.get(name, {}).get("properties", {})


def add_newer(messages):
    """Adds what newer_messages.txt says."""
    full = lambda name: name if name.startswith("io.") else "io.k8s.api." + name
    same = lambda name, own, other: own.rpartition(".")[0] + "." + name.rpartition(".")[2] \
        if name and name.rpartition(".")[0] == other.rpartition(".")[0] else name
    lines = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "newer_messages.txt"))
    for line in lines:
        words = line.split()
        if not words or words[0] == "#":
            continue
        name = full(words[0])
        if words[1] == "=":
            assert name not in messages, f"needless: {line}"
            other = full(words[2])
            messages[name] = [(*f[:4], same(f[4], name, other)) for f in messages[other]]
            continue
        field, number, form, kind = words[1], int(words[2]), words[3], words[4]
        fields = messages.setdefault(name, [])
        assert not any(f[0] == number or plain(f[1]) == plain(field) for f in fields), f"needless: {line}"
        scalar = {"String": "string", "Int": "int64", "Bool": "bool", "Bytes": "bytes"}.get(kind, "message")
        quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
        message = None if scalar != "message" else quantity if kind == "Quantity" else full(kind)
        fields.append((number, field, form, scalar, message))


messages = read_messages()
add_newer(messages)
# JSON names that an embedded struct may use: those of the structs it is embedded in.
names = {name: {plain(p): p for p in properties(name)} for name in messages}
names[SCHEMA].update({plain(p.replace("-", "_")): p for p in properties(SCHEMA) if "-" in p})
names[SCHEMA].update({plain(rust): name for rust, name in RENAMED.items()})
for _ in range(3):
    for name, fields in messages.items():
        for _, field, form, scalar, message in fields:
            embedded = scalar == "message" and form == "One" and plain(field) not in names[name]
            if embedded and message in messages and message not in DEFINITIONS:
                names[message].update(names[name])

wanted, missing = {}, []
queue = [n for n in messages if "x-kubernetes-group-version-kind" in DEFINITIONS.get(n, {})]
while queue:
    name = queue.pop()
    if name in wanted:
        continue
    rows = []
    for tag, field, form, scalar, message in messages[name]:
        if f"{name}.{field}" in GONE:
            continue
        json_name = names[name].get(plain(field))
        kind = SCALARS.get(scalar)
        if scalar == "message":
            if message in SPECIAL:
                kind = SPECIAL[message]
            elif message in UNIONS:
                kind = "Union"
                queue.append(message)
            elif message not in messages:
                missing.append(f"{name}.{field}: type {message}")
                continue
            elif [f[1] for f in messages[message]] == ["items"] and message not in DEFINITIONS:
                kind = "Strings"
            else:
                kind = "Message"
                queue.append(message)
        if json_name is None and (kind != "Message" or form != "One"):
            missing.append(f"{name}.{field}")
            continue
        rows.append((tag, json_name or "", form, kind, message if kind in ("Message", "Union") else None))
    wanted[name] = sorted(rows)

order = sorted(wanted)
index = {name: i for i, name in enumerate(order)}


def row(tag, json_name, form, kind, message):
    kind = kind if message is None else f"{kind}({index[message]})"
    return f'Field {{ tag: {tag}, name: "{json_name}", form: {form}, kind: {kind} }}'


print("//! Made by `api/generate_messages.py`; not to be edited.\n")
print("use super::rows::{Field, Form::*, Kind::*, Message};\n")
print("/// Messages by their OpenAPI name, sorted.")
print("pub static MESSAGES: &[Message] = &[")
for name in order:
    print(f'    Message {{ name: "{name}", fields: &[{", ".join(row(*r) for r in wanted[name])}] }},')
print("];\n")
print("/// Group, version and kind to the row of `MESSAGES`, sorted.")
print("pub static ROOTS: &[(&str, &str, &str, u16)] = &[")
for root in sorted(
    (g["group"], g["version"], g["kind"], index[name])
    for name in order
    for g in DEFINITIONS.get(name, {}).get("x-kubernetes-group-version-kind", [])
):
    print("    (%s, %s, %s, %d)," % (*map(json.dumps, root[:3]), root[3]))
print("];")


def has_number(name, field):
    return any(r[1] == field or (r[1] == "" and has_number(r[4], field)) for r in wanted[name])


print("\n".join(sorted(missing)), file=sys.stderr)
lost = [f"{n}.{p}" for n in order if n not in UNIONS for p in properties(n) if p not in ("apiVersion", "kind") and not has_number(n, p)]
print("without a number:", *lost, sep="\n  ", file=sys.stderr)
