#!/usr/bin/env python3
"""Writes src/generated/ from published descriptions of the Kubernetes API: facts only, no prose.

usage: generate.py OPENAPI_V2 DISCOVERY_V2 DISCOVERY_CORE_V1 GO_FIELDS

OPENAPI_V2         body of /openapi/v2 (JSON) of a kube-apiserver of the mirrored version
DISCOVERY_V2       body of /apis in the aggregated form apidiscovery.k8s.io/v2
DISCOVERY_CORE_V1  body of /api/v1 (APIResourceList)
GO_FIELDS          a table of the fields of the Go types, as go_types.py reads it

Beside the tables it writes what the tests of the API server compare with: discovery/upstream.txt and the facts of
OpenAPI in openapi/upstream_paths.txt and openapi/upstream_definitions.txt.

Tables of integers without pointers, so that they stay in the read-only part of the binary: no relocation, no
parsing at start, no heap.
"""

import json
import os
import re
import sys

from go_types import KEPT, GoTypes

# Defaults that the Go types declare; the v2 document carries none. Those of zeros follow from the types.
DEFAULTS = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.LocalObjectReference", "name"): "",
    ("io.k8s.api.core.v1.ConfigMapKeySelector", "name"): "",
    ("io.k8s.api.core.v1.SecretKeySelector", "name"): "",
    ("io.k8s.api.core.v1.ConfigMapEnvSource", "name"): "",
    ("io.k8s.api.core.v1.SecretEnvSource", "name"): "",
    ("io.k8s.api.core.v1.ConfigMapProjection", "name"): "",
    ("io.k8s.api.core.v1.SecretProjection", "name"): "",
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", "name"): "",
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "cachingMode"): "ReadWrite",
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "fsType"): "ext4",
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "kind"): "Shared",
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "readOnly"): False,
    ("io.k8s.api.core.v1.FileKeySelector", "optional"): False,
    ("io.k8s.api.core.v1.GRPCAction", "service"): "",
    ("io.k8s.api.core.v1.ISCSIPersistentVolumeSource", "iscsiInterface"): "default",
    ("io.k8s.api.core.v1.ISCSIVolumeSource", "iscsiInterface"): "default",
    ("io.k8s.api.core.v1.RBDPersistentVolumeSource", "keyring"): "/etc/ceph/keyring",
    ("io.k8s.api.core.v1.RBDPersistentVolumeSource", "pool"): "rbd",
    ("io.k8s.api.core.v1.RBDPersistentVolumeSource", "user"): "admin",
    ("io.k8s.api.core.v1.RBDVolumeSource", "keyring"): "/etc/ceph/keyring",
    ("io.k8s.api.core.v1.RBDVolumeSource", "pool"): "rbd",
    ("io.k8s.api.core.v1.RBDVolumeSource", "user"): "admin",
    ("io.k8s.api.core.v1.ScaleIOPersistentVolumeSource", "fsType"): "xfs",
    ("io.k8s.api.core.v1.ScaleIOPersistentVolumeSource", "storageMode"): "ThinProvisioned",
    ("io.k8s.api.core.v1.ScaleIOVolumeSource", "fsType"): "xfs",
    ("io.k8s.api.core.v1.ScaleIOVolumeSource", "storageMode"): "ThinProvisioned",
}

SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "Quantity",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "Time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "MicroTime",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "IntOrString",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "Any",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch": "Any",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "Any",
}
SCALARS = ["Any", "String", "Int32", "Int64", "Bool", "Double", "Quantity", "IntOrString", "Time", "MicroTime", "Bytes"]
LIST, MAP, STRUCT = len(SCALARS), len(SCALARS) + 1, len(SCALARS) + 2

# Scalars that read themselves: what goes wrong is not said in terms of their types.
SELF_READING = {SCALARS.index(name) for name in ("Quantity", "IntOrString", "Time", "MicroTime")}

REQUIRED, MERGE, RETAIN_KEYS, REPLACE, MAP_ATOMIC, MAP_GRANULAR = 1, 2, 4, 8, 16, 32
LIST_ATOMIC, LIST_SET, LIST_MAP = 64, 128, 192


class Pool:
    def __init__(self):
        self.items, self.index = [], {}

    def add(self, item):
        if item not in self.index:
            self.index[item] = len(self.items)
            self.items.append(item)
        return self.index[item]


