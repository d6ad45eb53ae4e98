use super::*;
use crate::catalogue::catalogue;
use serde_json::json;

fn at(path: &str) -> FieldRef<'static> {
    let mut ty = root("", "v1", "Pod").unwrap();
    let mut found = None;
    for name in path.split('.') {
        let field = ty.field(name).unwrap_or_else(|| panic!("no {name} in {}", ty.name()));
        ty = field.ty();
        while let Some(element) = ty.element() {
            ty = element;
        }
        found = Some(field);
    }
    found.unwrap()
}

#[test]
fn every_catalogued_kind_has_a_type() {
    for r in catalogue() {
        let ty = root(&r.group, &r.version, &r.kind).unwrap_or_else(|| panic!("{}", r.qualified()));
        assert_eq!(ty.short_name(), r.kind);
        // Option kinds of connect subresources have no body.
        for s in r.subresources.iter().filter(|s| !s.kind.ends_with("Options")) {
            assert!(root(&s.group, &s.version, &s.kind).is_some(), "{}/{}", r.qualified(), s.name);
        }
    }
}

#[test]
fn tables_are_sorted_and_closed() {
    for ty in types() {
        assert_eq!(by_name(ty.name()).unwrap().name(), ty.name());
        let names: Vec<_> = ty.fields().map(FieldRef::name).collect();
        assert!(names.is_sorted(), "{}", ty.name());
        for field in ty.fields() {
            assert_eq!(ty.field(field.name()).unwrap().name(), field.name());
            let _ = field.default();
            if field.merges() && field.merge_key().is_some() {
                let element = field.ty().element().unwrap();
                assert!(element.field(field.merge_key().unwrap()).is_some());
            }
            assert_eq!(field.list_type() == Some(ListType::Map), !field.map_keys().is_empty());
            let values: Vec<_> = field.values().collect();
            let of = field.ty().element().unwrap_or(field.ty());
            assert!(values.is_empty() || of.kind() == Kind::String, "{}.{}", ty.name(), field.name());
            assert!(values.is_sorted_by(|a, b| a < b), "{values:?}");
        }
    }
    assert!(roots().all(|(g, v, k, ty)| root(g, v, k).unwrap().name() == ty.name()));
}

#[test]
fn facts_of_pods() {
    let ports = at("spec.containers.ports");
    assert!(ports.merges() && ports.ty().kind() == Kind::List);
    assert_eq!(
        (ports.merge_key(), ports.map_keys()),
        (Some("containerPort"), vec!["containerPort", "protocol"])
    );
    assert_eq!(at("spec.containers.ports.protocol").default().unwrap().into_owned(), json!("TCP"));
    assert_eq!(at("spec.containers.ports.containerPort").ty().kind(), Kind::Int32);
    assert!(at("spec.restartPolicy").values().eq(["Always", "Never", "OnFailure"]));
    assert_eq!(at("spec.nodeName").values().count(), 0);
    assert!(at("spec.containers").required() && !at("spec.nodeName").required());
    assert!(at("spec.volumes").retains_keys());
    assert_eq!(at("spec.nodeSelector").map_type(), Some(MapType::Atomic));
    assert_eq!(at("spec.affinity.podAffinity").ty().short_name(), "PodAffinity");
    assert_eq!(at("metadata.creationTimestamp").ty().kind(), Kind::Time);
    assert_eq!(at("metadata.finalizers").list_type(), Some(ListType::Set));
    assert_eq!(at("spec.containers.resources.limits").ty().element().unwrap().kind(), Kind::Quantity);
    assert_eq!(at("metadata.managedFields.fieldsV1").ty().kind(), Kind::Any);
    assert!(root("", "v1", "Nothing").is_none() && by_name("x").is_none());
}

#[test]
fn dynamic_types_answer_alike() {
    let leaf = |kind| Dynamic { nullable: true, preserve_unknown_fields: true, ..Dynamic::of(kind) };
    let field = DynamicField {
        name: "a".into(),
        ty: Dynamic { element: Some(Box::new(leaf(Kind::Int64))), ..leaf(Kind::List) },
        required: true,
        default: Some(json!([1])),
        list_type: Some(ListType::Set),
        map_keys: vec![],
    };
    let object = Dynamic { fields: vec![field], ..leaf(Kind::Struct) };
    let ty = TypeRef::dynamic(&object);
    let field = ty.field("a").unwrap();
    assert_eq!(ty.fields().count(), 1);
    assert!(field.required() && ty.nullable() && ty.preserves_unknown_fields() && !ty.is_built_in());
    assert_eq!(field.ty().element().unwrap().kind(), Kind::Int64);
    assert_eq!(*field.default().unwrap(), json!([1]));
    assert!(ty.field("b").is_none());
}
