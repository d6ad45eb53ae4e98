//! Values of several fields as upstream's messages show them: as JSON of its internal structs, whose fields have the
//! names of their language and are never left out.

use super::super::value::*;
use serde_json::Value;

/// A field of an internal struct: its name there, its name in the API, and what is shown where it is absent.
pub struct Field(pub &'static str, pub &'static str, pub Shape);

pub enum Shape {
    /// `null` where it is absent; otherwise as it is. Pointers, lists and maps.
    Plain,
    /// A text, empty where it is absent.
    Text,
    /// A number, zero where it is absent.
    Number,
    /// `false` where it is absent.
    Flag,
    /// A number or a text, zero where it is absent.
    NumberOrText,
    /// `null`, or a struct with these fields.
    Struct(&'static [Field]),
    /// `null`, or a list of structs with these fields.
    List(&'static [Field]),
    /// `null`, or a selector of labels, which is shown as the API has it.
    Selector,
}

/// Type and file of a seccomp or AppArmor profile.
pub const PROFILE: &[Field] =
    &[Field("Type", "type", Shape::Text), Field("LocalhostProfile", "localhostProfile", Shape::Plain)];

/// How Deployments and DaemonSets replace their pods.
pub const ROLLING_STRATEGY: &[Field] = &[
    Field("Type", "type", Shape::Text),
    Field(
        "RollingUpdate",
        "rollingUpdate",
        Shape::Struct(&[
            Field("MaxUnavailable", "maxUnavailable", Shape::NumberOrText),
            Field("MaxSurge", "maxSurge", Shape::NumberOrText),
        ]),
    ),
];

/// How StatefulSets replace their pods.
pub const ORDINAL_STRATEGY: &[Field] = &[
    Field("Type", "type", Shape::Text),
    Field("RollingUpdate", "rollingUpdate", Shape::Struct(ORDINAL_ROLLING)),
];

pub const ORDINAL_ROLLING: &[Field] = &[
    Field("Partition", "partition", Shape::Number),
    Field("MaxUnavailable", "maxUnavailable", Shape::Plain),
];

pub const SERVICE_PORT: &[Field] = &[
    Field("Name", "name", Shape::Text),
    Field("Protocol", "protocol", Shape::Text),
    Field("AppProtocol", "appProtocol", Shape::Plain),
    Field("Port", "port", Shape::Number),
    Field("TargetPort", "targetPort", Shape::NumberOrText),
    Field("NodePort", "nodePort", Shape::Number),
];

pub const DISRUPTION_BUDGET: &[Field] = &[
    Field("MinAvailable", "minAvailable", Shape::Plain),
    Field("Selector", "selector", Shape::Selector),
    Field("MaxUnavailable", "maxUnavailable", Shape::Plain),
    Field("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy", Shape::Plain),
];

pub const TAINT: &[Field] = &[
    Field("Key", "key", Shape::Text),
    Field("Value", "value", Shape::Text),
    Field("Effect", "effect", Shape::Text),
    Field("TimeAdded", "timeAdded", Shape::Plain),
];

pub const TOLERATION: &[Field] = &[
    Field("Key", "key", Shape::Text),
    Field("Operator", "operator", Shape::Text),
    Field("Value", "value", Shape::Text),
    Field("Effect", "effect", Shape::Text),
    Field("TolerationSeconds", "tolerationSeconds", Shape::Plain),
];

pub const NODE_ADDRESS: &[Field] =
    &[Field("Type", "type", Shape::Text), Field("Address", "address", Shape::Text)];

/// An address of a pod or of its node.
pub const IP: &[Field] = &[Field("IP", "ip", Shape::Text)];

/// From where a volume can be reached.
pub const VOLUME_NODE_AFFINITY: &[Field] = &[Field(
    "Required",
    "required",
    Shape::Struct(&[Field(
        "NodeSelectorTerms",
        "nodeSelectorTerms",
        Shape::List(&[
            Field("MatchExpressions", "matchExpressions", Shape::List(NODE_REQUIREMENT)),
            Field("MatchFields", "matchFields", Shape::List(NODE_REQUIREMENT)),
        ]),
    )]),
)];

const NODE_REQUIREMENT: &[Field] = &[
    Field("Key", "key", Shape::Text),
    Field("Operator", "operator", Shape::Text),
    Field("Values", "values", Shape::Plain),
];

/// Which objects a quota counts.
pub const SCOPE_SELECTOR: &[Field] = &[Field(
    "MatchExpressions",
    "matchExpressions",
    Shape::List(&[
        Field("ScopeName", "scopeName", Shape::Text),
        Field("Operator", "operator", Shape::Text),
        Field("Values", "values", Shape::Plain),
    ]),
)];

pub const SECURITY_CONTEXT: &[Field] = &[
    Field(
        "Capabilities",
        "capabilities",
        Shape::Struct(&[Field("Add", "add", Shape::Plain), Field("Drop", "drop", Shape::Plain)]),
    ),
    Field("Privileged", "privileged", Shape::Plain),
    Field(
        "SELinuxOptions",
        "seLinuxOptions",
        Shape::Struct(&[
            Field("User", "user", Shape::Text),
            Field("Role", "role", Shape::Text),
            Field("Type", "type", Shape::Text),
            Field("Level", "level", Shape::Text),
        ]),
    ),
    Field(
        "WindowsOptions",
        "windowsOptions",
        Shape::Struct(&[
            Field("GMSACredentialSpecName", "gmsaCredentialSpecName", Shape::Plain),
            Field("GMSACredentialSpec", "gmsaCredentialSpec", Shape::Plain),
            Field("RunAsUserName", "runAsUserName", Shape::Plain),
            Field("HostProcess", "hostProcess", Shape::Plain),
        ]),
    ),
    Field("RunAsUser", "runAsUser", Shape::Plain),
    Field("RunAsGroup", "runAsGroup", Shape::Plain),
    Field("RunAsNonRoot", "runAsNonRoot", Shape::Plain),
    Field("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", Shape::Plain),
    Field("AllowPrivilegeEscalation", "allowPrivilegeEscalation", Shape::Plain),
    Field("ProcMount", "procMount", Shape::Plain),
    Field("SeccompProfile", "seccompProfile", Shape::Struct(PROFILE)),
    Field("AppArmorProfile", "appArmorProfile", Shape::Struct(PROFILE)),
];

/// A version of a definition, without what all versions have alike: upstream keeps that above them.
pub const DEFINITION_VERSIONS: &[Field] = &[
    Field("Name", "name", Shape::Text),
    Field("Served", "served", Shape::Flag),
    Field("Storage", "storage", Shape::Flag),
    Field("Deprecated", "deprecated", Shape::Flag),
    Field("DeprecationWarning", "deprecationWarning", Shape::Plain),
    Field("Schema", "schema", Shape::Plain),
    Field("Subresources", "subresources", Shape::Plain),
    Field("AdditionalPrinterColumns", "additionalPrinterColumns", Shape::Plain),
    Field("SelectableFields", "selectableFields", Shape::Plain),
];

/// The value as a struct with these fields.
pub fn shown(value: &Value, fields: &'static [Field]) -> String {
    escaped(&structure(value, fields))
}

/// The value, `null` or a struct with these fields.
pub fn shown_or_null(value: &Value, fields: &'static [Field]) -> String {
    escaped(&shape(value, &Shape::Struct(fields)))
}

/// The value, `null` or a list of structs with these fields.
pub fn list_shown(value: &Value, fields: &'static [Field]) -> String {
    escaped(&shape(value, &Shape::List(fields)))
}

/// A selector of labels.
pub fn selector_shown(value: &Value) -> String {
    escaped(&shape(value, &Shape::Selector))
}

fn structure(value: &Value, fields: &[Field]) -> String {
    let each =
        fields.iter().map(|Field(name, field, kind)| format!("\"{name}\":{}", shape(at(value, field), kind)));
    format!("{{{}}}", each.collect::<Vec<_>>().join(","))
}

fn shape(value: &Value, kind: &Shape) -> String {
    match (value, kind) {
        (Value::Null, Shape::Text) => "\"\"".to_owned(),
        (Value::Null, Shape::Number | Shape::NumberOrText) => "0".to_owned(),
        (Value::Null, Shape::Flag) => "false".to_owned(),
        (Value::Null, _) => "null".to_owned(),
        (value, Shape::Struct(fields)) => structure(value, fields),
        (Value::Array(items), Shape::List(fields)) => {
            format!("[{}]", items.iter().map(|item| structure(item, fields)).collect::<Vec<_>>().join(","))
        }
        (value, Shape::Selector) => selector(value),
        (value, _) => value.to_string(),
    }
}

/// In the order of upstream's struct, and without what is empty.
fn selector(value: &Value) -> String {
    let mut parts = Vec::new();
    if entries_at(value, "matchLabels").next().is_some() {
        parts.push(format!("\"matchLabels\":{}", at(value, "matchLabels")));
    }
    let expressions: Vec<String> = list_at(value, "matchExpressions").iter().map(expression).collect();
    if !expressions.is_empty() {
        parts.push(format!("\"matchExpressions\":[{}]", expressions.join(",")));
    }
    format!("{{{}}}", parts.join(","))
}

fn expression(value: &Value) -> String {
    let text = |field: &str| Value::from(str_at(value, field));
    let values = match list_at(value, "values") {
        [] => String::new(),
        _ => format!(",\"values\":{}", at(value, "values")),
    };
    format!("{{\"key\":{},\"operator\":{}{values}}}", text("key"), text("operator"))
}

/// Upstream's writer of JSON escapes what would be markup in a web page.
fn escaped(text: &str) -> String {
    text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn structs_show_all_their_fields() {
        for (fields, value, expected) in [
            (
                SERVICE_PORT,
                json!({ "port": 443, "protocol": "TCP" }),
                r#"{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":443,"TargetPort":0,"NodePort":0}"#,
            ),
            (
                ROLLING_STRATEGY,
                json!({ "type": "rwx", "rollingUpdate": { "maxUnavailable": "10%" } }),
                r#"{"Type":"rwx","RollingUpdate":{"MaxUnavailable":"10%","MaxSurge":0}}"#,
            ),
            (
                ROLLING_STRATEGY,
                json!({ "type": "<&>" }),
                r#"{"Type":"\u003c\u0026\u003e","RollingUpdate":null}"#,
            ),
            (
                DISRUPTION_BUDGET,
                json!({ "minAvailable": 1, "maxUnavailable": 1, "selector": { "matchLabels": { "a": "b" },
                    "matchExpressions": [{ "key": "k", "operator": "Exists", "values": [] }] } }),
                r#"{"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"Exists"}]},"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}"#,
            ),
            (
                SECURITY_CONTEXT,
                json!({ "privileged": true, "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" } }),
                r#"{"Capabilities":{"Add":null,"Drop":["ALL"]},"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":null,"ProcMount":null,"SeccompProfile":{"Type":"RuntimeDefault","LocalhostProfile":null},"AppArmorProfile":null}"#,
            ),
        ] {
            assert_eq!(shown(&value, fields), expected);
        }
        assert_eq!(list_shown(&Value::Null, DEFINITION_VERSIONS), "null");
        assert_eq!(list_shown(&json!([]), DEFINITION_VERSIONS), "[]");
        assert_eq!(selector_shown(&json!({})), "{}");
    }
}
