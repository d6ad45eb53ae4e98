#!/usr/bin/env python3
"""Writes src/generated/messages.rs: the field numbers of every built-in type, found by comparing one object of each
kind in JSON and in protobuf.

usage: generate_messages.py OPENAPI_V2 WIRE_DIR

OPENAPI_V2  body of /openapi/v2 (JSON) of a kube-apiserver of the mirrored version
WIRE_DIR    <group>.<version>.<Kind>.json and .pb for every kind, with every field set

Numbers that the examples leave open (all booleans are true) follow HINTS; without a hint they are reported.
"""

import base64
import calendar
import itertools
import json
import os
import re
import sys
import time

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
TIMES = ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime")
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"

# Type -> {field: number}, as upstream publishes them in its .proto files.
HINTS = {
}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """{number: [(wire type, value)]}, or None if it is no message."""
    found, at = {}, 0
    try:
        while at < len(data):
            key, at = varint(data, at)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, at = varint(data, at)
                value = value - (1 << 64) if value >> 63 else value
            elif wire == 2:
                size, at = varint(data, at)
                if at + size > len(data):
                    return None
                value, at = data[at : at + size], at + size
            elif wire == 1:
                value, at = data[at : at + 8], at + 8
            else:
                return None
            if number == 0:
                return None
            found.setdefault(number, []).append((wire, value))
    except IndexError:
        return None
    return found


class Learner:
    def __init__(self, definitions):
        self.definitions = definitions
        self.numbers = {}  # type -> {field: set of possible numbers}
        self.inline = {}  # type -> {number: set of possible frozenset of fields}

    def matches(self, schema, value, entries):
        """Whether the entries of one number can be this JSON value."""
        ref = schema.get("$ref", "").removeprefix("#/definitions/")
        if schema.get("type") == "array":
            if isinstance(value, list) and len(entries) == len(value):
                return all(self.matches(schema["items"], v, [e]) for v, e in zip(value, entries))
            return False
        wire, raw = entries[0]
        if len(entries) != 1:
            return isinstance(value, dict) and "additionalProperties" in schema and self.map(schema, value, entries)
        if ref == QUANTITY:
            return wire == 2 and fields(raw) == {1: [(2, value.encode())]}
        if ref == INT_OR_STRING:
            got = fields(raw) if wire == 2 else None
            return bool(got) and (got.get(2) == [(0, value)] or got.get(3) == [(2, str(value).encode())])
        if ref in TIMES:
            got = fields(raw) if wire == 2 else None
            seconds = calendar.timegm(time.strptime(value[:19], "%Y-%m-%dT%H:%M:%S")) if value else None
            return bool(got) and got.get(1) == [(0, seconds)]
        if ref:
            target = self.definitions[ref]
            if "properties" in target:
                return wire == 2 and self.struct(ref, value, raw, commit=False)
            if target.get("type") in ("string", "integer", "boolean", "array"):
                return self.matches(target, value, entries)
            return self.any(value, wire, raw)
        if "additionalProperties" in schema:
            return self.map(schema, value, entries)
        kind = schema.get("type")
        if kind == "string" and schema.get("format") == "byte":
            return wire == 2 and base64.b64decode(value) == raw
        if kind == "string":
            return wire == 2 and value.encode() == raw
        if kind == "integer":
            return wire == 0 and raw == value
        if kind == "boolean":
            return wire == 0 and raw == int(value)
        if kind == "number":
            return wire == 1
        return self.any(value, wire, raw)

    def any(self, value, wire, raw):
        got = fields(raw) if wire == 2 else None
        if got is None or set(got) - {1}:
            return False
        if not got:
            return value == {}
        try:
            return json.loads(got[1][0][1]) == value
        except (ValueError, TypeError):
            return False

    def map(self, schema, value, entries):
        if len(entries) != len(value):
            return False
        for (key, item), (wire, raw) in zip(sorted(value.items()), entries):
            got = fields(raw) if wire == 2 else None
            if not got or got.get(1) != [(2, key.encode())]:
                return False
            inner = schema["additionalProperties"]
            if inner.get("type") == "array":
                wrapped = fields(got[2][0][1])
                if not wrapped or not self.matches(inner, item, wrapped.get(1, [])):
                    return False
            elif 2 in got and not self.matches(inner, item, got[2]):
                return False
        return True

    def candidates(self, name, value, found):
        properties = self.definitions[name]["properties"]
        return {
            field: {n for n, e in found.items() if self.matches(properties[field], v, e)}
            for field, v in value.items()
            if field in properties and not (name.endswith("v1.Probe") and False)
        }

    def struct(self, name, value, raw, commit):
        found = fields(raw)
        if found is None or not isinstance(value, dict):
            return False
        possible = self.candidates(name, value, found)
        lost = [f for f, n in possible.items() if not n]
        taken = set().union(*possible.values()) if possible else set()
        inline = {}
        spare = [n for n in found if n not in taken and found[n][0][0] == 2]
        for number in spare:
            inner = fields(found[number][0][1])
            if inner is None:
                return False
            part = self.candidates(name, {f: value[f] for f in lost}, inner)
            part = {f: n for f, n in part.items() if n}
            if part:
                inline[number] = part
                lost = [f for f in lost if f not in part]
        if lost:
            return False
        if commit:
            self.learn(name, possible, inline)
            for field in value:
                self.descend(self.definitions[name]["properties"].get(field), value[field], found, possible, inline, field)
        return True

    def learn(self, name, possible, inline):
        known = self.numbers.setdefault(name, {})
        direct = {f: n for f, n in possible.items() if n}
        for field, numbers in direct.items():
            known[field] = known.get(field, numbers) & numbers
        for number, part in inline.items():
            inner = self.inline.setdefault(name, {}).setdefault(number, {})
            for field, numbers in part.items():
                inner[field] = inner.get(field, numbers) & numbers

    def descend(self, schema, value, found, possible, inline, field):
        groups = [(possible.get(field, set()), found)]
        for number, part in inline.items():
            if field in part:
                groups.append((part[field], fields(found[number][0][1])))
        for numbers, source in groups:
            if len(numbers) == 1:
                self.visit(schema, value, source[next(iter(numbers))])

    def visit(self, schema, value, entries):
        ref = schema.get("$ref", "").removeprefix("#/definitions/")
        if schema.get("type") == "array":
            for item, entry in zip(value, entries):
                self.visit(schema["items"], item, [entry])
        elif "additionalProperties" in schema:
            for (_, item), (_, raw) in zip(sorted(value.items()), entries):
                got = fields(raw)
                if 2 in got and schema["additionalProperties"].get("type") != "array":
                    self.visit(schema["additionalProperties"], item, got[2])
        elif ref and "properties" in self.definitions[ref]:
            self.struct(ref, value, entries[0][1], commit=True)


