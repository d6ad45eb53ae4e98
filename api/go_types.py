"""Facts of the Go types behind the API: the order of a struct's fields, which of them are pointers, which are written
when they are zero, what the decoder calls their types, and in which embedded structs they stand.

Read from a table with a line for each field:

    group/version <tab> type <tab> field <tab> kind <tab> Go type <tab> omit

"(inline)" as the field means that the fields of that type stand here; omit is "yes" where a zero is left out.
"""

POINTER, KEPT = 1, 2

PLAIN = {"string", "bool", "int", "int32", "int64", "float64", "byte", "interface{}"}


class GoTypes:
    def __init__(self, path):
        self.rows = {}
        for line in open(path):
            if not line.startswith("#"):
                package, name, *field = line.rstrip("\n").split("\t")
                self.rows.setdefault((package, name), []).append(field)

    def find(self, definition):
        """Of an OpenAPI definition: (package, name) of its type. Some types are other names for those of v1."""
        *_, group, version, name = definition.split(".")
        for candidate in (f"{group}/{version}", f"{group}/v1"):
            if (candidate, name) in self.rows:
                return candidate, name
        return None

    def fields(self, key, embedded=()):
        """(name, flags, Go type, embedded structs) in the order of JSON."""
        package = key[0]
        for name, kind, go, omit in self.rows[key]:
            if name == "(inline)":
                inner = self.embedded(package, go)
                yield from self.fields(inner, (*embedded, inner[1]))
                continue
            flags = (POINTER if kind == "pointer" else 0) | (0 if omit == "yes" else KEPT)
            yield name, flags, qualified(go.removeprefix("*"), package.split("/")[1]), embedded

    def embedded(self, package, go):
        *_, name = go.lstrip("*").split(".")
        group = package.split("/")[0]
        places = [package, f"{group}/v1"] if "." not in go else ["meta/v1", "core/v1"]
        return next((place, name) for place in places if (place, name) in self.rows)


def qualified(go, version):
    """A type as the decoder names it, with the package it is of."""
    if go.startswith("*"):
        return "*" + qualified(go[1:], version)
    if go.startswith("[]"):
        return "[]" + qualified(go[2:], version)
    if go.startswith("map["):
        key, value = go[4:].split("]", 1)
        return f"map[{qualified(key, version)}]{qualified(value, version)}"
    if go in PLAIN:
        return {"byte": "uint8", "interface{}": "interface {}"}.get(go, go)
    package, dot, name = go.rpartition(".")
    if not dot:
        return f"{version}.{go}"
    # Imports are renamed by group: corev1, metav1.
    for suffix in ("v1", "v1beta1", "v1alpha1"):
        if package.endswith(suffix):
            return f"{suffix}.{name}"
    return go
