//! Which values a field may have, and which it has if nothing is said.

use coracle_api::schema::{FieldRef, Kind, TypeRef};
use serde_json::{Value, json};

/// What a description says of the values that a string may have; nothing if there are none. `kubectl explain` shows it.
pub fn described(values: &[&str]) -> String {
    if values.is_empty() {
        return String::new();
    }
    let lines: String = values.iter().map(|value| format!("\n - `{value:?}`")).collect();
    format!("\n\nPossible enum values:{lines}")
}

/// What Go declares, or else what a field is that is held by value and always written.
pub fn default_of(field: FieldRef<'_>) -> Option<Value> {
    if let Some(declared) = field.default() {
        return Some(declared.into_owned());
    }
    let always = field.is_kept() || field.ty().kind() == Kind::Struct;
    zero(field.ty()).filter(|_| always && !field.is_pointer())
}

/// The zero of structs and scalars. What reads itself, such as a time, is no struct here, and lists have none.
pub fn zero(ty: TypeRef<'_>) -> Option<Value> {
    Some(match ty.kind() {
        Kind::Struct => json!({}),
        Kind::String => json!(""),
        Kind::Bool => json!(false),
        Kind::Int32 | Kind::Int64 | Kind::Double => json!(0),
        Kind::Any
        | Kind::Quantity
        | Kind::IntOrString
        | Kind::Time
        | Kind::MicroTime
        | Kind::Bytes
        | Kind::List
        | Kind::Map => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_api::schema::by_name;

    fn default(ty: &str, field: &str) -> Option<Value> {
        let ty = by_name(&format!("io.k8s.api.{ty}")).unwrap();
        default_of(ty.field(field).unwrap())
    }

    #[test]
    fn defaults_are_declared_or_follow_from_the_type() {
        for (ty, field, want) in [
            ("core.v1.ContainerPort", "protocol", Some(json!("TCP"))),
            ("core.v1.AzureDiskVolumeSource", "readOnly", Some(json!(false))),
            ("core.v1.Pod", "spec", Some(json!({}))),
            ("core.v1.Container", "name", Some(json!(""))),
            ("core.v1.ContainerPort", "containerPort", Some(json!(0))),
            // Left out when it is empty, a pointer, or a value that reads itself.
            ("core.v1.Container", "image", None),
            ("core.v1.PodSpec", "securityContext", None),
            ("autoscaling.v2.HorizontalPodAutoscalerCondition", "lastTransitionTime", None),
            ("core.v1.PodSpec", "containers", None),
        ] {
            assert_eq!(default(ty, field), want, "{ty} {field}");
        }
    }

    #[test]
    fn values_are_quoted_and_an_empty_one_too() {
        assert_eq!(described(&[]), "");
        assert_eq!(described(&["", "File"]), "\n\nPossible enum values:\n - `\"\"`\n - `\"File\"`");
    }
}