def read_enums():
    """Lists of values by Go type, of enums.txt."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "enums.txt")
    lines = [line.split() for line in open(path) if not line.startswith("#")]
    return {name: tuple(sorted(value.strip('"') for value in values)) for name, *values in lines}


class Schema:
    def __init__(self, definitions, go_types):
        self.definitions, self.go_types, self.values = definitions, go_types, read_enums()
        self.strings, self.shapes, self.keysets = Pool(), Pool(), Pool()
        self.strings.add("")
        self.keysets.add(())
        for tag in range(len(SCALARS)):
            self.shapes.add((tag, 0))
        self.names = sorted(n for n in definitions if self.is_struct(n))
        self.type_index = {n: i for i, n in enumerate(self.names)}
        self.fields, self.types, self.roots, self.unions, self.go, self.enums = [], [], [], [], [], []
        self.enum_sets, self.unused = Pool(), set(self.values)
        for name in self.names:
            self.add_type(name)
        assert not self.unused, f"no field has the type {self.unused}"

    def is_struct(self, name):
        return name not in SPECIAL and self.definitions[name].get("type") == "object"

    def shape(self, prop):
        if "$ref" in prop:
            name = prop["$ref"].removeprefix("#/definitions/")
            if self.is_struct(name):
                return self.shapes.add((STRUCT, self.type_index[name]))
            scalar = SPECIAL.get(name, "Any")
            # Anything, but with a name of its own, which OpenAPI refers to.
            return self.shapes.add((0, self.strings.add(name))) if scalar == "Any" else SCALARS.index(scalar)
        kind, form = prop.get("type"), prop.get("format")
        if kind == "array":
            return self.shapes.add((LIST, self.shape(prop["items"])))
        if kind == "object":
            values = prop.get("additionalProperties")
            return self.shapes.add((MAP, self.shape(values))) if values else 0
        plain = {
            ("string", None): "String", ("string", "byte"): "Bytes", ("boolean", None): "Bool",
            ("integer", "int32"): "Int32", ("integer", "int64"): "Int64", ("number", "double"): "Double",
        }
        return SCALARS.index(plain[kind, form])

    def flags(self, prop, required):
        strategy = prop.get("x-kubernetes-patch-strategy", "").split(",")
        flags = REQUIRED if required else 0
        flags |= MERGE if "merge" in strategy else 0
        flags |= RETAIN_KEYS if "retainKeys" in strategy else 0
        flags |= REPLACE if "replace" in strategy else 0
        flags |= {"atomic": MAP_ATOMIC, "granular": MAP_GRANULAR}.get(prop.get("x-kubernetes-map-type"), 0)
        return flags | {"atomic": LIST_ATOMIC, "set": LIST_SET, "map": LIST_MAP}.get(prop.get("x-kubernetes-list-type"), 0)

    def add_type(self, name):
        definition = self.definitions[name]
        required = set(definition.get("required", []))
        first = len(self.fields)
        properties = sorted(definition.get("properties", {}).items())
        for field, prop in properties:
            keys = tuple(self.strings.add(k) for k in prop.get("x-kubernetes-list-map-keys", []))
            default = DEFAULTS.get((name, field))
            self.fields.append((
                self.strings.add(field),
                self.shape(prop),
                self.flags(prop, field in required),
                self.strings.add(prop.get("x-kubernetes-patch-merge-key", "")),
                self.keysets.add(keys),
                0 if default is None else self.strings.add(json.dumps(default)),
            ))
        self.add_go(name, properties, required)
        atomic = definition.get("x-kubernetes-map-type") == "atomic"
        self.types.append((self.strings.add(name), first, len(self.fields) - first, MAP_ATOMIC if atomic else 0))
        for union in definition.get("x-kubernetes-unions", []):
            members = tuple(map(self.pair, sorted(union["fields-to-discriminateBy"].items())))
            self.unions.append((self.type_index[name], self.strings.add(union.get("discriminator", "")), members))
        for gvk in definition.get("x-kubernetes-group-version-kind", []):
            root = tuple(self.strings.add(gvk[k]) for k in ("group", "version", "kind"))
            self.roots.append((*root, self.type_index[name]))

    def add_go(self, name, properties, required):
        """Rows beside those of the fields. Without a Go type the names' order and what is required decide."""
        key = self.go_types.find(name)
        if key:
            facts = {field: facts for field, *facts in self.go_types.fields(key)}
        else:
            facts = {field: (KEPT if field in required else 0, "", ()) for field, _ in properties}
        assert set(facts) == {field for field, _ in properties}, name
        order = {field: place for place, field in enumerate(facts)}
        for field, prop in properties:
            flags, go, embedded = facts[field]
            shape = self.shape(prop)
            text = "" if shape in SELF_READING or go == self.derived(shape) else go
            inside = ".".join(embedded) if set(embedded) != {"TypeMeta"} else ""
            self.add_enum(len(self.go), go)
            self.go.append((order[field], flags, self.strings.add(text), self.strings.add(inside)))

    def add_enum(self, row, go):
        """If the type is one of a few values, or a list or map of them."""
        name = go.split("]")[-1]
        if name in self.values:
            self.unused.discard(name)
            values = tuple(self.strings.add(value) for value in self.values[name])
            self.enums.append((row, self.enum_sets.add(values)))

    def derived(self, shape):
        """What a type of this shape is called in Go if nothing else is said; the decoder derives the same."""
        tag, argument = self.shapes.items[shape]
        if tag == STRUCT:
            return ".".join(self.names[argument].split(".")[-2:])
        if tag in (LIST, MAP):
            return ("[]" if tag == LIST else "map[string]") + self.derived(argument)
        plain = {"Any": "interface {}", "Int32": "int32", "IntOrString": "int32", "Int64": "int64", "Bool": "bool",
                 "Double": "float64", "Bytes": "[]uint8"}
        return plain.get(SCALARS[tag], "string")

    def pair(self, item):
        return self.strings.add(item[0]), self.strings.add(item[1])

    def text(self):
        blob, offsets = "", [0]
        for item in self.strings.items:
            blob += item
            offsets.append(len(blob))
        out = ["//! Made by `api/generate.py`; not to be edited.", ""]
        out += ["/// Every name, one after the other; `STRING_OFFSETS` says where each begins and ends."]
        out += [f'pub static STRINGS: &str = {rust(blob)};', ""]
        out += table("STRING_OFFSETS", "u32", offsets)
        out += ["/// (tag, argument): a scalar, or anything by its name; a list or map of a shape; a type."]
        out += table("SHAPES", "(u8, u16)", self.shapes.items)
        out += ["/// Lists of names: the map keys of lists."]
        out += ["pub static KEYSETS: &[&[u16]] = &["]
        out += ["    " + " ".join(f"&{list(k)}," for k in self.keysets.items), "];", ""]
        out += ["/// (name, shape, flags, merge key, key set, default), by name within a type."]
        out += table("FIELDS", "(u16, u16, u8, u16, u8, u16)", self.fields)
        out += ["/// Beside `FIELDS`: (place in JSON, flags, Go type, embedded in)."]
        out += table("GO", "(u8, u8, u16, u16)", self.go)
        out += ["/// Lists of values of which a string is to be one, sorted."]
        out += ["pub static ENUM_SETS: &[&[u16]] = &["]
        out += ["    " + " ".join(f"&{list(values)}," for values in self.enum_sets.items), "];", ""]
        out += ["/// (field, row of `ENUM_SETS`), by field: those that are such a string, or a list or map of them."]
        out += table("ENUMS", "(u16, u8)", self.enums)
        out += ["/// (name, first field, fields, flags), by name."]
        out += table("TYPES", "(u16, u16, u16, u8)", self.types)
        out += ["/// (type, discriminator, (field, its value)), by type."]
        out += ["pub type Union = (u16, u16, &'static [(u16, u16)]);", "pub static UNIONS: &[Union] = &["]
        out += ["    " + " ".join(f"({t}, {d}, &{list(m)})," for t, d, m in self.unions), "];", ""]
        out += ["/// (group, version, kind, type)."]
        out += table("ROOTS", "(u16, u16, u16, u16)", sorted(self.roots, key=self.root_name))
        return "\n".join(out)

    def root_name(self, root):
        return tuple(self.strings.items[i] for i in root[:3])


