//! Environment variables: values, references, the downward API, and `$(VAR)`.

use super::env_file;
use coracle_storage::volumes::downward::{self, Allocatable};
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, FileKeySelector, Pod, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A variable that cannot be made, worded as upstream words it in CreateContainerConfigError.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    #[error("{kind} {name:?} not found")]
    NotFound { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey { kind: &'static str, namespace: String, name: String, key: String },
    #[error("{0}")]
    Field(String),
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    NoVolume(String),
    #[error("couldn't parse env file: {0}")]
    File(String),
    #[error("environment variable key {key:?} not found in file {file:?}")]
    NotSet { key: String, file: String },
}

/// The objects that a container's variables refer to; those that are missing do not exist.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub config_maps: BTreeMap<String, Arc<ConfigMap>>,
    pub secrets: BTreeMap<String, Arc<Secret>>,
    /// By volume and path in it; of a volume that the pod does not have there is none.
    pub files: BTreeMap<(String, String), File>,
}

/// A file of variables, as it lay in its volume when the container was to be made.
#[derive(Clone, Debug)]
pub struct File {
    /// Where it lies on the node.
    pub place: String,
    /// `None` where nothing lies there; an error of somebody else's making otherwise.
    pub text: Result<Option<String>, String>,
}

/// The files that a container's variables refer to, by volume and path in it.
pub fn files(container: &Container) -> BTreeSet<(String, String)> {
    let sources = container.env.iter().flatten().filter_map(|v| v.value_from.as_ref()?.file_key_ref.as_ref());
    sources.map(|r| (r.volume_name.clone(), r.path.clone())).collect()
}

/// Names of the config maps and of the secrets that a container's variables refer to.
pub fn references(container: &Container) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut config_maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    for source in container.env_from.iter().flatten() {
        config_maps.extend(source.config_map_ref.iter().map(|r| r.name.clone()));
        secrets.extend(source.secret_ref.iter().map(|r| r.name.clone()));
    }
    for from in container.env.iter().flatten().filter_map(|v| v.value_from.as_ref()) {
        config_maps.extend(from.config_map_key_ref.iter().map(|r| r.name.clone()));
        secrets.extend(from.secret_key_ref.iter().map(|r| r.name.clone()));
    }
    (config_maps, secrets)
}

/// What a container's environment is made from.
pub struct Input<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub objects: &'a Objects,
    /// The variables of Services, which everything else overrides.
    pub services: Vec<(String, String)>,
    pub allocatable: &'a Allocatable,
}

/// All variables, in the order in which they were first set; a later one of the same name wins.
pub fn environment(input: &Input<'_>) -> Result<Vec<(String, String)>, EnvError> {
    let mut env = Environment::default();
    for (name, value) in &input.services {
        env.set(name, value.clone());
    }
    env_from(input, &mut env)?;
    for variable in input.container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) if !value.is_empty() => Some(expand(value, |name| env.get(name))),
            (_, Some(_)) => reference(input, variable)?,
            _ => Some(String::new()),
        };
        if let Some(value) = value {
            env.set(&variable.name, value);
        }
    }
    Ok(env.0)
}

#[derive(Default)]
struct Environment(Vec<(String, String)>);

impl Environment {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some(slot) => slot.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}

fn env_from(input: &Input<'_>, env: &mut Environment) -> Result<(), EnvError> {
    for source in input.container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let data: BTreeMap<String, String> = if let Some(r) = &source.config_map_ref {
            match input.objects.config_maps.get(&r.name) {
                Some(object) => object.data.clone().unwrap_or_default(),
                None if r.optional == Some(true) => continue,
                None => return Err(EnvError::NotFound { kind: "configmap", name: r.name.clone() }),
            }
        } else if let Some(r) = &source.secret_ref {
            match input.objects.secrets.get(&r.name) {
                Some(object) => text(object),
                None if r.optional == Some(true) => continue,
                None => return Err(EnvError::NotFound { kind: "secret", name: r.name.clone() }),
            }
        } else {
            continue;
        };
        for (key, value) in data {
            env.set(&format!("{prefix}{key}"), value);
        }
    }
    Ok(())
}

fn text(secret: &Secret) -> BTreeMap<String, String> {
    let data = secret.data.iter().flatten();
    data.map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned())).collect()
}

/// `None` for an optional reference that leads nowhere.
fn reference(input: &Input<'_>, variable: &EnvVar) -> Result<Option<String>, EnvError> {
    let Some(from) = &variable.value_from else { return Ok(None) };
    let namespace = || input.pod.metadata.namespace.clone().unwrap_or_default();
    if let Some(r) = &from.field_ref {
        return downward::field(input.pod, &r.field_path).map(Some).map_err(EnvError::Field);
    }
    if let Some(r) = &from.resource_field_ref {
        let value = downward::resource(input.pod, r, Some(input.container), input.allocatable);
        return value.map(Some).map_err(EnvError::Field);
    }
    if let Some(r) = &from.file_key_ref {
        return of_file(input, r);
    }
    let (kind, object, name, key, optional, value) = if let Some(r) = &from.config_map_key_ref {
        let object = input.objects.config_maps.get(&r.name);
        let value = object.and_then(|o| o.data.as_ref()?.get(&r.key).cloned());
        ("configmap", object.is_some(), &r.name, &r.key, r.optional, value)
    } else if let Some(r) = &from.secret_key_ref {
        let object = input.objects.secrets.get(&r.name);
        let value = object.and_then(|o| text(o).remove(&r.key));
        ("secret", object.is_some(), &r.name, &r.key, r.optional, value)
    } else {
        return Err(EnvError::Field(format!("variable {} has a source of an unknown kind", variable.name)));
    };
    match value {
        Some(value) => Ok(Some(value)),
        None if optional == Some(true) => Ok(None),
        None if !object => Err(EnvError::NotFound { kind, name: name.clone() }),
        None => Err(EnvError::NoKey {
            kind: if kind == "secret" { "Secret" } else { "ConfigMap" },
            namespace: namespace(),
            name: name.clone(),
            key: key.clone(),
        }),
    }
}