def settle(name, possible, open_fields):
    """One number for each field: forced ones first, then hints."""
    chosen, left = {}, {f: set(n) for f, n in possible.items()}
    for field, number in HINTS.get(name, {}).items():
        if field in left and number in left[field]:
            chosen[field] = number
            del left[field]
    while True:
        for numbers in left.values():
            numbers -= set(chosen.values())
        single = [f for f, n in left.items() if len(n) == 1]
        if not single:
            break
        chosen[single[0]] = left.pop(single[0]).pop()
    if left:
        open_fields[name] = {f: sorted(n) for f, n in left.items()}
    return chosen


def listed(chosen, inner=None):
    slots = dict((number, field) for field, number in chosen.items())
    for number, part in (inner or {}).items():
        slots[number] = "(" + listed(part) + ")"
    return ",".join(slots.get(n, "") for n in range(1, max(slots, default=0) + 1))


def main():
    openapi, wire_dir = sys.argv[1:]
    definitions = json.load(open(openapi))["definitions"]
    roots = {}
    for name, definition in definitions.items():
        for gvk in definition.get("x-kubernetes-group-version-kind", []):
            if name.endswith("." + gvk["kind"]):
                roots.setdefault((gvk["group"] or "core", gvk["version"], gvk["kind"]), name)
    learner = Learner(definitions)
    failed = []
    for file in sorted(os.listdir(wire_dir)):
        if not file.endswith(".pb"):
            continue
        group, version, kind = re.fullmatch(r"(.+)\.(v\d\w*)\.(\w+)\.pb", file).groups()
        name = roots.get((group, version, kind))
        if name is None or "properties" not in definitions[name]:
            continue
        value = json.load(open(os.path.join(wire_dir, file[:-3] + ".json")))
        value = {k: v for k, v in value.items() if k not in ("kind", "apiVersion")}
        data = open(os.path.join(wire_dir, file), "rb").read()
        assert data[:4] == b"k8s\0"
        raw = fields(data[4:])[2][0][1]
        if not learner.struct(name, value, raw, commit=True):
            failed.append(file)
    open_fields, rows = {}, []
    for name, possible in sorted(learner.numbers.items()):
        inner = {n: settle(name + "/inline", p, open_fields) for n, p in learner.inline.get(name, {}).items()}
        rows.append((name, listed(settle(name, possible, open_fields), inner)))
    for file in failed:
        print("no match:", file, file=sys.stderr)
    for name, left in sorted(open_fields.items()):
        print("open:", name, left, file=sys.stderr)
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "src", "generated", "protobuf.rs")
    with open(out, "w") as target:
        target.write("//! Made by `api/generate_messages.py`; not to be edited.\n\n")
        target.write("/// Type and its fields in the order of their numbers, sorted by type. Parentheses enclose the fields of\n")
        target.write("/// an embedded message.\n")
        target.write("pub static NUMBERS: &[(&str, &str)] = &[\n")
        for name, fields_text in rows:
            target.write(f'    ("{name}", "{fields_text}"),\n')
        target.write("];\n")
    return 1 if failed or open_fields else 0


if __name__ == "__main__":
    sys.exit(main())