def rust(text):
    return json.dumps(text, ensure_ascii=False)


def table(name, kind, rows):
    cells = [str(row).replace("'", "") + "," for row in rows]
    lines, line = [], "   "
    for cell in cells:
        if len(line) + len(cell) > 4000:
            lines.append(line)
            line = "   "
        line += " " + cell
    return [f"pub static {name}: &[{kind}] = &[", *lines, line, "];", ""]


def names(values):
    return "&[" + ", ".join(rust(v) for v in values or []) + "]"


def fact(group, version, resource, subresources):
    subs = ", ".join(
        "SubresourceFact { " + f'name: {rust(s["name"])}, group: {rust(s["group"])}, version: {rust(s["version"])}, '
        + f'kind: {rust(s["kind"])}, verbs: {names(s["verbs"])} ' + "}"
        for s in subresources
    )
    return (
        f'    ResourceFact {{ group: {rust(group)}, version: {rust(version)}, kind: {rust(resource["kind"])}, '
        f'plural: {rust(resource["name"])}, singular: {rust(resource["singularName"])}, '
        f'short_names: {names(resource.get("shortNames"))}, categories: {names(resource.get("categories"))}, '
        f'namespaced: {str(resource["namespaced"]).lower()}, verbs: {names(resource["verbs"])}, '
        f'subresources: &[{subs}] }},'
    )