/// A value of a file. One that is empty counts as not set, as upstream has it.
fn of_file(input: &Input<'_>, wanted: &FileKeySelector) -> Result<Option<String>, EnvError> {
    let key = (wanted.volume_name.clone(), wanted.path.clone());
    let file = input.objects.files.get(&key).ok_or(EnvError::NoVolume(key.0))?;
    let text = file.text.as_ref().map_err(|why| EnvError::File(why.clone()))?;
    let value = match text {
        Some(text) => env_file::value(text, &wanted.key).map_err(|why| EnvError::File(why.to_string()))?,
        None => String::new(),
    };
    match value.as_str() {
        "" if wanted.optional == Some(true) => Ok(None),
        "" => Err(EnvError::NotSet { key: wanted.key.clone(), file: file.place.clone() }),
        _ => Ok(Some(value)),
    }
}

/// Replaces `$(NAME)`; `$$(NAME)` is the text `$(NAME)`, and a name that is not set stays as written.
pub fn expand<'a>(text: &str, get: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match get(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn expansion() {
        let get = |name: &str| (name == "A").then_some("1");
        for (text, expected) in [
            ("$(A)-$(B)", "1-$(B)"),
            ("$$(A)", "$(A)"),
            ("$A $", "$A $"),
            ("$$$(A)", "$1"),
            ("$(A", "$(A"),
            ("x", "x"),
        ] {
            assert_eq!(expand(text, get), expected, "{text}");
        }
    }

    fn build(container: Value) -> Result<Vec<(String, String)>, EnvError> {
        let pod: Pod =
            serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "n" } })).unwrap();
        let container: Container = serde_json::from_value(container).unwrap();
        let map = serde_json::from_value(json!({ "data": { "k": "v", "A": "cm" } })).unwrap();
        let file = |path: &str, text: Result<Option<&str>, &str>| {
            let text = text.map(|text| text.map(str::to_owned)).map_err(str::to_owned);
            (("v".to_owned(), path.to_owned()), File { place: format!("/pods/v/{path}"), text })
        };
        let objects = Objects {
            config_maps: BTreeMap::from([("cm".to_owned(), Arc::new(map))]),
            files: BTreeMap::from([
                file("a.env", Ok(Some("K='of a file'\nE=''\n"))),
                file("broken", Ok(Some("K=1"))),
                file("none", Ok(None)),
                file("pipe", Err("not a regular file")),
            ]),
            ..Objects::default()
        };
        let services = vec![("A".to_owned(), "svc".to_owned())];
        let allocatable = Allocatable::default();
        environment(&Input {
            pod: &pod,
            container: &container,
            objects: &objects,
            services,
            allocatable: &allocatable,
        })
    }

    #[test]
    fn later_sources_win_and_earlier_variables_expand() {
        let env = build(json!({ "name": "c", "envFrom": [{ "prefix": "P_", "configMapRef": { "name": "cm" } }],
            "env": [{ "name": "X", "value": "$(P_k)/$(A)/$(LATER)" }, { "name": "A", "value": "own" },
                { "name": "N", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                { "name": "O", "valueFrom": { "secretKeyRef": { "name": "no", "key": "x", "optional": true } } }] }))
        .unwrap();
        let get = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        assert_eq!(get("X"), Some("v/svc/$(LATER)"));
        assert_eq!(get("A"), Some("own"));
        assert_eq!(get("N"), Some("p"));
        assert_eq!(get("O"), None);
    }

    #[test]
    fn variables_come_from_files() {
        let from = |path: &str, key: &str, optional: bool| {
            let source = json!({ "volumeName": "v", "path": path, "key": key, "optional": optional });
            let variable = json!({ "name": "X", "valueFrom": { "fileKeyRef": source } });
            let built = build(json!({ "name": "c", "env": [variable] })).map_err(|e| e.to_string())?;
            Ok(built.into_iter().find(|(name, _)| name == "X").map(|(_, value)| value))
        };
        assert_eq!(from("a.env", "K", false), Ok(Some("of a file".to_owned())));
        for (path, key) in [("a.env", "NO"), ("a.env", "E"), ("none", "K")] {
            assert_eq!(from(path, key, true), Ok(None), "{path} {key}");
            let error = format!("environment variable key {key:?} not found in file \"/pods/v/{path}\"");
            assert_eq!(from(path, key, false), Err(error));
        }
        for optional in [true, false] {
            assert!(from("broken", "K", optional).is_err_and(|e: String| e.contains("single quotes")));
            let error = "couldn't parse env file: not a regular file".to_owned();
            assert_eq!(from("pipe", "K", optional), Err(error));
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let from =
            |source: Value| build(json!({ "name": "c", "env": [{ "name": "X", "valueFrom": source }] }));
        let error = from(json!({ "secretKeyRef": { "name": "s", "key": "k" } })).unwrap_err();
        assert_eq!(error.to_string(), "secret \"s\" not found");
        let error = from(json!({ "configMapKeyRef": { "name": "cm", "key": "no" } })).unwrap_err();
        assert_eq!(error.to_string(), "couldn't find key no in ConfigMap n/cm");
    }
}