def core_facts(document):
    for resource in document["resources"]:
        if "/" in resource["name"]:
            continue
        subs = []
        for sub in document["resources"]:
            parent, slash, name = sub["name"].partition("/")
            if slash and parent == resource["name"]:
                subs.append({"name": name, "group": sub.get("group", ""), "version": sub.get("version", "v1"),
                             "kind": sub["kind"], "verbs": sub["verbs"]})
        yield fact("", "v1", resource, subs)


def group_facts(document):
    for item in document["items"]:
        group = item["metadata"]["name"]
        for served in item["versions"]:
            version = served["version"]
            for r in served["resources"]:
                subs = []
                for s in r.get("subresources", []):
                    kind = s["responseKind"]
                    own = not kind["version"]
                    subs.append({"name": s["subresource"], "group": group if own else kind["group"],
                                 "version": version if own else kind["version"], "kind": kind["kind"],
                                 "verbs": s["verbs"]})
                yield fact(group, version, {
                    "kind": r["responseKind"]["kind"], "name": r["resource"], "singularName": r["singularResource"],
                    "shortNames": r.get("shortNames"), "categories": r.get("categories"),
                    "namespaced": r["scope"] == "Namespaced", "verbs": r["verbs"],
                }, subs)


# What follows writes facts for tests, one fact a line, only for versions without alpha and beta.

UNSTABLE = re.compile(r"/v\d+(alpha|beta)\d+(/|$)")
SHORT = [("io.k8s.apimachinery.pkg.apis.meta.v1.", "^"), ("io.k8s.api.", "~")]


def short(name):
    for prefix, mark in SHORT:
        if name.startswith(prefix):
            return mark + name[len(prefix):]
    return name


def type_text(prop):
    if "$ref" in prop:
        return ">" + short(prop["$ref"].removeprefix("#/definitions/"))
    kind = prop.get("type", "any")
    if kind == "array":
        return f"[{type_text(prop['items'])}]"
    if kind == "object" and "additionalProperties" in prop:
        return "{" + type_text(prop["additionalProperties"]) + "}"
    return kind + (":" + prop["format"] if "format" in prop else "")


def parameter_text(document, parameter):
    key = parameter.get("$ref", "").removeprefix("#/parameters/")
    parameter = document["parameters"].get(key, parameter)
    kind = type_text(parameter.get("schema", parameter))
    text = f"{parameter['name']}@{parameter['in']}:{kind}" + ("!" if parameter.get("required") else "")
    # What is shared, with the end of the name that it is shared under.
    return text + (key.replace(parameter["name"] + "-", "#", 1) if key else "")


def gvk_text(gvk):
    return f"{gvk['group']}/{gvk['version']}/{gvk['kind']}"


def path_facts(document):
    """(path, common parameters), then (path, method, facts as pairs), everything sorted."""
    for path, item in sorted(document["paths"].items()):
        if UNSTABLE.search(path):
            continue
        texts = lambda parameters: ",".join(sorted(parameter_text(document, p) for p in parameters))
        yield path, None, [("params", texts(item.get("parameters", [])))]
        for method, o in sorted((m, o) for m, o in item.items() if m != "parameters"):
            gvk = o.get("x-kubernetes-group-version-kind")
            answers = [f"{code}:{type_text(r['schema']) if 'schema' in r else '-'}" for code, r in sorted(o["responses"].items())]
            yield path, method, [
                ("id", o["operationId"]), ("action", o.get("x-kubernetes-action", "")),
                ("gvk", gvk_text(gvk) if gvk else ""), ("tags", ",".join(o.get("tags", []))),
                ("consumes", ",".join(sorted(o.get("consumes", [])))),
                ("produces", ",".join(sorted(o.get("produces", [])))),
                ("params", texts(o.get("parameters", []))), ("answers", ",".join(answers)),
            ]


def path_lines(document):
    """A path, then its operations, indented. Values that come often stand once, at the top, as `$n=value`."""
    facts, counts, marks, body = list(path_facts(document)), {}, {}, []
    for _, _, pairs in facts:
        for _, value in pairs:
            counts[value] = counts.get(value, 0) + 1
    for value in sorted(v for v, n in counts.items() if n > 2 and len(v) > 12):
        marks[value] = f"${len(marks)}"
    for path, method, pairs in facts:
        cells = [f"{key}={marks.get(value, value)}" for key, value in pairs if value]
        body.append(" ".join(([path] if method is None else ["", method]) + cells))
    return [f"{mark}={value}" for value, mark in marks.items()] + body


def definition_closure(document):
    text = lambda node: re.findall(r'"#/definitions/([^"]+)"', json.dumps(node))
    paths = [item for path, item in document["paths"].items() if not UNSTABLE.search(path)]
    parameters = re.findall(r'"#/parameters/([^"]+)"', json.dumps(paths))
    found, open_ = set(), text(paths) + text([document["parameters"][p] for p in set(parameters)])
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += text(document["definitions"][name])
    return sorted(found)


def definition_lines(document):
    """A definition, then its fields, indented."""
    for name in definition_closure(document):
        definition = document["definitions"][name]
        cells = [short(name), type_text(definition)]
        if "required" in definition:
            cells.append("required=" + ",".join(sorted(definition["required"])))
        gvks = definition.get("x-kubernetes-group-version-kind", [])
        # Options are registered in every group, old and unstable ones too.
        cells += ["gvk=" + gvk_text(g) for g in gvks[:1] if len(gvks) == 1]
        for union in definition.get("x-kubernetes-unions", []):
            members = ",".join(f"{k}:{v}" for k, v in sorted(union["fields-to-discriminateBy"].items()))
            cells.append(f"union={union.get('discriminator', '')}/{members}")
        cells += other_cells(definition)
        yield " ".join(cells)
        for field, prop in sorted(definition.get("properties", {}).items()):
            yield " ".join(["", field, type_text(prop), *other_cells(prop)])


def other_cells(prop):
    """Extensions, and `+` where there is a description."""
    for key in ("list-map-keys", "list-type", "map-type", "patch-merge-key", "patch-strategy"):
        value = prop.get("x-kubernetes-" + key)
        if value is not None:
            yield key + "=" + (",".join(value) if isinstance(value, list) else value)
    if "description" in prop:
        yield "+"


def discovery_lines(discovery, core):
    dash = lambda values: ",".join(values or []) or "-"
    yield "# group/version name kind scope verbs short-names categories storage-version-hash (- for none)"
    lines = []
    for item in discovery["items"]:
        group = item["metadata"]["name"]
        for served in item["versions"]:
            gv = f"{group}/{served['version']}"
            for r in served["resources"]:
                kind = lambda k: "/".join(([k["group"], k["version"]] if k["version"] else []) + [k["kind"]])
                lines.append(f"{gv} {r['resource']} {kind(r['responseKind'])} {r['scope']} {dash(r['verbs'])} "
                             f"{dash(r.get('shortNames'))} {dash(r.get('categories'))} -")
                for s in r.get("subresources", []):
                    lines.append(f"{gv} {r['resource']}/{s['subresource']} {kind(s['responseKind'])} {r['scope']} "
                                 f"{dash(s['verbs'])} - - -")
    for r in core["resources"]:
        scope = "Namespaced" if r["namespaced"] else "Cluster"
        other = f"{r.get('group', '')}/{r['version']}/" if r.get("version") else ""
        lines.append(f"v1 {r['name']} {other}{r['kind']} {scope} {dash(r['verbs'])} {dash(r.get('shortNames'))} "
                     f"{dash(r.get('categories'))} {r.get('storageVersionHash', '-')}")
    yield from sorted(lines)


def write_facts(openapi, discovery, core):
    server = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "apiserver", "edge", "src")
    for name, lines in [
        ("discovery/upstream.txt", discovery_lines(discovery, core)),
        ("openapi/upstream_paths.txt", path_lines(openapi)),
        ("openapi/upstream_definitions.txt", definition_lines(openapi)),
    ]:
        with open(os.path.join(server, name), "w") as f:
            f.write("\n".join(lines) + "\n")


def main():
    openapi, discovery, core = (json.load(open(path)) for path in sys.argv[1:4])
    go_types = GoTypes(sys.argv[4])
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "src", "generated")
    with open(os.path.join(folder, "schema.rs"), "w") as f:
        f.write(Schema(openapi["definitions"], go_types).text())
    with open(os.path.join(folder, "resources.rs"), "w") as f:
        f.write("//! Made by `api/generate.py`; not to be edited.\n\n")
        f.write("use super::{ResourceFact, SubresourceFact};\n\n")
        f.write("/// Everything upstream serves, core first, then in its order of groups and versions.\n")
        f.write("pub static RESOURCES: &[ResourceFact] = &[\n")
        f.write("\n".join([*core_facts(core), *group_facts(discovery)]) + "\n];\n")

    write_facts(openapi, discovery, core)


main()
